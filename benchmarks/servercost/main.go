// Command servercost makes exactly $DECISIONS decisions against the Redis server at $REDIS_ADDR, for a program that
// counts what they cost the server:
//
//	REDIS_ADDR=localhost:6379 DECISIONS=2000 go run ./servercost -lib goredisstore -algorithm sliding-log
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/rueidisstore"
)

// key has 24 bytes with "rl:{}" or redis_rate's "rate:" around it.
const key = "user-00000000001234"

// A decide is one decision of so many units.
type decide func(ctx context.Context, cost int64) (allowed bool, err error)

type options struct {
	lib       string
	algorithm ratelimit.Algorithm
	rate      int64
	period    time.Duration
	limits    int
	apart     bool
	denied    bool
	callers   int
}

func main() {
	log.SetFlags(0)
	var o options
	flag.StringVar(&o.lib, "lib", "goredisstore", "redis_rate, goredisstore or rueidisstore")
	flag.TextVar(&o.algorithm, "algorithm", ratelimit.TokenBucket, "token-bucket, sliding-log or sliding-counter")
	flag.Int64Var(&o.rate, "rate", 10_000, "units per period, enough for all decisions")
	flag.DurationVar(&o.period, "period", time.Second, "period of the limit")
	flag.IntVar(&o.limits, "limits", 1, "named limits on the key, all in one decision; 1: a limit without a name")
	flag.BoolVar(&o.apart, "apart", false, "a call for each limit instead, all together being one decision")
	flag.BoolVar(&o.denied, "denied", false, "exhaust the key first, so that decisions are denied; wants a long period")
	flag.IntVar(&o.callers, "callers", 1, "who ask at the same time")
	flag.Parse()
	decisions, err := strconv.Atoi(os.Getenv("DECISIONS"))
	if err != nil {
		log.Fatalf("DECISIONS: %v", err)
	}
	if err := run(os.Getenv("REDIS_ADDR"), decisions, o); err != nil {
		log.Fatal(err)
	}
}

// run makes the decisions and fails unless all are what they should be.
func run(addr string, decisions int, o options) error {
	d, err := connect(addr, o)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if o.denied {
		if allowed, err := d(ctx, o.rate); err != nil || !allowed {
			return fmt.Errorf("exhausting the key: allowed %v, %w", allowed, err)
		}
	}
	var next, wrong atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range o.callers {
		wg.Go(func() {
			for next.Add(1) <= int64(decisions) {
				allowed, err := d(ctx, 1)
				if err != nil {
					failed.Store(&err)
				} else if allowed == o.denied {
					wrong.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	if n := wrong.Load(); n > 0 {
		return fmt.Errorf("%d of %d decisions: want allowed %v", n, decisions, !o.denied)
	}
	return nil
}

// connect returns the decision of o's library.
func connect(addr string, o options) (decide, error) {
	var store ratelimit.Store
	var err error
	switch o.lib {
	case "redis_rate":
		return rival(addr, o)
	case "goredisstore":
		store, err = goredisstore.New(redis.NewClient(&redis.Options{Addr: addr}), goredisstore.Options{})
	case "rueidisstore":
		var client rueidis.Client
		client, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
		if err == nil {
			store, err = rueidisstore.New(client, rueidisstore.Options{})
		}
	default:
		err = fmt.Errorf("unknown -lib %q", o.lib)
	}
	if err != nil {
		return nil, err
	}
	return ours(store, o)
}

func ours(store ratelimit.Store, o options) (decide, error) {
	groups := [][]ratelimit.Limit{nil}
	for i := range o.limits {
		limit := ratelimit.Limit{Algorithm: o.algorithm, Rate: o.rate, Period: o.period}
		if o.limits > 1 {
			limit.Name = "limit-" + strconv.Itoa(i)
		}
		if o.apart && i > 0 {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], limit)
	}
	var limiters []ratelimit.Limiter
	for _, limits := range groups {
		l, err := ratelimit.New(store, limits...)
		if err != nil {
			return nil, err
		}
		limiters = append(limiters, l)
	}
	return func(ctx context.Context, cost int64) (bool, error) {
		for _, l := range limiters {
			if res, err := l.Allow(ctx, key, cost); err != nil || !res.Allowed {
				return false, err
			}
		}
		return true, nil
	}, nil
}

func rival(addr string, o options) (decide, error) {
	if o.algorithm != ratelimit.TokenBucket || o.limits != 1 {
		return nil, errors.New("redis_rate has one token bucket a call")
	}
	l := redis_rate.NewLimiter(redis.NewClient(&redis.Options{Addr: addr}))
	limit := redis_rate.Limit{Rate: int(o.rate), Burst: int(o.rate), Period: o.period}
	return func(ctx context.Context, cost int64) (bool, error) {
		res, err := l.AllowN(ctx, key, limit, int(cost))
		return err == nil && res.Allowed > 0, err
	}, nil
}
