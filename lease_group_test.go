package ratelimit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// An afar Store decides half of its trip after it is asked, and notes what it is asked.
type afar struct {
	ratelimit.Store
	trip time.Duration
	down atomic.Bool

	mu   sync.Mutex
	reqs []ratelimit.Request
}

func (a *afar) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	a.mu.Lock()
	a.reqs = append(a.reqs, req)
	a.mu.Unlock()
	if err := a.half(ctx); err != nil {
		return ratelimit.Result{}, err
	}
	res, err := a.Store.Take(ctx, req)
	if err := a.half(ctx); err != nil {
		return ratelimit.Result{}, err
	}
	return res, err
}

func (a *afar) half(ctx context.Context) error {
	if a.down.Load() {
		return errBoom
	}
	select {
	case <-time.After(a.trip / 2):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// asked is what a was asked since the last time.
func (a *afar) asked() []ratelimit.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	reqs := a.reqs
	a.reqs = nil
	return reqs
}

// A crowd is callers of one hot key of which nothing is held.
type crowd struct {
	*testing.T
	*ratelimit.Lease
	mem   ratelimit.Store
	store *afar
	limit ratelimit.Limit
	wg    sync.WaitGroup
}

const trip = 2 * time.Millisecond

// newCrowd has 100 units of capacity spent, and then all that was held, as far as there are no less than rest.
func newCrowd(t *testing.T, capacity, size int64) *crowd {
	mem := memstore.New(memstore.Options{})
	c := &crowd{T: t, mem: mem, store: &afar{Store: mem, trip: trip}, limit: ratelimit.Limit{Rate: 1, Period: time.Hour, Burst: capacity}}
	c.Lease = newLease(t, c.store, ratelimit.LeaseOptions{Size: size})
	admit(t, c, "k", c.limit, 100)
	synctest.Wait()
	admit(t, c, "k", c.limit, int(c.held()))
	if n := c.held(); n != 0 {
		t.Fatalf("%d are held", n)
	}
	c.store.asked()
	return c
}

func (c *crowd) held() int64 {
	n := remaining(c.T, c, "k", c.limit) - remaining(c.T, c.mem, "k", c.limit)
	return n
}

// left is what the store has.
func (c *crowd) left() int64 { return remaining(c.T, c.mem, "k", c.limit) }

// come has one more caller ask, and returns once it waits. then is told of the answer and how long it took.
func (c *crowd) come(ctx context.Context, req ratelimit.Request, then func(res ratelimit.Result, err error, took time.Duration)) {
	req.Key, req.Limit = "k", &c.limit
	started := time.Now()
	c.wg.Go(func() {
		res, err := c.Take(ctx, req)
		then(res, err, time.Since(started))
	})
	synctest.Wait()
}

// admitted is a caller who gets so many units, within so long.
func (c *crowd) admitted(units int64, source ratelimit.Source, within time.Duration) func(ratelimit.Result, error, time.Duration) {
	return func(res ratelimit.Result, err error, took time.Duration) {
		c.Helper()
		if err != nil || !res.Allowed || res.Taken != units || res.Source != source || took > within {
			c.Errorf("after %v: %+v, %v", took, res, err)
		}
	}
}

var one = ratelimit.Request{Cost: 1}

// Those who come while a call is under way share what it brings, in the order they came.
func TestLeaseGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 100_000, 10)
		before := c.left()
		c.come(t.Context(), one, c.admitted(1, ratelimit.SourceStore, trip))
		c.come(t.Context(), ratelimit.Request{Cost: 4}, c.admitted(4, ratelimit.SourceLease, trip))
		c.come(t.Context(), ratelimit.Request{Extra: 1}, c.admitted(1, ratelimit.SourceLease, trip))
		time.Sleep(trip / 2)
		c.come(t.Context(), ratelimit.Request{Cost: 1, Extra: 2}, c.admitted(3, ratelimit.SourceLease, trip/2))
		c.wg.Wait()
		if reqs := c.store.asked(); len(reqs) != 1 || reqs[0].Extra != 10 {
			t.Errorf("%+v", reqs)
		}
		if n := c.held(); n != 1 || c.left() != before-10 {
			t.Errorf("%d are held, the store has %d less", n, before-c.left())
		}
	})
}

