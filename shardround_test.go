package ratelimit_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// TakeAll over shards: all or nothing, each its own wait, doubles added up, what cannot be named and what can never be.
func TestShardedTakeAll(t *testing.T) {
	t.Parallel()
	clock := newHandClock()
	s, ctx := sharded(t, memstore.New(memstore.Options{Clock: clock.Now}), 4), t.Context()
	minute, hour := ratelimit.PerMinute(10).Named("m"), ratelimit.PerHour(12).Named("h")
	x, y := ratelimit.Key("a", "x"), ratelimit.Key("a", "y")
	take := func(costs ...int64) []ratelimit.Result {
		t.Helper()
		results, err := s.TakeAll(ctx, []ratelimit.Request{{Key: x, Limit: &minute, Cost: costs[0]}, {Key: y, Limit: &hour, Cost: costs[1]}, {Key: x, Limit: &minute, Cost: costs[2]}})
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	if r := take(2, 9, 1); !r[0].Allowed || r[0].Taken != 2 || r[1].Taken != 9 || r[2].Taken != 1 || r[0].Remaining != 7 || r[1].Remaining != 3 {
		t.Errorf("from several shards: %+v", r)
	}
	if r := take(1, 4, 1); r[0].Allowed || r[1].Allowed || r[0].RetryAfter != 0 || r[1].RetryAfter != 20*time.Minute || r[0].Remaining != 7 || r[1].Remaining != 3 || r[0].Taken != 0 {
		t.Errorf("no room in one: %+v", r)
	}
	if r := take(8, 13, 0); r[0].Allowed || r[0].RetryAfter != 24*time.Second || r[1].RetryAfter != ratelimit.Never || r[1].Remaining != 0 || r[1].Limit != 12 {
		t.Errorf("one can never be: %+v", r)
	}
	if r := take(7, -9, 0); !r[0].Allowed || r[0].Remaining != 0 || r[1].Taken != -9 || r[1].Remaining != 12 {
		t.Errorf("one gives back: %+v", r)
	}
	if results, err := s.TakeAll(ctx, nil); results != nil || err != nil {
		t.Error(results, err)
	}
	if _, err := s.TakeAll(ctx, make([]ratelimit.Request, 17)); !errors.Is(err, ratelimit.ErrInvalidLimit) {
		t.Error(err)
	}
}

// What was taken from one shard for a cost that needs several goes back if another has been emptied meanwhile, or
// fails, also if the caller has gone by then.
func TestShardedGivesBack(t *testing.T) {
	t.Parallel()
	limit := ratelimit.PerHour(4)
	for _, fails := range []bool{false, true} {
		store := memstore.New(memstore.Options{Clock: newHandClock().Now})
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		thief := storeFunc(func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
			if calls++; calls == 4 { // two looks, one debit
				if fails {
					cancel()
					return ratelimit.Result{}, errBoom
				}
				if res, err := store.Take(ctx, ratelimit.Request{Key: req.Key, Limit: req.Limit, Cost: 1}); err != nil || !res.Allowed {
					t.Error(res, err)
				}
			}
			return store.Take(ctx, req)
		})
		res, err := sharded(t, thief, 2).Take(ctx, ratelimit.Request{Key: "k", Limit: &limit, Cost: 4})
		cancel()
		left, _ := must(t, sharded(t, store, 2), limit).Peek(t.Context(), "k")
		switch {
		case fails && (!errors.Is(err, ratelimit.ErrStoreUnavailable) || left.Remaining != 4):
			t.Errorf("after a failure: %v, %d are left", err, left.Remaining)
		case !fails && (err != nil || res.Allowed || res.Taken != 0 || res.RetryAfter != 30*time.Minute || res.Remaining != 3 || left.Remaining != 3):
			t.Errorf("after a theft: %+v, %v, %d are left", res, err, left.Remaining)
		}
	}
}

// A theft that leaves enough is made up for by the other shards, and by what the thief has left.
func TestShardedGathersAfterATheft(t *testing.T) {
	t.Parallel()
	store, limit, calls := memstore.New(memstore.Options{Clock: newHandClock().Now}), ratelimit.PerHour(6), 0
	thief := storeFunc(func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
		if calls++; calls == 5 { // three looks, one debit
			if res, err := store.Take(ctx, ratelimit.Request{Key: req.Key, Limit: req.Limit, Cost: 1}); err != nil || !res.Allowed {
				t.Error(res, err)
			}
		}
		return store.Take(ctx, req)
	})
	res, err := sharded(t, thief, 3).Take(t.Context(), ratelimit.Request{Key: "k", Limit: &limit, Cost: 5})
	if err != nil || !res.Allowed || res.Taken != 5 || res.Remaining != 0 || calls != 7 {
		t.Errorf("%+v, %v after %d calls", res, err, calls)
	}
}

