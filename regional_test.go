package ratelimit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
	"github.com/sluicego/ratelimit/store/storetest"
)

func regional(t testing.TB, store ratelimit.Store, share func() (num, den int64)) *ratelimit.Regional {
	t.Helper()
	r, err := ratelimit.NewRegional(store, share)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// With the whole share a Regional is the store itself, field for field.
func TestRegionalContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Config{
		New: func(t *testing.T, clock func() time.Time) ratelimit.Store {
			return regional(t, memstore.New(memstore.Options{Clock: clock}), func() (num, den int64) { return 3, 3 })
		},
		Traces: 15,
	})
}

// 70 of 100 and 30 of 100 are the limit together, for every algorithm, one limit or several; Limit stays the rule's.
func TestRegionalParts(t *testing.T) {
	t.Parallel()
	for _, algorithm := range threeAlgorithms {
		limits := []ratelimit.Limit{{Algorithm: algorithm, Rate: 100, Period: time.Minute}, {Algorithm: algorithm, Rate: 200, Period: time.Hour, Name: "h"}}
		for count := 1; count <= 2; count++ {
			for num, want := range map[int64]int64{30: 30, 70: 70} {
				base := memstore.New(memstore.Options{Clock: newHandClock().Now})
				l := must(t, regional(t, base, func() (int64, int64) { return num, 100 }), limits[:count]...)
				res, err := l.Allow(t.Context(), "k", want)
				if err != nil || res.Taken != want || res.Limit != 100 || res.Remaining != 0 {
					t.Errorf("%v, %d limits, %d/100: %+v, %v", algorithm, count, num, res, err)
				}
				if res, err := l.Allow(t.Context(), "k", want+1); err != nil || res.Allowed || res.Limit != 100 || res.RetryAfter != ratelimit.Never {
					t.Errorf("%v, %d limits, %d/100, above the part: %+v, %v", algorithm, count, num, res, err)
				}
				if err := l.Reset(t.Context(), "k"); err != nil {
					t.Error(err)
				}
				if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != want {
					t.Errorf("after Reset: %+v, %v", res, err)
				}
			}
		}
	}
}

// A share may change at any time, which keeps what was spent; an answer that is none is as if it had not been given.
func TestRegionalChanges(t *testing.T) {
	t.Parallel()
	clock := newHandClock()
	var num, den int64 = 7, 10
	base := memstore.New(memstore.Options{Clock: clock.Now})
	r := regional(t, base, func() (int64, int64) { return num, den })
	if r.Unwrap() != base {
		t.Error("Unwrap")
	}
	l := must(t, r, ratelimit.PerMinute(100))
	spend(t, l, "k", 20)
	for i, c := range []struct{ num, den, fresh, left int64 }{
		{7, 10, 70, 50},
		{3, 10, 30, 30},
		{0, 0, 30, 30},
		{-1, 10, 30, 30},
		{11, 10, 30, 30},
		{1, 0, 30, 30},
		{7, 10, 70, 30},
		{0, 10, 70, 30},
		{1, 1, 100, 30},
		{1, 1000, 1, 1},
	} {
		num, den = c.num, c.den
		if got := left(t, l, "fresh"); got != c.fresh {
			t.Errorf("step %d, %d/%d: an unused key has %d, want %d", i, num, den, got, c.fresh)
		}
		if got := left(t, l, "k"); got != c.left {
			t.Errorf("step %d, %d/%d: %d are left, want %d", i, num, den, got, c.left)
		}
		// So that the State is of this share, and holds what it did.
		spend(t, l, "k", 1)
		if _, err := l.Refund(t.Context(), "k", 1); err != nil {
			t.Error(err)
		}
	}
}

// R140: 1/10 of 5 a minute is 1 per 2 minutes, of a window too; the first burst of ten regions is 10 then, not 5.
func TestR140RegionalBelowOneUnit(t *testing.T) {
	t.Parallel()
	for _, algorithm := range threeAlgorithms {
		clock := newHandClock()
		limit := ratelimit.Limit{Algorithm: algorithm, Rate: 5, Period: time.Minute}
		l := must(t, regional(t, memstore.New(memstore.Options{Clock: clock.Now}), func() (num, den int64) { return 1, 10 }), limit)
		// A counter that is full at the end of a window is so at the start of the next.
		for i, allowed := range []bool{true, false, algorithm != ratelimit.SlidingCounter} {
			res, err := l.Allow(t.Context(), "k", 1)
			if err != nil || res.Allowed != allowed {
				t.Errorf("%v: minute %d: %+v, %v", algorithm, i, res, err)
			}
			if algorithm == ratelimit.TokenBucket && i == 1 && res.RetryAfter != time.Minute {
				t.Errorf("RetryAfter %v", res.RetryAfter)
			}
			clock.forward(time.Minute)
		}
	}
}

func TestRegionalErrors(t *testing.T) {
	t.Parallel()
	good := func() (num, den int64) { return 1, 2 }
	if _, err := ratelimit.NewRegional(nil, good); err == nil {
		t.Error("a nil store")
	}
	if _, err := ratelimit.NewRegional(&scripted{}, nil); err == nil {
		t.Error("a nil share")
	}
	for _, c := range [][2]int64{{0, 1}, {1, 0}, {-1, -1}, {3, 2}} {
		if _, err := ratelimit.NewRegional(&scripted{}, func() (num, den int64) { return c[0], c[1] }); !errors.Is(err, ratelimit.ErrInvalidLimit) {
			t.Errorf("%v: %v", c, err)
		}
	}
	store := &scripted{err: errBoom}
	r, limit, bad := regional(t, store, good), ratelimit.PerSecond(10), ratelimit.Limit{}
	_, take := r.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &limit, Cost: 1})
	_, all := r.TakeAll(t.Context(), []ratelimit.Request{{Key: "k", Limit: &limit, Cost: 1}})
	if !errors.Is(take, ratelimit.ErrStoreUnavailable) || !errors.Is(all, ratelimit.ErrStoreUnavailable) {
		t.Error(take, all)
	}
	asked := len(store.asked)
	_, take = r.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &bad, Cost: 1})
	_, all = r.TakeAll(t.Context(), []ratelimit.Request{{Key: "k", Limit: &bad, Cost: 1}})
	if !errors.Is(take, ratelimit.ErrInvalidLimit) || !errors.Is(all, ratelimit.ErrInvalidLimit) || len(store.asked) != asked {
		t.Error(take, all)
	}
}

// A share that is known costs nothing to look up.
func TestRegionalAllocations(t *testing.T) {
	r := regional(t, memstore.New(memstore.Options{}), func() (num, den int64) { return 7, 10 })
	limit := ratelimit.PerSecond(1_000_000)
	if allocs := testing.AllocsPerRun(1000, func() {
		if res, err := r.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &limit, Cost: 1}); err != nil || !res.Allowed {
			t.Fatal(res, err)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// As much as there is of several limits is as much as there is of their parts.
func TestRegionalTakeUpTo(t *testing.T) {
	t.Parallel()
	mem := memstore.New(memstore.Options{Clock: func() time.Time { return time.Unix(1e9, 0) }})
	part := regional(t, mem, func() (num, den int64) { return 30, 100 })
	l, err := ratelimit.New(part, ratelimit.PerMinute(100), ratelimit.PerHour(200).Named("h"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int64{30, 0} {
		if res, err := l.TakeUpTo(t.Context(), "k", 1000); err != nil || res.Taken != want || !res.Allowed {
			t.Errorf("%+v, %v; want %d taken", res, err, want)
		}
	}
}
