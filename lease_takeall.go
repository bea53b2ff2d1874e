package ratelimit

import (
	"context"
	"slices"
	"time"
)

// A claim is what one request of a TakeAll spends of what is held.
type claim struct {
	holding *holding
	units   int64
	until   time.Duration
}

// TakeAll asks the store about reqs, less what is held of each.
func (l *Lease) TakeAll(ctx context.Context, reqs []Request) ([]Result, error) {
	if ctx.Err() != nil || l.closed.Load() {
		return l.store.TakeAll(ctx, reqs)
	}
	batch, err := Merge(reqs)
	if err != nil {
		return nil, err
	}
	asked := slices.Clone(batch.Requests)
	var claims [MaxTakeAll]claim
	for i := range asked {
		if asked[i].Cost > 0 && asked[i].Limit.Algorithm != SlidingLog && asked[i].Cost <= asked[i].Limit.Capacity() {
			claims[i] = l.claim(ctx, &asked[i])
		}
	}
	settled := make([]Result, len(asked))
	defer func() {
		if settled != nil { // there is no answer, or the store panicked
			l.settleAll(ctx, batch.Requests, claims[:], settled)
		}
	}()
	results, err := takeAll(ctx, l.store, asked)
	if err == nil {
		settled = nil
		l.settleAll(ctx, batch.Requests, claims[:], results)
	}
	if err != nil {
		return nil, err
	}
	return batch.Results(results), nil
}

func (l *Lease) claim(ctx context.Context, req *Request) (c claim) {
	id := idOf(req.Key, req.Limit)
	s, h, _ := l.find(ctx, &id, req.Limit, false)
	if h != nil {
		c.holding = h
		c.units, c.until = h.claim(min(req.Cost, h.units()))
		req.Cost -= c.units
	}
	s.Unlock()
	return c
}

func (l *Lease) settleAll(ctx context.Context, reqs []Request, claims []claim, results []Result) {
	for i := range reqs {
		l.settle(ctx, &reqs[i], &claims[i], &results[i])
	}
}

// settle counts what was claimed as taken, or keeps it, and reports what is held.
func (l *Lease) settle(ctx context.Context, req *Request, c *claim, res *Result) {
	id := idOf(req.Key, req.Limit)
	s := l.held.lock(&id)
	var lost unspent
	if c.units > 0 {
		c.holding.claimed -= c.units
		if res.Allowed {
			res.Taken += c.units
		} else {
			lost = l.keep(s, &id, c.holding, c.units, c.until)
		}
	}
	addHeld(res, s.find(&id), req.Limit)
	s.Unlock()
	l.giveLater(ctx, lost)
}
