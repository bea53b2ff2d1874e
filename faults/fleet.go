package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

const (
	// Instances is how many processes a Fleet stands for.
	Instances = 5
	callers   = 8 // of each
	pace      = 100 * time.Millisecond
)

// An Instance is one of a Fleet: a client and all that is built on it, of its own.
type Instance struct {
	Store    ratelimit.Store // behind Fallback
	Fallback *ratelimit.Fallback

	end func()
}

var fleets gate

// A Fleet shares its limits over one server.
type Fleet struct {
	History

	Instances []*Instance

	timeout  time.Duration             // of a decision on the store
	rest     time.Duration             // of an open breaker, at most
	opened   atomic.Pointer[time.Time] // when a breaker first did
	mistakes mistakes
	label    string // of all goroutines that descend from the fleet
	tb       testing.TB
	stop     context.CancelFunc
	load     sync.WaitGroup
}

// NewFleet starts a Fleet, each of whose instances connects for itself, with these options; those that are hooks of
// its own it sets itself. Its load begins with Load. All of it ends with the test, which fails if a goroutine is left.
func NewFleet(tb testing.TB, connect func() (store ratelimit.Store, end func()), o ratelimit.FallbackOptions) *Fleet {
	tb.Helper()
	f := &Fleet{tb: tb, label: newLabel()}
	if o.Instances == nil {
		o.Instances = func() int { return Instances }
	}
	f.timeout, f.rest = o.Timeout, o.OpenFor*5/4
	if o.Timeout == 0 {
		f.timeout = 5 * time.Millisecond
	}
	if o.OpenFor == 0 {
		f.rest = time.Second * 5 / 4
	}
	o.OnStateChange = func(_, to ratelimit.BreakerState) {
		if to == ratelimit.BreakerOpen {
			now := time.Now()
			f.opened.CompareAndSwap(nil, &now)
		}
	}
	o.OnError = f.mistakes.add
	fleets.enter()
	tb.Cleanup(f.end)
	for range Instances {
		var store ratelimit.Store
		var end func()
		labelled(f.label, func() { store, end = connect() })
		fallback, err := ratelimit.NewFallback(store, memstore.New(memstore.Options{}), o)
		if err != nil {
			tb.Fatal(err)
		}
		f.Instances = append(f.Instances, &Instance{store, fallback, end})
	}
	return f
}

// mistakes are what Options.OnError was told.
type mistakes struct {
	mu   sync.Mutex
	last error
	n    int
}

func (m *mistakes) add(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = err
	m.n++
}

// Mistakes returns how many mistakes in the set-up the instances were told of, and one of them.
func (f *Fleet) Mistakes() (n int, last error) {
	f.mistakes.mu.Lock()
	defer f.mistakes.mu.Unlock()
	return f.mistakes.n, f.mistakes.last
}

// A use is a limit, the keys it holds for, and its part of the load.
type use struct {
	limit ratelimit.Limit
	keys  []string
	part  int
}

// uses are what the load asks for. The first three keys ask for several times what there is; of the fourth limit an
// instance's share is less than a unit; the rest is plenty.
var uses = []use{
	{ratelimit.Limit{Name: "hot", Rate: 100, Period: time.Second, Burst: 20}, []string{"a"}, 8},
	{ratelimit.Limit{Name: "hot", Algorithm: ratelimit.SlidingLog, Rate: 20, Period: 200 * time.Millisecond}, []string{"a"}, 8},
	{ratelimit.Limit{Name: "hot", Algorithm: ratelimit.SlidingCounter, Rate: 20, Period: 200 * time.Millisecond}, []string{"a"}, 4},
	{ratelimit.Limit{Name: "few", Rate: 3, Period: time.Second}, []string{"a", "b", "c"}, 2},
	{ratelimit.Limit{Name: "cold", Rate: 1000, Period: time.Second}, []string{"d", "e", "f", "g", "h"}, 2},
}

func pick() (*use, string) {
	sum := 0
	for i := range uses {
		sum += uses[i].part
	}
	n := rand.IntN(sum)
	for i := range uses {
		if n -= uses[i].part; n < 0 {
			return &uses[i], uses[i].keys[rand.IntN(len(uses[i].keys))]
		}
	}
	panic("unreachable")
}

