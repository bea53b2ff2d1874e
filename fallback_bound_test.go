package ratelimit_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// A fleet is instances that share one limit on one key over one primary.
type fleet struct {
	limit     ratelimit.Limit
	share     ratelimit.Limit
	instances []*rig
	began     time.Time

	mu       sync.Mutex
	admitted []admission
}

// An admission lies somewhere between two times, since the fleet began.
type admission struct {
	start, end time.Duration
	units      int64
}

func newFleet(t testing.TB, n int, l ratelimit.Limit, openFor time.Duration) *fleet {
	t.Helper()
	share, err := ratelimit.Share(l, 1, int64(n))
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{limit: l, share: share, began: time.Now()}
	store := memstore.New(memstore.Options{})
	for range n {
		r := newRig(t, ratelimit.FallbackOptions{Instances: func() int { return n }, OpenFor: openFor})
		r.primary.store = store
		f.instances = append(f.instances, r)
	}
	return f
}

func (f *fleet) take(t testing.TB, r *rig, cost int64) {
	a := admission{start: time.Since(f.began)}
	res, err := r.Take(context.Background(), ratelimit.Request{Key: "k", Limit: &f.limit, Cost: cost})
	if err != nil {
		t.Error(err)
	}
	a.end, a.units = time.Since(f.began), res.Taken
	if res.Remaining < 0 || res.Remaining > res.Limit || res.Limit != f.limit.Capacity() {
		t.Errorf("%+v", res)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.admitted = append(f.admitted, a)
}

// admits is the most that a limit itself admits in any stretch of time as long as w.
func admits(l ratelimit.Limit, w time.Duration) int64 {
	periods := int64((w + l.Period - 1) / l.Period)
	switch {
	case l.Algorithm == ratelimit.TokenBucket:
		return l.Capacity() + w.Microseconds()*l.Rate/l.Period.Microseconds()
	case l.Algorithm == ratelimit.SlidingLog, l.Rate == 1: // a single unit wanes whole
		return l.Rate * (int64(w/l.Period) + 1)
	default:
		return l.Rate * (1 + max(1, periods)) // its estimate takes the window before as spent evenly
	}
}

// always is the bound that holds whatever fails and however often: what the primary admits, each time it forgot anew,
// and what each instance's share admits.
func (f *fleet) always(w time.Duration, forgot int64) int64 {
	return admits(f.limit, w) + forgot*f.limit.Capacity() + int64(len(f.instances))*admits(f.share, w)
}

// TestBoundNumbers: those of docs/fallback.md, and that shares sum to a limit and a unit each at most.
func TestBoundNumbers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 5, ratelimit.PerSecond(100), 0)
	if l, s, a := admits(f.limit, time.Second), 5*admits(f.share, time.Second), f.always(time.Second, 3); l != 200 || s != 200 || a != 700 {
		t.Errorf("%d with the store, %d without, %d always", l, s, a)
	}
	for _, l := range fleetLimits() {
		for n := 1; n < 120; n++ {
			share, err := ratelimit.Share(l, 1, int64(n))
			if err != nil {
				t.Fatal(err)
			}
			for w := time.Duration(0); w < 5*time.Second; w += 97 * time.Millisecond {
				if sum, most := int64(n)*admits(share, w), admits(l, w)+int64(n); sum > most {
					t.Errorf("%v: %d shares admit %d in %v, above %d", l, n, sum, w, most)
				}
			}
		}
	}
}

// check compares what was admitted in every stretch of time with a bound, and returns the most that it came to.
func (f *fleet) check(t testing.TB, bound func(from, to time.Duration) int64) (most float64) {
	t.Helper()
	f.admitted = slices.DeleteFunc(f.admitted, func(a admission) bool { return a.units <= 0 })
	slices.SortFunc(f.admitted, func(a, b admission) int { return int(a.end - b.end) })
	for i, first := range f.admitted {
		if i > 0 && f.admitted[i-1].start == first.start {
			continue
		}
		sum := int64(0)
		for _, a := range f.admitted {
			if a.start < first.start {
				continue
			}
			sum += a.units
			w := a.end - first.start
			b := bound(first.start, a.end)
			most = max(most, float64(sum)/float64(b))
			if sum > b {
				t.Errorf("%d units in the %v from %v on, above %d", sum, w, first.start, b)
				return most
			}
		}
	}
	return most
}

func fleetLimits() []ratelimit.Limit {
	bucket := ratelimit.Limit{Rate: 50, Period: time.Second, Burst: 20}
	log, counter := ratelimit.PerSecond(40), ratelimit.PerSecond(40)
	log.Algorithm, counter.Algorithm = ratelimit.SlidingLog, ratelimit.SlidingCounter
	return []ratelimit.Limit{bucket, ratelimit.PerSecond(3), log, counter}
}

