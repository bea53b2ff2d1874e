package ratelimit_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

func left(t testing.TB, l ratelimit.Limiter, key string) int64 {
	t.Helper()
	res, err := l.Allow(t.Context(), key, 0)
	if err != nil {
		t.Fatal(err)
	}
	return res.Remaining
}

// User, address and everybody, on stores of their own: all are spent or none, whichever denies, and the Result is the
// binding one.
func TestAll(t *testing.T) {
	t.Parallel()
	clock := newHandClock()
	user := must(t, memstore.New(memstore.Options{Clock: clock.Now}), ratelimit.PerMinute(10).Named("user"))
	address := must(t, memstore.New(memstore.Options{Clock: clock.Now}), ratelimit.PerHour(20).Named("address"))
	global := must(t, memstore.New(memstore.Options{Clock: clock.Now}), ratelimit.PerSecond(30).Named("global"))
	for i, c := range []struct {
		costs   [3]int64
		allowed bool
		name    string
		wait    time.Duration
		left    [3]int64
	}{
		{[3]int64{1, 2, 3}, true, "user", 0, [3]int64{9, 18, 27}},
		{[3]int64{1, 16, 1}, true, "address", 0, [3]int64{8, 2, 26}},
		{[3]int64{9, 1, 1}, false, "user", 6 * time.Second, [3]int64{8, 2, 26}},
		{[3]int64{8, 3, 1}, false, "address", 3 * time.Minute, [3]int64{8, 2, 26}},
		{[3]int64{8, 2, 27}, false, "global", time.Second / 30, [3]int64{8, 2, 26}},
		{[3]int64{1, 1, 31}, false, "global", ratelimit.Never, [3]int64{8, 2, 26}},
		{[3]int64{0, 0, 0}, true, "address", 0, [3]int64{8, 2, 26}},
		{[3]int64{6, 0, 24}, true, "user", 0, [3]int64{2, 2, 2}},
	} {
		res, err := ratelimit.All(t.Context(), ratelimit.Check{user, "u", c.costs[0]}, ratelimit.Check{address, "a", c.costs[1]}, ratelimit.Check{global, "g", c.costs[2]})
		got := [3]int64{left(t, user, "u"), left(t, address, "a"), left(t, global, "g")}
		if err != nil || res.Allowed != c.allowed || res.Name != c.name || got != c.left || res.RetryAfter.Truncate(time.Millisecond) != c.wait.Truncate(time.Millisecond) {
			t.Errorf("call %d: %+v, %v; %v are left, want %v", i, res, err, got, c.left)
		}
	}
}

// What was spent before an error goes back, also when the caller has gone; an admission that nobody counted does not.
func TestAllGivesBack(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{Clock: newHandClock().Now})
	user := must(t, store, ratelimit.PerMinute(10))
	spend(t, user, "u", 5)
	open := must(t, storeFunc(func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
		if req.Cost < 0 {
			t.Error("what fell open was given back")
		}
		return ratelimit.Result{Allowed: true, Taken: req.Cost, Remaining: 10, Source: ratelimit.SourceFailOpen}, nil
	}), ratelimit.PerMinute(10))
	ctx, cancel := context.WithCancel(t.Context())
	dead := ratelimit.LimiterFunc(func(context.Context, string, int64) (ratelimit.Result, error) {
		cancel()
		return ratelimit.Result{}, errBoom
	})
	_, err := ratelimit.All(ctx, ratelimit.Check{user, "u", 2}, ratelimit.Check{open, "o", 1}, ratelimit.Check{user, "u", 3}, ratelimit.Check{dead, "g", 1})
	if got := left(t, user, "u"); !errors.Is(err, ratelimit.ErrStoreUnavailable) || got != 5 {
		t.Errorf("%v, %d are left", err, got)
	}
}

// A store that hangs when units go back holds the caller up for 100 ms at most.
func TestAllGivingBackIsBounded(t *testing.T) {
	t.Parallel()
	hung := must(t, storeFunc(func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
		if req.Cost < 0 {
			<-ctx.Done()
			return ratelimit.Result{}, ctx.Err()
		}
		return ratelimit.Result{Allowed: true, Taken: req.Cost}, nil
	}), ratelimit.PerMinute(10))
	denies := ratelimit.LimiterFunc(func(context.Context, string, int64) (ratelimit.Result, error) {
		return ratelimit.Result{RetryAfter: time.Minute}, nil
	})
	begun := time.Now()
	res, err := ratelimit.All(t.Context(), ratelimit.Check{hung, "a", 1}, ratelimit.Check{hung, "b", 1}, ratelimit.Check{denies, "c", 1})
	if took := time.Since(begun); err != nil || res.Allowed || res.RetryAfter != time.Minute || took < 100*time.Millisecond || took > 5*time.Second {
		t.Errorf("%+v, %v after %v", res, err, took)
	}
}