// A denial always has a wait, even if there is room by the time that everything is given back.
func TestShardedDenialHasAWait(t *testing.T) {
	t.Parallel()
	limit, calls := ratelimit.PerHour(20), 0
	answers := []ratelimit.Result{
		{Remaining: 2, RetryAfter: time.Hour}, {Remaining: 2, RetryAfter: time.Hour}, // denied by each alone
		{Allowed: true, Taken: 2}, {RetryAfter: time.Hour}, // the second one's are gone
		{Allowed: true, Taken: -2, Remaining: 9},
	}
	s := sharded(t, storeFunc(func(context.Context, ratelimit.Request) (ratelimit.Result, error) {
		calls++
		return answers[calls-1], nil
	}), 2)
	res, err := s.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &limit, Cost: 4})
	if err != nil || res.Allowed || res.RetryAfter != time.Microsecond || res.Remaining != 9 || calls != len(answers) {
		t.Errorf("%+v, %v after %d calls", res, err, calls)
	}
}

// A storeFunc is a Store that only takes.
type storeFunc func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error)

func (f storeFunc) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	return f(ctx, req)
}

func (f storeFunc) TakeAll(ctx context.Context, reqs []ratelimit.Request) (results []ratelimit.Result, err error) {
	for _, req := range reqs {
		res, err := f(ctx, req)
		if err != nil {
			return nil, err
		}
		results = append(results, res)
	}
	return results, nil
}

func (f storeFunc) Reset(ctx context.Context, key string, limits ...*ratelimit.Limit) error {
	_, err := f(ctx, ratelimit.Request{Key: key, Limit: limits[0]})
	return err
}

// An outage of a shard is the call's error, but not after the decision.
func TestShardedErrors(t *testing.T) {
	t.Parallel()
	limit := ratelimit.PerHour(40)
	away := sharded(t, storeFunc(func(context.Context, ratelimit.Request) (ratelimit.Result, error) {
		return ratelimit.Result{}, errBoom
	}), 4)
	ctx := t.Context()
	_, take := away.Take(ctx, ratelimit.Request{Key: "k", Limit: &limit, Cost: 1})
	_, look := away.Take(ctx, ratelimit.Request{Key: "k", Limit: &limit})
	_, all := away.TakeAll(ctx, []ratelimit.Request{{Key: "k", Limit: &limit, Cost: 1}})
	for i, err := range []error{take, look, all, away.Reset(ctx, "k", &limit)} {
		if !errors.Is(err, ratelimit.ErrStoreUnavailable) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if _, err := away.History(ctx, "k", &limit); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	calls := 0
	first := sharded(t, storeFunc(func(_ context.Context, req ratelimit.Request) (ratelimit.Result, error) {
		if calls++; calls > 1 {
			return ratelimit.Result{}, errBoom
		}
		return ratelimit.Result{Allowed: true, Limit: 10, Taken: 10}, nil
	}), 4)
	if res, err := first.Take(ctx, ratelimit.Request{Key: "k", Limit: &limit, Cost: 1, Extra: 20}); err != nil || !res.Allowed || res.Taken != 10 || calls != 2 {
		t.Errorf("%+v, %v after %d calls", res, err, calls)
	}
}

// What goes back is what was taken, also from a shard that gained in between and was asked twice.
func TestShardedGivesBackEachDebit(t *testing.T) {
	t.Parallel()
	limit, calls, left := ratelimit.PerHour(20), 0, int64(0)
	answers := []ratelimit.Result{
		{Remaining: 1, RetryAfter: time.Hour},
		{Remaining: 3, RetryAfter: time.Hour},
		{Allowed: true, Taken: 1, Remaining: 2},
		{Allowed: true, Taken: 2},
		{RetryAfter: time.Hour}, // the other one's are gone
	}
	s := sharded(t, storeFunc(func(_ context.Context, req ratelimit.Request) (ratelimit.Result, error) {
		if calls++; calls > len(answers) {
			left += req.Cost
			return ratelimit.Result{Allowed: true, Taken: req.Cost}, nil
		}
		left += answers[calls-1].Taken
		return answers[calls-1], nil
	}), 2)
	if res, err := s.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &limit, Cost: 4}); err != nil || res.Allowed || left != 0 {
		t.Errorf("%+v, %v, %d more were taken than given back", res, err, left)
	}
}

