package ratelimit_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
	"github.com/sluicego/ratelimit/store/storetest"
)

var leasedAlgorithms = []ratelimit.Algorithm{ratelimit.TokenBucket, ratelimit.SlidingCounter}

// newLease is for a bubble, where time stands still while anybody runs.
func newLease(t *testing.T, store ratelimit.Store, o ratelimit.LeaseOptions) *ratelimit.Lease {
	t.Helper()
	l, err := ratelimit.NewLease(store, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// admit asks n times for one unit of key, and all are admitted.
func admit(t *testing.T, s ratelimit.Store, key string, l ratelimit.Limit, n int) (last ratelimit.Result) {
	t.Helper()
	for i := range n {
		res, err := s.Take(t.Context(), ratelimit.Request{Key: key, Limit: &l, Cost: 1})
		if err != nil || !res.Allowed || res.Taken != 1 {
			t.Fatalf("call %d of %d: %+v, %v", i+1, n, res, err)
		}
		last = res
	}
	return last
}

// remaining is what s says remains.
func remaining(t *testing.T, s ratelimit.Store, key string, l ratelimit.Limit) int64 {
	t.Helper()
	res, err := s.Take(t.Context(), ratelimit.Request{Key: key, Limit: &l})
	if err != nil {
		t.Fatal(err)
	}
	return res.Remaining
}

func TestNewLeaseRefuses(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	for _, c := range []struct {
		store ratelimit.Store
		o     ratelimit.LeaseOptions
		says  string
	}{
		{nil, ratelimit.LeaseOptions{}, "store is nil"},
		{store, ratelimit.LeaseOptions{Size: -1}, "Size -1 is outside"},
		{store, ratelimit.LeaseOptions{Size: 1e9 + 1}, "Size 1000000001 is outside"},
		{store, ratelimit.LeaseOptions{MaxAge: time.Microsecond}, "MaxAge 1µs"},
		{store, ratelimit.LeaseOptions{MaxKeys: -1}, "MaxKeys -1 is below 0"},
	} {
		if _, err := ratelimit.NewLease(c.store, c.o); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.says)
		}
	}
}

// A hot key asks the store 40 times less, and what was debited is what was admitted and what is held.
func TestLeaseSparesTheStore(t *testing.T) {
	t.Parallel()
	for _, a := range leasedAlgorithms {
		synctest.Test(t, func(t *testing.T) {
			store := &counted{Store: memstore.New(memstore.Options{})}
			l := newLease(t, store, ratelimit.LeaseOptions{})
			limit := windowed(ratelimit.PerHour(1_000_000), a)
			const calls = 10_000
			res := admit(t, l, "hot", limit, calls)
			if res.Source != ratelimit.SourceLease && res.Source != ratelimit.SourceStore {
				t.Errorf("%v: %+v", a, res)
			}
			synctest.Wait()
			if n := store.calls.Load(); n > calls/40 {
				t.Errorf("%v: %d calls of the store for %d decisions", a, n, calls)
			}
			if n := remaining(t, l, "hot", limit); n != 1_000_000-calls {
				t.Errorf("%v: Remaining %d", a, n)
			}
			held := 1_000_000 - calls - remaining(t, store, "hot", limit)
			if held < 0 || held > 49 {
				t.Errorf("%v: %d units are held", a, held)
			}
			leased := 0 // of large costs, which also spend a rest that is not enough
			for i := range 400 {
				res, err := l.Take(t.Context(), ratelimit.Request{Key: "large", Limit: &limit, Cost: 25})
				if err != nil || !res.Allowed || res.Taken != 25 {
					t.Fatalf("%v: %+v, %v", a, res, err)
				}
				if i >= 300 && res.Source == ratelimit.SourceLease {
					leased++
				}
			}
			if leased < 25 {
				t.Errorf("%v: %d of 100 large costs came from the lease", a, leased)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if n := remaining(t, store, "hot", limit); n != 1_000_000-calls {
				t.Errorf("%v: after Close, Remaining %d", a, n)
			}
			if res := admit(t, l, "hot", limit, 1); res.Source != ratelimit.SourceStore {
				t.Errorf("%v: after Close, %+v", a, res)
			}
		})
	}
}

// Less than 8 calls in MaxAge lease nothing.
func TestLeaseColdKeyIsExact(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		l := newLease(t, store, ratelimit.LeaseOptions{})
		limit := ratelimit.Limit{Rate: 1, Period: time.Hour, Burst: 10_000}
		for i := range 500 {
			res := admit(t, l, "cold", limit, 1)
			if res.Source != ratelimit.SourceStore || remaining(t, store, "cold", limit) != 10_000-int64(i)-1 {
				t.Fatalf("call %d: %+v", i, res)
			}
			time.Sleep(143 * time.Millisecond)
		}
	})
}

