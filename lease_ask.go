package ratelimit

import (
	"context"
	"time"
)

// A claim is what one request that the store decides spends of what is held.
type claim struct {
	holding *holding
	units   int64
	until   time.Duration
}

// ask decides req in the store, with what is held of h. s is locked, and unlocked before the store is called.
func (l *Lease) ask(ctx context.Context, id *stateID, req Request, s *tableShard[holding], h *holding, now time.Duration) (res Result, err error) {
	c := claim{holding: h}
	c.units, c.until = h.claim(h.units())
	s.Unlock()
	back := false
	defer func() { // the store may panic
		s := l.held.lock(id)
		if back {
			h.answer(&res, err, now, l.clock.now())
		}
		lost := l.settle(s, id, req.Limit, &c, &res)
		s.Unlock()
		l.giveLater(ctx, lost)
	}()
	asked := req
	asked.Cost = max(0, req.Cost-c.units)
	asked.Extra = addCosts(req.Cost, req.Extra) - c.units - asked.Cost
	res, err = l.store.Take(ctx, asked)
	back = true
	return res, err
}

// settle counts what was claimed as taken, or puts it back, reports what is held, and returns what has to go back to the
// store. s is locked.
func (l *Lease) settle(s *tableShard[holding], id *stateID, limit *Limit, c *claim, res *Result) (lost unspent) {
	h := s.find(id)
	if c.units > 0 {
		c.holding.claimed -= c.units
		switch {
		case res.Allowed:
			res.Taken += c.units
		case c.holding.reset:
		case h != c.holding || l.closed.Load():
			lost = unspent{id.key, c.holding.limit, c.units}
		default:
			h.put(c.units, c.until)
			l.background.arm(l.maxAge/4, l.sweep)
		}
	}
	addHeld(res, h, limit)
	return lost
}

// addHeld reports what is held under limit, too.
func addHeld(res *Result, h *holding, limit *Limit) {
	if h != nil && h.limit == *limit && res.RetryAfter != Never {
		res.Remaining = min(res.Limit, res.Remaining+h.units())
	}
}
