package storetest_test

import (
	"context"
	"time"

	"github.com/sluicego/ratelimit"
)

// A bent is a store with some of its methods replaced; those that are nil are the right ones.
type bent struct {
	*reference
	take    func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error)
	takeAll func(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error)
	reset   func(ctx context.Context, key string, limits []*ratelimit.Limit) error
	history func(entries []ratelimit.Entry) []ratelimit.Entry
}

func (b *bent) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	if b.take != nil {
		return b.take(ctx, req)
	}
	return b.reference.Take(ctx, req)
}

func (b *bent) TakeAll(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
	if b.takeAll != nil {
		return b.takeAll(ctx, reqs)
	}
	return b.reference.TakeAll(ctx, reqs)
}

func (b *bent) Reset(ctx context.Context, key string, limits ...*ratelimit.Limit) error {
	if b.reset != nil {
		return b.reset(ctx, key, limits)
	}
	return b.reference.Reset(ctx, key, limits...)
}

func (b *bent) History(ctx context.Context, key string, l *ratelimit.Limit) ([]ratelimit.Entry, error) {
	entries, err := b.reference.History(ctx, key, l)
	if b.history != nil {
		entries = b.history(entries)
	}
	return entries, err
}

// A maker is what Config.New needs, but for the test.
type maker func(clock func() time.Time) ratelimit.Store

// results makes a store whose every result goes through f.
func results(f func(req ratelimit.Request, res ratelimit.Result) ratelimit.Result) maker {
	return bend(func(b *bent) {
		b.take = func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
			res, err := b.reference.Take(ctx, req)
			if err == nil {
				res = f(req, res)
			}
			return res, err
		}
		b.takeAll = func(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
			all, err := b.reference.TakeAll(ctx, reqs)
			for i := range all {
				all[i] = f(reqs[i], all[i])
			}
			return all, err
		}
	})
}

// requests makes a store that decides f of every request.
func requests(f func(req ratelimit.Request) ratelimit.Request) maker {
	return bend(func(b *bent) {
		b.take = func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
			return b.reference.Take(ctx, f(req))
		}
		b.takeAll = func(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
			changed := make([]ratelimit.Request, len(reqs))
			for i := range reqs {
				changed[i] = f(reqs[i])
			}
			return b.reference.TakeAll(ctx, changed)
		}
	})
}

// errs makes a store whose every error goes through f.
func errs(f func(key string, err error) error) maker {
	return bend(func(b *bent) {
		b.take = func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
			res, err := b.reference.Take(ctx, req)
			return res, f(req.Key, err)
		}
		b.takeAll = func(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
			all, err := b.reference.TakeAll(ctx, reqs)
			return all, f(reqs[0].Key, err)
		}
		b.reset = func(ctx context.Context, key string, limits []*ratelimit.Limit) error {
			return f(key, b.reference.Reset(ctx, key, limits...))
		}
	})
}

// contexts makes a store that goes by f of every context.
func contexts(f func(ctx context.Context) context.Context) maker {
	return bend(func(b *bent) {
		b.take = func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
			return b.reference.Take(f(ctx), req)
		}
		b.takeAll = func(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
			return b.reference.TakeAll(f(ctx), reqs)
		}
		b.reset = func(ctx context.Context, key string, limits []*ratelimit.Limit) error {
			return b.reference.Reset(f(ctx), key, limits...)
		}
	})
}

// bend makes a store that f has replaced methods of.
func bend(f func(b *bent)) maker {
	return func(clock func() time.Time) ratelimit.Store {
		b := &bent{reference: newReference(clock)}
		f(b)
		return b
	}
}

// keys makes a store that takes f of a key and limit for their identity.
func keys(f func(r *reference, i id, key string, l *ratelimit.Limit) id) maker {
	return func(clock func() time.Time) ratelimit.Store {
		r := newReference(clock)
		right := r.id
		r.id = func(key string, l *ratelimit.Limit) id { return f(r, right(key, l), key, l) }
		return r
	}
}

// limits makes a store that decides under f of every limit, and may spoil the state first.
func limits(f func(s *ratelimit.State, l ratelimit.Limit) ratelimit.Limit) maker {
	return func(clock func() time.Time) ratelimit.Store {
		r := newReference(clock)
		right := r.machine
		r.machine = func(s *ratelimit.State, i id, l ratelimit.Limit) *ratelimit.Machine {
			if changed := f(s, l); changed.Validate() == nil {
				l = changed
			}
			return right(s, i, l)
		}
		return r
	}
}

// clocks makes a store whose time is f of the right one.
func clocks(f func() func(time.Time) time.Time) maker {
	return func(clock func() time.Time) ratelimit.Store {
		r := newReference(clock)
		right, change := r.clock, f()
		r.clock = func() time.Time { return change(right()) } // under the lock of r
		return r
	}
}
