package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
	"github.com/sluicego/ratelimit/store/storetest"
)

func sharded(t testing.TB, store ratelimit.Store, n int) *ratelimit.Sharded {
	t.Helper()
	s, err := ratelimit.NewSharded(store, n)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Over one shard a Sharded is the store itself, field for field.
func TestShardedContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Config{
		New: func(t *testing.T, clock func() time.Time) ratelimit.Store {
			return sharded(t, memstore.New(memstore.Options{Clock: clock}), 1)
		},
		Traces: 40,
	})
}

func TestNewShardedRefuses(t *testing.T) {
	t.Parallel()
	if _, err := ratelimit.NewSharded(nil, 1); err == nil {
		t.Error("a nil store")
	}
	for _, n := range []int{-1, 0, 257, math.MinInt} {
		if _, err := ratelimit.NewSharded(&scripted{}, n); err == nil {
			t.Error(n)
		}
	}
	store := &scripted{}
	s := sharded(t, store, 4)
	if s.Unwrap() != store {
		t.Error("Unwrap")
	}
	ctx, three, ten := t.Context(), ratelimit.PerSecond(3), ratelimit.PerSecond(10)
	for _, c := range []struct {
		key   string
		limit *ratelimit.Limit
		want  error
	}{{"", &ten, ratelimit.ErrInvalidKey}, {"k", &three, ratelimit.ErrInvalidLimit}, {"k", nil, ratelimit.ErrInvalidLimit}} {
		req := ratelimit.Request{Key: c.key, Limit: c.limit, Cost: 1}
		_, take := s.Take(ctx, req)
		_, all := s.TakeAll(ctx, []ratelimit.Request{{Key: "k", Limit: &ten}, req})
		_, history := s.History(ctx, c.key, c.limit)
		for i, err := range []error{take, all, history, s.Reset(ctx, c.key, c.limit)} {
			if !errors.Is(err, c.want) {
				t.Errorf("%+v: call %d: %v", c, i, err)
			}
		}
	}
	if err := s.Reset(ctx, "k"); !errors.Is(err, ratelimit.ErrInvalidLimit) {
		t.Error(err)
	}
	if len(store.asked) > 0 || len(store.resets) > 0 {
		t.Errorf("the store was asked: %v %v", store.asked, store.resets)
	}
	if res, err := s.Take(ctx, ratelimit.Request{Key: "k", Limit: &ten, Cost: 11}); err != nil || res != (ratelimit.Result{Limit: 10, RetryAfter: ratelimit.Never}) {
		t.Errorf("above the capacity: %+v, %v", res, err)
	}
}

var threeAlgorithms = [...]ratelimit.Algorithm{ratelimit.TokenBucket, ratelimit.SlidingLog, ratelimit.SlidingCounter}

// R98: one client that takes one after the other gets exactly the limit, whatever the cost; then it is denied with the
// wait after which it is admitted. Remaining is within the limit at all times, and exact for a look.
func TestR98SequentialTakes(t *testing.T) {
	t.Parallel()
	for _, algorithm := range threeAlgorithms {
		for _, units := range []int64{1, 2, 7, 10, 11, 97, 1000} {
			for n := 1; n <= 16 && int64(n) <= units; n++ {
				for _, cost := range []int64{1, 2, 3, 7, units/2 + 1, units} {
					if cost > units || units == 1000 && cost == 2 {
						continue
					}
					clock := newHandClock()
					l := must(t, sharded(t, memstore.New(memstore.Options{Clock: clock.Now}), n), ratelimit.Limit{Algorithm: algorithm, Rate: units, Period: time.Minute})
					admitted := int64(0)
					var res ratelimit.Result
					for {
						var err error
						if res, err = l.Allow(t.Context(), "k", cost); err != nil {
							t.Fatal(err)
						}
						if res.Remaining < 0 || res.Remaining > units || res.Limit != units {
							t.Fatalf("%v %d over %d: %+v", algorithm, units, n, res)
						}
						if !res.Allowed {
							break
						}
						admitted += res.Taken
						if units == 1000 && admitted%37 != 0 {
							continue
						}
						if look, err := l.Peek(t.Context(), "k"); err != nil || look.Remaining != units-admitted {
							t.Fatalf("%v %d over %d: a look after %d: %+v, %v", algorithm, units, n, admitted, look, err)
						}
					}
					if admitted != units/cost*cost || res.Remaining != units-admitted {
						t.Fatalf("%v %d over %d, by %d: %d were admitted: %+v", algorithm, units, n, cost, admitted, res)
					}
					wait := res.RetryAfter
					if algorithm == ratelimit.TokenBucket {
						clock.forward(wait - 2*time.Microsecond)
						if res, err := l.Allow(t.Context(), "k", cost); err != nil || res.Allowed {
							t.Fatalf("bucket %d over %d, by %d: admitted 2 µs before RetryAfter %v: %+v, %v", units, n, cost, wait, res, err)
						}
						wait = 2 * time.Microsecond
					}
					clock.forward(wait)
					if res, err := l.Allow(t.Context(), "k", cost); err != nil || !res.Allowed {
						t.Fatalf("%v %d over %d, by %d: after RetryAfter: %+v, %v", algorithm, units, n, cost, res, err)
					}
				}
			}
		}
	}
}

