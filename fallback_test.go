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

// R139, R116: in one outage each limit goes its own way, and no field of a Result is a zero that pretends to be data.
func TestR139Modes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ratelimit.FallbackOptions{})
		login := ratelimit.PerMinute(4).Named("login")
		login.OnFailure = ratelimit.FailClosed
		search := ratelimit.PerMinute(4).Named("search")
		static := ratelimit.PerMinute(4).Named("static")
		static.OnFailure = ratelimit.FailOpen
		r.open(t)
		for i := range int64(4) {
			if got, want := r.take(t, "k", search, 1), (ratelimit.Result{
				Allowed: true, Limit: 4, Remaining: 3 - i, Taken: 1, ResetAfter: time.Duration(i+1) * 15 * time.Second,
				Name: "search", Source: ratelimit.SourceFallback,
			}); got != want {
				t.Errorf("local: %+v, want %+v", got, want)
			}
		}
		if res := r.take(t, "k", search, 1); res.Allowed || res.RetryAfter != 15*time.Second {
			t.Errorf("local beyond the limit: %+v", res)
		}
		for range 100 {
			if got, want := r.take(t, "k", static, 3), (ratelimit.Result{
				Allowed: true, Limit: 4, Remaining: 4, Taken: 3, Name: "static", Source: ratelimit.SourceFailOpen,
			}); got != want {
				t.Fatalf("open: %+v, want %+v", got, want)
			}
		}
		res := r.take(t, "k", login, 1)
		wait := res.RetryAfter
		res.RetryAfter = 0
		if want := (ratelimit.Result{Limit: 4, Name: "login", Source: ratelimit.SourceFailClosed}); res != want || wait <= 0 || wait > 1250*time.Millisecond {
			t.Errorf("closed: %+v, wait %v, want %+v", res, wait, want)
		}
		calls := r.primary.calls.Load()
		time.Sleep(wait + time.Nanosecond)
		r.primary.fail(nil)
		if res := r.take(t, "k", login, 1); !res.Allowed || res.Source != ratelimit.SourceStore {
			t.Errorf("after RetryAfter: %+v", res)
		}
		if n := r.primary.calls.Load() - calls; n != 1 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestFallbackRefuses(t *testing.T) {
	t.Parallel()
	s := still{}
	for _, c := range []struct {
		name string
		o    ratelimit.FallbackOptions
	}{
		{"Timeout", ratelimit.FallbackOptions{Timeout: -1}},
		{"Timeout", ratelimit.FallbackOptions{Timeout: 2 * time.Hour}},
		{"MaxKeys", ratelimit.FallbackOptions{MaxKeys: -1}},
		{"Window", ratelimit.FallbackOptions{Window: time.Microsecond}},
		{"MinCalls", ratelimit.FallbackOptions{MinCalls: -1}},
		{"FailureRatio", ratelimit.FallbackOptions{FailureRatio: 1.1}},
		{"OpenFor", ratelimit.FallbackOptions{OpenFor: -time.Second}},
		{"Probes", ratelimit.FallbackOptions{Probes: -3}},
		{"Mode", ratelimit.FallbackOptions{Mode: 9}},
	} {
		if _, err := ratelimit.NewFallback(s, s, c.o); err == nil || !contains(err, c.name) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := ratelimit.NewFallback(nil, s, ratelimit.FallbackOptions{}); err == nil {
		t.Error("no primary is no error")
	}
	if _, err := ratelimit.NewFallback(s, nil, ratelimit.FallbackOptions{}); err == nil {
		t.Error("no secondary is no error")
	}
	r := newRig(t, ratelimit.FallbackOptions{})
	l := ratelimit.PerSecond(1)
	for _, mode := range []string{"healthy", "open"} {
		for _, c := range []struct {
			req  ratelimit.Request
			want error
		}{
			{ratelimit.Request{Limit: &l, Cost: 1}, ratelimit.ErrInvalidKey},
			{ratelimit.Request{Key: "k", Cost: 1}, ratelimit.ErrInvalidLimit},
			{ratelimit.Request{Key: "k", Limit: &l, Extra: -1}, ratelimit.ErrInvalidCost},
		} {
			if _, err := r.Take(t.Context(), c.req); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", mode, err, c.want)
			}
			if _, err := r.TakeAll(t.Context(), []ratelimit.Request{c.req}); !errors.Is(err, c.want) {
				t.Errorf("%s, TakeAll: %v, want %v", mode, err, c.want)
			}
		}
		r.open(t)
	}
}

// Units given back while the door is open are what was asked for, as far as a number goes.
func TestFailOpenGivesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, ratelimit.FallbackOptions{Mode: ratelimit.FailOpen, Timeout: time.Minute})
	r.open(t)
	for _, cost := range []int64{-1, -math.MaxInt64, math.MinInt64} {
		if res := r.take(t, "k", ratelimit.PerHour(4), cost); !res.Allowed || res.Taken != max(cost, -math.MaxInt64) || res.Source != ratelimit.SourceFailOpen {
			t.Errorf("cost %d: %+v", cost, res)
		}
	}
}

// A primary that says more remains than there can be, or less, leaves the local share within its bounds.
func TestPrimaryMiscounts(t *testing.T) {
	t.Parallel()
	for _, a := range []ratelimit.Algorithm{ratelimit.TokenBucket, ratelimit.SlidingLog, ratelimit.SlidingCounter} {
		for _, says := range []int64{1000, -1000, math.MinInt64} {
			limit, gone := windowed(ratelimit.PerHour(10), a), false
			f, err := ratelimit.NewFallback(storeFunc(func(context.Context, ratelimit.Request) (ratelimit.Result, error) {
				if gone {
					return ratelimit.Result{}, errBoom
				}
				return ratelimit.Result{Allowed: true, Remaining: says, ResetAfter: time.Hour}, nil
			}), memstore.New(memstore.Options{}), ratelimit.FallbackOptions{Timeout: time.Minute, Instances: func() int { return 1 }})
			if err != nil {
				t.Fatal(err)
			}
			look := ratelimit.Request{Key: "k", Limit: &limit}
			if _, err := f.Take(t.Context(), look); err != nil {
				t.Fatal(err)
			}
			gone = true
			if res, err := f.Take(t.Context(), look); err != nil || res.Remaining != min(10, max(0, says)) {
				t.Errorf("%v, after %d: %+v, %v", a, says, res, err)
			}
			_ = f.Close()
		}
	}
}
