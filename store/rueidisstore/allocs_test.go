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
func many(ctx context.Context, tb testing.TB, s *rueidisstore.Store, limit ratelimit.Limit, n int) {
	tb.Helper()
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

// minutely returns a limit that admits all decisions of a test.
func minutely(a ratelimit.Algorithm) ratelimit.Limit {
	return ratelimit.Limit{Algorithm: a, Rate: 100_000, Period: time.Minute}
}

// An admitted decision allocates twice at most: the key's text, and a context if the caller's can end.
func TestAllocations(t *testing.T) {
	s := storeOn(t, at(redisserver.Single(t).Addr))
	ending, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, ctx := range map[string]context.Context{"endless": context.Background(), "ending": ending} {
		for a := range ratelimit.Algorithm(3) {
			const n = 6400
			per := testing.AllocsPerRun(3, func() { many(ctx, t, s, minutely(a), n) }) / n
			if per > 2.1 { // a part of a call for what the pools lose to the collector, and for the callers themselves
				t.Errorf("%v, %s context: %.2f allocations a decision", a, name, per)
			}
			t.Logf("%v, %s context: %.2f allocations a decision", a, name, per)
		}
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
			many(ctx, b, s, minutely(ratelimit.TokenBucket), max(b.N, 64))
		})
	}
}
