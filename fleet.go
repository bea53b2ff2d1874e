package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// FleetOptions are the options of NewFleet. The zero value is the default.
type FleetOptions struct {
	// Name tells apart fleets that share a store: all instances of one service have the same. Empty means "fleet".
	Name string
	// Interval is how often an instance is heard of, 1 ms to an hour, in whole microseconds. 0 means a second.
	Interval time.Duration
	// OnError, if not nil, is told each time the store could not be asked. It is called by the Fleet's own goroutine.
	OnError func(error)
}

// A Fleet counts the live instances of a service through the store they share, for FallbackOptions.Instances. It is
// safe for concurrent use and owns a goroutine until Close.
//
// Every instance spends one unit an Interval from a sliding log of ten Intervals, which so holds ten units for each; an
// instance that is new, or could not be heard for a while, spends at once what it owes, at most ten. Instances is a
// tenth of what is in the log, and the most that it was in the last twelve Intervals.
//
// So the count does not fall short of the instances that the store hears. What it exceeds them by passes: an instance
// that leaves or crashes counts for up to 22 Intervals more, and one that joins counts up to twice for as long. A
// rolling replacement of 10 instances by 10 others is at most 30, and 10 again 22 s after the last: the shares of an
// outage just then are too small, never too large.
//
// While the store does not answer the last count stands, also through its return with an empty memory: the instances
// have paid in again before it is forgotten. Up to 10,000 instances are counted.
//
// The store's clock decides, so the clocks of the instances do not matter. Give it the store itself and no wrapper: an
// answer that is not the store's own is an error here.
type Fleet struct {
	store    Store
	key      string
	limit    Limit
	interval time.Duration
	onError  func(error)

	count  atomic.Int64
	lately [memory]int64 // what was counted last
	at     int
	paid   time.Time

	cancel context.CancelFunc
	done   chan struct{}
}

// beats is how many units an instance keeps in the log: a beat more or less, early or late, is no instance.
const beats = 10

// memory is for how many Intervals a count is remembered: for as long as it takes all others to fill a log that has
// lost its memory, and a beat of one's own to see it.
const memory = beats + 2

// NewFleet starts to be counted and to count in the store. It does not wait for the store, and Instances is 1 until it
// has answered.
func NewFleet(store Store, o FleetOptions) (*Fleet, error) {
	if store == nil {
		return nil, errors.New("ratelimit: store is nil")
	}
	if o.Interval == 0 {
		o.Interval = time.Second
	}
	if o.Interval < time.Millisecond || o.Interval > time.Hour || o.Interval%time.Microsecond != 0 {
		return nil, fmt.Errorf("ratelimit: FleetOptions.Interval %v is outside 1ms to 1h in whole microseconds", o.Interval)
	}
	if o.Name == "" {
		o.Name = "fleet"
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Fleet{
		store:    store,
		key:      Key(o.Name),
		limit:    Limit{Name: "fleet", Algorithm: SlidingLog, Rate: maxLogRate, Period: beats * o.Interval},
		interval: o.Interval,
		onError:  o.OnError,
		cancel:   cancel,
		done:     make(chan struct{}),
	}
	f.count.Store(1)
	go f.run(ctx)
	return f, nil
}

// Instances returns how many instances there are, at least 1. It does not wait for anything.
func (f *Fleet) Instances() int { return int(f.count.Load()) }

// Close stops counting, and being counted, and waits for the goroutine. The error is always nil. Closing again does
// nothing.
func (f *Fleet) Close() error {
	f.cancel()
	<-f.done
	return nil
}

func (f *Fleet) run(ctx context.Context) {
	defer close(f.done)
	f.beat(ctx)
	// Instances that start together beat at different times, so that the store does not hear all of them at once.
	if sleep(ctx, rand.N(f.interval)) != nil {
		return
	}
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	for {
		f.beat(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// beat pays what is owed since the last time and counts what is in the log.
func (f *Fleet) beat(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, f.interval)
	defer cancel()
	now := time.Now()
	owed := int64(beats)
	if !f.paid.IsZero() {
		owed = min(owed, max(1, int64(now.Sub(f.paid).Round(f.interval)/f.interval)))
	}
	res, err := f.pay(call, owed)
	if err == nil && res.Source != SourceStore {
		err = fmt.Errorf("%w: a fleet was counted by the %v", ErrStoreUnavailable, res.Source)
	}
	if err != nil {
		if f.onError != nil && ctx.Err() == nil {
			guard(func() { f.onError(err) })
		}
		return
	}
	if res.Allowed {
		f.paid = now
	}
	f.lately[f.at] = (res.Limit - res.Remaining + beats/2) / beats
	f.at = (f.at + 1) % memory
	f.count.Store(max(1, slices.Max(f.lately[:])))
}

// pay spends from the log. A store that panics must not end the process.
func (f *Fleet) pay(ctx context.Context, owed int64) (res Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	return f.store.Take(ctx, Request{Key: f.key, Limit: &f.limit, Cost: owed})
}
