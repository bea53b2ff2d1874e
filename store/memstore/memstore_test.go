package memstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicego/ratelimit"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A clock is set by hand.
type clock struct{ ns atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.set(0)
	return c
}

func (c *clock) now() time.Time          { return time.Unix(0, c.ns.Load()) }
func (c *clock) set(d time.Duration)     { c.ns.Store(t0.Add(d).UnixNano()) }
func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

// newStore returns a store of max keys and its clock, at t0.
func newStore(maxKeys int) (*Store, *clock) {
	c := newClock()
	return New(Options{MaxKeys: maxKeys, Clock: c.now}), c
}

func take(t testing.TB, s *Store, key string, l ratelimit.Limit, cost int64) ratelimit.Result {
	t.Helper()
	res, err := s.Take(t.Context(), ratelimit.Request{Key: key, Limit: &l, Cost: cost})
	if err != nil {
		t.Fatalf("Take(cost %d) under %v: %v", cost, l, err)
	}
	return res
}

// count is how many of n calls of cost 1 are admitted.
func count(t testing.TB, s *Store, key string, l ratelimit.Limit, n int) (admitted int) {
	t.Helper()
	for range n {
		if take(t, s, key, l, 1).Allowed {
			admitted++
		}
	}
	return admitted
}

func algorithms(rate int64, period time.Duration) []ratelimit.Limit {
	l := ratelimit.Limit{Rate: rate, Period: period}
	limits := []ratelimit.Limit{l, l, l}
	limits[1].Algorithm, limits[2].Algorithm = ratelimit.SlidingLog, ratelimit.SlidingCounter
	return limits
}

func TestNewPanicsBelowZero(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("New with MaxKeys -1 did not panic")
		}
	}()
	New(Options{MaxKeys: -1})
}

func TestDoneContextTouchesNothing(t *testing.T) {
	t.Parallel()
	s, _ := newStore(10)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := ratelimit.PerMinute(5)
	req := ratelimit.Request{Key: "k", Limit: &l, Cost: 1}
	_, err := s.Take(ctx, req)
	_, errAll := s.TakeAll(ctx, []ratelimit.Request{req})
	log := l
	log.Algorithm = ratelimit.SlidingLog
	_, errHistory := s.History(ctx, "k", &log)
	for _, err := range []error{err, errAll, errHistory, s.Reset(ctx, "k", &l)} {
		if !errors.Is(err, context.Canceled) || errors.Is(err, ratelimit.ErrStoreUnavailable) {
			t.Errorf("error %v, want only context.Canceled", err)
		}
	}
	if n := s.Len(); n != 0 {
		t.Errorf("Len %d after calls that were cancelled before", n)
	}
}

func TestR16TimesFarApart(t *testing.T) {
	t.Parallel()
	for _, l := range algorithms(10, time.Minute) {
		for _, start := range []time.Time{{}, time.Unix(0, 0), t0} {
			now := start
			s := New(Options{Clock: func() time.Time { return now }})
			take(t, s, "k", l, 3)
			now = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
			if res := take(t, s, "k", l, 1); !res.Allowed || res.Remaining != 9 || res.ResetAfter < 0 {
				t.Errorf("%v: last at %v, then in 2200: %+v, want 9 left", l, start, res)
			}
		}
	}
}

func TestR35ShortPeriodLongIdle(t *testing.T) {
	t.Parallel()
	for _, l := range algorithms(10, time.Millisecond) {
		s, c := newStore(10)
		take(t, s, "k", l, 10)
		c.advance(10 * 365 * 24 * time.Hour)
		if res := take(t, s, "k", l, 1); res.Remaining != 9 {
			t.Errorf("%v: %+v after ten years, want 9 left", l, res)
		}
	}
}

func TestR38TimeNeverGoesBack(t *testing.T) {
	t.Parallel()
	s, c := newStore(10)
	l := ratelimit.Limit{Rate: 100, Period: time.Second, Burst: 1000}
	c.set(10 * time.Second)
	take(t, s, "k", l, 1000)
	c.set(9 * time.Second)
	take(t, s, "k", l, 0)
	take(t, s, "k", l, -1)
	take(t, s, "k", l, 1)
	other := l
	other.Burst = 900
	take(t, s, "k", other, 1)
	c.set(11 * time.Second)
	if res := take(t, s, "k", l, 0); res.Remaining != 100 {
		t.Errorf("%d left one second after the bucket was empty, want 100", res.Remaining)
	}
}

