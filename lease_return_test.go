package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// A switched Store can be down, or hang until a context ends.
type switched struct {
	ratelimit.Store
	down, hang atomic.Bool
}

func (s *switched) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	if s.hang.Load() {
		<-ctx.Done()
		return ratelimit.Result{}, fmt.Errorf("it hangs: %w", ctx.Err())
	}
	if s.down.Load() {
		return ratelimit.Result{}, errBoom
	}
	return s.Store.Take(ctx, req)
}

// What was not spent goes back: R94.
func TestLeaseGivesBack(t *testing.T) {
	t.Parallel()
	limit := ratelimit.Limit{Rate: 1, Period: time.Hour, Burst: 10_000}
	other := ratelimit.Limit{Rate: 1, Period: time.Hour, Burst: 9_000}
	for _, c := range []struct {
		what string
		do   func(t *testing.T, l *ratelimit.Lease)
		want int64
	}{
		{"by the timer", func(_ *testing.T, _ *ratelimit.Lease) { time.Sleep(1250 * time.Millisecond) }, 9900},
		{"by Close", func(_ *testing.T, l *ratelimit.Lease) { l.Close() }, 9900},
		{"by a call that comes late", func(t *testing.T, l *ratelimit.Lease) {
			time.Sleep(1100 * time.Millisecond)
			if res := admit(t, l, "k", limit, 1); res.Source != ratelimit.SourceStore || res.Remaining != 9899 {
				t.Errorf("%+v", res)
			}
			time.Sleep(1250 * time.Millisecond) // it has leased again
		}, 9899},
		{"when the limit changes", func(t *testing.T, l *ratelimit.Lease) { // R128
			if res := admit(t, l, "k", other, 1); res.Source != ratelimit.SourceStore || res.Limit != 9000 || res.Remaining != 8999 {
				t.Errorf("%+v", res)
			}
		}, 8999},
		{"when others make room for it", func(t *testing.T, l *ratelimit.Lease) {
			for i := range 9 {
				admit(t, l, fmt.Sprint(i), limit, 2)
			}
			synctest.Wait()
		}, 9900},
		{"not after a reset", func(t *testing.T, l *ratelimit.Lease) {
			if err := l.Reset(t.Context(), "k", &limit); err != nil {
				t.Fatal(err)
			}
			admit(t, l, "k", limit, 1)
			time.Sleep(2 * time.Second)
		}, 9999},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			l := newLease(t, store, ratelimit.LeaseOptions{MaxKeys: 2})
			admit(t, l, "k", limit, 100)
			synctest.Wait()
			if n := remaining(t, store, "k", limit); n >= 9900 {
				t.Fatalf("nothing is held: Remaining %d", n)
			}
			c.do(t, l)
			if n := remaining(t, store, "k", limit); n != c.want {
				t.Errorf("%s: Remaining %d, want %d", c.what, n, c.want)
			}
		})
	}
}

// While units are left nobody waits for the store, and while it is away they are spent.
func TestLeaseOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(memstore.Options{})
		store := &switched{Store: mem}
		l := newLease(t, store, ratelimit.LeaseOptions{})
		limit := ratelimit.PerHour(10_000)
		admit(t, l, "k", limit, 200)
		synctest.Wait()
		held := remaining(t, l, "k", limit) - remaining(t, mem, "k", limit)
		if held == 0 {
			t.Fatal("nothing is held")
		}
		store.hang.Store(true)
		started := time.Now()
		admit(t, l, "k", limit, int(held))
		if time.Since(started) > 0 {
			t.Errorf("it took %v to spend what was held", time.Since(started))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if _, err := l.Take(ctx, ratelimit.Request{Key: "k", Limit: &limit, Cost: 1}); !errors.Is(err, context.DeadlineExceeded) || time.Since(started) != 5*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(started), err)
		}
		time.Sleep(2 * time.Second) // the call in the background has given up
		store.hang.Store(false)
		store.down.Store(true)
		if _, err := l.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &limit, Cost: 1}); !errors.Is(err, errBoom) {
			t.Errorf("nothing is held, and the store is down: %v", err)
		}
		store.down.Store(false)
		admit(t, l, "k", limit, 200)
		synctest.Wait()
		// What cannot be given back is lost.
		before := remaining(t, mem, "k", limit)
		store.down.Store(true)
		if err := l.Close(); !errors.Is(err, errBoom) {
			t.Errorf("Close: %v", err)
		}
		if n := remaining(t, mem, "k", limit); n != before {
			t.Errorf("the store has %d, before Close %d", n, before)
		}
	})
}

