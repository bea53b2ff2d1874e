package benchmarks

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/memstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// BenchmarkDenyCacheHit is a call that is denied from memory, its key made by Key and its clock the real one, by one
// caller and by as many as there are processors, and the same denial by memstore.
func BenchmarkDenyCacheHit(b *testing.B) {
	for _, lib := range []string{"denycache", "memstore"} {
		var store ratelimit.Store = memstore.New(memstore.Options{})
		if lib == "denycache" {
			c, err := ratelimit.NewDenyCache(store, ratelimit.DenyCacheOptions{MaxAge: time.Hour})
			if err != nil {
				b.Fatal(err)
			}
			store = c
		}
		for _, a := range []ratelimit.Algorithm{ratelimit.TokenBucket, ratelimit.SlidingLog, ratelimit.SlidingCounter} {
			limit := ratelimit.PerDay(10)
			limit.Algorithm = a
			l, err := ratelimit.New(store, limit)
			if err != nil {
				b.Fatal(err)
			}
			ctx := context.Background()
			key := ratelimit.Key("user-123", "search")
			for range 11 {
				_, _ = l.Allow(ctx, key, 1)
			}
			deny := func(b *testing.B) {
				if res, err := l.Allow(ctx, key, 1); err != nil || res.Allowed {
					b.Fatalf("%+v, %v", res, err)
				}
			}
			b.Run("row="+a.String()+"/callers=1/lib="+lib, func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					deny(b)
				}
			})
			b.Run("row="+a.String()+"/callers=all/lib="+lib, func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if res, err := l.Allow(ctx, key, 1); err != nil || res.Allowed {
							b.Errorf("%+v, %v", res, err)
							return
						}
					}
				})
			})
		}
	}
}

// BenchmarkLease is a hot key on a real server with a Lease and without, by 1, 2, 8 and 64 callers at a time. Calls of the
// store are counted.
func BenchmarkLease(b *testing.B) {
	server := redisserver.Single(b)
	for _, a := range []ratelimit.Algorithm{ratelimit.TokenBucket, ratelimit.SlidingCounter} {
		for _, callers := range []int{1, 2, 8, 64} {
			for _, lib := range []string{"goredisstore", "lease", "lease-1000"} {
				b.Run(fmt.Sprintf("row=%v/callers=%d/lib=%s", a, callers, lib), func(b *testing.B) {
					redis, err := goredisstore.New(newGoredisClient(b, server.Addr), goredisstore.Options{Prefix: "lease"})
					if err != nil {
						b.Fatal(err)
					}
					calls := &counted{Store: redis}
					var store ratelimit.Store = calls
					if lib != "goredisstore" {
						o := ratelimit.LeaseOptions{}
						if lib == "lease-1000" {
							o.Size = 1000
						}
						l, err := ratelimit.NewLease(calls, o)
						if err != nil {
							b.Fatal(err)
						}
						defer l.Close()
						store = l
					}
					limiter, err := ratelimit.New(store, ratelimit.Limit{Algorithm: a, Rate: 1e9, Period: time.Second})
					if err != nil {
						b.Fatal(err)
					}
					before := serverTime(b, server)
					ask(b, func(ctx context.Context, key string) (bool, error) {
						res, err := limiter.Allow(ctx, key, 1)
						return res.Allowed, err
					}, []string{"hot"}, callers, 0)
					b.ReportMetric(float64(b.N)/float64(calls.n.Load()), "ops/call")
					b.ReportMetric((serverTime(b, server)-before)*1e9/float64(b.N), "server-ns/op")
				})
			}
		}
	}
}

// A counted Store counts its calls.
type counted struct {
	ratelimit.Store
	n atomic.Int64
}

func (c *counted) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	c.n.Add(1)
	return c.Store.Take(ctx, req)
}

// Instances with both wrappers over a real server admit what the limit does, and what they hold goes back. R94, R95, R97.
func TestWrappersOnRedis(t *testing.T) {
	server := redisserver.Single(t)
	for _, a := range []ratelimit.Algorithm{ratelimit.TokenBucket, ratelimit.SlidingCounter} {
		const capacity = 5000
		limit := ratelimit.Limit{Algorithm: a, Rate: capacity, Period: 366 * 24 * time.Hour} // less than a unit comes back in an hour
		key := ratelimit.Key("hot", a.String())
		bare, err := goredisstore.New(newGoredisClient(t, server.Addr), goredisstore.Options{Prefix: "wrappers"})
		if err != nil {
			t.Fatal(err)
		}
		var leases []*ratelimit.Lease
		var caches []*ratelimit.DenyCache
		calls := &counted{Store: bare}
		for range 3 {
			l, err := ratelimit.NewLease(calls, ratelimit.LeaseOptions{})
			if err != nil {
				t.Fatal(err)
			}
			c, err := ratelimit.NewDenyCache(l, ratelimit.DenyCacheOptions{MaxAge: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			leases, caches = append(leases, l), append(caches, c)
		}
		var admitted atomic.Int64
		take := func(i int) {
			res, err := caches[i%3].Take(t.Context(), ratelimit.Request{Key: key, Limit: &limit, Cost: 1})
			if err != nil {
				t.Error(err)
			}
			admitted.Add(res.Taken)
		}
		left := func() int64 {
			res, err := bare.Take(t.Context(), ratelimit.Request{Key: key, Limit: &limit})
			if err != nil {
				t.Fatal(err)
			}
			return res.Remaining
		}
		share(30, 4000, take)
		if n := calls.n.Load(); n > 1000 {
			t.Errorf("%v: %d calls of the server for 4000 decisions", a, n)
		}
		for _, l := range leases[:2] {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		share(30, 20_000, take)
		if err := leases[2].Close(); err != nil {
			t.Error(err)
		}
		if n := admitted.Load(); n+left() != capacity || left() > 49 {
			t.Errorf("%v: %d were admitted, %d are left", a, n, left())
		}
		before := calls.n.Load()
		share(30, 1000, take)
		if n := calls.n.Load() - before; n > 100 {
			t.Errorf("%v: %d calls of the server for 1000 denials", a, n)
		}
		if err := caches[0].Reset(t.Context(), key, &limit); err != nil {
			t.Fatal(err)
		}
		if res, err := caches[0].Take(t.Context(), ratelimit.Request{Key: key, Limit: &limit, Cost: 1}); err != nil || !res.Allowed {
			t.Errorf("%v: after a reset: %+v, %v", a, res, err)
		}
	}
}
