package ratelimit_test

import (
	"context"
	"testing"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// A still store answers at once and does nothing.
type still struct{}

func (still) Take(context.Context, ratelimit.Request) (ratelimit.Result, error) {
	return ratelimit.Result{Allowed: true, Limit: 10, Remaining: 10}, nil
}

func (still) TakeAll(_ context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
	return make([]ratelimit.Result, len(reqs)), nil
}

func (still) Reset(context.Context, string, ...*ratelimit.Limit) error { return nil }

// BenchmarkFallback is a decision with a healthy primary, bare and through a Fallback, and one during an outage.
func BenchmarkFallback(b *testing.B) {
	l := ratelimit.PerSecond(1_000_000_000)
	take := func(b *testing.B, s ratelimit.Store) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := s.Take(context.Background(), ratelimit.Request{Key: "user-123", Limit: &l, Cost: 1}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for name, store := range map[string]ratelimit.Store{"still": still{}, "memory": memstore.New(memstore.Options{})} {
		b.Run(name+"/bare", func(b *testing.B) { take(b, store) })
		b.Run(name+"/fallback", func(b *testing.B) {
			f, err := ratelimit.NewFallback(store, memstore.New(memstore.Options{}), ratelimit.FallbackOptions{Instances: func() int { return 5 }})
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			take(b, f)
		})
	}
	b.Run("outage", func(b *testing.B) {
		r := newRig(b, ratelimit.FallbackOptions{Instances: func() int { return 5 }, OpenFor: 1e12, OnStateChange: func(_, _ ratelimit.BreakerState) {}})
		r.open(b)
		take(b, r)
	})
}

// TestFallbackAllocations: a decision with a healthy primary allocates little more than the bare store.
func TestFallbackAllocations(t *testing.T) {
	l := ratelimit.PerSecond(1_000_000_000)
	r := newRig(t, ratelimit.FallbackOptions{})
	r.primary.store = still{}
	ctx := context.Background()
	allocs := func(s ratelimit.Store) float64 {
		return testing.AllocsPerRun(1000, func() { _, _ = s.Take(ctx, ratelimit.Request{Key: "k", Limit: &l, Cost: 1}) })
	}
	if n := allocs(r) - allocs(r.primary); n > 8 {
		t.Errorf("%v allocations more than the bare store", n)
	}
	r.open(t)
	if n := allocs(r); n > 2 {
		t.Errorf("%v allocations in an outage", n)
	}
}
