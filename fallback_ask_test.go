package ratelimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// R136: the caller's own end says nothing of the primary. It is that context's error, never an outage; nothing is spent
// for it locally, and no door opens.
func TestR136CallerGoesAway(t *testing.T) {
	cancelled := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx, cancel
	}
	soon := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Millisecond)
	}
	for _, c := range []struct {
		name string
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		how  func(context.Context) error
		want error
	}{
		{"cancelled before", cancelled, nil, context.Canceled},
		{"cancelled before, primary down", cancelled, down, context.Canceled},
		{"cancelled meanwhile", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Millisecond, cancel)
			return ctx, cancel
		}, hung, context.Canceled},
		{"cancelled with a cause", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Millisecond, func() { cancel(errors.New("x")) })
			return ctx, func() { cancel(nil) }
		}, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, context.Canceled},
		{"deadline before Timeout", soon, hung, context.DeadlineExceeded},
		{"an outage as the deadline passes", soon, func(ctx context.Context) error { <-ctx.Done(); return down(ctx) }, context.DeadlineExceeded},
		{"a store ahead of its context", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return late{ctx, time.Now().Add(time.Millisecond)}, func() {}
		}, func(context.Context) error { time.Sleep(time.Millisecond); return down(nil) }, context.DeadlineExceeded},
	} {
		for _, mode := range []ratelimit.FailureMode{ratelimit.FailLocal, ratelimit.FailOpen, ratelimit.FailClosed} {
			t.Run(c.name+", "+mode.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, ratelimit.FallbackOptions{Mode: mode})
					r.primary.fail(c.how)
					l := ratelimit.PerHour(10)
					req := ratelimit.Request{Key: "k", Limit: &l, Cost: 1}
					for range 1000 {
						ctx, stop := c.ctx(t.Context())
						res, err := r.Take(ctx, req)
						stop()
						if !errors.Is(err, c.want) || errors.Is(err, ratelimit.ErrStoreUnavailable) || res != (ratelimit.Result{}) {
							t.Fatalf("%+v, %v", res, err)
						}
						ctx, stop = c.ctx(t.Context())
						all, err := r.TakeAll(ctx, []ratelimit.Request{req})
						stop()
						if !errors.Is(err, c.want) || all != nil {
							t.Fatalf("TakeAll: %+v, %v", all, err)
						}
					}
					if s := r.State(); s != closed {
						t.Errorf("the breaker is %v", s)
					}
					if res, err := r.secondary.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &l}); err != nil || res.Remaining != 10 {
						t.Errorf("local: %+v, %v", res, err)
					}
				})
			})
		}
	}
}

// A late context tells its deadline, and is not done when it has passed.
type late struct {
	context.Context
	deadline time.Time
}

func (l late) Deadline() (time.Time, bool) { return l.deadline, true }

// R77, R80, R142: the budget holds from the first call on, when nothing is known yet, for every kind of call; nothing
// piles up; once the breaker is open nobody waits and the primary is left alone.
func TestR142HungPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ratelimit.FallbackOptions{})
		r.primary.fail(hung)
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				for range 100 {
					before, began := r.State(), time.Now()
					res := r.take(t, fmt.Sprint(i), bucket, 1)
					waited := time.Since(began)
					if waited > 5*time.Millisecond || before == open && waited > 0 || res.Source != ratelimit.SourceFallback {
						t.Errorf("%v: waited %v for %+v", before, waited, res)
					}
				}
			})
		}
		wg.Wait()
		if n := r.primary.now.Load(); n > 0 { // the bubble waits for goroutines of other kinds
			t.Errorf("%d calls of the primary are left", n)
		}
		if n := r.primary.calls.Load(); n > 64+20 { // each caller's first, and what follows before MinCalls have failed
			t.Errorf("%d calls of the primary", n)
		}
		began := time.Now()
		if err := r.Reset(t.Context(), "0", &bucket); !errors.Is(err, ratelimit.ErrStoreUnavailable) || time.Since(began) > 0 {
			t.Errorf("Reset: %v after %v", err, time.Since(began))
		}
		calls := r.primary.calls.Load()
		if r.take(t, "0", bucket, 1); r.primary.calls.Load() != calls {
			t.Error("the primary was asked while the breaker was open")
		}
	})
}

// R74, R53, R116: what counts as an outage, and what as a mistake in the set-up, which is told, opens no door and leaves
// the breaker alone.
func TestR74Errors(t *testing.T) {
	outage := func(text string) error { return fmt.Errorf("%w: %s", ratelimit.ErrStoreUnavailable, text) }
	for _, c := range []struct {
		err    error
		outage bool
	}{
		{outage("LOADING Redis is loading the dataset in memory"), true},
		{outage("BUSY Redis is busy running a script"), true},
		{outage("MASTERDOWN"), true},
		{outage("CLUSTERDOWN"), true},
		{outage("TRYAGAIN"), true},
		{outage("connection reset by peer"), true},
		{fmt.Errorf("store: %w", context.DeadlineExceeded), true},
		{fmt.Errorf("%w: NOPERM", ratelimit.ErrMisconfigured), false},
		{ratelimit.ErrCrossSlot, false},
		{errors.New("what nobody has heard of"), false},
	} {
		for _, mode := range []ratelimit.FailureMode{ratelimit.FailLocal, ratelimit.FailOpen, ratelimit.FailClosed} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, ratelimit.FallbackOptions{Mode: mode, OnError: func(err error) {
					if !errors.Is(err, c.err) {
						t.Errorf("OnError is told %v", err)
					}
				}})
				r.primary.fail(fails(c.err))
				want, state := ratelimit.SourceFallback, closed
				if c.outage {
					state = open
					want = map[ratelimit.FailureMode]ratelimit.Source{
						ratelimit.FailLocal: want, ratelimit.FailOpen: ratelimit.SourceFailOpen, ratelimit.FailClosed: ratelimit.SourceFailClosed,
					}[mode]
				}
				l := ratelimit.PerHour(100)
				for i := range 200 {
					res := r.take(t, "k", l, 1)
					if res.Source != want || res.Limit != 100 || res.Allowed && res.Taken != 1 || !res.Allowed && res.RetryAfter <= 0 {
						t.Fatalf("%v, %v: %+v", c.err, mode, res)
					}
					if want == ratelimit.SourceFallback && res.Allowed != (i < 100) {
						t.Fatalf("%v, %v: decision %d is %+v", c.err, mode, i, res)
					}
				}
				if s := r.State(); s != state {
					t.Errorf("%v: the breaker is %v", c.err, s)
				}
			})
		}
	}
}

