package ratelimit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicego/ratelimit"
)

const (
	closed   = ratelimit.BreakerClosed
	halfOpen = ratelimit.BreakerHalfOpen
	open     = ratelimit.BreakerOpen
)

var bucket = ratelimit.PerSecond(1_000_000)

// told returns the moves that were told since the last call.
func (r *rig) told() (moves [][2]ratelimit.BreakerState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	moves, r.moves = r.moves, nil
	return moves
}

// rest waits until an open breaker lets a probe through, and returns how long that was.
func (r *rig) rest(t testing.TB) time.Duration {
	t.Helper()
	if r.State() != open {
		return 0
	}
	l := bucket.Named("rest")
	l.OnFailure = ratelimit.FailClosed
	calls := r.primary.calls.Load()
	wait := r.take(t, "rest", l, 1).RetryAfter
	if r.primary.calls.Load() != calls {
		t.Fatal("the primary was asked while the breaker was open")
	}
	time.Sleep(wait + time.Microsecond)
	return wait
}

// R134: the cool-down runs from the moment of opening, and what fails meanwhile does not prolong it.
func TestR134CoolDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ratelimit.FallbackOptions{OpenFor: 5 * time.Second, Timeout: 5 * time.Second})
		var wg sync.WaitGroup
		for i := range 10 { // begun while it is closed, failing while it is open
			r.primary.fail(func(context.Context) error {
				time.Sleep(time.Duration(i+1) * 300 * time.Millisecond)
				return down(nil)
			})
			wg.Go(func() { r.take(t, "late", bucket, 1) })
			synctest.Wait()
		}
		r.open(t)
		began := time.Now()
		wg.Wait()
		late := time.Since(began)
		if wait := r.rest(t) + late; wait < 3750*time.Millisecond || wait > 6250*time.Millisecond {
			t.Errorf("the first probe came %v after the opening", wait)
		}
		r.take(t, "probe", bucket, 1)
		if got, want := r.told(), [][2]ratelimit.BreakerState{{closed, open}, {open, halfOpen}, {halfOpen, open}}; !slices.Equal(got, want) {
			t.Errorf("moves %v, want %v", got, want)
		}
	})
}

// R130: after ten minutes of outage the primary decides again, for two instances alike. R131: a failure less than it
// takes leaves the breaker closed then; nothing of the past counts.
func TestR130ComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newRig(t, ratelimit.FallbackOptions{}), newRig(t, ratelimit.FallbackOptions{})
		b.primary.store = a.primary.store
		for _, r := range []*rig{a, b} {
			r.open(t)
			calls := r.primary.calls.Load()
			began := time.Now()
			for time.Since(began) < 10*time.Minute {
				r.rest(t)
				r.take(t, "k", bucket, 1)
			}
			if n := r.primary.calls.Load() - calls; n > 800 { // one each 0.75 s
				t.Errorf("%d calls in ten minutes of outage", n)
			}
			r.rest(t)
			r.primary.fail(nil)
			for i := range 3 {
				if res := r.take(t, "k", bucket, 1); res.Source != ratelimit.SourceStore {
					t.Errorf("probe %d: %+v", i, res)
				}
			}
			if s := r.State(); s != closed {
				t.Errorf("%v after three probes", s)
			}
		}
		synctest.Wait() // for what is charged
		left := a.take(t, "shared", bucket, 5).Remaining
		if res := b.take(t, "shared", bucket, 1); res.Remaining != left-1 {
			t.Errorf("%d left for one, %d for the other", left, res.Remaining)
		}
		a.told()
		time.Sleep(1100 * time.Millisecond) // what succeeded is out of the window
		a.primary.fail(down)
		for range 19 {
			a.take(t, "k", bucket, 1)
		}
		if s, moves := a.State(), a.told(); s != closed || len(moves) > 0 {
			t.Errorf("%v after 19 failures, moves %v", s, moves)
		}
		a.take(t, "k", bucket, 1)
		if s := a.State(); s != open {
			t.Errorf("%v after 20 failures", s)
		}
	})
}