// Near the limit nothing is held, so that several instances together admit it to the last unit.
func TestLeaseLastUnits(t *testing.T) {
	t.Parallel()
	for _, a := range leasedAlgorithms {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			limit := windowed(ratelimit.PerHour(1000), a)
			req := ratelimit.Request{Key: "k", Limit: &limit, Cost: 1}
			leases := make([]*ratelimit.Lease, 3)
			for i := range leases {
				leases[i] = newLease(t, store, ratelimit.LeaseOptions{})
			}
			admitted := 0
			for i := range 1003 {
				res, err := leases[i%3].Take(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if res.Allowed {
					admitted++
				}
				if i >= 950 && i < 1000 && (!res.Allowed || res.Source != ratelimit.SourceStore && res.Remaining > 100) {
					t.Errorf("%v, call %d: %+v", a, i, res)
				}
			}
			if admitted != 1000 {
				t.Errorf("%v: %d of 1000 were admitted", a, admitted)
			}
		})
	}
}

// The limit 30, then 100, then 150 is the one that holds at once: R128.
func TestLeaseFollowsTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		l := newLease(t, store, ratelimit.LeaseOptions{})
		admit(t, l, "k", ratelimit.PerSecond(300), 30)
		for _, n := range []int64{1000, 1500, 300} {
			before := remaining(t, l, "k", ratelimit.PerSecond(n))
			res := admit(t, l, "k", ratelimit.PerSecond(n), 1)
			if res.Limit != n || res.Source != ratelimit.SourceStore || res.Remaining > before {
				t.Errorf("%d per second: %+v", n, res)
			}
			admit(t, l, "k", ratelimit.PerSecond(n), 50)
		}
	})
}

// Units are not lost or counted twice over a refresh, whoever comes first: R95.
func TestLeaseRefresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &counted{Store: memstore.New(memstore.Options{})}
		l := newLease(t, store, ratelimit.LeaseOptions{Size: 9})
		limit := ratelimit.Limit{Rate: 1, Period: time.Hour, Burst: 100}
		// The eighth call is a lease of 9 units, of which four are left after 12: what was taken is what is gone.
		if res := admit(t, l, "k", limit, 12); res.Source != ratelimit.SourceLease || res.Remaining != 88 {
			t.Fatalf("%+v", res)
		}
		time.Sleep(1100 * time.Millisecond)
		if res := admit(t, l, "k", limit, 1); res.Source != ratelimit.SourceStore || res.Remaining != 87 {
			t.Errorf("after MaxAge: %+v", res)
		}
		if n := remaining(t, store, "k", limit); n != 87 {
			t.Errorf("after MaxAge the store has %d", n)
		}

		// Two who find nothing left wait for one call.
		for remaining(t, l, "two", limit)-remaining(t, store, "two", limit) < 8 {
			admit(t, l, "two", limit, 1)
			synctest.Wait()
		}
		before := store.calls.Load()
		gate := make(chan struct{})
		store.after = func(*ratelimit.Result) { <-gate }
		admit(t, l, "two", limit, 8)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { admit(t, l, "two", limit, 1) })
		}
		synctest.Wait()
		close(gate)
		wg.Wait()
		if n := store.calls.Load() - before; n != 1 {
			t.Errorf("%d calls of the store, want 1", n)
		}
		synctest.Wait()
	})
}

