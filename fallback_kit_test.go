package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// A frail store is one that can fail.
type frail struct {
	store ratelimit.Store
	how   atomic.Pointer[func(context.Context) error] // what becomes of a call before it reaches store; nil: nothing
	lost  atomic.Bool                                 // what became of it comes after: it was executed
	calls atomic.Int64
	now   atomic.Int64 // calls in flight
	most  atomic.Int64 // and the most that ever were
}

// fail makes calls fail by how; nil ends that.
func (s *frail) fail(how func(context.Context) error) {
	if how == nil {
		s.how.Store(nil)
		return
	}
	s.how.Store(&how)
}

// failAfter lets n calls through first.
func (s *frail) failAfter(n int64, how func(context.Context) error) {
	calls := s.calls.Load()
	s.fail(func(ctx context.Context) error {
		if s.calls.Load() <= calls+n {
			return nil
		}
		return how(ctx)
	})
}

var (
	down = fails(fmt.Errorf("%w: connection refused", ratelimit.ErrStoreUnavailable))
	hung = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
)

func fails(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

// slow takes d, or until the context ends.
func slow(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *frail) call(ctx context.Context, do func() error) error {
	s.calls.Add(1)
	n := s.now.Add(1)
	defer s.now.Add(-1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	how := s.how.Load()
	if how == nil {
		return do()
	}
	if s.lost.Load() {
		if err := do(); err != nil {
			return err
		}
		return (*how)(ctx)
	}
	if err := (*how)(ctx); err != nil {
		return err
	}
	return do()
}

func (s *frail) Take(ctx context.Context, req ratelimit.Request) (res ratelimit.Result, err error) {
	err = s.call(ctx, func() (err error) { res, err = s.store.Take(ctx, req); return err })
	return res, err
}

func (s *frail) TakeAll(ctx context.Context, reqs []ratelimit.Request) (res []ratelimit.Result, err error) {
	err = s.call(ctx, func() (err error) { res, err = s.store.TakeAll(ctx, reqs); return err })
	return res, err
}

func (s *frail) Reset(ctx context.Context, key string, limits ...*ratelimit.Limit) error {
	return s.call(ctx, func() error { return s.store.Reset(ctx, key, limits...) })
}

// A rig is a Fallback over a frail store.
type rig struct {
	*ratelimit.Fallback
	primary   *frail
	secondary *memstore.Store
	mu        sync.Mutex
	moves     [][2]ratelimit.BreakerState // since they were last asked for
	mistakes  atomic.Int64
}

// newRig returns a rig of the options o, with hooks that record, and closes it at the end of the test.
func newRig(t testing.TB, o ratelimit.FallbackOptions) *rig {
	t.Helper()
	r := &rig{
		primary:   &frail{store: memstore.New(memstore.Options{})},
		secondary: memstore.New(memstore.Options{}),
	}
	if o.Instances == nil {
		o.Instances = func() int { return 1 }
	}
	if o.OnStateChange == nil {
		o.OnStateChange = func(from, to ratelimit.BreakerState) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.moves = append(r.moves, [2]ratelimit.BreakerState{from, to})
		}
	}
	if o.OnError == nil {
		o.OnError = func(error) { r.mistakes.Add(1) }
	}
	f, err := ratelimit.NewFallback(r.primary, r.secondary, o)
	if err != nil {
		t.Fatal(err)
	}
	r.Fallback = f
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// open takes the primary away, until the breaker is open. It spends of a key of its own.
func (r *rig) open(t testing.TB) {
	t.Helper()
	r.primary.fail(down)
	for range 1_000_000 {
		if r.State() == ratelimit.BreakerOpen {
			return
		}
		r.take(t, "opens", ratelimit.PerSecond(1), 1)
	}
	t.Fatalf("the breaker is %v after a million failures", r.State())
}

func (r *rig) take(t testing.TB, key string, l ratelimit.Limit, cost int64) ratelimit.Result {
	t.Helper()
	res, err := r.Take(t.Context(), ratelimit.Request{Key: key, Limit: &l, Cost: cost})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }

func isUnavailable(err error) bool { return errors.Is(err, ratelimit.ErrStoreUnavailable) }
