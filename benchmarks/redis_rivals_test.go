package benchmarks

import (
	"context"
	"testing"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/rueidisstore"
)

// A remote is one decision of cost 1 on a Redis server.
type remote func(ctx context.Context, key string) (allowed bool, err error)

// redisLibs make a remote of limits on the server at addr, or nil where they know no such limits. Clients have their
// default options, so that redis_rate and goredisstore have the same ones.
var redisLibs = []struct {
	name string
	make func(b *testing.B, addr string, limits []ratelimit.Limit) remote
}{
	{"redis_rate", newRedisRate},
	{"goredisstore", func(b *testing.B, addr string, limits []ratelimit.Limit) remote {
		return newGoredis(b, addr, limits, goredisstore.Options{})
	}},
	{"goredisstore-unbatched", func(b *testing.B, addr string, limits []ratelimit.Limit) remote {
		return newGoredis(b, addr, limits, goredisstore.Options{NoBatch: true})
	}},
	{"rueidisstore", newRueidis},
}

// newRedisRate has only a token bucket, and asks for one limit after the other, where the others ask for all at once.
func newRedisRate(b *testing.B, addr string, limits []ratelimit.Limit) remote {
	for _, l := range limits {
		if l.Algorithm != ratelimit.TokenBucket {
			return nil
		}
	}
	l := redis_rate.NewLimiter(newGoredisClient(b, addr))
	return func(ctx context.Context, key string) (bool, error) {
		for _, limit := range limits {
			name := key
			if limit.Name != "" {
				name = limit.Name + ":" + key
			}
			res, err := l.Allow(ctx, name, redis_rate.Limit{Rate: int(limit.Rate), Burst: int(limit.Capacity()), Period: limit.Period})
			if err != nil || res.Allowed == 0 {
				return false, err
			}
		}
		return true, nil
	}
}

func newGoredis(b *testing.B, addr string, limits []ratelimit.Limit, o goredisstore.Options) remote {
	store, err := goredisstore.New(newGoredisClient(b, addr), o)
	if err != nil {
		b.Fatal(err)
	}
	return newRemote(b, store, limits)
}

func newGoredisClient(tb testing.TB, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr})
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

func newRueidis(b *testing.B, addr string, limits []ratelimit.Limit) remote {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.Close)
	store, err := rueidisstore.New(client, rueidisstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return newRemote(b, store, limits)
}

func newRemote(b *testing.B, store ratelimit.Store, limits []ratelimit.Limit) remote {
	l, err := ratelimit.New(store, limits...)
	if err != nil {
		b.Fatal(err)
	}
	return func(ctx context.Context, key string) (bool, error) {
		res, err := l.Allow(ctx, key, 1)
		return res.Allowed, err
	}
}