// R98: RetryAfter is the shortest of the shards', to the microsecond.
func TestR98RetryAfterIsTheShortest(t *testing.T) {
	t.Parallel()
	for _, algorithm := range threeAlgorithms {
		clock := newHandClock()
		store := memstore.New(memstore.Options{Clock: clock.Now})
		limit := ratelimit.Limit{Algorithm: algorithm, Rate: 10, Period: time.Minute}
		s := sharded(t, store, 4)
		for range 10 {
			if res, err := s.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &limit, Cost: 1}); err != nil || !res.Allowed {
				t.Fatal(res, err)
			}
			clock.forward(777 * time.Microsecond)
		}
		spy := &spy{Store: store}
		res, err := sharded(t, spy, 4).Take(t.Context(), ratelimit.Request{Key: "k", Limit: &limit, Cost: 1})
		shortest := ratelimit.Never
		for _, r := range spy.results {
			shortest = min(shortest, r.RetryAfter)
		}
		if err != nil || res.Allowed || len(spy.results) != 4 || res.RetryAfter != shortest {
			t.Errorf("%v: %+v, %v, of %v", algorithm, res, err, spy.results)
		}
	}
}

// A spy is a Store that remembers the Results of another.
type spy struct {
	ratelimit.Store
	results []ratelimit.Result
}

func (s *spy) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	res, err := s.Store.Take(ctx, req)
	s.results = append(s.results, res)
	return res, err
}

// What is admitted in the long run is the limit: a bucket that is never left alone for long yields every unit.
func TestShardedLongRun(t *testing.T) {
	t.Parallel()
	for _, limit := range []ratelimit.Limit{
		{Rate: 7, Period: time.Second, Burst: 13},
		{Algorithm: ratelimit.SlidingLog, Rate: 11, Period: time.Second},
	} {
		clock := newHandClock()
		l := must(t, sharded(t, memstore.New(memstore.Options{Clock: clock.Now}), 5), limit)
		admitted, start := int64(0), clock.Now()
		for clock.Now().Sub(start) < time.Minute {
			res, err := l.Allow(t.Context(), "k", 1)
			if err != nil {
				t.Fatal(err)
			}
			admitted += res.Taken
			clock.forward(res.RetryAfter)
		}
		if want := limit.Rate * 60; admitted < want || admitted > want+limit.Capacity() || limit.Algorithm == ratelimit.SlidingLog && admitted != want {
			t.Errorf("%v: %d in a minute, want %d", limit, admitted, want)
		}
	}
}

// R98: from 4 shards to 8 at run time, a period admits up to half of the limit beyond it, and back again nothing more.
func TestR98AnotherNumberOfShards(t *testing.T) {
	t.Parallel()
	for _, algorithm := range threeAlgorithms {
		store := memstore.New(memstore.Options{Clock: newHandClock().Now})
		limit := ratelimit.Limit{Algorithm: algorithm, Rate: 80, Period: time.Minute}
		var admitted []int64
		for _, n := range []int{4, 8, 4, 8} {
			res, err := must(t, sharded(t, store, n), limit).TakeUpTo(t.Context(), "k", 1000)
			if err != nil {
				t.Fatal(err)
			}
			admitted = append(admitted, res.Taken)
		}
		if want := []int64{80, 40, 0, 0}; fmt.Sprint(admitted) != fmt.Sprint(want) {
			t.Errorf("%v: %v were admitted, want %v", algorithm, admitted, want)
		}
	}
}

