package memstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
)

// R83: many goroutines over many keys, more than there is room for, with every kind of call.
func TestR83ManyGoroutines(t *testing.T) {
	t.Parallel()
	const goroutines, calls, keys, most = 64, 10_000, 100_000, 50_000
	s, c := newStore(most)
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 0))
			limits := algorithms(10, time.Second)
			for range calls {
				l := &limits[r.IntN(3)]
				a, b := names[r.IntN(keys)], names[r.IntN(keys)]
				var err error
				switch r.IntN(32) {
				case 0:
					err = s.Reset(t.Context(), a, l)
				case 1:
					_, err = s.TakeAll(t.Context(), []ratelimit.Request{{Key: a, Limit: l, Cost: 1}, {Key: b, Limit: l, Cost: 2}, {Key: a, Limit: l}})
				case 2:
					_, err = s.TakeAll(t.Context(), []ratelimit.Request{{Key: b, Limit: l, Cost: -1}, {Key: a, Limit: l, Cost: 1}})
				case 3:
					if _, err = s.History(t.Context(), a, l); l.Algorithm != ratelimit.SlidingLog && errors.Is(err, ratelimit.ErrInvalidLimit) {
						err = nil
					}
				case 4:
					c.advance(time.Millisecond)
				case 5:
					s.Stats()
				default:
					_, err = s.Take(t.Context(), ratelimit.Request{Key: a, Limit: l, Cost: 1})
				}
				if err != nil {
					t.Error(err)
				}
				if n := s.Len(); n > most+goroutines*2 {
					t.Errorf("Len %d, far above %d", n, most)
				}
			}
		})
	}
	wg.Wait()
	s.check(t)
}

// R86: of callers who meet a key at the moment it is unused again, one makes its state.
func TestR86Rollover(t *testing.T) {
	t.Parallel()
	const callers, rounds = 50, 300
	for _, l := range algorithms(10, time.Minute) {
		s, c := newStore(0)
		for round := range rounds {
			c.set(time.Duration(round) * 2 * time.Minute)
			var admitted atomic.Int64
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					if take(t, s, "k", l, 1).Allowed {
						admitted.Add(1)
					}
				})
			}
			wg.Wait()
			if n := admitted.Load(); n != 10 {
				t.Fatalf("%v: %d admitted in round %d, want 10", l, n, round)
			}
		}
	}
}

// All is spent or nothing, whatever the order of the keys.
func TestTakeAllInOppositeOrders(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	l := ratelimit.PerDay(1000)
	keys := make([]string, 8)
	for i := range keys {
		keys[i] = fmt.Sprint("key-", i)
	}
	var spent atomic.Int64
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			reqs := make([]ratelimit.Request, len(keys))
			for i := range reqs {
				k := i
				if g%2 == 1 {
					k = len(keys) - 1 - i
				}
				reqs[i] = ratelimit.Request{Key: keys[k], Limit: &l, Cost: 1}
			}
			for range 100 {
				results, err := s.TakeAll(t.Context(), reqs)
				if err != nil {
					t.Error(err)
					return
				}
				if results[0].Allowed {
					spent.Add(1)
				}
				for _, res := range results {
					if res.Allowed != results[0].Allowed {
						t.Errorf("%+v beside %+v", res, results[0])
					}
				}
			}
		})
	}
	wg.Wait()
	if n := spent.Load(); n != 1000 {
		t.Errorf("%d admitted, want 1000", n)
	}
	for _, key := range keys {
		if res := take(t, s, key, l, 0); res.Remaining != 0 {
			t.Errorf("%s has %d left", key, res.Remaining)
		}
	}
}

// Nothing is lost when tables are made anew under calls that look for entries without the shard's lock.
func TestGrowingUnderLoad(t *testing.T) {
	t.Parallel()
	l := ratelimit.Limit{Rate: 1, Period: 24 * time.Hour, Burst: 1_000_000_000} // nothing comes back meanwhile
	for range 5 {
		s := New(Options{MaxKeys: 5000})
		var stop atomic.Bool
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for !stop.Load() {
					admitted.Add(int64(count(t, s, "busy", l, 100)))
				}
			})
		}
		for i := range 4000 {
			take(t, s, fmt.Sprint(i), l, 1)
		}
		stop.Store(true)
		wg.Wait()
		if res := take(t, s, "busy", l, 0); res.Limit-res.Remaining != admitted.Load() {
			t.Fatalf("%d admitted, %d spent", admitted.Load(), res.Limit-res.Remaining)
		}
		s.check(t)
	}
}

// What a batch has locked is not in the way of its search for the rest, among which are states of the same tag.
func TestTakeAllOfOneKey(t *testing.T) {
	t.Parallel()
	reqs := make([]ratelimit.Request, ratelimit.MaxTakeAll)
	for i := range reqs {
		l := ratelimit.PerHour(10).Named(fmt.Sprint(i))
		reqs[i] = ratelimit.Request{Limit: &l, Cost: 1}
	}
	for range 20 {
		s, _ := newStore(100)
		for n := range 200 {
			for i := range reqs {
				reqs[i].Key = fmt.Sprint(n / 2)
			}
			results, err := s.TakeAll(t.Context(), reqs)
			if err != nil || results[15].Remaining != int64(9-n%2) {
				t.Fatalf("%+v, %v", results, err)
			}
		}
		s.check(t)
	}
}