// A clock that is a little behind is a caller who was; far behind it was set back, and ages start anew.
func TestLeaseClockStepsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		var behind atomic.Int64
		l := newLease(t, store, ratelimit.LeaseOptions{Clock: func() time.Time { return time.Now().Add(-time.Duration(behind.Load())) }})
		limit := ratelimit.Limit{Rate: 1, Period: time.Hour, Burst: 10_000}
		admit(t, l, "k", limit, 20)
		for _, c := range []struct {
			behind time.Duration
			source ratelimit.Source
		}{{time.Millisecond, ratelimit.SourceLease}, {time.Hour, ratelimit.SourceStore}} {
			synctest.Wait()
			behind.Store(int64(c.behind))
			if res := admit(t, l, "k", limit, 1); res.Source != c.source {
				t.Errorf("%v behind: %+v", c.behind, res)
			}
		}
		if n := remaining(t, l, "k", limit); n != 9978 {
			t.Errorf("%d remain", n)
		}
	})
}

// A TakeAll spends what is held, or leaves it, and changes no sum.
func TestLeaseTakeAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		l := newLease(t, store, ratelimit.LeaseOptions{})
		hot, few := ratelimit.PerHour(1000).Named("hot"), ratelimit.PerHour(2).Named("few")
		log := windowed(ratelimit.PerHour(5), ratelimit.SlidingLog)
		admit(t, l, "k", hot, 30)
		synctest.Wait()
		held := remaining(t, l, "k", hot) - remaining(t, store, "k", hot)
		if held < 8 {
			t.Fatalf("%d are held", held)
		}
		reqs := []ratelimit.Request{{Key: "k", Limit: &hot, Cost: 3}, {Key: "k", Limit: &few, Cost: 2}, {Key: "k", Limit: &log, Cost: 1}, {Key: "k", Limit: &hot, Cost: 4}}
		results, err := l.TakeAll(t.Context(), reqs)
		if err != nil || !results[0].Allowed || results[0].Remaining != 963 || results[0].Taken != 3 || results[3].Taken != 4 || results[1].Remaining != 0 {
			t.Fatalf("%+v, %v", results, err)
		}
		if n := remaining(t, l, "k", hot) - remaining(t, store, "k", hot); n != held-7 {
			t.Errorf("%d are held, want %d", n, held-7)
		}
		results, err = l.TakeAll(t.Context(), reqs)
		if err != nil || results[0].Allowed || results[0].Remaining != 963 || results[0].Taken != 0 || results[0].RetryAfter != 0 || results[1].RetryAfter != time.Hour {
			t.Fatalf("%+v, %v", results, err)
		}
		if n := remaining(t, l, "k", hot) - remaining(t, store, "k", hot); n != held-7 {
			t.Errorf("after a denial %d are held, want %d", n, held-7)
		}
		// More than the store has, with what is held.
		all := remaining(t, l, "k", hot)
		results, err = l.TakeAll(t.Context(), []ratelimit.Request{{Key: "k", Limit: &hot, Cost: all}})
		if err != nil || !results[0].Allowed || results[0].Taken != all || results[0].Remaining != 0 {
			t.Errorf("%+v, %v", results, err)
		}
	})
}

// One call for all there is, of which the store has a part.
func TestLeaseSpendsWhatItHoldsFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		l := newLease(t, store, ratelimit.LeaseOptions{})
		limit := ratelimit.PerHour(1000)
		admit(t, l, "k", limit, 30)
		if res, err := l.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &limit, Cost: 971}); err != nil || res.Allowed || res.RetryAfter != 3600*time.Millisecond || res.Remaining != 970 {
			t.Errorf("%+v, %v", res, err)
		}
		if res, err := l.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &limit, Cost: 960, Extra: 20}); err != nil || !res.Allowed || res.Taken != 970 || res.Remaining != 0 {
			t.Errorf("%+v, %v", res, err)
		}
		if res, err := l.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &limit, Cost: -5}); err != nil || res.Taken != -5 || res.Remaining != 5 {
			t.Errorf("%+v, %v", res, err)
		}
		if res, err := l.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &limit, Cost: 1001}); err != nil || res.RetryAfter != ratelimit.Never {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// The two wrappers together admit what the limit does, and spare the store both ways.
func TestDenyCacheOverLease(t *testing.T) {
	t.Parallel()
	for _, a := range leasedAlgorithms {
		synctest.Test(t, func(t *testing.T) {
			store := &counted{Store: memstore.New(memstore.Options{})}
			c, err := ratelimit.NewDenyCache(newLease(t, store, ratelimit.LeaseOptions{}), ratelimit.DenyCacheOptions{})
			if err != nil {
				t.Fatal(err)
			}
			limit := windowed(ratelimit.PerHour(2000), a)
			admit(t, c, "k", limit, 2000)
			calls := store.calls.Load()
			for range 1000 {
				if res, err := c.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &limit, Cost: 1}); err != nil || res.Allowed || res.RetryAfter == 0 {
					t.Fatalf("%+v, %v", res, err)
				}
			}
			if n := store.calls.Load() - calls; calls > 150 || n != 1 {
				t.Errorf("%v: %d calls of the store to admit 2000, %d to deny 1000", a, calls, n)
			}
		})
	}
}