// For whom nothing is left of it the next call is, which one of them does not make, nor end.
func TestLeaseNextGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 200, 50)
		before := c.left() // about 90, of which at most an eighth is held
		c.come(t.Context(), one, c.admitted(1, ratelimit.SourceStore, trip))
		for range before / 8 {
			c.come(t.Context(), one, c.admitted(1, ratelimit.SourceLease, trip))
		}
		ctx, cancel := context.WithTimeout(t.Context(), trip*3/2)
		defer cancel()
		c.come(ctx, ratelimit.Request{Cost: 2}, func(_ ratelimit.Result, err error, took time.Duration) {
			if !errors.Is(err, context.DeadlineExceeded) || took != trip*3/2 {
				t.Errorf("after %v: %v", took, err)
			}
		})
		c.come(t.Context(), ratelimit.Request{Cost: 2}, c.admitted(2, ratelimit.SourceStore, 2*trip))
		c.come(t.Context(), ratelimit.Request{Cost: 1, Extra: 1}, c.admitted(2, ratelimit.SourceStore, 2*trip))
		c.wg.Wait()
		time.Sleep(trip)
		reqs := c.store.asked()
		if n := c.held(); n > before/8 || c.left() != before-5-before/8-n {
			t.Errorf("%d are held, the store has %d less", n, before-c.left())
		}
		if len(reqs) != 3 || reqs[1].Extra < 6 || reqs[0].Extra != 1+before/8 || reqs[2].Cost != -2 {
			t.Errorf("%+v", reqs)
		}
	})
}

// As many as one call spends do not wait for the call that is under way, but have one of their own, which brings no more.
func TestLeaseFullGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 100_000, 10)
		for range 35 {
			c.come(t.Context(), one, func(res ratelimit.Result, err error, took time.Duration) {
				if err != nil || !res.Allowed || took > trip {
					t.Errorf("after %v: %+v, %v", took, res, err)
				}
			})
		}
		c.wg.Wait()
		reqs := c.store.asked()
		if len(reqs) != 4 {
			t.Fatalf("%+v", reqs)
		}
		for _, req := range reqs {
			if req.Extra != 10 {
				t.Errorf("%+v", req)
			}
		}
		if n := c.held(); n != 5 {
			t.Errorf("%d are held", n)
		}
	})
}

// Who goes away fails nobody else, and what it asked for goes back at once, for it was not asked for to be held.
func TestLeaseCallerLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 100_000, 10)
		before := c.left()
		ctx, cancel := context.WithTimeout(t.Context(), trip/4)
		defer cancel()
		leaves := func(_ ratelimit.Result, err error, took time.Duration) {
			if !errors.Is(err, context.DeadlineExceeded) || took != trip/4 {
				t.Errorf("after %v: %v", took, err)
			}
		}
		c.come(ctx, one, leaves) // its call is that of the others, too
		for range 13 {
			c.come(t.Context(), one, func(res ratelimit.Result, err error, took time.Duration) {
				if err != nil || !res.Allowed || took > 2*trip {
					t.Errorf("after %v: %+v, %v", took, res, err)
				}
			})
			c.come(ctx, one, leaves)
		}
		c.wg.Wait()
		time.Sleep(2 * trip)
		if held := c.held(); held > 9 || c.left() != before-13-held {
			t.Errorf("%d are held, and the store has %d less for 13", held, before-c.left())
		}
		back := int64(0)
		for _, req := range c.store.asked() {
			back -= min(req.Cost, 0)
		}
		if back == 0 {
			t.Error("nothing went back")
		}
	})
}

