package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"
)

// A verdict is what came of asking the primary.
type verdict uint8

const (
	answered verdict = iota // it decided
	returned                // the error is the caller's own
	away                    // it was not asked, or could not answer
	refused                 // it answers, but not this: a mistake in the set-up
)

// errNotAsked is what the primary's error is while it is not asked.
var errNotAsked = fmt.Errorf("%w: it failed lately and is not asked for now", ErrStoreUnavailable)

// ask calls the primary, if the breaker lets it.
func (f *Fallback) ask(ctx context.Context, call func(context.Context) error) (v verdict, err error) {
	done, probed := f.breaker.allow()
	switch {
	case done != nil:
	case probed && f.refuses.Load(): // as the probes find, or all others would find an open door
		return refused, errNotAsked
	default:
		return away, errNotAsked
	}
	v = refused // if call does not come back, but ends the goroutine
	defer func() {
		if p := recover(); p != nil {
			v, err = refused, panicked(p)
		}
		switch v {
		case answered:
			done(nil)
		case away:
			done(errSick)
		default:
			done(errNeutral)
		}
		f.breaker.say()
		if refuses := v == refused; v != returned && f.refuses.Load() != refuses {
			f.refuses.Store(refuses)
		}
		if v == refused && err != nil {
			f.complain(err)
		}
	}()
	asked, cancel := ctx, context.CancelFunc(nil)
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > f.o.Timeout {
		asked, cancel = context.WithTimeout(ctx, f.o.Timeout)
		defer cancel()
	}
	if err = call(asked); err == nil {
		return answered, nil
	}
	return judge(ctx, asked, err)
}

// judge tells what an error of the primary means that was asked with a context of its own, made from ctx.
func judge(ctx, asked context.Context, err error) (verdict, error) {
	if ctx.Err() != nil {
		return returned, ctx.Err()
	}
	// A store may keep to the deadline itself, and be a little ahead of the context.
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= 0 {
		return returned, context.DeadlineExceeded
	}
	switch {
	case errors.Is(err, ErrInvalidLimit), errors.Is(err, ErrInvalidCost), errors.Is(err, ErrInvalidKey):
		return returned, err
	case errors.Is(err, ErrMisconfigured), errors.Is(err, ErrCrossSlot):
		return refused, err
	case errors.Is(err, ErrStoreUnavailable), errors.Is(err, context.DeadlineExceeded), asked.Err() != nil:
		return away, err
	default:
		return refused, err
	}
}

// panicked makes an error of what a store panicked with, of whose text only the runtime's is sure to hold no key.
func panicked(p any) error {
	if err, ok := p.(runtime.Error); ok {
		return fmt.Errorf("ratelimit: the store panicked: %w", err)
	}
	return fmt.Errorf("ratelimit: the store panicked with a %T", p)
}

// complain tells of a mistake in the set-up.
func (f *Fallback) complain(err error) {
	if f.o.OnError != nil {
		guard(func() { f.o.OnError(err) })
		return
	}
	now, last := int64(time.Since(f.started)), f.spoke.Load()
	if last != 0 && now-last < int64(time.Second) || !f.spoke.CompareAndSwap(last, max(1, now)) {
		return
	}
	guard(func() {
		slog.Error("ratelimit: the store answers but refuses; deciding locally, by this instance's share", "error", err)
	})
}

// moved tells of a move of the breaker.
func (f *Fallback) moved(from, to BreakerState) {
	switch {
	case f.o.OnStateChange != nil:
		f.o.OnStateChange(from, to)
	case from == BreakerClosed:
		slog.Warn("ratelimit: the store is away; deciding without it", "from", from, "to", to)
	case to == BreakerClosed:
		slog.Info("ratelimit: the store is back", "from", from, "to", to)
	default:
		slog.Debug("ratelimit: the store is being probed", "from", from, "to", to)
	}
}

func logAlone() {
	guard(func() {
		slog.Warn("ratelimit: FallbackOptions.Instances is nil: every instance gives the whole limit while the store is away")
	})
}
