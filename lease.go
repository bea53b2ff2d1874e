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
	// means 50, and 1 is no lease at all.
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
// and admits from memory as long as they last. With a Size of 50 such a key costs the store one call per 43 to 50 units.
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
// in half of MaxAge, at most Size, and at most an eighth of what the store last said remains, so that it decides the last
// units itself. One call at a time fetches more, before the last is spent if what is left outlasts the call. Nobody waits
// for the store while there are units left; who finds none waits for the call that is under way, or makes it.
//
// What was not spent MaxAge after its debit is not spent any more. It goes back to the store, with the next call for the
// key or by a timer. It also goes back on Close, when a call comes with another limit, by value, and when the table is
// full. Where that fails, when a call that fetches is given up, and when the process dies, it is lost: units are never
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
	for first := true; ; first = false {
		s, h, now := l.find(ctx, &id, req.Limit, true)
		if first {
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
		f := h.flight
		if f == nil {
			return l.ask(ctx, &id, req, s, h, now)
		}
		s.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return Result{}, fmt.Errorf("ratelimit: waiting for a lease: %w", ctx.Err())
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

// addHeld reports what is held under limit, too.
func addHeld(res *Result, h *holding, limit *Limit) {
	if h != nil && h.limit == *limit && res.RetryAfter != Never {
		res.Remaining = min(res.Limit, res.Remaining+h.units())
	}
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

// ask decides req in the store, with what is held of h, and fetches more on the way. s is locked, and unlocked before the
// store is called.
func (l *Lease) ask(ctx context.Context, id *stateID, req Request, s *tableShard[holding], h *holding, now time.Duration) (Result, error) {
	h.resize(now, l.most, l.maxAge)
	want := addCosts(req.Cost, req.Extra)
	own, until := h.claim(h.units())
	var f *flight
	ahead := h.ahead()
	if ahead > 0 {
		f = h.launch()
	}
	s.Unlock()
	if f != nil {
		defer l.land(id, h, f) // whatever the store does
	}
	back := false
	defer func() {
		if !back { // the store panicked
			l.giveLater(ctx, l.unclaim(id, h, own, until))
		}
	}()
	asked := req
	asked.Cost = max(0, req.Cost-own)
	asked.Extra = addCosts(want-own-asked.Cost, ahead)
	res, err := l.store.Take(ctx, asked)
	back = true

	rest := own // comes back if it did not help
	if err == nil && res.Allowed {
		taken := min(own+res.Taken, want)
		rest, until = own+res.Taken-taken, now+l.maxAge
		res.Taken = taken
		if res.Source != SourceStore {
			rest = 0 // what a stand-in gave is not the store's to get back
		}
	}
	s = l.held.lock(id)
	h.claimed -= own
	h.answer(&res, err, now, l.clock.now())
	lost := l.keep(s, id, h, rest, until)
	addHeld(&res, h, req.Limit)
	s.Unlock()
	l.giveLater(ctx, lost)
	return res, err
}

// unclaim puts back what was claimed of h, and returns those that have to go back to the store.
func (l *Lease) unclaim(id *stateID, h *holding, units int64, until time.Duration) (lost unspent) {
	s := l.held.lock(id)
	defer s.Unlock()
	h.claimed -= units
	return l.keep(s, id, h, units, until)
}

// keep holds units that came in for h, and returns those that have to go back because h is not there any more. s is
// locked.
func (l *Lease) keep(s *tableShard[holding], id *stateID, h *holding, units int64, until time.Duration) (lost unspent) {
	switch {
	case units == 0 || h.reset:
	case s.find(id) == h && !l.closed.Load():
		h.put(units, until)
		l.background.arm(l.maxAge/4, l.sweep)
	default:
		return unspent{id.key, h.limit, units}
	}
	return unspent{}
}

// fetchAhead has the store asked for more if little is left of h, whose shard is locked. Where that is spent before an
// answer can come, the caller that finds nothing left had better ask itself: a goroutine takes time to start.
func (l *Lease) fetchAhead(id *stateID, h *holding, now time.Duration) {
	if h.flight != nil || h.units() > h.target()/8 || !h.lasts(now) {
		return
	}
	h.resize(now, l.most, l.maxAge)
	ahead := h.ahead()
	if ahead == 0 {
		return
	}
	f, id2, limit := h.launch(), *id, h.limit
	if !l.background.start(func(ctx context.Context) { l.fetch(ctx, &id2, h, f, &limit, ahead, now) }) {
		h.flight = nil // and nobody has seen it
	}
}

func (l *Lease) fetch(ctx context.Context, id *stateID, h *holding, f *flight, limit *Limit, ahead int64, now time.Duration) {
	defer l.land(id, h, f)
	res, err := l.store.Take(ctx, Request{Key: id.key, Limit: limit, Extra: ahead})
	s := l.held.lock(id)
	h.answer(&res, err, now, l.clock.now())
	var lost unspent
	if err == nil && res.Source == SourceStore {
		lost = l.keep(s, id, h, res.Taken, now+l.maxAge)
	}
	s.Unlock()
	l.giveLater(ctx, lost)
}

// land ends a flight.
func (l *Lease) land(id *stateID, h *holding, f *flight) {
	s := l.held.lock(id)
	h.flight = nil
	s.Unlock()
	close(f.done)
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
