package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"
)

// DenyCacheOptions are how a DenyCache is built; the zero value is the default.
type DenyCacheOptions struct {
	// MaxKeys is how many states are remembered at most; 0 means 100,000. Those that were not asked for lately make room.
	MaxKeys int
	// MaxAge is how long a denial is remembered at most, 1 µs or more; 0 means 1 s, and above 366 days is 366 days. It
	// bounds how long a refund, a reset or a raised limit elsewhere in the fleet goes unseen here.
	MaxAge time.Duration
	// Clock tells the time; nil means time.Now, and then steps of the wall clock do not matter. It need not agree with
	// the store's: only what passes between two readings counts.
	Clock func() time.Time
}

// A DenyCache is a Store that remembers the denials of another: a key that was denied with RetryAfter d is denied from
// memory until then. So whoever hammers on costs the store one call per min(d, MaxAge) and key, and not one per request:
// with 10 per minute and MaxAge 1 s, one a second.
//
// Denied from memory are calls for the same limit, by value, and a cost at least as large. Time alone frees units, and d
// counts from the moment before the call was sent, so nothing is denied that the store would admit, unless somebody gave
// units back: through this DenyCache, that forgets the denial at once; from elsewhere, it is seen after at most MaxAge.
// A cost above the capacity is denied without asking anybody.
//
// A denial from memory has Source SourceDenyCache, and its numbers are worked out for the moment and the cost. They are
// what the store would say, but for the time the call was on its way, and these: of a window, Remaining is that of the
// store's answer, and RetryAfter of a larger cost is that of the smaller one that was denied. There is not less, and it
// takes no less. Of a bucket of which more than one part of a token comes back each microsecond (Machine.Parts), the
// numbers for a larger cost may be a microsecond late.
//
// A TakeAll is denied from memory if one of its requests is, and it is known of all others whether they had room. It
// returns a new slice; a Take from memory does not allocate.
//
// Only the store's own denials are remembered, not those of a stand-in. A DenyCache is safe for concurrent use and has
// nothing to close. Its errors are those of Request.Validate and of the store.
type DenyCache struct {
	store  Store
	clock  stopwatch
	maxAge time.Duration
	known  *table[denial]

	// How often something was given back or reset, of the keys that fall on each. An answer that was on its way
	// meanwhile says nothing about now.
	seed  maphash.Seed
	given [256]atomic.Uint32
}

var _ Store = (*DenyCache)(nil)

// NewDenyCache returns a DenyCache over store. It is an error if store is nil or an option is out of its bounds.
func NewDenyCache(store Store, o DenyCacheOptions) (*DenyCache, error) {
	if store == nil {
		return nil, errors.New("ratelimit: store is nil")
	}
	if o.MaxKeys < 0 {
		return nil, fmt.Errorf("ratelimit: DenyCacheOptions.MaxKeys %d is below 0", o.MaxKeys)
	}
	if o.MaxAge < 0 || o.MaxAge > 0 && o.MaxAge < time.Microsecond {
		return nil, fmt.Errorf("ratelimit: DenyCacheOptions.MaxAge %v is neither 0 nor 1µs or more", o.MaxAge)
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = 100_000
	}
	if o.MaxAge == 0 {
		o.MaxAge = time.Second
	}
	o.MaxAge = min(o.MaxAge, maxPeriod) // so that it can be added to a time
	return &DenyCache{
		store: store, clock: newStopwatch(o.Clock), maxAge: o.MaxAge,
		known: newTable[denial](o.MaxKeys, nil), seed: maphash.MakeSeed(),
	}, nil
}

// Unwrap returns the store.
func (c *DenyCache) Unwrap() Store { return c.store }

