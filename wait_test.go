package ratelimit_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// A meter is a Store that counts the calls of the Store behind it, and what they came to.
type meter struct {
	ratelimit.Store
	calls, admitted, denied atomic.Int64
	delay                   time.Duration // before each call
	fail                    atomic.Pointer[error]
}

func newMeter() *meter { return &meter{Store: memstore.New(memstore.Options{})} }

func (m *meter) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	m.calls.Add(1)
	if m.delay > 0 {
		select {
		case <-time.After(m.delay):
		case <-ctx.Done():
			return ratelimit.Result{}, ctx.Err()
		}
	}
	if err := m.fail.Load(); err != nil {
		return ratelimit.Result{}, *err
	}
	res, err := m.Store.Take(ctx, req)
	if res.Allowed {
		m.admitted.Add(1)
	} else {
		m.denied.Add(1)
	}
	return res, err
}

func must(t testing.TB, store ratelimit.Store, limits ...ratelimit.Limit) *ratelimit.StoreLimiter {
	t.Helper()
	l, err := ratelimit.New(store, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// spend takes n units, which there have to be.
func spend(t testing.TB, l ratelimit.Limiter, key string, n int64) {
	t.Helper()
	if res, err := l.Allow(t.Context(), key, n); err != nil || !res.Allowed {
		t.Fatalf("Allow(%d): %+v, %v", n, res, err)
	}
}

// gone checks that nobody waits any more and no memory is kept for it.
func gone(t testing.TB, l *ratelimit.StoreLimiter) {
	t.Helper()
	if keys, standing := l.Waiting(); keys != 0 || standing != 0 {
		t.Errorf("%d queues are left, %d callers stand in them", keys, standing)
	}
}

// bothWays runs a test with a StoreLimiter and with the same hidden in a LimiterFunc.
func bothWays(t *testing.T, test func(t *testing.T, l ratelimit.Limiter, store *meter)) {
	t.Helper()
	for _, hidden := range []bool{false, true} {
		name := "StoreLimiter"
		if hidden {
			name = "LimiterFunc"
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newMeter()
				l := must(t, store, ratelimit.Limit{Rate: 2, Period: time.Second, Burst: 4})
				if hidden {
					test(t, ratelimit.LimiterFunc(l.Allow), store)
				} else {
					test(t, l, store)
				}
				gone(t, l)
			})
		})
	}
}

func TestWaitAdmits(t *testing.T) {
	bothWays(t, func(t *testing.T, l ratelimit.Limiter, store *meter) {
		start := time.Now()
		for range 4 {
			if res, err := ratelimit.Wait(t.Context(), l, "k", 1); err != nil || !res.Allowed || res.Taken != 1 {
				t.Fatalf("with room: %+v, %v", res, err)
			}
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("waited %v with room", d)
		}
		res, err := ratelimit.Wait(t.Context(), l, "k", 3)
		if err != nil || !res.Allowed || res.Taken != 3 || res.RetryAfter != 0 {
			t.Errorf("without room: %+v, %v", res, err)
		}
		d := time.Since(start)
		if _, exact := l.(*ratelimit.StoreLimiter); exact && d != 1500*time.Millisecond || d < 1500*time.Millisecond || d > 3*time.Second {
			t.Errorf("three tokens took %v, want 1.5s", d)
		}
		if n := store.calls.Load(); n != 6 {
			t.Errorf("the store was asked %d times, want 6", n)
		}
	})
}

// TestWaitLooks: cost 0 waits for nothing.
func TestWaitLooks(t *testing.T) {
	bothWays(t, func(t *testing.T, l ratelimit.Limiter, _ *meter) {
		spend(t, l, "k", 4)
		start := time.Now()
		if res, err := ratelimit.Wait(t.Context(), l, "k", 0); err != nil || !res.Allowed || res.Taken != 0 || time.Since(start) != 0 {
			t.Errorf("%+v, %v, after %v", res, err, time.Since(start))
		}
	})
}

func TestWaitGivesUpAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		key     string
		cost    int64
		timeout time.Duration // 0: none; below 0: cancelled before
		want    []error
		calls   int64
	}{
		"a cost above the capacity":        {"k", 5, 0, []error{ratelimit.ErrNever}, 0},
		"a deadline before the room":       {"k", 2, time.Second - time.Microsecond, []error{ratelimit.ErrDeadline, context.DeadlineExceeded}, 1},
		"a deadline when there is room":    {"k", 2, time.Second, []error{ratelimit.ErrDeadline, context.DeadlineExceeded}, 1},
		"a deadline that is over":          {"k", 1, -1, []error{ratelimit.ErrDeadline, context.DeadlineExceeded}, 0},
		"a negative cost":                  {"k", -1, 0, []error{ratelimit.ErrInvalidCost}, 0},
		"the least cost":                   {"k", math.MinInt64, 0, []error{ratelimit.ErrInvalidCost}, 0},
		"no key":                           {"", 1, 0, []error{ratelimit.ErrInvalidKey}, 0},
		"a cost above all that is counted": {"k", math.MaxInt64, time.Minute, []error{ratelimit.ErrNever}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, l ratelimit.Limiter, store *meter) {
				spend(t, l, "k", 4)
				ctx := t.Context()
				if c.timeout != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.timeout)
					defer cancel()
				}
				start, before := time.Now(), store.calls.Load()
				res, err := ratelimit.Wait(ctx, l, c.key, c.cost)
				for _, want := range c.want {
					if !errors.Is(err, want) {
						t.Errorf("error %v, want %v", err, want)
					}
				}
				if res.Allowed || time.Since(start) != 0 || store.calls.Load()-before != c.calls {
					t.Errorf("%+v after %v and %d calls", res, time.Since(start), store.calls.Load()-before)
				}
				if res, err := l.Allow(t.Context(), "k", 0); err != nil || res.Remaining != 0 || res.ResetAfter != 2*time.Second {
					t.Errorf("and then: %+v, %v", res, err)
				}
			})
		})
	}
}