// Load has every instance's callers ask, each at a steady pace, until Stop.
func (f *Fleet) Load() {
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	for i := range f.Instances {
		for range callers {
			f.Go(func() {
				<-time.After(rand.N(pace)) // out of step with the others
				ticks := time.NewTicker(pace)
				defer ticks.Stop()
				for {
					select {
					case <-ticks.C:
					case <-ctx.Done():
						return
					}
					if rand.IntN(8) == 0 {
						f.TakeAll(context.Background(), i, "a", &uses[0].limit, &uses[1].limit)
						continue
					}
					u, key := pick()
					f.Take(context.Background(), i, key, &u.limit, 1+rand.Int64N(2))
				}
			})
		}
	}
}

// Go runs a part of the load, for which Stop waits.
func (f *Fleet) Go(part func()) {
	f.load.Go(func() { labelled(f.label, part) })
}

// answers is how long from now a call is answered by a timer at the latest: the fallback's or its caller's own.
func (f *Fleet) answers(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(f.timeout, time.Until(deadline))
	}
	return f.timeout
}

// Take has one instance decide, and records it.
func (f *Fleet) Take(ctx context.Context, instance int, key string, limit *ratelimit.Limit, cost int64) Decision {
	defer machine.Expect(f.answers(ctx))()
	d := Decision{Instance: instance, Key: key, Limit: *limit, Cost: cost, Start: time.Now()}
	d.Result, d.Err = f.Instances[instance].Fallback.Take(ctx, ratelimit.Request{Key: key, Limit: limit, Cost: cost})
	d.End = time.Now()
	f.Add(d)
	return d
}

// TakeAll has one instance spend a unit under each of several limits together, and records it.
func (f *Fleet) TakeAll(ctx context.Context, instance int, key string, limits ...*ratelimit.Limit) {
	var reqs []ratelimit.Request
	for _, l := range limits {
		reqs = append(reqs, ratelimit.Request{Key: key, Limit: l, Cost: 1})
	}
	defer machine.Expect(f.answers(ctx))()
	start := time.Now()
	results, err := f.Instances[instance].Fallback.TakeAll(ctx, reqs)
	end := time.Now()
	for i, l := range limits {
		d := Decision{Instance: instance, Key: key, Limit: *l, Cost: 1, Together: len(limits), Err: err, Start: start, End: end}
		if err == nil {
			d.Result = results[i]
		}
		f.Add(d)
	}
}

// Stop ends Load and waits for its callers.
func (f *Fleet) Stop() {
	if f.stop != nil {
		f.stop()
	}
	f.load.Wait()
}

// end closes everything and checks that nothing is left.
func (f *Fleet) end() {
	defer fleets.leave()
	f.Stop()
	for _, i := range f.Instances {
		if err := i.Fallback.Close(); err != nil {
			f.tb.Error(err)
		}
		i.end()
	}
	if err := poll(patience, 100*time.Millisecond, func() error { // to look is dear
		err := leftover(f.label)
		if err != nil { // go-redis, closed while it asks a sentinel for the master, listens to that until it is closed again
			for _, i := range f.Instances {
				i.end()
			}
		}
		return err
	}); err != nil {
		f.tb.Error(err)
	}
}

// patience is how long anything may take that is bound to happen. Only a failure spends it.
const patience = 20 * time.Second

// Poll calls f until it returns nil, or d has passed, and returns what it returned last.
func Poll(d time.Duration, f func() error) error { return poll(d, 20*time.Millisecond, f) }

func poll(d, pause time.Duration, f func() error) error {
	for deadline := time.Now().Add(d); ; {
		err := f()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		<-time.After(pause)
	}
}

// open returns nil if the breakers of all instances are open.
func (f *Fleet) open() error {
	for i, n := range f.Instances {
		if s := n.Fallback.State(); s != ratelimit.BreakerOpen {
			return fmt.Errorf("the breaker of instance %d is %v", i, s)
		}
	}
	return nil
}
