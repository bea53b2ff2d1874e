package ratelimit

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// A line is the callers who wait on each key of a StoreLimiter. A key takes memory only while somebody waits on it.
type line struct {
	mu   sync.Mutex
	keys map[string]*queue
}

// A queue is the callers who wait on one key. One of them asks the store, or sleeps until it may; others ask beside it
// as far as there is known to be room. The rest stand, in the order they came.
type queue struct {
	standing list.List // of *waiter
	tickets  int64     // handed out so far
	soonest  time.Time // no deadline of who stands is before; zero: none has one
	asking   int       // how many ask or sleep,
	pledged  int64     // the costs of those,
	room     int64     // and what was left beside, when somebody last looked
	next     time.Time // until when the one in front sleeps, if it does
}

type waiter struct {
	cost     int64
	ticket   int64
	deadline time.Time  // zero: none
	turn     chan error // nil when it is its turn to ask, else why it never will be
	until    time.Time  // before this the store would deny it

	asks   bool
	stands *list.Element // nil: it does not

	left   int64 // once admitted, what the store had left
	failed bool  // the store did
}

func (l *line) wait(ctx context.Context, s *StoreLimiter, key string, cost int64) (res Result, err error) {
	w := &waiter{cost: cost, turn: make(chan error, 1)}
	w.deadline, _ = ctx.Deadline()
	bare := BareKey(key)
	if !l.join(bare, w) {
		return Result{}, ErrDeadline
	}
	defer l.leave(bare, w)
	for {
		if err := w.await(ctx); err != nil {
			return res, err
		}
		res, err = s.Allow(ctx, key, cost)
		switch {
		case err != nil:
			w.failed = ctx.Err() == nil
			return res, err
		case res.Allowed:
			w.left = res.Remaining
			return res, nil
		}
		d, err := pause(ctx, res)
		if err != nil {
			return res, err
		}
		l.back(bare, w, d)
	}
}

// await returns when w may ask.
func (w *waiter) await(ctx context.Context) error {
	select {
	case err := <-w.turn:
		if err != nil {
			return err
		}
		return sleep(ctx, time.Until(w.until))
	case <-ctx.Done():
		return waitError(ctx)
	}
}

// join puts w at the end of key's queue, unless its deadline is too near.
func (l *line) join(key string, w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.keys[key]
	if q == nil {
		q = &queue{}
		if l.keys == nil {
			l.keys = make(map[string]*queue)
		}
		l.keys[key] = q
	}
	if w.expires(q.next) {
		return false
	}
	q.tickets++
	w.ticket = q.tickets
	q.stand(w)
	q.release(0)
	return true
}

// back returns w, which was denied for so long, to its place.
func (l *line) back(key string, w *waiter, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.keys[key]
	q.returned(w)
	q.room = 0
	w.until = time.Now().Add(d)
	q.stand(w)
	q.release(0)
	q.dismiss()
}

// leave takes w out of the queue, wherever it is.
func (l *line) leave(key string, w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.keys[key]
	spare := 0
	switch {
	case w.asks:
		q.returned(w)
		q.room = max(0, w.left-q.pledged)
		if w.failed {
			spare = 2 // for each failure two ask, lest an outage take them one by one
		}
	case w.stands != nil:
		q.standing.Remove(w.stands)
	}
	q.release(spare)
	q.dismiss()
	if q.asking == 0 && q.standing.Len() == 0 {
		delete(l.keys, key)
	}
}

// stand gives w its place among those who stand, which is near one of the ends.
func (q *queue) stand(w *waiter) {
	if !w.deadline.IsZero() && (q.soonest.IsZero() || w.deadline.Before(q.soonest)) {
		q.soonest = w.deadline
	}
	last := q.standing.Back()
	if last == nil || last.Value.(*waiter).ticket < w.ticket {
		w.stands = q.standing.PushBack(w)
		return
	}
	e := q.standing.Front()
	for e.Value.(*waiter).ticket < w.ticket {
		e = e.Next()
	}
	w.stands = q.standing.InsertBefore(w, e)
}

// release lets those in front ask: as many as there is room for, the given number more, one at any rate.
func (q *queue) release(spare int) {
	for e := q.standing.Front(); e != nil; e = q.standing.Front() {
		w := e.Value.(*waiter)
		switch {
		case w.cost <= q.room:
			q.room -= w.cost
			w.until = time.Time{}
		case spare > 0:
			spare--
		case q.asking == 0:
		default:
			return
		}
		q.standing.Remove(e)
		w.stands, w.asks = nil, true
		q.asking++
		q.pledged += w.cost
		q.next = w.until
		w.turn <- nil
	}
}

// returned counts w among those who ask no more.
func (q *queue) returned(w *waiter) {
	w.asks = false
	q.asking--
	q.pledged -= w.cost
	q.next = time.Time{}
}

// dismiss sends away those whose deadlines are not after the time until which the one in front sleeps.
func (q *queue) dismiss() {
	if q.next.IsZero() || q.soonest.IsZero() || q.soonest.After(q.next) {
		return
	}
	q.soonest = time.Time{}
	for e := q.standing.Front(); e != nil; {
		w := e.Value.(*waiter)
		e = e.Next()
		switch {
		case w.expires(q.next):
			q.standing.Remove(w.stands)
			w.stands = nil
			w.turn <- ErrDeadline
		case !w.deadline.IsZero() && (q.soonest.IsZero() || w.deadline.Before(q.soonest)):
			q.soonest = w.deadline
		}
	}
}

// expires tells whether w's deadline is not after at. The zero time is before every deadline.
func (w *waiter) expires(at time.Time) bool {
	return !w.deadline.IsZero() && !w.deadline.After(at)
}
