package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var errNoAnswer = errors.New("ratelimit: the store does not come back")

// wait has want asked for together with what others want. It returns nothing if the caller had better ask itself. s is
// locked, and unlocked before it waits.
func (l *Lease) wait(ctx context.Context, id *stateID, want int64, s *tableShard[holding], h *holding) (Result, error) {
	if h.queue == nil {
		h.queue = &group{}
	}
	w := &member{want: want, group: h.queue, ready: make(chan struct{})}
	h.queue.push(w)
	switch g := h.queue; {
	case h.fetch == nil:
		if !l.background.run(l.call(id, h, g)) {
			g.remove(w)
			s.Unlock()
			return Result{}, nil
		}
		h.fetch = g
	case h.fetch != g && g.want > l.most: // they are worth a call of their own
		if l.background.run(l.call(id, h, g)) {
			h.queue = nil
		}
	}
	s.Unlock()
	select {
	case <-w.ready:
		return w.res, nil
	case <-ctx.Done():
	}
	s = l.held.lock(id)
	defer s.Unlock()
	if w.group == nil { // it was decided at the last moment
		return w.res, nil
	}
	h.leave(w)
	return Result{}, fmt.Errorf("ratelimit: waiting for a lease: %w", ctx.Err())
}

// leave takes w from those who wait, and gives up a call for which nobody waits any more.
func (h *holding) leave(w *member) {
	left := w.group
	left.remove(w)
	for _, g := range [...]*group{left, h.fetch} {
		if g != nil && g.cancel != nil && g.empty() && (g != h.fetch || h.queue.empty()) {
			g.cancel()
		}
	}
}

// fetchAhead has the store asked for more if little is left of h, whose shard is locked, and that outlasts the call. If
// it does not, whoever finds nothing left has it asked, for all there is to hold.
func (l *Lease) fetchAhead(id *stateID, h *holding, now time.Duration) {
	if h.fetch != nil || h.units() == 0 || h.units() > h.target()/8 || !h.lasts(now) {
		return
	}
	h.resize(now, l.most, l.maxAge)
	if h.ahead() == 0 {
		return
	}
	if h.queue == nil {
		h.queue = &group{}
	}
	if l.background.start(l.call(id, h, h.queue)) {
		h.fetch = h.queue
	}
}

// call is a call of the store for all who are in g when it begins, and for what is worth holding if it is the one that
// fetches that.
func (l *Lease) call(id *stateID, h *holding, g *group) func(context.Context) {
	of := *id
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, leaseCallTime)
		defer cancel()
		s := l.held.lock(&of)
		ahead := int64(0)
		if g == h.fetch {
			ahead = h.ahead()
		}
		if g == h.queue {
			h.queue = nil
		}
		g.cancel = cancel
		extra := g.want + ahead
		s.Unlock()
		sent := l.clock.now()
		var res Result
		err := errNoAnswer
		defer func() { l.land(ctx, &of, h, g, ahead, sent, &res, err) }() // whatever the store does
		res, err = l.store.Take(ctx, Request{Key: of.key, Limit: &h.limit, Extra: extra})
	}
}

// land gives what a call brought to those for whom it was, then to those who came since, and holds the rest.
func (l *Lease) land(ctx context.Context, id *stateID, h *holding, g *group, ahead int64, sent time.Duration, res *Result, err error) {
	s := l.held.lock(id)
	now := l.clock.now()
	if err != errNoAnswer { // a panic says nothing of what remains
		h.answer(res, err, sent, now)
	}
	if h.fetch == g {
		h.fetch = nil
	}
	here := s.find(id) == h && !l.closed.Load()
	rest, lost, source := int64(0), int64(0), SourceLease
	if err == nil && res.Source == SourceStore {
		rest, source = res.Taken, SourceStore
		h.put(rest, sent+l.maxAge)
	}
	var decided group
	for w := g.first; w != nil; w = g.first {
		if h.serve(w, now, source) {
			rest -= w.want
		}
		g.decide(w, &decided)
	}
	if over := rest - ahead; over > 0 { // what those asked for who left
		h.spend(over)
		lost += over
	}
	for w := h.queue.head(); w != nil; {
		next := w.next
		if h.serve(w, now, SourceLease) || w.want > h.target() || !here {
			h.queue.decide(w, &decided)
		}
		w = next
	}
	if h.fetch == nil && !h.queue.empty() {
		if l.background.run(l.call(id, h, h.queue)) {
			h.fetch = h.queue
		} else {
			for w := h.queue.first; w != nil; w = h.queue.first {
				h.queue.decide(w, &decided)
			}
		}
	}
	switch {
	case !here:
		lost += h.takeAll()
	case h.units() > 0:
		l.background.arm(l.maxAge/4, l.sweep)
	}
	if h.reset {
		lost = 0
	}
	s.Unlock()
	decided.wake()
	l.giveLater(ctx, unspent{id.key, h.limit, lost})
}

// serve admits w from the units, if there are enough.
func (h *holding) serve(w *member, now time.Duration, source Source) bool {
	if h.units() < w.want {
		return false
	}
	h.spend(w.want)
	w.res = h.result(now, w.want)
	w.res.Source = source
	return true
}