// A store that holds less than a shard's part, as a region's does, spends what it admits, and says Never of what it will
// never hold.
func TestShardedOverLess(t *testing.T) {
	t.Parallel()
	for _, a := range []ratelimit.Algorithm{ratelimit.TokenBucket, ratelimit.SlidingLog, ratelimit.SlidingCounter} {
		limit := windowed(ratelimit.PerHour(20), a)
		half := regional(t, memstore.New(memstore.Options{Clock: newHandClock().Now}), func() (num, den int64) { return 1, 2 })
		s := sharded(t, half, 2)
		for _, c := range []struct {
			cost      int64
			allowed   bool
			remaining int64
			never     bool
		}{{11, false, 0, true}, {8, true, 2, false}, {6, false, 2, false}, {20, false, 2, false}, {2, true, 0, false}, {6, false, 0, false}} {
			res, err := s.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &limit, Cost: c.cost})
			wait := res.RetryAfter > 0
			taken := int64(0)
			if c.allowed {
				taken = c.cost
			}
			if err != nil || res.Allowed != c.allowed || res.Taken != taken || wait == c.allowed || c.never && res.RetryAfter != ratelimit.Never {
				t.Errorf("%v, cost %d: %+v, %v", a, c.cost, res, err)
			}
			if res.RetryAfter == ratelimit.Never && (res.Remaining != 0 || res.ResetAfter != 0) || res.RetryAfter != ratelimit.Never && res.Remaining != c.remaining {
				t.Errorf("%v, cost %d: %d remain, want %d: %+v", a, c.cost, res.Remaining, c.remaining, res)
			}
		}
	}
}

// A denial by one who stands in for the store has a wait: its own where it has one.
func TestShardedOverAStandIn(t *testing.T) {
	t.Parallel()
	limit := ratelimit.PerHour(20)
	for cost, c := range map[int64]struct {
		look ratelimit.Result
		want time.Duration
	}{
		1:  {ratelimit.Result{RetryAfter: 700 * time.Millisecond, Source: ratelimit.SourceFailClosed}, 700 * time.Millisecond},
		12: {ratelimit.Result{Allowed: true, Remaining: 2, Source: ratelimit.SourceFallback}, time.Second},
	} {
		s := sharded(t, storeFunc(func(context.Context, ratelimit.Request) (ratelimit.Result, error) { return c.look, nil }), 2)
		if res, err := s.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &limit, Cost: cost}); err != nil || res.Allowed || res.RetryAfter != c.want || res.Source != c.look.Source {
			t.Errorf("cost %d: %+v, %v, want a wait of %v", cost, res, err, c.want)
		}
	}
}

// No unit is given back twice, or as another's, however much is asked to be: the sum keeps within its bounds.
func TestShardedGivesBackAtMost(t *testing.T) {
	t.Parallel()
	limit := ratelimit.PerHour(20)
	s := sharded(t, storeFunc(func(_ context.Context, req ratelimit.Request) (ratelimit.Result, error) {
		if req.Cost == math.MinInt64 {
			return ratelimit.Result{Allowed: true, Taken: -4}, nil
		}
		return ratelimit.Result{Allowed: true, Taken: req.Cost}, nil // whoever fails open
	}), 3)
	if res, err := s.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &limit, Cost: math.MinInt64}); err != nil || res.Taken != -math.MaxInt64 {
		t.Errorf("%+v, %v", res, err)
	}
}

// A store that hangs keeps nobody beyond the end of the context and a millisecond, also where units are to go back.
func TestShardedGivingBackIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, limit, calls := memstore.New(memstore.Options{}), ratelimit.PerHour(4), 0
		s := sharded(t, storeFunc(func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
			if calls++; calls >= 4 { // two looks, one debit
				<-ctx.Done()
				return ratelimit.Result{}, ctx.Err()
			}
			return store.Take(ctx, req)
		}), 2)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := s.Take(ctx, ratelimit.Request{Key: "k", Limit: &limit, Cost: 4})
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 6*time.Millisecond || calls != 5 {
			t.Errorf("%v after %v and %d calls", err, took, calls)
		}
	})
}
