package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// FallbackOptions are how a Fallback is built; the zero value is the default. All hooks may be called by many
// goroutines at once, and by the one whose decision it is, so they are quick; a panic of theirs is dropped.
type FallbackOptions struct {
	// Timeout is the whole budget of one call of the primary: waiting for a connection, dialling, writing, reading.
	// 0 means 5 ms.
	Timeout time.Duration
	// Instances is how many share the limits: each gives 1/Instances() of a limit while the primary is away. It is
	// called by each decision made then. Below 1 counts as 1. Nil means one, so that each of N processes gives
	// the whole limit: a line in the log says so once.
	Instances func() int
	// Mode is what becomes of a decision while the primary is away, for limits whose OnFailure is FailDefault.
	// FailDefault means FailLocal.
	Mode FailureMode
	// MaxKeys bounds the memory: of how many states it is kept what the primary last said, and of how many what it
	// is owed. 0 means 100,000.
	MaxKeys int

	// Window is over how long failures are counted. 0 means 1 s.
	Window time.Duration
	// MinCalls is how many calls must have ended within Window before it can be an outage. 0 means 20.
	MinCalls int
	// FailureRatio is what part of them must have failed, above 0 and up to 1. 0 means 0.5.
	FailureRatio float64
	// OpenFor is how long the primary is left alone then, give or take a quarter that each Fallback draws for itself
	// once, so that a fleet does not come back in step. 0 means 1 s.
	OpenFor time.Duration
	// Probes is how many decisions ask the primary then, and must all succeed before the others do. 0 means 3.
	Probes int

	// OnStateChange is told of each move of the breaker, in order. It may call State. Nil means a line in slog's
	// default log when the primary goes away and one when it is back; failed probes are at level Debug.
	OnStateChange func(from, to BreakerState)
	// OnError is told of each mistake in the set-up: ErrMisconfigured, ErrCrossSlot, a panic of the primary, any
	// error that is not known. Nil means slog's default log, at most once a second.
	OnError func(error)
	// Clock tells the age of what the primary last said. Nil means time.Now, and then steps of the wall clock do not
	// matter. Timeout, Window and OpenFor always run by the runtime's own time.
	Clock func() time.Time
}

// withDefaults returns o with every field set that has a default, or an error that names the field and its bound.
func (o FallbackOptions) withDefaults() (FallbackOptions, error) {
	for _, d := range []struct {
		name     string
		field    *time.Duration
		least    time.Duration
		standard time.Duration
	}{
		{"Timeout", &o.Timeout, time.Microsecond, 5 * time.Millisecond},
		{"Window", &o.Window, time.Millisecond, time.Second},
		{"OpenFor", &o.OpenFor, time.Millisecond, time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.standard
		}
		if *d.field < d.least || *d.field > time.Hour {
			return o, fmt.Errorf("ratelimit: %s %v is outside %v to 1h", d.name, *d.field, d.least)
		}
	}
	for _, n := range []struct {
		name     string
		field    *int
		standard int
	}{{"MaxKeys", &o.MaxKeys, 100_000}, {"MinCalls", &o.MinCalls, 20}, {"Probes", &o.Probes, 3}} {
		if *n.field == 0 {
			*n.field = n.standard
		}
		if *n.field < 1 || *n.field > math.MaxInt32 {
			return o, fmt.Errorf("ratelimit: %s %d is outside 1 to %d", n.name, *n.field, math.MaxInt32)
		}
	}
	if o.FailureRatio == 0 {
		o.FailureRatio = 0.5
	}
	if !(o.FailureRatio > 0 && o.FailureRatio <= 1) {
		return o, fmt.Errorf("ratelimit: FailureRatio %v is outside 0 to 1", o.FailureRatio)
	}
	if int(o.Mode) >= len(failureModeNames) {
		return o, fmt.Errorf("ratelimit: unknown Mode %d", uint8(o.Mode))
	}
	if o.Mode == FailDefault {
		o.Mode = FailLocal
	}
	return o, nil
}