func TestR41ClockSteps(t *testing.T) {
	t.Parallel()
	s, c := newStore(10)
	l := ratelimit.Limit{Rate: 1, Period: time.Second, Burst: 3}
	step := 11 * time.Second
	for i := range 60 {
		if i%3 == 0 {
			c.advance(step)
			step = -step
		}
		c.advance(time.Second)
		if res := take(t, s, "k", l, 1); res.Remaining < 0 || res.RetryAfter > 14*time.Second || !res.Allowed && res.RetryAfter <= 0 {
			t.Fatalf("call %d: %+v", i, res)
		}
	}
}

// Without a Clock the time is what has passed since New, which a step of the wall clock does not change.
func TestR41OwnClockIsMonotonic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		l := ratelimit.Limit{Rate: 1, Period: time.Second, Burst: 3}
		take(t, s, "k", l, 3)
		time.Sleep(time.Second - time.Microsecond)
		if res := take(t, s, "k", l, 1); res.Allowed || res.RetryAfter != time.Microsecond {
			t.Errorf("a microsecond early: %+v", res)
		}
		time.Sleep(time.Microsecond)
		if res := take(t, s, "k", l, 1); !res.Allowed {
			t.Errorf("a second later: %+v", res)
		}
	})
}

func TestR47DecisionsDoNotNeedTheSweep(t *testing.T) {
	t.Parallel()
	for _, l := range algorithms(10, time.Minute) {
		s, c := newStore(10)
		s.sweeper.mu.Lock() // it never gets to work
		for window := range 10 {
			c.set(time.Duration(window) * 2 * time.Minute)
			if n := count(t, s, "k", l, 12); n != 10 {
				t.Errorf("%v: %d admitted in window %d, want 10", l, n, window)
			}
		}
	}
}

func TestR91SteadyUseKeepsTheState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit ratelimit.Limit
		every time.Duration
		calls int
		most  int
	}{
		{ratelimit.Limit{Rate: 10, Period: 10 * time.Second}, 500 * time.Millisecond, 1200, 10 + 600},
		{ratelimit.Limit{Rate: 2, Period: time.Minute}, time.Second, 3600, 2 + 120},
	} {
		s, clock := newStore(0)
		n := 0
		for i := range c.calls {
			n += count(t, s, "k", c.limit, 1)
			count(t, s, fmt.Sprint(i), c.limit, 1)
			clock.advance(c.every)
		}
		if n > c.most {
			t.Errorf("%v: %d admitted, want at most %d", c.limit, n, c.most)
		}
	}
}

func TestR92IdleIsNotUnused(t *testing.T) {
	t.Parallel()
	s, c := newStore(0)
	l := ratelimit.PerHour(10)
	n := 0
	for i := range 180 {
		c.set(time.Duration(i) * 20 * time.Second)
		n += count(t, s, "k", l, 1)
		s.sweeper.work()
		s.sweep(c.now().UnixMicro())
	}
	if n != 19 {
		t.Errorf("%d admitted in an hour, want 19", n)
	}
}

// Take and TakeAll come to the same state by different ways.
func TestTakeIsTakeAllOfOne(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	one, c := newStore(4)
	all := New(Options{MaxKeys: 4, Clock: c.now})
	limits := append(algorithms(7, time.Second), algorithms(1_000_000_000, time.Millisecond)[0], ratelimit.Limit{Rate: 3, Period: time.Second, Burst: 5})
	for i := range 20_000 {
		l := limits[r.IntN(len(limits))]
		req := ratelimit.Request{Key: string('a' + rune(r.IntN(6))), Limit: &l, Cost: r.Int64N(6) - 1}
		if r.IntN(4) == 0 && req.Cost >= 0 {
			req.Extra = r.Int64N(4)
		}
		c.advance(time.Duration(r.IntN(2_000_000)-100_000) * time.Microsecond / 10)
		got, err := one.Take(t.Context(), req)
		want, errAll := all.TakeAll(t.Context(), []ratelimit.Request{req})
		if err != nil || errAll != nil {
			t.Fatal(err, errAll)
		}
		if got != want[0] {
			t.Fatalf("seed %d, step %d: Take of cost %d, extra %d under %v is\n%+v, TakeAll\n%+v", seed, i, req.Cost, req.Extra, l, got, want[0])
		}
		// Of two states that equal an unused key either may go first, so that the other counts are not always the same.
		if a, b := one.Stats(), all.Stats(); a.Evicted != b.Evicted {
			t.Fatalf("seed %d, step %d: %+v and %+v", seed, i, a, b)
		}
	}
}