// Take denies req from memory, or asks the store.
func (c *DenyCache) Take(ctx context.Context, req Request) (res Result, err error) {
	if err := req.Validate(); err != nil {
		return Result{}, err
	}
	if ctx.Err() != nil {
		return c.store.Take(ctx, req) // it knows what to say
	}
	if capacity := req.Limit.Capacity(); req.Cost > capacity {
		return Result{Limit: capacity, RetryAfter: Never, Name: req.Limit.Name}, nil
	}
	id := idOf(req.Key, req.Limit)
	now := c.clock.now()
	if req.Cost > 0 {
		s := c.known.lock(&id)
		if d := s.find(&id); d != nil && req.Cost >= d.cost && d.holds(now, req.Limit) {
			d.answer(&res, now, req.Cost)
			s.Unlock()
			return res, nil
		}
		s.Unlock()
	}
	given := c.givenTo(&id).Load()
	res, err = c.store.Take(ctx, req)
	switch {
	case req.Cost < 0:
		c.givenBack(&id) // even if there is an error: it may have been carried out
	case err != nil:
	case res.Taken != 0:
		c.forget(&id) // the denial would still hold, but not its numbers
	case !res.Allowed && res.Source == SourceStore && res.RetryAfter != Never:
		c.remember(&id, &req, &res, now, given)
	}
	return res, err
}

// TakeAll denies reqs from memory, or asks the store.
func (c *DenyCache) TakeAll(ctx context.Context, reqs []Request) ([]Result, error) {
	batch, err := Merge(reqs)
	if err != nil {
		return nil, err
	}
	now := c.clock.now()
	if ctx.Err() == nil {
		if results := c.denyAll(batch.Requests, now); results != nil {
			return batch.Results(results), nil
		}
	}
	var given [MaxTakeAll]uint32
	for i := range batch.Requests {
		id := idOf(batch.Requests[i].Key, batch.Requests[i].Limit)
		given[i] = c.givenTo(&id).Load()
	}
	results, err := takeAll(ctx, c.store, batch.Requests)
	for i := range batch.Requests {
		req := &batch.Requests[i]
		id := idOf(req.Key, req.Limit)
		switch {
		case req.Cost < 0:
			c.givenBack(&id)
		case err != nil:
		case results[i].Taken != 0:
			c.forget(&id)
		case !results[i].Allowed && results[i].Source == SourceStore && results[i].RetryAfter != Never:
			c.remember(&id, req, &results[i], now, given[i])
		}
	}
	if err != nil {
		return nil, err
	}
	return batch.Results(results), nil
}

// denyAll returns the results of requests that memory denies together, or nil.
func (c *DenyCache) denyAll(reqs []Request, now time.Duration) []Result {
	var results [MaxTakeAll]Result
	denied := false
	for i := range reqs {
		req := &reqs[i]
		if req.Cost < 0 {
			return nil
		}
		id := idOf(req.Key, req.Limit)
		s := c.known.lock(&id)
		d := s.find(&id)
		known := d != nil && d.holds(now, req.Limit)
		if known {
			known = d.answer(&results[i], now, req.Cost)
		}
		s.Unlock()
		if !known {
			return nil
		}
		denied = denied || results[i].RetryAfter > 0
	}
	if !denied {
		return nil
	}
	return append([]Result(nil), results[:len(reqs)]...)
}

// Reset forgets what key has spent, in the store and here.
func (c *DenyCache) Reset(ctx context.Context, key string, limits ...*Limit) error {
	err := c.store.Reset(ctx, key, limits...)
	for _, l := range limits {
		if l != nil {
			id := idOf(key, l)
			c.givenBack(&id)
		}
	}
	return err
}

func (c *DenyCache) givenTo(id *stateID) *atomic.Uint32 {
	return &c.given[maphash.String(c.seed, id.key)%uint64(len(c.given))]
}

// givenBack forgets id, and what is being said about it.
func (c *DenyCache) givenBack(id *stateID) {
	c.givenTo(id).Add(1)
	c.forget(id)
}

func (c *DenyCache) forget(id *stateID) {
	s := c.known.lock(id)
	s.drop(id)
	s.Unlock()
}

// remember keeps the store's answer to a call that was sent at that time and denied, alone or with others.
func (c *DenyCache) remember(id *stateID, req *Request, res *Result, sent time.Duration, given uint32) {
	s := c.known.lock(id)
	defer s.Unlock()
	if c.givenTo(id).Load() != given {
		return
	}
	d := s.find(id)
	if d == nil {
		d = s.add(id)
	} else if d.holds(sent, req.Limit) && d.cost < leastDenied(req, res) {
		return // it says more
	}
	d.set(req, res, sent, c.maxAge)
}