// TestBreakerForgets: failures that are older than Window are none, and a part of failures below FailureRatio is no
// outage however many there are.
func TestBreakerForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ratelimit.FallbackOptions{})
		for range 100 {
			r.primary.fail(down)
			for range 19 {
				r.take(t, "k", bucket, 1)
			}
			time.Sleep(1100 * time.Millisecond)
		}
		for range 10_000 {
			r.primary.fail(nil)
			r.take(t, "k", bucket, 1)
			r.take(t, "k", bucket, 1)
			r.primary.fail(down)
			r.take(t, "k", bucket, 1)
		}
		if moves := r.told(); len(moves) > 0 {
			t.Errorf("moves %v", moves)
		}
	})
}

// R133: of a thousand callers three are probes, and the others are decided at once. A probe that fails opens the breaker
// for another while; after three good ones, failures count from zero.
func TestR133Probes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ratelimit.FallbackOptions{Probes: 3, Mode: ratelimit.FailOpen}) // so that no debt is charged
		r.open(t)
		r.rest(t)
		var wg sync.WaitGroup
		crowd := func() (asked int64) {
			calls, began := r.primary.calls.Load(), time.Now()
			var mu sync.Mutex
			waited := 0
			for range 1000 {
				wg.Go(func() {
					r.take(t, "k", bucket, 1)
					mu.Lock()
					defer mu.Unlock()
					if time.Since(began) > 0 {
						waited++
					}
				})
			}
			wg.Wait()
			if waited > 3 {
				t.Errorf("%d callers waited", waited)
			}
			return r.primary.calls.Load() - calls
		}
		r.primary.fail(func(ctx context.Context) error { _ = slow(2 * time.Millisecond)(ctx); return down(ctx) })
		r.primary.most.Store(0)
		if n := crowd(); n != 3 {
			t.Errorf("%d probes", n)
		}
		if s := r.State(); s != open {
			t.Errorf("%v after probes that failed", s)
		}
		if wait := r.rest(t); wait < 700*time.Millisecond {
			t.Errorf("open for another %v", wait)
		}
		r.primary.fail(slow(2 * time.Millisecond))
		if n := crowd(); n != 3 {
			t.Errorf("%d probes", n)
		}
		if s := r.State(); s != closed {
			t.Errorf("%v after probes that succeeded", s)
		}
		synctest.Wait()      // for what is charged, which counts as a success
		r.primary.fail(down) // one success of a charge, at most, is in the window
		for range 18 {
			r.take(t, "k", bucket, 1)
		}
		if s := r.State(); s != closed {
			t.Errorf("%v after 18 failures", s)
		}
	})
}

// TestProbeGoesAway: a probe whose caller went away makes room for another, as often as that happens.
func TestProbeGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ratelimit.FallbackOptions{Probes: 2})
		r.open(t)
		r.rest(t)
		r.primary.fail(hung)
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			calls := r.primary.calls.Load()
			_, err := r.Take(ctx, ratelimit.Request{Key: "k", Limit: &bucket, Cost: 1})
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || r.primary.calls.Load() != calls+1 {
				t.Fatalf("%v after %d calls", err, r.primary.calls.Load()-calls)
			}
		}
		r.primary.fail(nil)
		r.take(t, "k", bucket, 1)
		if s := r.State(); s != halfOpen {
			t.Errorf("%v after one probe", s)
		}
		r.take(t, "k", bucket, 1)
		if s := r.State(); s != closed {
			t.Errorf("%v after two", s)
		}
	})
}

