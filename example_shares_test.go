package ratelimit_test

import (
	"context"
	"fmt"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// One hot key, spread over ten sub-keys and so over the nodes of a Redis Cluster.
func ExampleNewSharded() {
	store := memstore.New(memstore.Options{}) // a goredisstore or rueidisstore of a Cluster
	sharded, err := ratelimit.NewSharded(store, 10)
	if err != nil {
		panic(err)
	}
	limiter, err := ratelimit.NewTokenBucket(sharded, ratelimit.PerHour(95))
	if err != nil {
		panic(err)
	}
	ctx, key := context.Background(), ratelimit.Key("tenant-1", "search")
	admitted := 0
	for range 200 {
		if res, err := limiter.Allow(ctx, key, 1); err == nil && res.Allowed {
			admitted++
		}
	}
	fmt.Println(admitted, "admitted under", store.Len(), "keys")
	// Output: 95 admitted under 10 keys
}

// A user, an address and everybody, decided together. The address has no room, so the user keeps what was spent.
func ExampleAll() {
	store := memstore.New(memstore.Options{})
	limiter := func(limit ratelimit.Limit) *ratelimit.StoreLimiter {
		l, err := ratelimit.NewTokenBucket(store, limit)
		if err != nil {
			panic(err)
		}
		return l
	}
	user := limiter(ratelimit.PerHour(10).Named("user"))
	address := limiter(ratelimit.PerHour(2).Named("address"))
	global := limiter(ratelimit.PerHour(1000).Named("global"))
	ctx := context.Background()
	for range 3 {
		res, err := ratelimit.All(ctx,
			ratelimit.Check{Limiter: user, Key: ratelimit.Key("user-42"), Cost: 1},
			ratelimit.Check{Limiter: address, Key: ratelimit.Key("192.0.2.7"), Cost: 1},
			ratelimit.Check{Limiter: global, Key: ratelimit.Key("all"), Cost: 1},
		)
		if err != nil {
			panic(err)
		}
		fmt.Printf("allowed %v by %s\n", res.Allowed, res.Name)
	}
	left, _ := user.Peek(ctx, ratelimit.Key("user-42"))
	fmt.Println("the user has", left.Remaining, "left")
	// Output:
	// allowed true by address
	// allowed true by address
	// allowed false by address
	// the user has 8 left
}

// A burst is stopped here; only what passes is counted for the day, where the fleet counts together.
func ExampleNewLayers() {
	local, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{}), ratelimit.Limit{Name: "burst", Rate: 1, Period: time.Minute, Burst: 2})
	if err != nil {
		panic(err)
	}
	shared := memstore.New(memstore.Options{}) // a Redis store
	global, err := ratelimit.NewSlidingCounter(shared, ratelimit.PerDay(1000).Named("day"))
	if err != nil {
		panic(err)
	}
	limiter := ratelimit.NewLayers(local, global)
	for range 3 {
		res, err := limiter.Allow(context.Background(), "user-42", 1)
		fmt.Println(res.Allowed, res.Name, err)
	}
	// Output:
	// true burst <nil>
	// true burst <nil>
	// false burst <nil>
}

// Two regions with a store each, and shares that follow the demand.
func ExampleNewRebalancer() {
	rebalancer, err := ratelimit.NewRebalancer(ratelimit.RebalancerOptions{
		Regions: []ratelimit.Region{{Name: "eu", Share: 7000}, {Name: "us", Share: 3000, Most: 8000}},
		Demand: func(context.Context) (map[string]int64, error) {
			return map[string]int64{"eu": 2_000_000, "us": 5_000_000}, nil // from your metrics
		},
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = rebalancer.Run(ctx) }()
	defer func() { cancel(); <-done }()

	store, err := ratelimit.NewRegional(memstore.New(memstore.Options{}), rebalancer.Share("eu"))
	if err != nil {
		panic(err)
	}
	limiter, err := ratelimit.NewTokenBucket(store, ratelimit.PerMinute(100))
	if err != nil {
		panic(err)
	}
	res, err := limiter.Allow(ctx, "user-42", 1)
	fmt.Println(res.Remaining, "of", res.Limit, "remaining", err)
	// Output: 69 of 100 remaining <nil>
}

// The instances of a service count each other through the store they share, so that each knows its part of a limit
// while that store is away.
func ExampleNewFleet() {
	store := memstore.New(memstore.Options{}) // a Redis store
	fleet, err := ratelimit.NewFleet(store, ratelimit.FleetOptions{Name: "search-api"})
	if err != nil {
		panic(err)
	}
	defer fleet.Close()
	fmt.Println(fleet.Instances())
	// Output: 1
}
