package ratelimit

import (
	"context"
	"math"
	"time"
)

// mode is what becomes of req without the primary.
func (f *Fallback) mode(req *Request, refused bool) FailureMode {
	switch {
	case refused, req.Cost > req.Limit.Capacity(): // then it is Never, which the local share knows
		return FailLocal
	case req.Limit.OnFailure != FailDefault:
		return req.Limit.OnFailure
	default:
		return f.o.Mode
	}
}

// takeAway decides req without the primary.
func (f *Fallback) takeAway(ctx context.Context, req Request, refused bool) (Result, error) {
	switch f.mode(&req, refused) {
	case FailOpen:
		return failOpen(&req), nil
	case FailClosed:
		return f.failClosed(&req), nil
	}
	share, err := f.seededShare(ctx, &req)
	if err != nil {
		return Result{}, err
	}
	res, err := f.spend(ctx, Request{Key: req.Key, Limit: share, Cost: req.Cost, Extra: req.Extra})
	if err != nil {
		return Result{}, err
	}
	f.owe(&req, res.Taken)
	err = f.ofLimit(ctx, &req, share, &res)
	return res, err
}

// takeAllAway decides reqs, each of a state of its own, without the primary. One that fails closed denies all, those
// that fail open are left out, and the others need room in all their shares.
func (f *Fallback) takeAllAway(ctx context.Context, reqs []Request, refused bool) ([]Result, error) {
	results := make([]Result, len(reqs))
	local, place := make([]Request, 0, len(reqs)), make([]int, 0, len(reqs))
	admitted := true
	for i := range reqs {
		switch f.mode(&reqs[i], refused) {
		case FailOpen:
			results[i] = failOpen(&reqs[i])
		case FailClosed:
			results[i] = f.failClosed(&reqs[i])
			admitted = false
		default:
			local, place = append(local, reqs[i]), append(place, i)
		}
	}
	if !admitted && len(local) > 0 { // the others say how long they would have to wait, and spend nothing beside one that cannot be
		never := local[0]
		never.Key, never.Cost, never.Extra = never.Key+"\x00", never.Limit.Capacity()+1, 0
		local = append(local, never)
	}
	decided, err := f.takeAllLocal(ctx, local)
	if err != nil {
		return nil, err
	}
	for j, i := range place {
		results[i] = decided[j]
		admitted = admitted && decided[j].Allowed
	}
	for i := range results {
		if !admitted {
			results[i].Allowed, results[i].Taken = false, 0
		}
	}
	return results, nil
}

// takeAllLocal decides reqs on the secondary.
func (f *Fallback) takeAllLocal(ctx context.Context, reqs []Request) ([]Result, error) {
	if len(reqs) == 0 {
		return nil, nil
	}
	shared := make([]Request, len(reqs))
	for i := range reqs {
		share, err := f.seededShare(ctx, &reqs[i])
		if err != nil {
			return nil, err
		}
		shared[i] = Request{Key: reqs[i].Key, Limit: share, Cost: reqs[i].Cost, Extra: reqs[i].Extra}
	}
	results, err := f.spendAll(ctx, shared)
	if err != nil {
		return nil, err
	}
	for i := range results {
		f.owe(&reqs[i], results[i].Taken)
		if err := f.ofLimit(ctx, &reqs[i], shared[i].Limit, &results[i]); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// ofLimit makes res, a decision about a share, one about the limit of req.
func (f *Fallback) ofLimit(ctx context.Context, req *Request, share *Limit, res *Result) error {
	res.Source, res.Limit = SourceFallback, req.Limit.Capacity()
	if res.RetryAfter != Never || req.Cost > res.Limit {
		return nil
	}
	// Too much for the share, not for the limit: it may fit once the primary is back.
	look, err := f.secondary.Take(ctx, Request{Key: req.Key, Limit: share})
	res.Remaining, res.RetryAfter, res.ResetAfter = look.Remaining, f.untilProbe(), look.ResetAfter
	return err
}

func (f *Fallback) spend(ctx context.Context, req Request) (Result, error) {
	f.renewing.RLock()
	defer f.renewing.RUnlock()
	return f.secondary.Take(ctx, req)
}

func (f *Fallback) spendAll(ctx context.Context, reqs []Request) ([]Result, error) {
	f.renewing.RLock()
	defer f.renewing.RUnlock()
	return takeAll(ctx, f.secondary, reqs)
}

func failOpen(req *Request) Result {
	capacity := req.Limit.Capacity()
	taken := max(req.Cost, -math.MaxInt64)
	if taken >= 0 {
		taken += min(req.Extra, capacity-taken)
	}
	return Result{Allowed: true, Limit: capacity, Remaining: capacity, Taken: taken, Name: req.Limit.Name, Source: SourceFailOpen}
}

func (f *Fallback) failClosed(req *Request) Result {
	return Result{Limit: req.Limit.Capacity(), RetryAfter: f.untilProbe(), Name: req.Limit.Name, Source: SourceFailClosed}
}

// untilProbe is when the primary is asked again, in whole microseconds. While the breaker is not open that is the next
// call, or one after a probe has ended, and the answer takes up to Timeout.
func (f *Fallback) untilProbe() time.Duration {
	wait := f.breaker.untilProbe()
	if wait == 0 {
		wait = f.o.Timeout
	}
	return (wait + time.Microsecond - 1).Truncate(time.Microsecond)
}

// share is this instance's part of limit.
func (f *Fallback) share(limit *Limit) (*Limit, error) {
	n := int64(1)
	if f.o.Instances != nil {
		guard(func() { f.count.Store(max(1, int64(f.o.Instances()))) })
		n = f.count.Load()
	}
	if n == 1 {
		return limit, nil
	}
	return f.shares.get(limit, 1, n)
}
