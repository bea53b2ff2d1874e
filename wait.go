package ratelimit

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Wait blocks until key may spend cost and has spent it, and returns that admission. It gives up at once with ErrNever
// when cost is above the capacity, with ErrDeadline when ctx ends before there could be room, and with the Limiter's own
// error; a ctx that is cancelled while it waits is ctx's error, or ErrDeadline if that was its deadline.
//
// Callers who wait on one key of a StoreLimiter stand in line: only the first asks the store, once for each admission
// and each denial, so a thousand of them neither hammer it nor wake together. With any other Limiter each caller asks
// again after RetryAfter and a random part that doubles with every attempt.
func Wait(ctx context.Context, l Limiter, key string, cost int64) (Result, error) {
	s, ok := l.(*StoreLimiter)
	if !ok {
		return wait(ctx, l, key, cost, func(attempt int, d time.Duration) time.Duration {
			return d + rand.N(min(d, time.Minute)<<min(attempt, 6)+1)
		})
	}
	if cost <= 0 || s.never(cost) != nil {
		return wait(ctx, l, key, cost, nil) // which does not pause
	}
	leave, err := s.line.enter(ctx, key)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	return wait(ctx, l, key, cost, func(_ int, d time.Duration) time.Duration {
		s.line.next(key, time.Now().Add(d))
		return d
	})
}

func wait(ctx context.Context, l Limiter, key string, cost int64, pause func(attempt int, d time.Duration) time.Duration) (Result, error) {
	for attempt := 0; ; attempt++ {
		res, err := l.Allow(ctx, key, cost)
		if err != nil || res.Allowed {
			return res, err
		}
		if res.RetryAfter == Never {
			return res, ErrNever
		}
		d := pause(attempt, res.RetryAfter)
		if deadline, ok := ctx.Deadline(); ok {
			left := time.Until(deadline)
			if left < res.RetryAfter {
				return res, ErrDeadline
			}
			if d >= left {
				d = res.RetryAfter
			}
		}
		if err := sleep(ctx, d); err != nil {
			return res, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return waitError(ctx)
	}
}

func waitError(ctx context.Context) error {
	if ctx.Err() == context.DeadlineExceeded {
		return ErrDeadline
	}
	return ctx.Err()
}

// A line is the callers who wait on each key, first come first served.
type line struct {
	mu    sync.Mutex
	heads map[string]*head
}

// A head is the place at the front of one key's line. The channel holds one token: who has it asks the store.
type head struct {
	turn    chan struct{}
	callers int
	next    time.Time // before this the caller in front will not be admitted
}

// enter waits for the front of key's line. The caller calls leave when done.
func (l *line) enter(ctx context.Context, key string) (leave func(), err error) {
	l.mu.Lock()
	if l.heads == nil {
		l.heads = make(map[string]*head)
	}
	h := l.heads[key]
	if h == nil {
		h = &head{turn: make(chan struct{}, 1)}
		h.turn <- struct{}{}
		l.heads[key] = h
	}
	next := h.next
	h.callers++
	l.mu.Unlock()

	if deadline, ok := ctx.Deadline(); ok && deadline.Before(next) {
		l.leave(key, h)
		return nil, ErrDeadline
	}
	select {
	case <-h.turn:
		return func() {
			h.turn <- struct{}{}
			l.leave(key, h)
		}, nil
	case <-ctx.Done():
		l.leave(key, h)
		return nil, waitError(ctx)
	}
}

func (l *line) leave(key string, h *head) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.callers--
	if h.callers == 0 {
		delete(l.heads, key)
	}
}

// next notes when the caller in front asks again.
func (l *line) next(key string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heads[key].next = at
}
