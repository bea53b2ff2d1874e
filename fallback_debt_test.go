package ratelimit_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicego/ratelimit"
)

// back ends an outage: probes, on a key of their own, until the breaker is closed, and what is owed is charged.
func (r *rig) back(t testing.TB) {
	t.Helper()
	r.primary.fail(nil)
	r.rest(t)
	l := ratelimit.PerSecond(1).Named("back")
	for range 3 {
		r.take(t, "back", l, 0)
	}
	if s := r.State(); s != closed {
		t.Fatalf("the breaker is %v", s)
	}
	synctest.Wait()
}

// left is what the primary has left of key.
func (r *rig) left(t testing.TB, key string, l ratelimit.Limit) int64 {
	t.Helper()
	res, err := r.primary.store.Take(t.Context(), ratelimit.Request{Key: key, Limit: &l})
	if err != nil {
		t.Fatal(err)
	}
	return res.Remaining
}

// TestDebt: what was admitted locally and still counts is charged on return, once.
func TestDebt(t *testing.T) {
	hour := ratelimit.PerHour(10)
	log, counter, free := hour, hour, hour
	log.Algorithm, counter.Algorithm = ratelimit.SlidingLog, ratelimit.SlidingCounter
	free.OnFailure = ratelimit.FailOpen
	for _, c := range []struct {
		name   string
		limit  ratelimit.Limit
		before int64         // spent on the primary
		costs  []int64       // in the outage
		every  time.Duration // which passes after each
		want   int64         // what the primary has left
	}{
		{"nothing", hour, 4, nil, 0, 6},
		{"looks", hour, 4, []int64{0, 0, 7}, 0, 6}, // 7 is denied
		{"some", hour, 4, []int64{1, 2}, 0, 3},
		{"all", hour, 0, []int64{10}, 0, 0},
		{"of a key that is given back", hour, 4, []int64{3, -2}, 0, 5},
		{"given back more than taken", hour, 4, []int64{1, -3, 1}, 0, 5},
		{"only given back", hour, 4, []int64{-3}, 0, 6},
		{"while it refills", hour, 10, []int64{0, 1, 1}, 12 * time.Minute, 4},
		{"long ago", hour, 0, []int64{10, 0}, time.Hour, 10},
		{"for long", hour, 0, []int64{10, 5, 5, 5}, 30 * time.Minute, 5},
		{"log", log, 4, []int64{1, 2}, 0, 3},
		{"log, long ago", log, 4, []int64{3, 0}, time.Hour, 10},
		{"log, for long", log, 0, []int64{4, 4, 4}, 25 * time.Minute, 6},
		{"counter", counter, 4, []int64{1, 2}, 0, 3},
		{"fail open", free, 4, []int64{9, 9}, 0, 6},
	} {
		synctest.Test(t, func(t *testing.T) { // at 2000-01-01T00:00:00Z, where a window begins
			r := newRig(t, ratelimit.FallbackOptions{OpenFor: time.Millisecond})
			r.take(t, "k", c.limit, c.before)
			r.open(t)
			for _, cost := range c.costs {
				r.take(t, "k", c.limit, cost)
				time.Sleep(c.every)
				r.primary.fail(down)
			}
			r.open(t)
			r.back(t)
			if left := r.left(t, "k", c.limit); left != c.want {
				t.Errorf("%s: %d left, want %d", c.name, left, c.want)
			}
			if _, owed := r.Kept(); owed != 0 {
				t.Errorf("%s: %d debts are left", c.name, owed)
			}
			r.open(t)
			r.back(t)
			if left := r.left(t, "k", c.limit); left < c.want {
				t.Errorf("%s: after another outage %d are left", c.name, left)
			}
		})
	}
}

// TestDebtWithoutOutage: what a single failure made local is charged by the next success.
func TestDebtWithoutOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ratelimit.FallbackOptions{})
		l := ratelimit.PerHour(100)
		for i := range int64(10) {
			r.primary.fail(down)
			r.take(t, "k", l, 3)
			r.primary.fail(nil)
			r.take(t, "another", l, 0)
			synctest.Wait()
			if left := r.left(t, "k", l); left != 97-3*i {
				t.Fatalf("%d left after failure %d", left, i)
			}
		}
	})
}