// What no limit holds for does not speak for the others.
func TestAllWithoutALimit(t *testing.T) {
	t.Parallel()
	l := must(t, memstore.New(memstore.Options{}), ratelimit.PerMinute(10))
	off := ratelimit.LimiterFunc(func(context.Context, string, int64) (ratelimit.Result, error) {
		return ratelimit.Result{Allowed: true}, nil
	})
	for _, checks := range [][]ratelimit.Check{{{off, "k", 0}, {l, "k", 1}}, {{l, "k", 1}, {off, "k", 0}}} {
		if res, err := ratelimit.All(t.Context(), checks...); err != nil || res.Limit != 10 || res.Remaining == 0 {
			t.Errorf("%+v, %v", res, err)
		}
	}
}

func TestAllRefuses(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	l := must(t, store, ratelimit.PerMinute(10))
	f := ratelimit.LimiterFunc(l.Allow)
	for i, c := range []struct {
		checks []ratelimit.Check
		want   error
		text   string
	}{
		{nil, ratelimit.ErrInvalidLimit, "no checks"},
		{[]ratelimit.Check{{l, "k", 1}, {nil, "k", 1}}, nil, "Limiter of check 1"},
		{[]ratelimit.Check{{l, "k", 1}, {l, "secret", -1}}, ratelimit.ErrInvalidCost, "check 1"},
		{[]ratelimit.Check{{l, "k", 1}, {l, "", 1}}, ratelimit.ErrInvalidKey, ""},
		{[]ratelimit.Check{{l, "k", 1}, {f, "secret", 1}, {l, "k", 1}}, nil, "check 1 of 3 is no Refunder"},
	} {
		_, err := ratelimit.All(t.Context(), c.checks...)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "secret") {
			t.Errorf("case %d: %v", i, err)
		}
	}
	if store.Len() > 0 {
		t.Error("something was spent")
	}
	if res, err := ratelimit.All(t.Context(), ratelimit.Check{f, "k", 0}, ratelimit.Check{l, "k", 2}, ratelimit.Check{f, "k", 1}); err != nil || !res.Allowed || left(t, l, "k") != 7 {
		t.Errorf("one that only looks, and a last one: %+v, %v", res, err)
	}
}

// The bound: callers are never admitted beyond any limit, and fall short of one by no more than what calls hold that
// are being denied: here 4 callers of cost 2 that another limiter always denies, so 8 of 100.
func TestAllBound(t *testing.T) {
	t.Parallel()
	const limit, callers, cost = 100, 4, 2
	shared := must(t, memstore.New(memstore.Options{Clock: newHandClock().Now}), ratelimit.PerHour(limit))
	denies := ratelimit.LimiterFunc(func(context.Context, string, int64) (ratelimit.Result, error) { return ratelimit.Result{}, nil })
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range callers {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = ratelimit.All(context.Background(), ratelimit.Check{shared, "k", cost}, ratelimit.Check{denies, "k", 1})
				}
			}
		})
	}
	var admitted atomic.Int64
	for range 10 * limit {
		res, err := shared.Allow(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		if !res.Allowed {
			if n := admitted.Load(); n < limit-callers*cost {
				t.Errorf("denied after %d", n)
			}
			continue
		}
		admitted.Add(1)
	}
	close(stop)
	wg.Wait()
	if n := admitted.Load() + left(t, shared, "k"); n != limit {
		t.Errorf("%d in the end", n)
	}
}

// A cluster's slots do not matter, and neither does the number of checks.
func TestAllOfMany(t *testing.T) {
	t.Parallel()
	l := must(t, memstore.New(memstore.Options{Clock: newHandClock().Now}), ratelimit.PerMinute(40))
	checks := make([]ratelimit.Check, 40)
	for i := range checks {
		checks[i] = ratelimit.Check{l, "k", 1}
	}
	if res, err := ratelimit.All(t.Context(), checks...); err != nil || !res.Allowed || res.Remaining != 0 {
		t.Errorf("%+v, %v", res, err)
	}
	if res, err := ratelimit.All(t.Context(), checks...); err != nil || res.Allowed {
		t.Errorf("%+v, %v", res, err)
	}
}

// Deciding together allocates nothing of its own.
func TestAllAllocations(t *testing.T) {
	store := memstore.New(memstore.Options{})
	l := ratelimit.NewLayers(must(t, store, ratelimit.PerSecond(1_000_000)), must(t, store, ratelimit.PerDay(1_000_000).Named("day")))
	if allocs := testing.AllocsPerRun(1000, func() {
		if res, err := l.Allow(context.Background(), "k", 1); err != nil || !res.Allowed {
			t.Fatal(res, err)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
