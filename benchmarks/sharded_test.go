package benchmarks

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/rueidisstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

var clusterStores = map[string]func(tb testing.TB, addrs []string) (ratelimit.Store, error){
	"goredisstore": func(tb testing.TB, addrs []string) (ratelimit.Store, error) {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		tb.Cleanup(func() { _ = client.Close() })
		return goredisstore.New(client, goredisstore.Options{})
	},
	"rueidisstore": func(tb testing.TB, addrs []string) (ratelimit.Store, error) {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: addrs})
		if err != nil {
			return nil, err
		}
		tb.Cleanup(client.Close)
		return rueidisstore.New(client, rueidisstore.Options{})
	},
}

// over returns a limiter of limit over shards of a Cluster's store, or over the store itself if shards is 0.
func over(tb testing.TB, store ratelimit.Store, shards int, limits ...ratelimit.Limit) *ratelimit.StoreLimiter {
	tb.Helper()
	if shards > 0 {
		var err error
		if store, err = ratelimit.NewSharded(store, shards); err != nil {
			tb.Fatal(err)
		}
	}
	l, err := ratelimit.New(store, limits...)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// TestShardedOnCluster (R98): one key over ten shards is on all three masters of a Cluster, and callers at once get
// exactly the limit, under one limit and two, whatever the cost.
func TestShardedOnCluster(t *testing.T) {
	cluster := redisserver.Cluster(t)
	for name, open := range clusterStores {
		store, err := open(t, cluster.Addrs())
		if err != nil {
			t.Fatal(err)
		}
		for _, algorithm := range []ratelimit.Algorithm{ratelimit.TokenBucket, ratelimit.SlidingLog, ratelimit.SlidingCounter} {
			for count := 1; count <= 2; count++ {
				hour := ratelimit.Limit{Algorithm: algorithm, Rate: 1000, Period: 12 * time.Hour}
				day := ratelimit.Limit{Algorithm: algorithm, Rate: 1500, Period: 24 * time.Hour, Name: "day"}
				key := ratelimit.Key(fmt.Sprint(name, "-", count), "search")
				l := over(t, store, 10, []ratelimit.Limit{hour, day}[:count]...)
				var admitted atomic.Int64
				share(16, 1500, func(i int) {
					res, err := l.Allow(t.Context(), key, 1+int64(i%3))
					if err != nil {
						t.Error(err)
						return
					}
					admitted.Add(res.Taken)
				})
				rest, err := l.TakeUpTo(t.Context(), key, 1000)
				if got := admitted.Load() + rest.Taken; err != nil || got != 1000 {
					t.Errorf("%s, %v, %d limits: %d and %d were admitted, %v", name, algorithm, count, admitted.Load(), rest.Taken, err)
				}
			}
		}
	}
	for i, n := range cluster.Nodes {
		if size, err := n.Do("DBSIZE"); err != nil || size.(int64) < 12 {
			t.Errorf("master %d holds %v keys, %v", i, size, err)
		}
	}
}

// BenchmarkShardedHotKey is one key of a Cluster of three masters, asked for by 64 callers at a time and all admitted,
// under one limit and under eight. busiest-ns/op is processor time of the busiest master per decision: one decision in
// that time is what the Cluster can do at most. The time per decision shows it where the masters have processors of
// their own.
//
//	go test -run '^$' -bench ShardedHotKey -count 8 | tee sharded.txt
//	benchstat -col /shards sharded.txt
func BenchmarkShardedHotKey(b *testing.B) {
	cluster := redisserver.Cluster(b)
	eight := make([]ratelimit.Limit, 8)
	for i := range eight {
		eight[i] = ratelimit.Limit{Rate: 1_000_000_000, Period: time.Minute, Name: fmt.Sprint("limit-", i)}
	}
	for _, name := range []string{"goredisstore", "rueidisstore"} {
		store, err := clusterStores[name](b, cluster.Addrs())
		if err != nil {
			b.Fatal(err)
		}
		for _, limits := range [][]ratelimit.Limit{eight[:1], eight} {
			for _, shards := range []int{0, 10} {
				l := over(b, store, shards, limits...)
				b.Run(fmt.Sprintf("store=%s/limits=%d/shards=%d", name, len(limits), shards), func(b *testing.B) {
					hotKey(b, cluster, l)
				})
			}
		}
	}
}

func hotKey(b *testing.B, cluster *redisserver.ClusterServers, l ratelimit.Limiter) {
	before := make([]float64, len(cluster.Nodes))
	for i, n := range cluster.Nodes {
		before[i] = serverTime(b, n)
	}
	var failed atomic.Pointer[error]
	key := ratelimit.Key("user-1", "search")
	b.ReportAllocs()
	b.ResetTimer()
	share(64, b.N, func(int) {
		if res, err := l.Allow(context.Background(), key, 1); err != nil || !res.Allowed {
			err = fmt.Errorf("%+v: %w", res, err)
			failed.Store(&err)
		}
	})
	b.StopTimer()
	if err := failed.Load(); err != nil {
		b.Fatal(*err)
	}
	busiest := 0.0
	for i, n := range cluster.Nodes {
		busiest = max(busiest, serverTime(b, n)-before[i])
	}
	b.ReportMetric(busiest*1e9/float64(b.N), "busiest-ns/op")
}