// TestDebtIsChargedOnce: a charge whose reply was lost is not sent again; the charges after it are, once the primary is
// back for good.
func TestDebtIsChargedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ratelimit.FallbackOptions{})
		l := ratelimit.PerHour(100)
		r.open(t)
		const keys = 20
		for i := range keys {
			r.take(t, fmt.Sprint(i), l, 3)
		}
		r.rest(t)
		calls := r.primary.calls.Load()
		r.primary.failAfter(3, hung) // the probes
		r.primary.lost.Store(true)   // it executes what it never answers
		for range 3 {
			r.take(t, "probe", l, 0)
		}
		time.Sleep(time.Second)
		if n := r.primary.calls.Load() - calls; n != 4 {
			t.Errorf("%d calls, want 3 probes and a charge", n)
		}
		r.primary.lost.Store(false)
		r.primary.fail(nil)
		r.take(t, "probe", l, 0)
		synctest.Wait()
		for i := range keys {
			if left := r.left(t, fmt.Sprint(i), l); left != 97 {
				t.Errorf("key %d has %d left", i, left)
			}
		}
		if _, owed := r.Kept(); owed != 0 {
			t.Errorf("%d debts are left", owed)
		}
	})
}

// TestDebtsOneByOne: however many decisions find the primary back, one call at a time charges.
func TestDebtsOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ratelimit.FallbackOptions{})
		l := ratelimit.PerHour(100)
		r.open(t)
		for i := range 50 {
			r.take(t, fmt.Sprint(i), l, 3)
		}
		r.back(t)
		r.primary.fail(down)
		for i := range 10 {
			r.take(t, fmt.Sprint(i), l, 3)
		}
		r.primary.most.Store(0)
		r.primary.fail(slow(time.Millisecond))
		for range 20 {
			r.take(t, "more", l, 0)
		}
		time.Sleep(time.Second)
		if most := r.primary.most.Load(); most != 2 {
			t.Errorf("%d calls at a time, want a decision and a charge", most)
		}
	})
}

// TestCloseEndsCharging at once, forgets the rest, and leaves decisions as they are.
func TestCloseEndsCharging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ratelimit.FallbackOptions{Timeout: time.Hour})
		l := ratelimit.PerHour(100)
		r.open(t)
		for i := range 50 {
			r.take(t, fmt.Sprint(i), l, 3)
		}
		r.backToHang(t, l)
		began := time.Now()
		for range 2 {
			if err := r.Close(); err != nil || time.Since(began) > 0 {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		}
		if n := r.primary.now.Load(); n != 0 {
			t.Errorf("%d calls are left", n)
		}
		r.primary.fail(down)
		r.take(t, "0", l, 1)
		r.primary.fail(nil)
		if res := r.take(t, "0", l, 1); res.Source != ratelimit.SourceStore {
			t.Errorf("%+v", res)
		}
		synctest.Wait()
		if _, owed := r.Kept(); owed != 0 {
			t.Errorf("%d debts are left", owed)
		}
	})
}

// backToHang is back to a primary that hangs once the probes are through.
func (r *rig) backToHang(t testing.TB, l ratelimit.Limit) {
	t.Helper()
	r.rest(t)
	r.primary.failAfter(3, hung)
	for range 3 {
		r.take(t, "probe", l, 0)
	}
	synctest.Wait()
	if n := r.primary.now.Load(); n != 1 {
		t.Fatalf("%d charges hang", n)
	}
}

// TestReset forgets on both sides, what is known and what is owed.
func TestFallbackReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ratelimit.FallbackOptions{Instances: func() int { return 2 }})
		l, other := ratelimit.PerHour(10), ratelimit.PerHour(10).Named("other")
		r.take(t, "k", l, 6)
		if err := r.Reset(t.Context(), "k", &l, &other); err != nil {
			t.Fatal(err)
		}
		if left := r.left(t, "k", l); left != 10 {
			t.Errorf("%d left after a Reset", left)
		}
		r.open(t)
		if res := r.take(t, "k", l, 3); res.Remaining != 2 { // of a full share
			t.Errorf("%+v", res)
		}
		if err := r.Reset(t.Context(), ratelimit.Key("k"), &l); !isUnavailable(err) {
			t.Errorf("in an outage: %v", err)
		}
		if res := r.take(t, "k", l, 0); res.Remaining != 5 {
			t.Errorf("after a Reset: %+v", res)
		}
		r.back(t)
		if left := r.left(t, "k", l); left != 10 {
			t.Errorf("%d left, so a debt was charged that was forgotten", left)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Reset(ctx, "k", &l); err != context.Canceled {
			t.Errorf("cancelled: %v", err)
		}
	})
}
