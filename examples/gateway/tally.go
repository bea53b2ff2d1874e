package main

import (
	"context"
	"sync/atomic"

	"github.com/sluicego/ratelimit"
)

// A tally is a Store that counts decisions by who made them: what to draw on a dashboard, and to be woken for.
type tally struct {
	ratelimit.Store
	store, fallback, failed atomic.Int64
}

// Take counts.
func (t *tally) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	res, err := t.Store.Take(ctx, req)
	t.count(res.Source, err)
	return res, err
}

// TakeAll counts one decision, of several limits.
func (t *tally) TakeAll(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
	results, err := t.Store.TakeAll(ctx, reqs)
	if err != nil || len(results) > 0 {
		source := ratelimit.SourceStore
		for _, r := range results {
			source = max(source, r.Source) // the store is the least
		}
		t.count(source, err)
	}
	return results, err
}

// Unwrap returns the store that decides.
func (t *tally) Unwrap() ratelimit.Store { return t.Store }

func (t *tally) count(by ratelimit.Source, err error) {
	switch {
	case err != nil:
		t.failed.Add(1)
	case by == ratelimit.SourceStore:
		t.store.Add(1)
	default:
		t.fallback.Add(1)
	}
}