// Close ends in bounded time while the store hangs, and leaves no goroutine: the bubble would not end.
func TestLeaseCloseIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &switched{Store: memstore.New(memstore.Options{})}
		l := newLease(t, store, ratelimit.LeaseOptions{MaxAge: time.Minute})
		limit := ratelimit.PerHour(10_000)
		for i := range 20 {
			admit(t, l, fmt.Sprint(i), limit, 20)
		}
		synctest.Wait()
		store.hang.Store(true)
		started := time.Now()
		if err := l.Close(); !errors.Is(err, context.DeadlineExceeded) || time.Since(started) > 5*time.Second {
			t.Errorf("Close took %v: %v", time.Since(started), err)
		}
	})
}

// A reset while units are on their way drops them.
func TestLeaseResetUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &counted{Store: memstore.New(memstore.Options{})}
		l := newLease(t, store, ratelimit.LeaseOptions{})
		limit := ratelimit.PerHour(10_000)
		admit(t, l, "k", limit, 7)
		store.after = func(*ratelimit.Result) {
			store.after = nil
			if err := l.Reset(t.Context(), "k", &limit); err != nil {
				t.Error(err)
			}
		}
		admit(t, l, "k", limit, 1) // with a lease of 8
		time.Sleep(2 * time.Second)
		if a, b := remaining(t, l, "k", limit), remaining(t, store, "k", limit); a != 10_000 || b != 10_000 {
			t.Errorf("Remaining %d and %d, want 10000", a, b)
		}
	})
}

// A store that panics in a goroutine of the lease's own ends nothing, and what a call had claimed is there again for the
// next: R94.
func TestLeaseStorePanics(t *testing.T) {
	t.Parallel()
	for _, together := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			mem, limit := memstore.New(memstore.Options{}), ratelimit.PerHour(10_000)
			var panics atomic.Bool
			var calls atomic.Int64
			l := newLease(t, storeFunc(func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
				calls.Add(1)
				if panics.Load() {
					panic("the store's own")
				}
				return mem.Take(ctx, req)
			}), ratelimit.LeaseOptions{})
			admit(t, l, "k", limit, 200)
			synctest.Wait()
			held := remaining(t, l, "k", limit) - remaining(t, mem, "k", limit)
			if held == 0 {
				t.Fatal("nothing is held")
			}
			panics.Store(true)
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic of a call of the caller's own is kept from him")
					}
				}()
				req := ratelimit.Request{Key: "k", Limit: &limit, Cost: held + 1}
				if together {
					_, _ = l.TakeAll(t.Context(), []ratelimit.Request{req})
				} else {
					_, _ = l.Take(t.Context(), req)
				}
			}()
			before := calls.Load()
			admit(t, l, "k", limit, int(held)) // on the way it fetches
			synctest.Wait()
			if calls.Load() == before {
				t.Error("nothing was fetched ahead")
			}
			panics.Store(false)
			admit(t, l, "k", limit, 200)
			panics.Store(true)
			time.Sleep(2 * time.Second) // what is held now is given back
			panics.Store(false)
			before = calls.Load()
			admit(t, l, "k", limit, 500)
			if n := calls.Load() - before; n > 50 {
				t.Errorf("%d calls for 500 units", n)
			}
		})
	}
}

// A MaxAge that is as good as for ever is one, and no sum of it overflows.
func TestLeaseAndDenyCacheForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &counted{Store: memstore.New(memstore.Options{})}
		l := newLease(t, store, ratelimit.LeaseOptions{MaxAge: math.MaxInt64})
		time.Sleep(time.Second)
		admit(t, l, "k", ratelimit.Limit{Rate: 1, Period: time.Hour, Burst: 10_000}, 500)
		if n := store.calls.Load(); n > 100 {
			t.Errorf("%d calls for 500 units", n)
		}
		c, err := ratelimit.NewDenyCache(store, ratelimit.DenyCacheOptions{MaxAge: math.MaxInt64})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		full, empty := ratelimit.PerHour(2).Named("full"), ratelimit.PerHour(1).Named("empty")
		admit(t, c, "d", empty, 1)
		before := store.calls.Load()
		for range 10 {
			if results, err := c.TakeAll(t.Context(), []ratelimit.Request{{Key: "d", Limit: &full, Cost: 1}, {Key: "d", Limit: &empty, Cost: 1}}); err != nil || results[0].Allowed {
				t.Fatal(results, err)
			}
		}
		if n := store.calls.Load() - before; n != 1 {
			t.Errorf("%d calls for ten denials", n)
		}
	})
}
