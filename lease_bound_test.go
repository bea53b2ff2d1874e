package ratelimit_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// A leaseFleet is instances with a Lease each over one store, and what they were admitted in each step of time.
type leaseFleet struct {
	limit    ratelimit.Limit
	store    ratelimit.Store
	leases   []*ratelimit.Lease
	admitted []int64
}

const leaseStep = 10 * time.Millisecond

func newLeaseFleet(t *testing.T, limit ratelimit.Limit, n int, o ratelimit.LeaseOptions) *leaseFleet {
	f := &leaseFleet{limit: limit, store: memstore.New(memstore.Options{})}
	for range n {
		f.leases = append(f.leases, newLease(t, f.store, o))
	}
	return f
}

// run lets each instance ask as often in each step as most says.
func (f *leaseFleet) run(t *testing.T, steps int, most func(step, instance int) int) {
	for step := range steps {
		sum := int64(0)
		for i, l := range f.leases {
			for range most(step, i) {
				res, err := l.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &f.limit, Cost: 1})
				if err != nil {
					t.Fatal(err)
				}
				if !res.Allowed {
					break
				}
				sum++
			}
		}
		f.admitted = append(f.admitted, sum)
		time.Sleep(leaseStep)
	}
}

// excess is by how much the worst window of w exceeds capacity + rate*w.
func (f *leaseFleet) excess(w time.Duration) int64 {
	n := int(w / leaseStep)
	worst, sum := int64(0), int64(0)
	for i, a := range f.admitted {
		sum += a
		if i > n { // both ends count
			sum -= f.admitted[i-n-1]
		}
		worst = max(worst, sum)
	}
	return worst - f.limit.Capacity() - int64(time.Duration(f.limit.Rate)*w/f.limit.Period)
}

// greedy is everybody as fast as possible.
func greedy(int, int) int { return 1 << 20 }

// bursts is each instance at its own pace for a while, which makes it hold units, then nobody, then everybody as fast
// as possible.
func bursts(pace int) func(step, instance int) int {
	random := rand.New(rand.NewPCG(94, 94))
	return func(step, _ int) int {
		switch phase := step % 300; {
		case phase < 200:
			return random.IntN(pace + 1)
		case phase < 250:
			return 0
		default:
			return 1 << 20
		}
	}
}

// The bound of the doc comment, for windows of several lengths: R94.
func TestLeaseBound(t *testing.T) {
	t.Parallel()
	const instances = 10
	for _, a := range leasedAlgorithms {
		for _, c := range []struct {
			what   string
			limit  ratelimit.Limit
			size   int64
			maxAge time.Duration
			most   func(step, instance int) int
		}{
			{"greedy", ratelimit.PerSecond(100), 10, time.Second, greedy},
			{"greedy, one unit", ratelimit.PerSecond(100), 1, time.Second, greedy},
			{"bursts", ratelimit.PerSecond(2000), 50, time.Second, bursts(3)},
			{"bursts, short", ratelimit.PerSecond(2000), 50, 100 * time.Millisecond, bursts(3)},
			{"bursts, slow", ratelimit.Limit{Rate: 5000, Period: 10 * time.Second}, 50, time.Second, bursts(1)},
			{"bursts, longer than the window", ratelimit.Limit{Rate: 400, Period: 200 * time.Millisecond}, 50, 5 * time.Second, bursts(3)},
			{"bursts, one unit", ratelimit.PerSecond(2000), 1, time.Second, bursts(3)},
		} {
			synctest.Test(t, func(t *testing.T) {
				f := newLeaseFleet(t, windowed(c.limit, a), instances, ratelimit.LeaseOptions{Size: c.size, MaxAge: c.maxAge})
				f.run(t, 6000, c.most)
				for _, w := range []time.Duration{0, leaseStep, 100 * time.Millisecond, time.Second, 2500 * time.Millisecond, 10 * time.Second, 59 * time.Second} {
					if excess := f.excess(w); excess > instances*(c.size-1) {
						t.Errorf("%v, %s: in some %v %d more than the store admits were admitted, bound %d", a, c.what, w, excess, instances*(c.size-1))
					}
				}
			})
		}
	}
}

// The excess is real, and a shorter MaxAge makes it less; a window's Rate of 100 stays within 190 in any second. R94.
func TestLeaseExcess(t *testing.T) {
	t.Parallel()
	excess := func(limit ratelimit.Limit, size int64, maxAge, w time.Duration, most func(step, instance int) int) (n int64) {
		synctest.Test(t, func(t *testing.T) {
			f := newLeaseFleet(t, limit, 10, ratelimit.LeaseOptions{Size: size, MaxAge: maxAge})
			f.run(t, 6000, most)
			n = f.excess(w)
		})
		return n
	}
	bucket := ratelimit.PerSecond(2000)
	long, short := excess(bucket, 50, time.Second, 0, bursts(3)), excess(bucket, 50, 100*time.Millisecond, 0, bursts(3))
	if long < 100 || short > 0 {
		t.Errorf("at once %d more than the capacity with a MaxAge of 1 s, %d with 100 ms", long, short)
	}
	counter := windowed(ratelimit.PerSecond(100), ratelimit.SlidingCounter)
	if n := 200 + excess(counter, 10, time.Second, time.Second, greedy); n > 190 {
		t.Errorf("%d in a second", n)
	}
}

// What is held is short elsewhere: at most Size-1 an instance, for 5/4 of MaxAge.
func TestLeaseUndershoot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newLeaseFleet(t, ratelimit.Limit{Rate: 1, Period: time.Hour, Burst: 100_000}, 10, ratelimit.LeaseOptions{})
		f.run(t, 100, bursts(3))
		left := f.limit.Capacity()
		for _, a := range f.admitted {
			left -= a
		}
		short := left - remaining(t, f.store, "k", f.limit)
		if short < 1 || short > 10*49 {
			t.Errorf("%d units are held, bound %d", short, 10*49)
		}
		time.Sleep(1250 * time.Millisecond)
		if n := remaining(t, f.store, "k", f.limit); n != left {
			t.Errorf("after 5/4 of MaxAge %d remain, want %d", n, left)
		}
	})
}
