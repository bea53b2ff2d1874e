package ratelimit

import "context"

// A member of a group is a call that found too little held. It is used with its shard locked until it is decided.
type member struct {
	want       int64
	group      *group // nil once it is decided
	prev, next *member
	res        Result        // an admission, or nothing if it has to ask for itself
	ready      chan struct{} // closed when it is decided
}

// A group is callers for whom the store is asked together, in the order they came.
type group struct {
	first, last *member
	want        int64              // of all
	cancel      context.CancelFunc // of the call; nil until it is sent
}

func (g *group) empty() bool { return g.head() == nil }

func (g *group) head() *member {
	if g == nil {
		return nil
	}
	return g.first
}

func (g *group) push(w *member) {
	w.prev, w.next = g.last, nil
	if g.last == nil {
		g.first = w
	} else {
		g.last.next = w
	}
	g.last = w
	g.want += w.want
}

func (g *group) remove(w *member) {
	if w.prev == nil {
		g.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		g.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	g.want -= w.want
}

// decide moves w, of which the outcome is known, to those who are to be woken.
func (g *group) decide(w *member, decided *group) {
	g.remove(w)
	w.group = nil
	decided.push(w)
}

// wake wakes all.
func (g *group) wake() {
	for w := g.first; w != nil; w = w.next {
		close(w.ready)
	}
}
