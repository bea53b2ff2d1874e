// Package ratelimit decides whether a key may spend units now: by token bucket, sliding log or sliding counter, exactly
// across a fleet over a shared Store, or within one process over memory.
//
//	limiter, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{}), ratelimit.PerSecond(10))
//	…
//	res, err := limiter.Allow(ctx, ratelimit.Key("user-123", "search"), 1)
//	if err != nil {
//		// The store could not be asked: ErrStoreUnavailable is an outage, and whether to serve is yours to say.
//	}
//	if !res.Allowed {
//		// Denied, which is no error. The same cost fits after res.RetryAfter.
//	}
//
// Most callers need New and its shortcuts, Limit, Limiter, Result and Key. For those who write a Store there are Request and
// Merge with its Batch, Machine with State, Step, StepAll and Outcome, and AppendKey, BareKey and SameTag.
package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// A Limiter decides whether key may spend cost now. It is safe for concurrent use.
type Limiter interface {
	// Allow spends cost for key if the limits have room for it, and reports the decision either way.
	// A denial is not an error. Cost 0 reports without spending.
	Allow(ctx context.Context, key string, cost int64) (Result, error)
}

// LimiterFunc makes a function a Limiter.
type LimiterFunc func(ctx context.Context, key string, cost int64) (Result, error)

// Allow calls f.
func (f LimiterFunc) Allow(ctx context.Context, key string, cost int64) (Result, error) {
	return f(ctx, key, cost)
}

// A Refunder is a Limiter that can give units back. Wrappers of Limiters forward it.
type Refunder interface {
	// Refund gives n units back, n above 0, and reports how the key stands then.
	Refund(ctx context.Context, key string, n int64) (Result, error)
}

// A Describer is a Limiter that can tell its limits. Wrappers of Limiters forward it.
type Describer interface {
	// LimitsFor returns the limits that apply to key, for the caller to keep.
	LimitsFor(key string) []Limit
}

// Never is the RetryAfter of a cost above the capacity.
const Never time.Duration = math.MaxInt64

// A Result is one decision. Times are in whole microseconds. Where RetryAfter is Never nobody looked at the state, and
// Remaining and ResetAfter are 0.
type Result struct {
	Allowed    bool
	Limit      int64         // most that can be spent at once from rest; 0 where no limit holds
	Remaining  int64         // what could be spent right after this decision, 0 <= Remaining <= Limit, rounded down
	RetryAfter time.Duration // 0 if Allowed; else the shortest wait after which the same cost fits; Never if it never will
	ResetAfter time.Duration // until the key is as if unused
	Taken      int64         // what was spent: cost, or with Request.Extra up to cost+Extra; 0 if denied
	Name       string        // Limit.Name of the limit that decided (the binding one of several)
	Source     Source        // who decided

	// An array makes Go return a Result in memory: in registers it is spilled and gathered again on each level, which takes
	// longer. This one rounds its size up as well.
	_ [2]uint32
}

// A StoreLimiter applies one limit or several to every key, over a Store. It is safe for concurrent use and has nothing
// to close.
type StoreLimiter struct {
	store  Store
	limits []Limit
	most   int64 // the least capacity: a cost above it never fits
	line   line
}

var (
	_ Limiter   = (*StoreLimiter)(nil)
	_ Refunder  = (*StoreLimiter)(nil)
	_ Describer = (*StoreLimiter)(nil)
)

// New returns a limiter of up to MaxTakeAll limits: a call is admitted if all of them have room, and then spends from
// all; otherwise it spends from none. The same Algorithm and Name twice is ErrInvalidLimit.
func New(store Store, limits ...Limit) (*StoreLimiter, error) {
	if store == nil {
		return nil, errors.New("ratelimit: store is nil")
	}
	if len(limits) == 0 || len(limits) > MaxTakeAll {
		return nil, fmt.Errorf("%w: %d limits are outside 1 to %d", ErrInvalidLimit, len(limits), MaxTakeAll)
	}
	for i, l := range limits {
		if err := l.Validate(); err != nil {
			return nil, err
		}
		for _, other := range limits[:i] {
			if l.Algorithm == other.Algorithm && l.Name == other.Name {
				return nil, fmt.Errorf("%w: two limits are a %v of Name %q; tell them apart with Named", ErrInvalidLimit, l.Algorithm, l.Name)
			}
		}
	}
	most := limits[0].Capacity()
	for _, l := range limits[1:] {
		most = min(most, l.Capacity())
	}
	return &StoreLimiter{store: store, limits: slices.Clone(limits), most: most}, nil
}

// NewTokenBucket is New with limit as a TokenBucket.
func NewTokenBucket(store Store, limit Limit) (*StoreLimiter, error) {
	limit.Algorithm = TokenBucket
	return New(store, limit)
}

// NewSlidingLog is New with limit as a SlidingLog.
func NewSlidingLog(store Store, limit Limit) (*StoreLimiter, error) {
	limit.Algorithm = SlidingLog
	return New(store, limit)
}

// NewSlidingCounter is New with limit as a SlidingCounter.
func NewSlidingCounter(store Store, limit Limit) (*StoreLimiter, error) {
	limit.Algorithm = SlidingCounter
	return New(store, limit)
}

// LimitsFor returns the limits, which are the same for every key.
func (l *StoreLimiter) LimitsFor(string) []Limit { return slices.Clone(l.limits) }

