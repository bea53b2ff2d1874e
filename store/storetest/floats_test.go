package storetest_test

import (
	"context"
	"math"
	"time"

	"github.com/sluicego/ratelimit"
)

// A floatBucket is the token bucket that most people write first: floating point, and the stored time is always the
// time of the last call. Windows are the right ones.
type floatBucket struct {
	*reference
	buckets map[id]*floats
}

type floats struct {
	tokens float64
	at     time.Time
}

func newFloatBucket(clock func() time.Time) ratelimit.Store {
	return &floatBucket{newReference(clock), map[id]*floats{}}
}

func (f *floatBucket) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	if err := req.Validate(); err != nil || ctx.Err() != nil || req.Limit.Algorithm != ratelimit.TokenBucket {
		return f.reference.Take(ctx, req)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock()
	capacity, perSecond := float64(req.Limit.Capacity()), float64(req.Limit.Rate)/req.Limit.Period.Seconds()
	b := f.buckets[f.id(req.Key, req.Limit)]
	if b == nil {
		b = &floats{capacity, now}
		f.buckets[f.id(req.Key, req.Limit)] = b
	}
	b.tokens = min(capacity, b.tokens+max(0, now.Sub(b.at).Seconds())*perSecond)
	b.at = now
	res := ratelimit.Result{Limit: int64(capacity), Name: req.Limit.Name}
	if cost := float64(req.Cost); b.tokens >= cost {
		b.tokens = min(capacity, b.tokens-cost)
		res.Allowed, res.Taken = true, req.Cost
	} else {
		res.RetryAfter = time.Duration(math.Ceil((cost-b.tokens)/perSecond*1e6)) * time.Microsecond
	}
	res.Remaining = int64(b.tokens)
	res.ResetAfter = time.Duration(math.Ceil((capacity-b.tokens)/perSecond*1e6)) * time.Microsecond
	return res, nil
}

// A gcra is the bucket as one stored arrival time, so a changed rate changes what the past has cost.
type gcra struct {
	*reference
	arrivals map[id]time.Duration // since t0, of the moment the bucket is full
}

func newGCRA(clock func() time.Time) ratelimit.Store {
	return &gcra{newReference(clock), map[id]time.Duration{}}
}

func (g *gcra) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	if err := req.Validate(); err != nil || ctx.Err() != nil || req.Limit.Algorithm != ratelimit.TokenBucket {
		return g.reference.Take(ctx, req)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Duration(g.clock().UnixNano())
	each := req.Limit.Period / time.Duration(req.Limit.Rate) // and a rate above one a nanosecond is for nothing
	capacity := req.Limit.Capacity()
	i := g.id(req.Key, req.Limit)
	full := max(now, g.arrivals[i])
	next := full + each*time.Duration(req.Cost)
	res := ratelimit.Result{Limit: capacity, Name: req.Limit.Name}
	if wait := next - each*time.Duration(capacity) - now; wait <= 0 {
		full = next
		g.arrivals[i] = full
		res.Allowed, res.Taken = true, req.Cost
	} else {
		res.RetryAfter = wait
	}
	res.ResetAfter = full - now
	res.Remaining = capacity
	if each > 0 {
		res.Remaining = max(0, int64((each*time.Duration(capacity)-(full-now))/each))
	}
	return res, nil
}
