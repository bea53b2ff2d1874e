package ratelimit

import (
	"context"
	"time"
)

// A known is what the primary last said of a state.
type known struct {
	units  int64         // token bucket: what was left; windows: what was spent
	at     time.Duration // when it said so
	unused time.Duration // when the state is as if unused, if nobody else spends
	seeded bool          // the local state has been brought down to it
}

// learn keeps what the primary said of a state.
func (f *Fallback) learn(key string, limit *Limit, res *Result) {
	if res.RetryAfter == Never { // nobody looked
		return
	}
	now := f.now() // after the call, so that not too much is credited
	capacity := limit.Capacity()
	k := known{units: min(max(0, res.Remaining), capacity), at: now, unused: now + min(res.ResetAfter, maxSharePeriod)}
	if limit.Algorithm != TokenBucket {
		k.units = capacity - k.units
	}
	id := idOf(key, limit)
	s := f.known.lock(&id)
	defer s.Unlock()
	v := s.find(&id)
	if v == nil {
		v = s.add(&id)
	}
	*v = k
}

// left is what the primary would have left under limit by now, had nobody else spent: what came back to a bucket since,
// and all of a window that has passed.
func (k *known) left(limit *Limit, now time.Duration) int64 {
	capacity := limit.Capacity()
	switch {
	case limit.Algorithm == TokenBucket:
		back, _ := mulDiv(max(0, now-k.at).Microseconds(), limit.Rate, limit.Period.Microseconds())
		return min(capacity, max(0, k.units)+back)
	case now >= k.unused:
		return capacity
	default:
		return max(0, capacity-k.units)
	}
}

// seededShare returns this instance's share of req's limit, after it has brought the local state down to that part of
// what the primary last had left. Of a state that the primary said nothing about lately the share is full.
func (f *Fallback) seededShare(ctx context.Context, req *Request) (*Limit, error) {
	share, err := f.share(req.Limit)
	if err != nil {
		return nil, err
	}
	id := idOf(req.Key, req.Limit)
	s := f.known.lock(&id)
	defer s.Unlock() // not earlier: another decision would spend what is to be taken away
	k := s.find(&id)
	if k == nil || k.seeded {
		return share, nil
	}
	most, _ := mulDiv(share.Capacity(), k.left(req.Limit, f.now()), req.Limit.Capacity())
	if share.Algorithm == TokenBucket {
		err = f.lower(ctx, Request{Key: req.Key, Limit: share}, most)
	} else {
		err = f.renew(ctx, Request{Key: req.Key, Limit: share}, share.Capacity()-most)
	}
	k.seeded = err == nil
	return share, err
}

// lower takes from a local bucket what is above most.
func (f *Fallback) lower(ctx context.Context, req Request, most int64) error {
	look, err := f.secondary.Take(ctx, req)
	if req.Extra = look.Remaining - most; err != nil || req.Extra <= 0 {
		return err
	}
	_, err = f.secondary.Take(ctx, req)
	return err
}

// renew makes a local window hold so many units that were spent now: what is in it already stands for other units, and
// leaves before those that the primary counts. The oldest make room.
func (f *Fallback) renew(ctx context.Context, req Request, units int64) error {
	if units == 0 {
		return nil
	}
	f.renewing.Lock() // nobody spends in between
	defer f.renewing.Unlock()
	req.Cost = -units
	if _, err := f.secondary.Take(ctx, req); err != nil {
		return err
	}
	req.Cost, req.Extra = 0, units
	_, err := f.secondary.Take(context.WithoutCancel(ctx), req)
	return err
}

// forget forgets what the primary said of a state and what it is owed.
func (f *Fallback) forget(id stateID) {
	s := f.known.lock(&id)
	s.drop(&id)
	s.Unlock()
	f.debts.drop(&id)
}
