package benchmarks

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/httprate"
	sethvargo "github.com/sethvargo/go-limiter/memorystore"
	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
	"github.com/throttled/throttled/v2"
	throttledmem "github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululemem "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

// An allow is one decision of cost 1.
type allow func(key string) bool

// A lib makes a limiter of n units per period, with room for n at once, for any number of keys in memory, and says how
// to stop it; nil: there is nothing to stop. None of the rivals bounds its memory, as they are set up here.
type lib struct {
	name string
	make func(b *testing.B, n int, period time.Duration) (l allow, stop func())
}

var libs = []lib{
	{"ratelimit", newRatelimit},
	{"x-time-rate", newXTimeRate},
	{"sethvargo", newSethvargo},
	{"throttled", newThrottled},
	{"ulule", newUlule},
	{"httprate", newHttprate},
}

func newRatelimit(b *testing.B, n int, period time.Duration) (allow, func()) {
	l, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{}), ratelimit.Limit{Rate: int64(n), Period: period})
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	return func(key string) bool {
		res, err := l.Allow(ctx, key, 1)
		return err == nil && res.Allowed
	}, nil
}

func newXTimeRate(_ *testing.B, n int, period time.Duration) (allow, func()) {
	var limiters sync.Map
	every := rate.Limit(float64(n) / period.Seconds())
	return func(key string) bool {
		l, ok := limiters.Load(key)
		if !ok {
			l, _ = limiters.LoadOrStore(key, rate.NewLimiter(every, n))
		}
		return l.(*rate.Limiter).AllowN(time.Now(), 1)
	}, nil
}

func newSethvargo(b *testing.B, n int, period time.Duration) (allow, func()) {
	store, err := sethvargo.New(&sethvargo.Config{Tokens: uint64(n), Interval: period})
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	return func(key string) bool {
		_, _, _, ok, err := store.Take(ctx, key)
		return err == nil && ok
	}, func() { store.Close(ctx) }
}

func newThrottled(b *testing.B, n int, period time.Duration) (allow, func()) {
	store, err := throttledmem.NewCtx(0)
	if err != nil {
		b.Fatal(err)
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerDuration(n, period), MaxBurst: n - 1})
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	return func(key string) bool {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		return err == nil && !limited
	}, nil
}

func newUlule(_ *testing.B, n int, period time.Duration) (allow, func()) {
	l := ulule.New(ululemem.NewStore(), ulule.Rate{Limit: int64(n), Period: period})
	ctx := context.Background()
	return func(key string) bool {
		res, err := l.Get(ctx, key)
		return err == nil && !res.Reached
	}, nil
}

// newHttprate makes the decision of RateLimiter.OnLimit without the HTTP headers.
func newHttprate(_ *testing.B, n int, period time.Duration) (allow, func()) {
	counter := httprate.NewLocalLimitCounter(period)
	l := httprate.NewRateLimiter(n, period, httprate.WithLimitCounter(counter))
	var mu sync.Mutex
	return func(key string) bool {
		window := time.Now().UTC().Truncate(period)
		mu.Lock()
		defer mu.Unlock()
		_, used, err := l.Status(key)
		if err != nil || used+1 > float64(n) {
			return false
		}
		return counter.IncrementBy(key, window, 1) == nil
	}, nil
}