// A call for which nobody waits any more is given up, so that a store that hangs is asked anew as soon as it is well.
func TestLeaseAllLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 100_000, 10)
		c.store.trip = time.Hour
		var wg sync.WaitGroup
		for range 40 { // some wait for the call, some for a call of their own, some for the next one
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				defer cancel()
				started := time.Now()
				if _, err := c.Take(ctx, ratelimit.Request{Key: "k", Limit: &c.limit, Cost: 1}); !errors.Is(err, context.DeadlineExceeded) || time.Since(started) != 5*time.Millisecond {
					t.Errorf("after %v: %v", time.Since(started), err)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		c.store.trip = trip
		started := time.Now()
		admit(t, c, "k", c.limit, 1)
		if took := time.Since(started); took != trip {
			t.Errorf("once the store is well it took %v", took)
		}
	})
}

// Where the store has too little for all, those are admitted who came first, and the store itself denies the others,
// each for its own cost, all at once.
func TestLeaseTooLittle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 2000, 10)
		admit(t, c.mem, "k", c.limit, int(c.left()-4)) // somebody else was faster
		var admitted atomic.Int64
		for _, cost := range []int64{1, 2, 4, 3} { // the call that is under way is for the first
			c.come(t.Context(), ratelimit.Request{Cost: cost}, func(res ratelimit.Result, err error, took time.Duration) {
				switch {
				case err != nil || took > 2*trip || res.Allowed != (cost <= 2):
					t.Errorf("cost %d, after %v: %+v, %v", cost, took, res, err)
				case res.Allowed && res.Taken != cost:
					t.Errorf("cost %d: %+v", cost, res)
				case !res.Allowed && (res.RetryAfter < time.Duration(cost-2)*time.Hour || res.RetryAfter > time.Duration(cost)*time.Hour): // a unit may be held
					t.Errorf("cost %d: %+v", cost, res)
				}
				admitted.Add(res.Taken)
			})
		}
		c.wg.Wait()
		if n := c.held() + c.left(); n != 1 || admitted.Load() != 3 {
			t.Errorf("%d were admitted, %d are left", admitted.Load(), n)
		}
		// From here on the store decides each, and nobody waits for anybody.
		admit(t, c, "k", c.limit, 1)
		for range 64 {
			c.come(t.Context(), one, func(res ratelimit.Result, err error, took time.Duration) {
				if err != nil || res.Allowed || took != trip {
					t.Errorf("after %v: %+v, %v", took, res, err)
				}
			})
		}
		c.wg.Wait()
	})
}

// The same where two calls for many are under way, of which the second finds too little.
func TestLeaseTooLittleForAGroup(t *testing.T) {
	t.Parallel()
	for _, cost := range []int64{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, 2000, 10)
			admit(t, c.mem, "k", c.limit, int(c.left()-16))
			var admitted atomic.Int64
			for range 30 {
				c.come(t.Context(), ratelimit.Request{Cost: cost}, func(res ratelimit.Result, err error, took time.Duration) {
					if err != nil || took > 2*trip || res.Taken != 0 && res.Taken != cost || res.Taken == 0 && res.RetryAfter == 0 {
						t.Errorf("after %v: %+v, %v", took, res, err)
					}
					admitted.Add(res.Taken)
				})
			}
			c.wg.Wait()
			time.Sleep(2 * trip)
			if n := admitted.Load(); n+c.held()+c.left() != 16 || n < 12 {
				t.Errorf("cost %d: %d were admitted, %d are held, the store has %d", cost, n, c.held(), c.left())
			}
		})
	}
}

// A request that is no small part of what remains is decided as it is, and what it would take is not taken in vain.
func TestLeaseLargeCost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 100_000, 50)
		before := c.left()
		c.come(t.Context(), ratelimit.Request{Cost: before + 1}, func(res ratelimit.Result, err error, _ time.Duration) {
			if err != nil || res.Allowed || res.RetryAfter > time.Hour || res.Remaining != before {
				t.Errorf("%+v, %v", res, err)
			}
		})
		c.wg.Wait()
		if reqs := c.store.asked(); len(reqs) != 1 || reqs[0].Cost != before+1 || reqs[0].Extra != 0 {
			t.Errorf("%+v", reqs)
		}
	})
}

