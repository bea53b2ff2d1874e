package main

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/rules"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// together has one of the processes of TestTogether hammer the server at an address.
const together = "RATELIMIT_TOGETHER"

// window is a limit that tells exactly how much was admitted.
var window = ratelimit.Limit{Name: "log", Algorithm: ratelimit.SlidingLog, Rate: 50_000, Period: time.Hour}

// hammer calls 64 × 50 times, all at once, and returns how many calls were admitted. Every process loads the same rule, of three limits.
func hammer(t *testing.T, addr string) int64 {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	store, err := goredisstore.New(client, goredisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.New(t.Context(), rules.Static(rules.Rule{Tenant: "shop", Limits: []ratelimit.Limit{
		ratelimit.PerDay(1_000_000).Named("day"), ratelimit.PerDay(100).Named("scarce"),
		window,
	}}), rules.Options{Default: rules.Rule{Mode: rules.DenyAll}})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	limiter := set.Limiter(store)
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 50 {
				res, err := limiter.Allow(context.Background(), ratelimit.Key("shop", "order"), 1)
				if err != nil {
					t.Error(err)
					return
				}
				admitted.Add(res.Taken)
			}
		})
	}
	wg.Wait()
	return admitted.Load()
}

// TestTogether: three processes of 64 callers each on a rule of three limits. No more is admitted than the scarcest has,
// and once it is spent, calls that are denied leave the other two as they were, byte for byte.
func TestTogether(t *testing.T) {
	if addr := os.Getenv(together); addr != "" {
		hammer(t, addr)
		return
	}
	t.Parallel()
	server := redisserver.Single(t)
	round := func() int64 {
		t.Helper()
		var others []*exec.Cmd
		for range 2 {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTogether$", "-test.count=1")
			cmd.Env = append(os.Environ(), together+"="+server.Addr)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			others = append(others, cmd)
		}
		here := hammer(t, server.Addr)
		for _, cmd := range others {
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		}
		return here
	}
	dump := func() (all [3]string) {
		t.Helper()
		for i, key := range [...]string{"rl:day:{shop}:order", "rl:scarce:{shop}:order", "rl-log:log:{shop}:order"} {
			reply, err := server.Do("DUMP", key)
			state, ok := reply.(string)
			if err != nil || !ok {
				t.Fatalf("%s is %T, %v", key, reply, err)
			}
			all[i] = state
		}
		return all
	}
	round()
	spent := dump()
	if here := round(); here > 0 {
		t.Errorf("%d calls were admitted once the scarcest limit was spent", here)
	}
	if now := dump(); now != spent {
		t.Errorf("denied calls changed\n%q\nto\n%q", spent, now)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	store, err := goredisstore.New(client, goredisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := store.Take(t.Context(), ratelimit.Request{Key: ratelimit.Key("shop", "order"), Limit: &window})
	if err != nil || window.Rate-res.Remaining != 100 {
		t.Errorf("%d were admitted; want the 100 of the scarcest: %v", window.Rate-res.Remaining, err)
	}
}
