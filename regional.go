package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// Regional gives one region its part of every limit, for regions that have a store each: with 7 of 10 in one and 3 of
// 10 in the other they admit together what the limit says. It is a Store, safe for concurrent use, and has nothing to
// close.
//
// A limit is replaced by its Share. Result.Limit stays the limit's own, which is what clients were promised; Remaining
// and RetryAfter are those of the region's part, and a cost above what that part can hold is denied with Never. A part
// below one unit, or a bucket of less than one, is stretched or rounded as Share says, so the regions together hold at
// most one unit a region more than the limit. A share whose Period passes 366 days is ErrInvalidLimit of the Redis
// stores: 1 per day in 1 of 1000.
//
// The function that tells the share is called once for each call of the Store, so it has to be quick; it may change its
// answer at any time, which is a change of the limit: what was spent stays spent. While it answers anything outside
// 0 < num <= den its last good answer holds. A Rebalancer has such functions.
type Regional struct {
	store  Store
	share  func() (num, den int64)
	last   atomic.Pointer[[2]int64] // the last good answer of share
	shares shareCache
}

var _ Store = (*Regional)(nil)

// NewRegional returns a Store that decides by num/den of each limit, as share says at the time.
func NewRegional(store Store, share func() (num, den int64)) (*Regional, error) {
	if store == nil {
		return nil, errors.New("ratelimit: store is nil")
	}
	if share == nil {
		return nil, errors.New("ratelimit: share is nil")
	}
	num, den := share()
	if num < 1 || num > den {
		return nil, fmt.Errorf("%w: share %d/%d is outside 0 < numerator <= denominator", ErrInvalidLimit, num, den)
	}
	r := &Regional{store: store, share: share}
	r.last.Store(&[2]int64{num, den})
	return r, nil
}

// Unwrap returns the region's store.
func (r *Regional) Unwrap() Store { return r.store }

// current is the share as of now.
func (r *Regional) current() (num, den int64) {
	num, den = r.share()
	last := r.last.Load()
	switch {
	case num < 1 || num > den:
		return last[0], last[1]
	case *last != [2]int64{num, den}:
		r.last.Store(&[2]int64{num, den})
	}
	return num, den
}

// Take decides req by the region's share of its limit.
func (r *Regional) Take(ctx context.Context, req Request) (Result, error) {
	if err := req.Validate(); err != nil {
		return Result{}, err
	}
	num, den := r.current()
	limit := req.Limit
	var err error
	if req.Limit, err = r.shares.get(limit, num, den); err != nil {
		return Result{}, err
	}
	res, err := r.store.Take(ctx, req)
	if err == nil {
		res.Limit = limit.Capacity()
	}
	return res, err
}

// TakeAll decides reqs together by the region's shares of their limits.
func (r *Regional) TakeAll(ctx context.Context, reqs []Request) ([]Result, error) {
	if _, err := Merge(reqs); err != nil {
		return nil, err
	}
	num, den := r.current()
	shares := make([]Request, len(reqs))
	for i, req := range reqs {
		shares[i] = req
		var err error
		if shares[i].Limit, err = r.shares.get(req.Limit, num, den); err != nil {
			return nil, err
		}
	}
	results, err := takeAll(ctx, r.store, shares)
	for i := range results {
		results[i].Limit = reqs[i].Limit.Capacity()
	}
	return results, err
}

// Reset forgets what key has spent in this region.
func (r *Regional) Reset(ctx context.Context, key string, limits ...*Limit) error {
	return r.store.Reset(ctx, key, limits...) // a share has the state of its limit
}