// Allow spends cost for key if every limit has room for it. A cost above a limit's capacity is denied with RetryAfter
// Never, and the store is not asked. Errors: ErrInvalidCost below 0, ErrInvalidKey, and what the Store returns.
func (l *StoreLimiter) Allow(ctx context.Context, key string, cost int64) (Result, error) {
	if len(l.limits) == 1 && 0 <= cost && cost <= l.most && key != "" {
		return l.store.Take(ctx, Request{Key: key, Limit: &l.limits[0], Cost: cost})
	}
	return l.allow(ctx, key, cost)
}

// allow is Allow for what is seldom. It is a function of its own because a Result is large, and each copy of it is felt.
func (l *StoreLimiter) allow(ctx context.Context, key string, cost int64) (Result, error) {
	if cost < 0 {
		return Result{}, fmt.Errorf("%w: %d is below 0", ErrInvalidCost, cost)
	}
	if key == "" {
		return Result{}, ErrInvalidKey
	}
	if limit := l.never(cost); limit != nil {
		return Result{Limit: limit.Capacity(), RetryAfter: Never, Name: limit.Name}, nil
	}
	return l.take(ctx, key, cost, 0)
}

// never returns the first limit that cost cannot fit in, or nil.
func (l *StoreLimiter) never(cost int64) *Limit {
	for i := range l.limits {
		if cost > l.limits[i].Capacity() {
			return &l.limits[i]
		}
	}
	return nil
}

// Peek is Allow with cost 0: what is left, without spending.
func (l *StoreLimiter) Peek(ctx context.Context, key string) (Result, error) {
	return l.Allow(ctx, key, 0)
}

// Refund gives n units back to every limit, never past its capacity. Result.Taken is minus what the binding limit took
// back. n below 1 is ErrInvalidCost.
func (l *StoreLimiter) Refund(ctx context.Context, key string, n int64) (Result, error) {
	if n < 1 {
		return Result{}, fmt.Errorf("%w: a refund of %d is below 1", ErrInvalidCost, n)
	}
	return l.take(ctx, key, -n, 0)
}

// TakeUpTo spends as much of n as there is and reports it in Result.Taken; Allowed is true even if that is nothing.
// Of several limits the scarcest decides; if it has not room for n, a second call spends what there is, and a third
// where somebody else was quicker. n below 0 is ErrInvalidCost.
func (l *StoreLimiter) TakeUpTo(ctx context.Context, key string, n int64) (Result, error) {
	if n < 0 {
		return Result{}, fmt.Errorf("%w: %d is below 0", ErrInvalidCost, n)
	}
	if len(l.limits) == 1 {
		return l.take(ctx, key, 0, n)
	}
	for i := range l.limits {
		n = min(n, l.limits[i].Capacity())
	}
	// Nothing is taken to be given back: a log would give back older units than it took.
	for {
		results, err := takeAll(ctx, l.store, l.requests(key, n, 0))
		if err != nil {
			return Result{}, err
		}
		res := binding(results)
		if res.Allowed || n == 0 || res.Source == SourceFailClosed {
			return res, nil
		}
		n--
		if res.RetryAfter == Never { // the store gives a part of the limit, and has not said how much of it is left
			if results, err = takeAll(ctx, l.store, l.requests(key, 0, 0)); err != nil {
				return Result{}, err
			}
		}
		for _, r := range results {
			n = min(n, r.Remaining)
		}
	}
}

// Reset forgets what key has spent.
func (l *StoreLimiter) Reset(ctx context.Context, key string) error {
	limits := make([]*Limit, len(l.limits))
	for i := range l.limits {
		limits[i] = &l.limits[i]
	}
	return l.store.Reset(ctx, key, limits...)
}

// History returns what key has spent under the first SlidingLog limit and still counts, oldest first. It is
// errors.ErrUnsupported where there is no such limit or the Store is no Historian.
func (l *StoreLimiter) History(ctx context.Context, key string) ([]Entry, error) {
	for i := range l.limits {
		if l.limits[i].Algorithm == SlidingLog {
			return history(ctx, l.store, key, &l.limits[i])
		}
	}
	return nil, fmt.Errorf("ratelimit: history without a sliding log: %w", errors.ErrUnsupported)
}

func history(ctx context.Context, store Store, key string, limit *Limit) ([]Entry, error) {
	for store != nil {
		if h, ok := store.(Historian); ok {
			return h.History(ctx, key, limit)
		}
		w, ok := store.(interface{ Unwrap() Store })
		if !ok {
			break
		}
		store = w.Unwrap()
	}
	return nil, fmt.Errorf("ratelimit: the store keeps no history: %w", errors.ErrUnsupported)
}

func (l *StoreLimiter) take(ctx context.Context, key string, cost, extra int64) (Result, error) {
	if len(l.limits) == 1 {
		return l.store.Take(ctx, Request{Key: key, Limit: &l.limits[0], Cost: cost, Extra: extra})
	}
	results, err := takeAll(ctx, l.store, l.requests(key, cost, extra))
	if err != nil {
		return Result{}, err
	}
	return binding(results), nil
}

func (l *StoreLimiter) requests(key string, cost, extra int64) []Request {
	reqs := make([]Request, len(l.limits))
	for i := range reqs {
		reqs[i] = Request{Key: key, Limit: &l.limits[i], Cost: cost, Extra: extra}
	}
	return reqs
}

// binding picks the result that speaks for all: of a denial the longest wait, else the least that remains; of equals
// the first.
func binding(results []Result) Result {
	b := results[0]
	for _, r := range results[1:] {
		if r.RetryAfter > b.RetryAfter || r.Allowed && r.Remaining < b.Remaining {
			b = r
		}
	}
	return b
}