// TestBoundWhateverFails: over random schedules of failures, of one instance's link or of all, slow or hung, with calls that
// are executed and never answered, and of a primary that forgets, no stretch of time sees more than the bound.
func TestBoundWhateverFails(t *testing.T) {
	for _, l := range fleetLimits() {
		for _, n := range []int{1, 5} {
			seed := rand.Uint64()
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 0))
				f := newFleet(t, n, l, 0)
				forgot := int64(0)
				hows := []func(context.Context) error{nil, nil, nil, down, hung, slow(3 * time.Millisecond), slow(10 * time.Millisecond)}
				var wg sync.WaitGroup
				for range 1500 {
					time.Sleep(time.Duration(r.ExpFloat64()*4000) * time.Microsecond)
					switch r.IntN(100) {
					case 0:
						how := hows[r.IntN(len(hows))]
						for _, one := range f.instances {
							one.primary.fail(how)
						}
					case 1, 2:
						one := f.instances[r.IntN(n)].primary
						one.lost.Store(r.IntN(2) == 0)
						one.fail(hows[r.IntN(len(hows))])
					case 3:
						if r.IntN(4) > 0 {
							break
						}
						forgot++
						if err := f.instances[0].primary.store.Reset(t.Context(), "k", &f.limit); err != nil {
							t.Fatal(err)
						}
					}
					one, cost := f.instances[r.IntN(n)], 1+r.Int64N(3)
					wg.Go(func() { f.take(t, one, cost) })
				}
				wg.Wait()
				most := f.check(t, func(from, to time.Duration) int64 { return f.always(to-from, forgot) })
				t.Logf("%v, %d instances: at most %.2f of the bound", l, n, most)
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			})
		}
	}
}

// A gift is what an outage adds to the bound of a stretch of time that touches it.
type gift struct {
	from, to time.Duration
	units    int64
}

// TestBoundOfOutages: where all instances lose the primary together, come back together, and what they owe is charged before
// it decides again, an outage adds no more than a unit an instance and one, for the fractions of the shares and of the
// primary, and what the others had spent since an instance last heard of the key.
func TestBoundOfOutages(t *testing.T) {
	const openFor = 8 * time.Millisecond // short, so that there is much to charge
	for _, l := range fleetLimits() {
		for _, n := range []int{1, 2, 5} {
			for _, fresh := range []bool{true, false} {
				seed := rand.Uint64()
				synctest.Test(t, func(t *testing.T) {
					r := rand.New(rand.NewPCG(seed, 0))
					f := newFleet(t, n, l, openFor)
					var outages []gift
					since := make([]int64, n)
					phase := func() {
						for range 20 + r.IntN(300) {
							time.Sleep(time.Duration(r.ExpFloat64()*4000) * time.Microsecond)
							i := r.IntN(n)
							before := len(f.admitted)
							f.take(t, f.instances[i], 1+r.Int64N(2))
							for j := range since {
								since[j] += f.admitted[before].units
							}
							since[i] = 0
						}
					}
					for range 6 {
						phase()
						if fresh {
							for _, one := range f.instances {
								f.take(t, one, 0)
							}
							clear(since)
						}
						outage := gift{from: time.Since(f.began), units: slices.Max(since) + int64(n) + 1}
						for _, one := range f.instances {
							one.open(t)
							one.primary.fail(down)
						}
						phase()
						for _, one := range f.instances {
							one.open(t)
						}
						time.Sleep(openFor*5/4 + time.Microsecond) // the longest rest, so that they come back at one time
						for _, one := range f.instances {
							one.back(t)
						}
						clear(since)
						outage.to = time.Since(f.began)
						outages = append(outages, outage)
					}
					phase()
					most := f.check(t, func(from, to time.Duration) int64 {
						sum := admits(l, to-from)
						for _, o := range outages {
							if o.from <= to && from <= o.to {
								sum += o.units
							}
						}
						return sum
					})
					t.Logf("%v, %d instances, fresh %v: at most %.2f of the bound", l, n, fresh, most)
					if t.Failed() {
						t.Logf("seed %d", seed)
					}
				})
			}
		}
	}
}

// TestFlapping runs in real time, for the race detector: 64 callers, a primary that comes and goes.
func TestFlapping(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4, ratelimit.Limit{Rate: 1000, Period: time.Second, Burst: 500}, 10*time.Millisecond)
	stop := make(chan struct{})
	var flaps, callers sync.WaitGroup
	flaps.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(3 * time.Millisecond):
			}
			how := []func(context.Context) error{nil, down, nil, slow(time.Millisecond), nil, hung}[i%6]
			for _, r := range f.instances {
				r.primary.fail(how)
			}
		}
	})
	for i := range 64 {
		callers.Go(func() {
			r := f.instances[i%4]
			for j := range 300 {
				f.take(t, r, 1)
				switch {
				case i == 0 && j%50 == 0:
					if err := r.Reset(t.Context(), "another", &f.limit); err != nil && !isUnavailable(err) && err != context.DeadlineExceeded {
						t.Error(err)
					}
				case j%10 == 0:
					r.State()
				}
			}
		})
	}
	callers.Wait()
	close(stop)
	flaps.Wait()
	f.check(t, func(from, to time.Duration) int64 { return f.always(to-from, 0) })
}
