package goredisstore_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
)

// patience is how long anything may take that is bound to happen. Only a failure spends it.
const patience = 30 * time.Second

var (
	bucket = ratelimit.Limit{Rate: 1_000_000, Period: time.Hour}
	logOf  = ratelimit.Limit{Algorithm: ratelimit.SlidingLog, Rate: 100_000, Period: time.Hour}
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

func take(ctx context.Context, s *goredisstore.Store, key string) (ratelimit.Result, error) {
	return s.Take(ctx, ratelimit.Request{Key: key, Limit: &bucket, Cost: 1})
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

// goroutines is how many are at work in this package.
func goroutines() (n int) {
	stacks := make([]byte, 1<<20)
	size := runtime.Stack(stacks, true)
	for size == len(stacks) {
		stacks = make([]byte, 2*len(stacks))
		size = runtime.Stack(stacks, true)
	}
	for stack := range strings.SplitSeq(string(stacks[:size]), "\n\n") {
		if strings.Contains(stack, "/goredisstore.(*queue).run") {
			n++
		}
	}
	return n
}

// leavesNone waits until no goroutine of a store is left.
func leavesNone(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		if n := goroutines(); n > 0 {
			return fmt.Errorf("%d goroutines", n)
		}
		return nil
	})
}