// A Fallback is a Store that decides on a primary, and without it while that one is slow or gone: on a secondary with
// this instance's share of each limit, or as Limit.OnFailure and FallbackOptions.Mode say. Result.Source tells who
// decided. It is safe for concurrent use.
//
// A decision waits for the primary no longer than FallbackOptions.Timeout and a millisecond, and not at all while the
// breaker is open: after FailureRatio of at least MinCalls calls within Window failed. An outage is a time-out and
// ErrStoreUnavailable. A caller whose own context ends gets that context's error, and nothing is spent for it on the
// secondary; it says nothing of the primary's health, nor do ErrInvalidKey, ErrInvalidLimit and ErrInvalidCost, which
// are returned. All other errors are mistakes in the set-up: FallbackOptions.OnError is told, and the decision is that
// of the local share whatever the mode, so that a rotated password opens no door.
//
// Let L be what a limit admits in some stretch of time, such as 200 in a second of 100 per second with a burst of 100. N
// instances that all know N admit, while all are without the primary, up to L + N. A change-over adds what an instance
// cannot know of the others. Whatever fails and however often, it is never more than 2L + N, here 405 for five, and a
// capacity more for each time the primary itself forgot. docs/fallback.md has the terms. On the other side, a call that
// was given up may have been carried out: its cost then counts on the primary, and on the secondary again.
type Fallback struct {
	primary, secondary Store

	o       FallbackOptions
	breaker *breaker
	shares  shareCache
	count   atomic.Int64 // what Instances last returned
	started time.Time
	refuses atomic.Bool  // the last that the primary had to say was a refusal
	spoke   atomic.Int64 // when a mistake was last logged, since started; 0: never
	known   *table[known]
	// renewing is held by who exchanges what a local window holds, and shared by who spends from any.
	renewing sync.RWMutex
	debts    debts
}

var _ Store = (*Fallback)(nil)

// NewFallback returns a Fallback over primary. The secondary is a store in this process's memory: it is asked with a
// lock held and is taken to answer always; no other wrapper uses it. The error names a field that is out of bounds.
func NewFallback(primary, secondary Store, o FallbackOptions) (*Fallback, error) {
	if primary == nil || secondary == nil {
		return nil, errors.New("ratelimit: primary or secondary store is nil")
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	f := &Fallback{primary: primary, secondary: secondary, o: o, started: time.Now()}
	f.count.Store(1)
	f.known = newTable[known](o.MaxKeys, nil)
	f.debts.init(o.MaxKeys)
	f.breaker = newBreaker(&f.o, f.moved)
	if o.Instances == nil {
		logAlone()
	}
	return f, nil
}

// Unwrap returns the primary.
func (f *Fallback) Unwrap() Store { return f.primary }

// State returns the state of the breaker. While that is not closed, decisions need not be the primary's: Result.Source tells.
func (f *Fallback) State() BreakerState { return f.breaker.state() }

// Close waits for the charging of debts to end, which is at once, and forgets those that are left. The stores stay
// open, and decisions go on, without further debts.
func (f *Fallback) Close() error {
	f.debts.close()
	return nil
}

// Take decides req.
func (f *Fallback) Take(ctx context.Context, req Request) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	if err := req.Validate(); err != nil {
		return Result{}, err
	}
	if capacity := req.Limit.Capacity(); req.Cost > capacity {
		return Result{Limit: capacity, RetryAfter: Never, Name: req.Limit.Name}, nil
	}
	var res Result
	v, err := f.ask(ctx, func(ctx context.Context) (err error) {
		res, err = f.primary.Take(ctx, req)
		return err
	})
	switch v {
	case answered:
		f.learn(req.Key, req.Limit, &res)
		f.payDebts()
		return res, nil
	case returned:
		return Result{}, err
	}
	return f.takeAway(ctx, req, v == refused)
}

// TakeAll decides reqs together.
func (f *Fallback) TakeAll(ctx context.Context, reqs []Request) ([]Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	batch, err := Merge(reqs)
	if err != nil || len(reqs) == 0 {
		return nil, err
	}
	var results []Result
	v, err := f.ask(ctx, func(ctx context.Context) (err error) {
		results, err = takeAll(ctx, f.primary, batch.Requests)
		return err
	})
	switch v {
	case answered:
		for i := range results {
			f.learn(batch.Requests[i].Key, batch.Requests[i].Limit, &results[i])
		}
		f.payDebts()
	case returned:
		return nil, err
	default:
		results, err = f.takeAllAway(ctx, batch.Requests, v == refused)
		if err != nil {
			return nil, err
		}
	}
	return batch.Results(results), nil
}

// Reset forgets what key has spent, here and on the primary. The error is the primary's, or ErrStoreUnavailable while
// that is not asked; what is known here is forgotten all the same.
func (f *Fallback) Reset(ctx context.Context, key string, limits ...*Limit) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(limits) == 0 {
		return fmt.Errorf("%w: none to reset", ErrInvalidLimit)
	}
	for _, l := range limits {
		req := Request{Key: key, Limit: l}
		if err := req.Validate(); err != nil {
			return err
		}
	}
	local := make([]*Limit, len(limits))
	for i, l := range limits {
		share, err := f.share(l)
		if err != nil {
			return err
		}
		local[i] = share
		f.forget(idOf(key, l))
	}
	if err := f.secondary.Reset(ctx, key, local...); err != nil {
		return err
	}
	_, err := f.ask(ctx, func(ctx context.Context) error { return f.primary.Reset(ctx, key, limits...) })
	return err
}

// now is the time of what is known, since some beginning.
func (f *Fallback) now() time.Duration {
	if f.o.Clock == nil {
		return time.Since(f.started)
	}
	return f.o.Clock().Sub(f.started)
}
