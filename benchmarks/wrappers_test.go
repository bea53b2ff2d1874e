package benchmarks

import (
	"context"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
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
