package goredisstore_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// patience is how long anything may take that is bound to happen. Only a failure spends it.
const patience = 30 * time.Second

var (
	bucket = ratelimit.Limit{Rate: 10, Period: time.Hour}
	logOf  = ratelimit.Limit{Algorithm: ratelimit.SlidingLog, Rate: 10, Period: time.Hour}
)

// connect returns the client that o asks for: of Sentinel, of a Cluster, or of one server.
func connect(t *testing.T, o *redis.UniversalOptions) redis.UniversalClient {
	t.Helper()
	client := redis.NewUniversalClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// at returns a client of one server, else at its defaults.
func at(t *testing.T, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func over(t *testing.T, client goredisstore.Client, o goredisstore.Options) *goredisstore.Store {
	t.Helper()
	s, err := goredisstore.New(client, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A stranger is a client of a type that the store does not know.
type stranger struct{ redis.UniversalClient }

// clients are the ways to reach one server. Those of a Cluster are given one that says it is alone in it.
var clients = map[string]func(t *testing.T, addr string) (goredisstore.Client, goredisstore.Options){
	"defaults": func(t *testing.T, addr string) (goredisstore.Client, goredisstore.Options) {
		return at(t, addr), goredisstore.Options{}
	},
	"no batches": func(t *testing.T, addr string) (goredisstore.Client, goredisstore.Options) {
		return at(t, addr), goredisstore.Options{NoBatch: true}
	},
	"resp2 with deadlines": func(t *testing.T, addr string) (goredisstore.Client, goredisstore.Options) {
		return connect(t, &redis.UniversalOptions{Addrs: []string{addr}, Protocol: 2, ContextTimeoutEnabled: true}), goredisstore.Options{}
	},
	"ring": func(t *testing.T, addr string) (goredisstore.Client, goredisstore.Options) {
		client := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": addr}, HeartbeatFrequency: time.Hour})
		t.Cleanup(func() { _ = client.Close() })
		return client, goredisstore.Options{}
	},
	"cluster": func(t *testing.T, addr string) (goredisstore.Client, goredisstore.Options) {
		return connect(t, &redis.UniversalOptions{Addrs: []string{addr}, IsClusterMode: true}), goredisstore.Options{}
	},
	"cluster, no batches": func(t *testing.T, addr string) (goredisstore.Client, goredisstore.Options) {
		return connect(t, &redis.UniversalOptions{Addrs: []string{addr}, IsClusterMode: true}), goredisstore.Options{NoBatch: true}
	},
	"stranger": func(t *testing.T, addr string) (goredisstore.Client, goredisstore.Options) {
		return stranger{at(t, addr)}, goredisstore.Options{}
	},
}

type handler = func(conn int, args []string) redisserver.Reply

// eachClient runs f with each of them over a stub that answers by what script returns.
func eachClient(t *testing.T, script func() handler, f func(t *testing.T, stub *redisserver.Stub, s *goredisstore.Store)) {
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			stub := stubs(t, script())[0]
			c, o := client(t, stub.Addr)
			f(t, stub, over(t, c, o))
		})
	}
}

// stubs starts a stub for each handler. To a client of a Cluster they are its masters.
func stubs(t *testing.T, handlers ...handler) (all []*redisserver.Stub) {
	t.Helper()
	topology := make(chan redisserver.Reply, 1)
	var addrs []string
	for _, h := range handlers {
		stub := redisserver.NewRawStub(t, func(conn int, args []string) redisserver.Reply {
			if args[0] == "CLUSTER" {
				reply := <-topology
				topology <- reply
				return reply
			}
			if reply, ok := redisserver.Handshake(args); ok {
				return reply
			}
			return h(conn, args)
		})
		all = append(all, stub)
		addrs = append(addrs, stub.Addr)
	}
	topology <- redisserver.ClusterSlots(addrs...)
	return all
}

// admitted is the reply of the token bucket's script for an admission that leaves nothing.
func admitted() redisserver.Reply { return redisserver.Int(0) }

func take(ctx context.Context, s *goredisstore.Store, key string) (ratelimit.Result, error) {
	return s.Take(ctx, ratelimit.Request{Key: key, Limit: &bucket, Cost: 1})
}

// operations are all that a Store can be asked.
func operations(ctx context.Context, s *goredisstore.Store) map[string]func() error {
	limited := func(l *ratelimit.Limit) ratelimit.Request { return ratelimit.Request{Key: "k", Limit: l, Cost: 1} }
	return map[string]func() error{
		"Take":     func() error { _, err := s.Take(ctx, limited(&bucket)); return err },
		"Take log": func() error { _, err := s.Take(ctx, limited(&logOf)); return err },
		"TakeAll": func() error {
			_, err := s.TakeAll(ctx, []ratelimit.Request{limited(&bucket), limited(&logOf)})
			return err
		},
		"Reset":   func() error { return s.Reset(ctx, "k", &bucket, &logOf) },
		"History": func() error { _, err := s.History(ctx, "k", &logOf); return err },
	}
}

// race makes n decisions by 64 callers, each on a key of its own, and says how each went.
func race(n int, decide func(key string) error) map[string]error {
	var mu sync.Mutex
	outcomes := make(map[string]error, n)
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				key := fmt.Sprintf("key-%d", i)
				err := decide(key)
				mu.Lock()
				outcomes[key] = err
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return outcomes
}

// eventually waits until f is nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// goroutines is how many there are, and how many of them are at work in this package. runtime.NumGoroutine is no measure
// after a crowd: while the collector frees the stacks of goroutines that have ended, it counts those in.
func goroutines() (all, ours int) {
	stacks := make([]byte, 1<<20)
	size := runtime.Stack(stacks, true)
	for size == len(stacks) {
		stacks = make([]byte, 2*len(stacks))
		size = runtime.Stack(stacks, true)
	}
	for stack := range strings.SplitSeq(string(stacks[:size]), "\n\n") {
		all++
		if strings.Contains(stack, "/goredisstore.(*queue).run") {
			ours++
		}
	}
	return all, ours
}

// places are how many goroutines of its own a store may have for one server.
func places(c goredisstore.Client, o goredisstore.Options) int {
	if _, ok := c.(stranger); ok || o.NoBatch {
		return poolSize
	}
	return 4
}

// poolSize is that of a client that is not told otherwise.
var poolSize = 10 * runtime.GOMAXPROCS(0)

// leavesFew fails the test unless at most so many goroutines are left soon, all in all more than before and of ours. What
// hangs on a server does so for seconds; those who have just left are given one, or more where the machine is slow to look.
func leavesFew(t *testing.T, before, more, mine int) {
	t.Helper()
	for looks := 1; ; looks++ {
		all, ours := goroutines()
		if all-before <= more && ours <= mine {
			return
		}
		if looks == 100 {
			t.Errorf("%d more goroutines than before, want at most %d, and %d of ours, want at most %d", all-before, more, ours, mine)
			return
		}
		<-time.After(10 * time.Millisecond)
	}
}

// leavesNone waits until no goroutine of a store is left.
func leavesNone(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		if _, n := goroutines(); n > 0 {
			return fmt.Errorf("%d goroutines", n)
		}
		return nil
	})
}