func TestWaitIsCancelled(t *testing.T) {
	bothWays(t, func(t *testing.T, l ratelimit.Limiter, _ *meter) {
		spend(t, l, "k", 4)
		ctx, cancel := context.WithCancelCause(t.Context())
		start := time.Now()
		time.AfterFunc(200*time.Millisecond, func() { cancel(errors.New("went home")) })
		res, err := ratelimit.Wait(ctx, l, "k", 1)
		if err != context.Canceled || time.Since(start) != 200*time.Millisecond {
			t.Errorf("%+v, %v, after %v", res, err, time.Since(start))
		}
		if _, err := ratelimit.Wait(ctx, l, "k", 1); err != context.Canceled {
			t.Errorf("cancelled before: %v", err)
		}
		if res, err := l.Allow(t.Context(), "k", 0); err != nil || res.ResetAfter != 1800*time.Millisecond {
			t.Errorf("it has spent: %+v, %v", res, err)
		}
	})
}

// TestWaitOutlived: a deadline that comes while others spend what this caller was waiting for.
func TestWaitOutlived(t *testing.T) {
	bothWays(t, func(t *testing.T, l ratelimit.Limiter, store *meter) {
		spend(t, l, "k", 4)
		ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
		defer cancel()
		limit := ratelimit.Limit{Rate: 2, Period: time.Second, Burst: 4}
		time.AfterFunc(600*time.Millisecond, func() {
			_, _ = store.Store.Take(context.Background(), ratelimit.Request{Key: "k", Limit: &limit, Cost: 1})
		})
		start := time.Now()
		res, err := ratelimit.Wait(ctx, l, "k", 2)
		if !errors.Is(err, ratelimit.ErrDeadline) || res.RetryAfter <= 0 || time.Since(start) < time.Second || time.Since(start) > 1200*time.Millisecond {
			t.Errorf("%+v, %v, after %v", res, err, time.Since(start))
		}
	})
}

func TestWaitPassesErrors(t *testing.T) {
	bothWays(t, func(t *testing.T, l ratelimit.Limiter, store *meter) {
		outage := errors.New("boom")
		store.fail.Store(&outage)
		if res, err := ratelimit.Wait(t.Context(), l, "k", 1); err != outage || res != (ratelimit.Result{}) {
			t.Errorf("at once: %+v, %v", res, err)
		}
		store.fail.Store(nil)
		spend(t, l, "k", 4)
		time.AfterFunc(100*time.Millisecond, func() { store.fail.Store(&outage) })
		if _, err := ratelimit.Wait(t.Context(), l, "k", 1); err != outage {
			t.Errorf("after a while: %v", err)
		}
	})
}

// TestWaitSpreads: callers of a Limiter that is no StoreLimiter do not wake together, nor more and more often.
func TestWaitSpreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMeter()
		l := must(t, store, ratelimit.PerSecond(10))
		spend(t, l, "k", 10)
		var mu sync.Mutex
		asked := map[time.Time]int{}
		start := time.Now()
		limiter := ratelimit.LimiterFunc(func(ctx context.Context, key string, cost int64) (ratelimit.Result, error) {
			mu.Lock()
			asked[time.Now()]++
			mu.Unlock()
			return l.Allow(ctx, key, cost)
		})
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				if _, err := ratelimit.Wait(t.Context(), limiter, "k", 1); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		delete(asked, start)
		for at, n := range asked {
			if n > 3 {
				t.Errorf("%d asked at %v", n, at.Sub(start))
			}
		}
		if calls := store.calls.Load(); calls > 200*20 {
			t.Errorf("the store was asked %d times for 200 admissions", calls)
		}
		if d := time.Since(start); d < 20*time.Second || d > 60*time.Second {
			t.Errorf("200 admissions of 10 a second took %v", d)
		}
	})
}

// TestWaitOddDenials: a denial without a wait is not asked again at once, and the longest of waits is one.
func TestWaitOddDenials(t *testing.T) {
	for _, retry := range []time.Duration{-time.Second, 0, ratelimit.Never - 1} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			l := ratelimit.LimiterFunc(func(context.Context, string, int64) (ratelimit.Result, error) {
				calls++
				return ratelimit.Result{RetryAfter: retry}, nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			if _, err := ratelimit.Wait(ctx, l, "k", 1); err != context.Canceled || calls > 500 {
				t.Errorf("RetryAfter %v: %v after %d calls", retry, err, calls)
			}
		})
	}
}
