package ratelimit

import (
	"context"
	"errors"
	"fmt"
)

// Layers decides by a local limiter and then by a global one: short windows on a store in memory, long ones on one that
// the fleet shares. What the local one denies never reaches the global one, and what the global one denies, or fails to
// decide, is given back to the local one. It is All of the two, with its bounds. It is safe for concurrent use and has
// nothing to close.
//
// A global store that is away makes Allow an ErrStoreUnavailable; put a Fallback around that store.
type Layers struct{ local, global Limiter }

var (
	_ Limiter   = (*Layers)(nil)
	_ Refunder  = (*Layers)(nil)
	_ Describer = (*Layers)(nil)
)

// NewLayers returns the two as one. It panics if one of them is nil, or local is no Refunder.
func NewLayers(local, global Limiter) *Layers {
	if local == nil || global == nil {
		panic("ratelimit: NewLayers: a limiter is nil")
	}
	if _, ok := local.(Refunder); !ok {
		panic("ratelimit: NewLayers: local is no Refunder")
	}
	return &Layers{local, global}
}

// Allow spends cost for key from both limiters or from neither.
func (l *Layers) Allow(ctx context.Context, key string, cost int64) (Result, error) {
	return All(ctx, Check{l.local, key, cost}, Check{l.global, key, cost})
}

// Refund gives n units back to both limiters, to one also if the other fails. It is errors.ErrUnsupported, and gives
// nothing back, if the global one is no Refunder.
func (l *Layers) Refund(ctx context.Context, key string, n int64) (Result, error) {
	global, ok := l.global.(Refunder)
	if !ok {
		return Result{}, fmt.Errorf("ratelimit: the global limiter takes nothing back: %w", errors.ErrUnsupported)
	}
	a, errA := l.local.(Refunder).Refund(ctx, key, n)
	b, errB := global.Refund(ctx, key, n)
	if err := errors.Join(errA, errB); err != nil {
		return Result{}, err
	}
	return binding([]Result{a, b}), nil
}

// LimitsFor returns the limits of both, as far as they tell.
func (l *Layers) LimitsFor(key string) (limits []Limit) {
	for _, side := range [...]Limiter{l.local, l.global} {
		if d, ok := side.(Describer); ok {
			limits = append(limits, d.LimitsFor(key)...)
		}
	}
	return limits
}