// R53: a password that was changed in an outage opens no door for those either who are no probe.
func TestR53RefusedProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ratelimit.FallbackOptions{Mode: ratelimit.FailOpen, Probes: 1})
		r.open(t)
		if res := r.take(t, "k", bucket, 1); res.Source != ratelimit.SourceFailOpen {
			t.Errorf("in the outage: %+v", res)
		}
		r.primary.fail(func(ctx context.Context) error {
			_ = slow(time.Millisecond)(ctx)
			return ratelimit.ErrMisconfigured
		})
		r.rest(t)
		r.take(t, "k", bucket, 1)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if res := r.take(t, "k", bucket, 1); res.Source != ratelimit.SourceFallback {
					t.Errorf("a door is open: %+v", res)
				}
			})
		}
		wg.Wait()
		r.primary.fail(down)
		r.take(t, "k", bucket, 1)
		if res := r.take(t, "k", bucket, 1); res.Source != ratelimit.SourceFailOpen {
			t.Errorf("in the next outage: %+v", res)
		}
	})
}

// TestErrorsOfTheCall of the primary are returned, and are not failures.
func TestErrorsOfTheCall(t *testing.T) {
	t.Parallel()
	for _, err := range []error{ratelimit.ErrInvalidKey, ratelimit.ErrInvalidLimit, ratelimit.ErrInvalidCost} {
		r := newRig(t, ratelimit.FallbackOptions{})
		r.primary.fail(fails(fmt.Errorf("%w: says the store", err)))
		for range 100 {
			if _, got := r.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &bucket}); !errors.Is(got, err) {
				t.Errorf("%v, want %v", got, err)
			}
		}
		if s := r.State(); s != closed || r.mistakes.Load() > 0 {
			t.Errorf("the breaker is %v after %v, told %d times", s, err, r.mistakes.Load())
		}
	}
}

// TestPrimaryPanics: the decision is made all the same, the probe's place is free again, and the error tells no key.
func TestPrimaryPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		r := newRig(t, ratelimit.FallbackOptions{Probes: 1, OnError: func(err error) {
			told = append(told, err.Error())
			panic("the hook's own")
		}})
		r.open(t)
		r.rest(t)
		for _, what := range []func(){func() { panic("of sekret-7391") }, func() { _ = []int{}[len(told)] }} {
			r.primary.fail(func(context.Context) error { what(); return nil })
			if res := r.take(t, "k", bucket, 1); !res.Allowed || res.Source != ratelimit.SourceFallback {
				t.Errorf("%+v", res)
			}
		}
		if len(told) != 2 || strings.Contains(told[0], "sekret") || !strings.Contains(told[1], "index out of range") {
			t.Errorf("told %q", told)
		}
		r.primary.fail(nil)
		r.take(t, "k", bucket, 1)
		if s := r.State(); s != closed {
			t.Errorf("the breaker is %v", s)
		}
	})
}

// R139: an outage is two lines in the log, however many decisions and probes it has; a wrong set-up is one a second;
// one without Instances says so at the start, and no line holds a key.
func TestR139Log(t *testing.T) {
	var out bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	defer slog.SetDefault(old)
	lines := func() []string {
		defer out.Reset()
		return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	}
	synctest.Test(t, func(t *testing.T) {
		primary := &frail{store: memstore.New(memstore.Options{})}
		f, err := ratelimit.NewFallback(primary, memstore.New(memstore.Options{}), ratelimit.FallbackOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if l := lines(); len(l) != 1 || !strings.Contains(l[0], "WARN") || !strings.Contains(l[0], "every instance gives the whole limit") {
			t.Errorf("at the start: %q", l)
		}
		take := func(n int) {
			for range n {
				if _, err := f.Take(t.Context(), ratelimit.Request{Key: "sekret-7391", Limit: &bucket, Cost: 1}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond)
			}
		}
		primary.fail(down)
		take(10_000)
		primary.fail(nil)
		take(2000)
		if l := lines(); len(l) != 2 || !strings.Contains(l[0], "WARN") || !strings.Contains(l[1], "INFO") {
			t.Errorf("of an outage: %q", l)
		}
		primary.fail(fails(fmt.Errorf("%w: NOAUTH", ratelimit.ErrMisconfigured)))
		take(3000)
		l := lines()
		if len(l) != 3 {
			t.Errorf("of three seconds without a password: %q", l)
		}
		for _, line := range l {
			if !strings.Contains(line, "NOAUTH") || strings.Contains(line, "sekret") {
				t.Errorf("a line is %q", line)
			}
		}
	})
}
