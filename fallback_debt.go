package ratelimit

import (
	"context"
	"sync"
	"sync/atomic"
)

// A debt is what was admitted locally and the primary does not know of.
type debt struct {
	limit Limit
	units int64
}

// debts are what the primary is owed, and the one goroutine at most that charges it.
type debts struct {
	table *table[debt]
	any   atomic.Bool // there may be some

	ctx     context.Context // of all charges
	stop    context.CancelFunc
	mu      sync.Mutex
	paying  bool
	payment sync.WaitGroup
}

func (d *debts) init(most int) {
	d.table = newTable[debt](most, nil)
	d.ctx, d.stop = context.WithCancel(context.Background())
}

func (d *debts) drop(id *stateID) {
	s := d.table.lock(id)
	defer s.Unlock()
	s.drop(id)
}

func (d *debts) close() {
	d.mu.Lock() // no payment begins after this
	d.stop()
	d.mu.Unlock()
	d.payment.Wait()
	d.table.each(func(stateID, *debt) bool { return false })
	d.any.Store(false)
}

// owe notes what was admitted for req locally; below 0, what was given back.
func (f *Fallback) owe(req *Request, units int64) {
	if units == 0 || f.debts.ctx.Err() != nil {
		return
	}
	id := idOf(req.Key, req.Limit)
	s := f.debts.table.lock(&id)
	defer s.Unlock()
	d := s.find(&id)
	if d == nil {
		if units < 0 {
			return
		}
		d = s.add(&id)
	}
	if d.units = addCosts(d.units, units); d.units <= 0 {
		s.drop(&id)
		return
	}
	d.limit = *req.Limit
	f.debts.any.Store(true)
}

// payDebts charges the primary in the background, now that it answers.
func (f *Fallback) payDebts() {
	d := &f.debts
	if !d.any.Load() || f.breaker.state() != BreakerClosed {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.paying || d.ctx.Err() != nil {
		return
	}
	d.paying = true
	d.payment.Go(func() {
		f.charge()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.paying = false
	})
}

// charge pays debts until there are none, or the primary fails.
func (f *Fallback) charge() {
	f.debts.any.Store(false)
	for f.debts.ctx.Err() == nil && f.breaker.state() == BreakerClosed {
		// It is out of the table before the call, so that none is ever charged twice, whatever became of a lost one.
		id, d, ok := f.debts.table.pop()
		if !ok {
			return
		}
		if f.pay(id, &d) != answered {
			break
		}
	}
	f.debts.any.Store(true)
}

// pay charges one debt: what of it the local state still counts as spent, at most a whole limit.
func (f *Fallback) pay(id stateID, d *debt) verdict {
	share, err := f.share(&d.limit)
	if err != nil {
		return answered
	}
	look, err := f.secondary.Take(f.debts.ctx, Request{Key: id.key, Limit: share})
	if err != nil {
		return answered
	}
	units := min(d.units, share.Capacity()-look.Remaining, d.limit.Capacity())
	if units <= 0 {
		return answered
	}
	v, _ := f.ask(f.debts.ctx, func(ctx context.Context) error {
		res, err := f.primary.Take(ctx, Request{Key: id.key, Limit: &d.limit, Extra: units})
		if err == nil {
			f.learn(id.key, &d.limit, &res)
		}
		return err
	})
	return v
}
