package ratelimit_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// TestConservation: under whatever is stacked, the store has spent exactly what callers were told that they took, once all
// that was held has gone back. Its clock stands still, so nothing comes back by itself.
func TestConservation(t *testing.T) {
	t.Parallel()
	for alg := range ratelimit.SlidingCounter + 1 {
		for shards := range 3 {
			t.Run(fmt.Sprintf("%v, shards %d", alg, shards), func(t *testing.T) {
				t.Parallel()
				now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
				var store ratelimit.Store = memstore.New(memstore.Options{Clock: func() time.Time { return now }})
				if shards > 0 {
					store = mustHave(ratelimit.NewSharded(store, shards))
				}
				lease := mustHave(ratelimit.NewLease(store, ratelimit.LeaseOptions{Size: 20, MaxAge: 5 * time.Millisecond, MaxKeys: 3}))
				fallback := mustHave(ratelimit.NewFallback(lease, memstore.New(memstore.Options{}), ratelimit.FallbackOptions{
					Timeout: time.Minute, Instances: func() int { return 1 },
				}))
				defer fallback.Close()
				top := mustHave(ratelimit.NewDenyCache(fallback, ratelimit.DenyCacheOptions{MaxAge: time.Millisecond}))

				a := ratelimit.Limit{Name: "a", Algorithm: alg, Rate: 3000, Period: 24 * time.Hour}
				b := ratelimit.Limit{Name: "b", Algorithm: (alg + 1) % 3, Rate: 2500, Period: 24 * time.Hour}
				spent := spendAtRandom(t, mustHave(ratelimit.New(top, a)), mustHave(ratelimit.New(top, b)), mustHave(ratelimit.New(top, a, b)))

				if err := lease.Close(); err != nil {
					t.Fatal(err)
				}
				for i, limit := range []ratelimit.Limit{a, b} {
					limiter := mustHave(ratelimit.New(store, limit))
					for k := range spent[i] {
						res, err := limiter.Peek(t.Context(), conservedKey(k))
						if want := spent[i][k].Load(); err != nil || res.Limit-res.Remaining != want || want == 0 {
							t.Errorf("%v, key %d: the store has spent %d, callers %d; %v", limit, k, res.Limit-res.Remaining, want, err)
						}
					}
				}
			})
		}
	}
}

func conservedKey(k int) string { return ratelimit.Key("t", fmt.Sprint(k)) }

// spendAtRandom spends from four keys by all the ways there are, and returns what was taken from the limits of a and b.
func spendAtRandom(t *testing.T, a, b, both *ratelimit.StoreLimiter) *[2][4]atomic.Int64 {
	var spent [2][4]atomic.Int64
	ctx := t.Context()
	check := func(res ratelimit.Result, err error) ratelimit.Result {
		if err != nil || !res.Allowed && res.Taken != 0 || res.Remaining < 0 || res.Remaining > res.Limit {
			t.Errorf("%+v, %v", res, err)
		}
		return res
	}
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 80 {
				k, n := rand.IntN(4), 1+rand.Int64N(6)
				key := conservedKey(k)
				switch rand.IntN(6) {
				case 0, 1, 2:
					spent[0][k].Add(check(a.Allow(ctx, key, n)).Taken)
				case 3:
					taken := check(both.Allow(ctx, key, n)).Taken
					spent[0][k].Add(taken)
					spent[1][k].Add(taken)
				case 4:
					taken := check(both.TakeUpTo(ctx, key, n)).Taken
					spent[0][k].Add(taken)
					spent[1][k].Add(taken)
				case 5:
					other := (k + 1) % 4
					checks := []ratelimit.Check{{Limiter: b, Key: key, Cost: n}, {Limiter: a, Key: conservedKey(other), Cost: 1}}
					if check(ratelimit.All(ctx, checks...)).Allowed {
						spent[1][k].Add(n)
						spent[0][other].Add(1)
					}
				}
			}
		})
	}
	callers.Wait()
	return &spent
}

func mustHave[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