// Callers at once, with costs of all sizes, give-backs and several limits, never get more than there is; and all that
// is left can be had.
func TestShardedConcurrently(t *testing.T) {
	t.Parallel()
	for _, algorithm := range threeAlgorithms {
		store := sharded(t, memstore.New(memstore.Options{Clock: newHandClock().Now}), 6)
		one := ratelimit.Limit{Algorithm: algorithm, Rate: 500, Period: time.Hour}
		other := ratelimit.Limit{Algorithm: algorithm, Rate: 700, Period: time.Hour, Name: "other"}
		l, both := must(t, store, one), must(t, store, one, other)
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 100 {
					by := l
					if rand.IntN(2) == 0 {
						by = both
					}
					res, err := by.Allow(context.Background(), "k", 1+rand.Int64N(20))
					if err != nil {
						t.Error(err)
						return
					}
					admitted.Add(res.Taken)
					if res.Taken > 0 && rand.IntN(8) == 0 {
						res, err := by.Refund(context.Background(), "k", 1)
						if err != nil {
							t.Error(err)
							return
						}
						admitted.Add(res.Taken)
					}
				}
			})
		}
		wg.Wait()
		rest, err := l.TakeUpTo(t.Context(), "k", 1000)
		if sum := admitted.Load() + rest.Taken; err != nil || sum != 500 {
			t.Errorf("%v: %d were admitted, then %d, %v", algorithm, admitted.Load(), rest.Taken, err)
		}
	}
}

// Give-backs find the shards that have room, Extra those that have units, and Reset all of them.
func TestShardedGiveBackExtraReset(t *testing.T) {
	t.Parallel()
	for _, algorithm := range threeAlgorithms {
		store := sharded(t, memstore.New(memstore.Options{Clock: newHandClock().Now}), 7)
		limits := []ratelimit.Limit{{Algorithm: algorithm, Rate: 100, Period: time.Hour}, {Algorithm: algorithm, Rate: 90, Period: time.Minute, Name: "b"}}
		for count := 1; count <= 2; count++ {
			l, ctx := must(t, store, limits[:count]...), t.Context()
			least := limits[count-1].Rate
			for i, c := range []struct {
				what      string
				n         int64
				taken     int64
				remaining int64
			}{
				{"up to", 60, 60, least - 60},
				{"refund", 45, -45, least - 15},
				{"up to", 70, 70, least - 85},
				{"up to", 1000, least - 85, 0},
				{"refund", 1000, -least, least},
				{"allow", least, least, 0},
				{"reset", 0, 0, least},
			} {
				var res ratelimit.Result
				var err error
				switch c.what {
				case "up to":
					res, err = l.TakeUpTo(ctx, "k", c.n)
				case "refund":
					res, err = l.Refund(ctx, "k", c.n)
				case "allow":
					res, err = l.Allow(ctx, "k", c.n)
				default:
					err, res.Allowed = l.Reset(ctx, "k"), true
				}
				look, errLook := l.Peek(ctx, "k")
				if err != nil || !res.Allowed || res.Taken != c.taken || errLook != nil || look.Remaining != c.remaining {
					t.Errorf("%v, %d limits, step %d %+v: %+v, %v; then %+v, %v", algorithm, count, i, c, res, err, look, errLook)
				}
			}
		}
	}
}

// A sliding log is read back from all shards, in order of time.
func TestShardedHistory(t *testing.T) {
	t.Parallel()
	clock := newHandClock()
	limit := ratelimit.Limit{Algorithm: ratelimit.SlidingLog, Rate: 20, Period: time.Minute}
	l := must(t, sharded(t, memstore.New(memstore.Options{Clock: clock.Now}), 5), limit)
	for range 20 {
		spend(t, l, "k", 1)
		clock.forward(time.Millisecond)
	}
	entries, err := l.History(t.Context(), "k")
	if err != nil || len(entries) != 20 {
		t.Fatal(entries, err)
	}
	for i, e := range entries {
		if want := clock.Now().Add(time.Duration(i-20) * time.Millisecond); !e.Time.Equal(want) || e.Cost != 1 {
			t.Errorf("entry %d: %v, want %v", i, e, want)
		}
	}
}

// The usual call allocates the sub-key and nothing else.
func TestShardedAllocations(t *testing.T) {
	s := sharded(t, memstore.New(memstore.Options{}), 8)
	key, limit := ratelimit.Key("user-1", "search"), ratelimit.PerSecond(1_000_000)
	if allocs := testing.AllocsPerRun(1000, func() {
		if res, err := s.Take(context.Background(), ratelimit.Request{Key: key, Limit: &limit, Cost: 1}); err != nil || !res.Allowed {
			t.Fatal(res, err)
		}
	}); allocs > 2 {
		t.Errorf("%v allocations", allocs)
	}
}
