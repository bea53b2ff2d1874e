package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// LeaseOptions are how a Lease is built; the zero value is the default.
type LeaseOptions struct {
	// Size is how many units one call of the store spends ahead at most, with the unit of the call itself, up to 1e9; 0
	// means 50, and 1 is no lease at all. A call for several callers spends the units of them all besides.
	Size int64
	// MaxAge is how long units may be held unspent, 1 ms or more; 0 means 1 s, and above 366 days is 366 days.
	MaxAge time.Duration
	// MaxKeys is how many states are followed at most; 0 means 100,000. Those that were not asked for lately make room,
	// and what was held of them goes back.
	MaxKeys int
	// Clock tells the time, for MaxAge; nil means time.Now, and then steps of the wall clock do not matter. It need not
	// agree with the store's.
	Clock func() time.Time
}

// A Lease is a Store that spends units of hot keys ahead of need: it has them debited in the store, with Request.Extra,
// and admits from memory as long as they last. With a Size of 50 such a key costs the store one call per 43 units or more.
//
// What is admitted was debited before, so the limit holds for the whole fleet; but units may be debited in one window and
// admitted in the next. In any time w, with n instances, at most
//
//	Capacity + Rate × w/Period + n × (Size−1)
//
// units are admitted: with 1000 per second, 10 instances and Size 50, at most 2490 in any second, where the store alone
// may admit 2000. The last term does not grow with w, so there is no excess in the long run. In turn a caller may be
// denied while other instances hold up to (n−1) × (Size−1) units, for 5/4 of MaxAge and the time of a call at most.
//
// The lease of a key follows its rate. Less than 8 calls in MaxAge lease nothing, and are exact. More lease what is spent
// in half of MaxAge, at most Size, and at most an eighth of what the store last said remains; below 64 that is nothing, so
// that it decides the last units itself. One call at a time fetches more, before the last is spent if what is left outlasts
// the call. Nobody waits for the store while there are units left. Those who find none are asked for together, with what
// is fetched ahead, and get their units in the order they came; as many as want Size units by then do not wait for a call
// that is under way. Who wants more than is leased, and for whom the store has too little, asks for itself.
//
// What was not spent MaxAge after its debit is not spent any more. It goes back to the store, with the next call for the
// key or by a timer. It also goes back on Close, when a call comes with another limit, by value, and when the table is
// full. Where that fails, when all who wait for a call give up, and when the process dies, it is lost: units are never
// made. A Reset drops what is held. While the store is away what is held is spent, until MaxAge; then calls return the
// store's errors.
//
// An admission from memory has Source SourceLease. Its ResetAfter is as of the store's last answer, and so is its
// Remaining, with what is held here. A call that asks the store spends what is held first, and so does a TakeAll, which
// leases nothing itself. Cost 0 looks in the store and adds what is held; a negative cost and a sliding log go to the
// store.
//
// A Lease is safe for concurrent use. Its errors are those of Request.Validate, of the store, and ctx's.
type Lease struct {
	store      Store
	clock      stopwatch
	most       int64 // held of one state
	maxAge     time.Duration
	held       *table[holding]
	closed     atomic.Bool
	background leaseBackground
}

var _ Store = (*Lease)(nil)

// NewLease returns a Lease over store, to be closed. It is an error if store is nil or an option is out of its bounds.
func NewLease(store Store, o LeaseOptions) (*Lease, error) {
	if store == nil {
		return nil, errors.New("ratelimit: store is nil")
	}
	if o.Size < 0 || o.Size > maxRate {
		return nil, fmt.Errorf("ratelimit: LeaseOptions.Size %d is outside 0 to %d", o.Size, maxRate)
	}
	if o.MaxAge < 0 || o.MaxAge > 0 && o.MaxAge < time.Millisecond {
		return nil, fmt.Errorf("ratelimit: LeaseOptions.MaxAge %v is neither 0 nor 1ms or more", o.MaxAge)
	}
	if o.MaxKeys < 0 {
		return nil, fmt.Errorf("ratelimit: LeaseOptions.MaxKeys %d is below 0", o.MaxKeys)
	}
	if o.Size == 0 {
		o.Size = 50
	}
	if o.MaxAge == 0 {
		o.MaxAge = time.Second
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = 100_000
	}
	o.MaxAge = min(o.MaxAge, maxPeriod) // so that it can be added to a time
	l := &Lease{store: store, clock: newStopwatch(o.Clock), most: o.Size - 1, maxAge: o.MaxAge}
	l.held = newTable(o.MaxKeys, l.evicted)
	l.background.init()
	return l, nil
}

