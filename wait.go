package ratelimit

import (
	"context"
	"math/rand/v2"
	"time"
)

// Wait blocks until key may spend cost and has spent it, and returns that admission. It gives up at once with ErrNever
// when cost is above the capacity, with ErrDeadline when ctx ends before there could be room, and with the Limiter's own
// error; a ctx that is cancelled while it waits is ctx's error, or ErrDeadline if that was its deadline.
//
// Callers who wait on one key of a StoreLimiter stand in line, first come first served: the one in front asks the store,
// once for each denial and each admission, and with it as many as there is known to be room for. So a thousand of them
// neither hammer the store nor wake together. With any other Limiter each caller asks again after RetryAfter and a
// random part of it, up to an eighth at first and twice as much with every attempt.
func Wait(ctx context.Context, l Limiter, key string, cost int64) (Result, error) {
	if ctx.Err() != nil {
		return Result{}, waitError(ctx)
	}
	s, ok := l.(*StoreLimiter)
	if !ok || cost <= 0 || s.never(cost) != nil {
		return waitAlone(ctx, l, key, cost)
	}
	return s.line.wait(ctx, s, key, cost)
}

func waitAlone(ctx context.Context, l Limiter, key string, cost int64) (Result, error) {
	for attempt := 0; ; attempt++ {
		res, err := l.Allow(ctx, key, cost)
		if err != nil || res.Allowed {
			return res, err
		}
		d, err := pause(ctx, res)
		if err != nil {
			return res, err
		}
		spread := min(d, time.Minute) / 8 << min(attempt, 8)
		if deadline, ok := ctx.Deadline(); ok {
			spread = min(spread, time.Until(deadline)-d)
		}
		if spread = min(spread, Never-d-1); spread > 0 {
			d += rand.N(spread)
		}
		if err := sleep(ctx, d); err != nil {
			return res, err
		}
	}
}

// leastPause is how long to wait after a denial that does not say.
const leastPause = time.Millisecond

// pause is how long to wait after a denial, or why not to.
func pause(ctx context.Context, res Result) (time.Duration, error) {
	d := res.RetryAfter
	if d == Never {
		return 0, ErrNever
	}
	if d <= 0 {
		d = leastPause
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return 0, ErrDeadline
	}
	return d, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
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
