package ratelimit

import (
	"context"
	"slices"
)

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
		id := idOf(reqs[i].Key, reqs[i].Limit)
		s := l.held.lock(&id)
		lost := l.settle(s, &id, reqs[i].Limit, &claims[i], &results[i])
		s.Unlock()
		l.giveLater(ctx, lost)
	}
}