// When the call fails each asks for itself, and gets the store's error.
func TestLeaseGroupFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 100_000, 10)
		for range 8 {
			c.come(t.Context(), one, func(_ ratelimit.Result, err error, took time.Duration) {
				if !errors.Is(err, errBoom) || took != trip/2 {
					t.Errorf("after %v: %v", took, err)
				}
			})
		}
		c.store.down.Store(true)
		c.wg.Wait()
		if n := len(c.store.asked()); n != 9 {
			t.Errorf("%d calls, want one for all and one for each", n)
		}
		c.store.down.Store(false)
		admit(t, c, "k", c.limit, 1)
	})
}

// Whatever becomes of what is held meanwhile, those who wait get their answer, and nothing more is fetched.
func TestLeaseGroupInterrupted(t *testing.T) {
	t.Parallel()
	for what, do := range map[string]func(c *crowd){
		"Close": func(c *crowd) {
			if err := c.Close(); err != nil {
				c.Error(err)
			}
		},
		"Reset": func(c *crowd) {
			if err := c.Reset(c.Context(), "k", &c.limit); err != nil {
				c.Error(err)
			}
		},
		"another limit": func(c *crowd) { admit(c.T, c, "k", ratelimit.PerHour(100_000), 1) },
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, 200, 50)
			for range 30 { // of whom the call that is under way brings too little for some
				c.come(t.Context(), one, func(res ratelimit.Result, err error, took time.Duration) {
					if err != nil || !res.Allowed || took > 3*trip {
						t.Errorf("%s: after %v: %+v, %v", what, took, res, err)
					}
				})
			}
			do(c)
			c.wg.Wait()
			for _, req := range c.store.asked()[1:] {
				if req.Extra > 0 {
					t.Errorf("%s: %+v", what, req)
				}
			}
		})
	}
}

// Callers who do nothing else get what a call may bring ahead, and a unit each, in nearly every trip, with no more calls
// than one for 40 units, and none has more or waits longer than the others.
func TestLeaseCrowd(t *testing.T) {
	t.Parallel()
	for _, callers := range []int{1, 2, 8, 64, 500} {
		synctest.Test(t, func(t *testing.T) {
			const trips = 200
			c := newCrowd(t, 10_000_000, 50)
			counts := make([]int, callers)
			var longest time.Duration
			var mu sync.Mutex
			end := time.Now().Add(trips * trip)
			for i := range callers {
				c.wg.Go(func() {
					for time.Now().Before(end) {
						started := time.Now()
						if res, err := c.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &c.limit, Cost: 1}); err != nil || !res.Allowed {
							t.Errorf("%+v, %v", res, err)
							return
						}
						counts[i]++
						if took := time.Since(started); took > 0 {
							mu.Lock()
							longest = max(longest, took)
							mu.Unlock()
						}
					}
				})
			}
			c.wg.Wait()
			sum, least := 0, counts[0]
			for _, n := range counts {
				sum, least = sum+n, min(least, n)
			}
			calls := len(c.store.asked())
			t.Logf("%d callers: %.1f a trip, %.1f a call, the least has %d of %d, longest %v", callers, float64(sum)/trips, float64(sum)/float64(calls), least, sum/callers, longest)
			if sum < trips*(49+callers)*2/3 {
				t.Errorf("%d callers: %d in %d trips", callers, sum, trips)
			}
			if sum < 40*calls {
				t.Errorf("%d callers: %d calls for %d", callers, calls, sum)
			}
			if longest > 2*trip || least < trips/2 {
				t.Errorf("%d callers: one waits %v, one has %d of %d", callers, longest, least, sum)
			}
		})
	}
}