// Many callers, keys and instances at once: what the store is short of is what was admitted.
func TestLeaseConcurrently(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	limit := ratelimit.Limit{Rate: 1, Period: time.Hour, Burst: 20_000}
	admitted := make([][3]int, 8)
	leases := make([]*ratelimit.Lease, 2)
	for i := range leases {
		leases[i] = newLease(t, store, ratelimit.LeaseOptions{MaxAge: 2 * time.Millisecond, MaxKeys: 2})
	}
	var wg sync.WaitGroup
	for g := range admitted {
		wg.Go(func() {
			for i := range 4000 {
				key := i % 97 % 3
				req := ratelimit.Request{Key: fmt.Sprint(key), Limit: &limit, Cost: int64(1 + i%3)}
				l := leases[g%2]
				if i%50 == 0 {
					results, err := l.TakeAll(t.Context(), []ratelimit.Request{req})
					if err != nil {
						t.Error(err)
						return
					}
					admitted[g][key] += int(results[0].Taken)
					continue
				}
				res, err := l.Take(t.Context(), req)
				if err != nil {
					t.Error(err)
					return
				}
				admitted[g][key] += int(res.Taken)
			}
		})
	}
	wg.Wait()
	for _, l := range leases {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	for key := range 3 {
		sum := int64(0)
		for g := range admitted {
			sum += int64(admitted[g][key])
		}
		// What an eviction could not give back at once is lost, never made.
		if n := remaining(t, store, fmt.Sprint(key), limit); n > 20_000-sum {
			t.Errorf("key %d: %d were admitted, and %d remain", key, sum, n)
		}
	}
}

func TestLeaseHitDoesNotAllocate(t *testing.T) {
	l := newLease(t, memstore.New(memstore.Options{}), ratelimit.LeaseOptions{Size: 100_000, MaxAge: time.Hour})
	limiter, err := ratelimit.NewTokenBucket(l, ratelimit.PerSecond(1_000_000_000))
	if err != nil {
		t.Fatal(err)
	}
	key := ratelimit.Key("user-1", "search")
	for range 100_000 {
		limiter.Allow(t.Context(), key, 1)
	}
	var res ratelimit.Result
	if n := testing.AllocsPerRun(200, func() { res, _ = limiter.Allow(t.Context(), key, 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if res.Source != ratelimit.SourceLease {
		t.Errorf("%+v", res)
	}
}

// A Lease is a plain Store to a single process: to the last field with a Size of 1, and but for giving back more than was
// spent, which the store may take for what is held, with any.
func TestLeaseContract(t *testing.T) {
	t.Parallel()
	for size, except := range map[int64]map[string]string{
		1: {},
		0: {"random traces are those of the exact model": "they give back more than was spent"},
	} {
		except["R44 one clock per decision"] = "the Lease reads the clock, too"
		t.Run(fmt.Sprint("Size ", size), func(t *testing.T) {
			storetest.Run(t, storetest.Config{
				New: func(t *testing.T, clock func() time.Time) ratelimit.Store {
					return sourceless{newLease(t, memstore.New(memstore.Options{Clock: clock}), ratelimit.LeaseOptions{Size: size, Clock: clock})}
				},
				Except: except,
				Traces: 50,
			})
		})
	}
}