// Unwrap returns the store.
func (l *Lease) Unwrap() Store { return l.store }

// Take admits req from what is held, or asks the store.
func (l *Lease) Take(ctx context.Context, req Request) (Result, error) {
	if err := req.Validate(); err != nil {
		return Result{}, err
	}
	if ctx.Err() != nil || l.closed.Load() || req.Limit.Algorithm == SlidingLog {
		return l.store.Take(ctx, req)
	}
	if capacity := req.Limit.Capacity(); req.Cost > capacity {
		return Result{Limit: capacity, RetryAfter: Never, Name: req.Limit.Name}, nil
	}
	id := idOf(req.Key, req.Limit)
	if req.Cost < 0 || req.Cost == 0 && req.Extra == 0 {
		return l.pass(ctx, &id, req)
	}
	want := addCosts(req.Cost, req.Extra)
	for alone := false; ; alone = true {
		s, h, now := l.find(ctx, &id, req.Limit, true)
		if !alone {
			h.calls++
			h.asked = addCosts(h.asked, want)
		}
		if h.units() >= want {
			h.spend(want)
			res := h.result(now, want)
			l.fetchAhead(&id, h, now)
			s.Unlock()
			return res, nil
		}
		if h.fetch == nil {
			h.resize(now, l.most, l.maxAge)
		}
		if alone || want > h.target() {
			return l.ask(ctx, &id, req, s, h, now)
		}
		if res, err := l.wait(ctx, &id, want, s, h); err != nil || res.Allowed {
			return res, err
		}
	}
}

// pass asks the store about req and reports what is held as well.
func (l *Lease) pass(ctx context.Context, id *stateID, req Request) (Result, error) {
	s, _, _ := l.find(ctx, id, req.Limit, false)
	s.Unlock()
	res, err := l.store.Take(ctx, req)
	if err != nil {
		return res, err
	}
	s = l.held.lock(id)
	addHeld(&res, s.find(id), req.Limit)
	s.Unlock()
	return res, nil
}

// find returns what is held of id under limit, its shard locked. What is held too long, or under another limit, goes back
// first.
func (l *Lease) find(ctx context.Context, id *stateID, limit *Limit, add bool) (*tableShard[holding], *holding, time.Duration) {
	for {
		now := l.clock.now()
		s := l.held.lock(id)
		h := s.find(id)
		var rest int64
		switch {
		case h == nil:
		case h.limit != *limit:
			rest = h.takeAll()
			s.drop(id)
			h = nil
		default:
			rest = h.takeDead(now, l.maxAge)
		}
		if rest == 0 {
			if h == nil && add {
				h = s.add(id)
				h.limit, h.since = *limit, now
			}
			return s, h, now
		}
		s.Unlock()
		_ = l.give(ctx, unspent{id.key, *limit, rest}) // what fails here is lost
	}
}

// Reset forgets what key has spent, and drops what is held of it.
func (l *Lease) Reset(ctx context.Context, key string, limits ...*Limit) error {
	err := l.store.Reset(ctx, key, limits...)
	for _, limit := range limits {
		if limit == nil {
			continue
		}
		id := idOf(key, limit)
		s := l.held.lock(&id)
		if h := s.find(&id); h != nil {
			h.reset = true
			s.drop(&id)
		}
		s.Unlock()
	}
	return err
}