// R137: what began in an earlier generation changes nothing, whatever comes of it; the probe decides.
func TestR137LateResults(t *testing.T) {
	for name, late := range map[string]error{"success": nil, "failure": down(nil), "neutral": ratelimit.ErrMisconfigured} {
		for _, good := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, ratelimit.FallbackOptions{Probes: 1, Timeout: time.Minute})
				gate := make(chan error)
				waits := func(context.Context) error { return <-gate }
				var wg sync.WaitGroup
				take := func() { wg.Go(func() { r.take(t, "k", bucket, 1) }); synctest.Wait() }
				r.primary.fail(waits)
				take() // begins closed
				r.open(t)
				gate <- late // ends open
				synctest.Wait()
				if s := r.State(); s != open {
					t.Errorf("%s while open: %v", name, s)
				}
				r.primary.fail(waits)
				r.rest(t)
				take() // the probe
				r.primary.fail(down)
				if s := r.State(); s != halfOpen {
					t.Errorf("with a probe in flight: %v", s)
				}
				var err error
				want := closed
				if !good {
					err, want = down(nil), open
				}
				gate <- err
				wg.Wait()
				if s := r.State(); s != want {
					t.Errorf("after the probe: %v, want %v", s, want)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, ratelimit.FallbackOptions{Probes: 1, Timeout: time.Minute})
				old, probe := make(chan error), make(chan error)
				var wg sync.WaitGroup
				r.primary.fail(func(context.Context) error { return <-old })
				wg.Go(func() { r.take(t, "k", bucket, 1) })
				synctest.Wait()
				r.open(t)
				r.rest(t)
				r.primary.fail(func(context.Context) error { return <-probe })
				wg.Go(func() { r.take(t, "k", bucket, 1) })
				synctest.Wait()
				old <- late // ends with the probe in flight
				synctest.Wait()
				if s := r.State(); s != halfOpen {
					t.Errorf("%s while half-open: %v", name, s)
				}
				probe <- down(nil)
				wg.Wait()
				if s := r.State(); s != open {
					t.Errorf("after the probe: %v", s)
				}
			})
		}
	}
}

// R131: every state and every event.
func TestR131Transitions(t *testing.T) {
	outcomes := map[string]func(context.Context) error{"success": nil, "failure": down, "neutral": fails(ratelimit.ErrMisconfigured)}
	for _, c := range []struct {
		from    ratelimit.BreakerState
		outcome string
		want    ratelimit.BreakerState
	}{
		{closed, "success", closed},
		{closed, "failure", open}, // the one that makes it so many
		{closed, "neutral", closed},
		{open, "success", open},
		{open, "failure", open},
		{open, "neutral", open},
		{halfOpen, "success", closed},
		{halfOpen, "failure", open},
		{halfOpen, "neutral", halfOpen},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, ratelimit.FallbackOptions{Probes: 1, MinCalls: 1, FailureRatio: 1})
			if c.from != closed {
				r.open(t)
			}
			if c.from == halfOpen {
				r.rest(t)
				if s := r.State(); s != halfOpen {
					t.Fatalf("it is %v", s)
				}
			}
			r.primary.fail(outcomes[c.outcome])
			r.take(t, "k", bucket, 1)
			if s := r.State(); s != c.want {
				t.Errorf("%v and a %s: %v, want %v", c.from, c.outcome, s, c.want)
			}
		})
	}
}

// TestStateChangeHook: it may ask for the state, and its panic is nobody's.
func TestStateChangeHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		var moves [][2]ratelimit.BreakerState
		var states []ratelimit.BreakerState
		r = newRig(t, ratelimit.FallbackOptions{OnStateChange: func(from, to ratelimit.BreakerState) {
			moves = append(moves, [2]ratelimit.BreakerState{from, to})
			states = append(states, r.State())
			panic("the hook's own")
		}})
		r.open(t)
		time.Sleep(1250*time.Millisecond + 1)
		if s := r.State(); s != halfOpen {
			t.Errorf("%v after the longest rest", s)
		}
		r.primary.fail(nil)
		for range 3 {
			r.take(t, "k", bucket, 1)
		}
		if want := [][2]ratelimit.BreakerState{{closed, open}, {open, halfOpen}, {halfOpen, closed}}; !slices.Equal(moves, want) {
			t.Errorf("moves %v, want %v", moves, want)
		}
		if want := []ratelimit.BreakerState{open, halfOpen, closed}; !slices.Equal(states, want) {
			t.Errorf("states %v, want %v", states, want)
		}
	})
}

func TestBreakerStateString(t *testing.T) {
	t.Parallel()
	for s, want := range map[ratelimit.BreakerState]string{closed: "closed", halfOpen: "half-open", open: "open", 7: "BreakerState(7)"} {
		if s.String() != want {
			t.Errorf("%q, want %q", s, want)
		}
	}
}
