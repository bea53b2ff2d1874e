//go:build !race

package rueidisstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/rueidisstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// many makes n decisions on a thousand keys by 64 callers.
func many(ctx context.Context, tb testing.TB, s *rueidisstore.Store, n int) {
	tb.Helper()
	limit := ratelimit.Limit{Rate: 100, Period: time.Second, Burst: 1000}
	var wg sync.WaitGroup
	for caller := range 64 {
		wg.Go(func() {
			for i := range n / 64 {
				if _, err := s.Take(ctx, ratelimit.Request{Key: keys[(caller*131+i)%len(keys)], Limit: &limit, Cost: 1}); err != nil {
					tb.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

var keys = func() (keys [1000]string) {
	for i := range keys {
		keys[i] = fmt.Sprintf("user-%d", i)
	}
	return keys
}()

// A decision allocates twice at most: the key's text, and a context if the caller's can end.
func TestAllocations(t *testing.T) {
	s := storeOn(t, at(redisserver.Single(t).Addr))
	ending, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, ctx := range map[string]context.Context{"endless": context.Background(), "ending": ending} {
		const n = 6400
		per := testing.AllocsPerRun(3, func() { many(ctx, t, s, n) }) / n
		if per > 2.1 { // a part of a call for what the pools lose to the collector, and for the callers themselves
			t.Errorf("%s context: %.2f allocations a decision", name, per)
		}
		t.Logf("%s context: %.2f allocations a decision", name, per)
	}
}

// Decisions of 64 callers.
func BenchmarkTake(b *testing.B) {
	s := storeOn(b, at(redisserver.Single(b).Addr))
	ending, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, ctx := range map[string]context.Context{"endless": context.Background(), "ending": ending} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			many(ctx, b, s, max(b.N, 64))
		})
	}
}
