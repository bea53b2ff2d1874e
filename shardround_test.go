package ratelimit_test

import (
	"context"
	"errors"
	"testing"
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
