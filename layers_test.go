package ratelimit_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// Short windows here and long ones there: what one side denies costs the other nothing, and what the local side denies
// never reaches the global one.
func TestLayers(t *testing.T) {
	t.Parallel()
	clock := newHandClock()
	second := must(t, memstore.New(memstore.Options{Clock: clock.Now}), ratelimit.PerSecond(5).Named("second"))
	global := &spy{Store: memstore.New(memstore.Options{Clock: clock.Now})}
	day := must(t, global, ratelimit.PerDay(8).Named("day"))
	l := ratelimit.NewLayers(second, day)
	for i, c := range []struct {
		after   time.Duration
		cost    int64
		allowed bool
		name    string
		left    [2]int64 // after it
		asked   int
	}{
		{0, 5, true, "second", [2]int64{0, 3}, 1},
		{0, 1, false, "second", [2]int64{0, 3}, 0},
		{time.Second, 4, false, "day", [2]int64{5, 3}, 1},
		{0, 3, true, "day", [2]int64{2, 0}, 1},
		{time.Second, 1, false, "day", [2]int64{5, 0}, 1},
		{0, 0, true, "day", [2]int64{5, 0}, 1},
		{0, 6, false, "second", [2]int64{5, 0}, 0},
	} {
		clock.forward(c.after)
		before := len(global.results)
		res, err := l.Allow(t.Context(), "k", c.cost)
		asked := len(global.results) - before
		got := [2]int64{left(t, second, "k"), left(t, day, "k")}
		if err != nil || res.Allowed != c.allowed || res.Name != c.name || got != c.left || asked != c.asked {
			t.Errorf("call %d: %+v, %v; %v are left, want %v; asked %d times", i, res, err, got, c.left, asked)
		}
	}
	if res, err := l.Refund(t.Context(), "k", 3); err != nil || res.Name != "day" || left(t, day, "k") != 3 || left(t, second, "k") != 5 {
		t.Errorf("Refund: %+v, %v", res, err)
	}
	if got := l.LimitsFor("k"); !slices.Equal(got, []ratelimit.Limit{ratelimit.PerSecond(5).Named("second"), ratelimit.PerDay(8).Named("day")}) {
		t.Error(got)
	}
}

// A dead global store is an outage, and the local limit stays whole.
func TestLayersGlobalStoreDead(t *testing.T) {
	t.Parallel()
	second := must(t, memstore.New(memstore.Options{Clock: newHandClock().Now}), ratelimit.PerSecond(5))
	l := ratelimit.NewLayers(second, must(t, &scripted{err: errBoom}, ratelimit.PerDay(100)))
	for range 20 {
		if res, err := l.Allow(t.Context(), "k", 2); !errors.Is(err, ratelimit.ErrStoreUnavailable) || res.Allowed || left(t, second, "k") != 5 {
			t.Fatalf("%+v, %v; %d are left", res, err, left(t, second, "k"))
		}
	}
	spend(t, second, "k", 3)
	if _, err := l.Refund(t.Context(), "k", 1); !errors.Is(err, ratelimit.ErrStoreUnavailable) || left(t, second, "k") != 3 {
		t.Errorf("Refund: %v; %d are left", err, left(t, second, "k"))
	}
}

func TestLayersOfOthers(t *testing.T) {
	t.Parallel()
	l := must(t, memstore.New(memstore.Options{}), ratelimit.PerSecond(5))
	f := ratelimit.LimiterFunc(func(context.Context, string, int64) (ratelimit.Result, error) { return ratelimit.Result{}, nil })
	one := ratelimit.NewLayers(l, f)
	spend(t, l, "k", 5)
	if _, err := one.Refund(t.Context(), "k", 1); !errors.Is(err, errors.ErrUnsupported) || left(t, l, "k") != 0 {
		t.Errorf("Refund without a Refunder: %v", err)
	}
	if got := one.LimitsFor("k"); len(got) != 1 {
		t.Error(got)
	}
	for i, make := range []func(){
		func() { ratelimit.NewLayers(nil, l) },
		func() { ratelimit.NewLayers(l, nil) },
		func() { ratelimit.NewLayers(f, l) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("case %d did not panic", i)
				}
			}()
			make()
		}()
	}
}
