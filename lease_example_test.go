package ratelimit_test

import (
	"context"
	"fmt"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// A hot key is admitted from units that were debited ahead of need.
func ExampleNewLease() {
	store := memstore.New(memstore.Options{}) // or a Redis store, where it counts
	lease, err := ratelimit.NewLease(store, ratelimit.LeaseOptions{})
	if err != nil {
		panic(err)
	}
	defer lease.Close() // gives back what is unspent
	limiter, err := ratelimit.NewTokenBucket(lease, ratelimit.PerDay(1_000_000))
	if err != nil {
		panic(err)
	}
	decided := map[ratelimit.Source]int{}
	for range 20 {
		res, err := limiter.Allow(context.Background(), ratelimit.Key("tenant-7"), 1)
		if err != nil {
			panic(err)
		}
		decided[res.Source]++
	}
	fmt.Println(decided[ratelimit.SourceLease] > 0)
	// Output: true
}

// Whoever hammers on is denied from memory.
func ExampleNewDenyCache() {
	store := memstore.New(memstore.Options{})
	cache, err := ratelimit.NewDenyCache(store, ratelimit.DenyCacheOptions{})
	if err != nil {
		panic(err)
	}
	limiter, err := ratelimit.NewTokenBucket(cache, ratelimit.PerDay(1))
	if err != nil {
		panic(err)
	}
	for range 4 {
		res, err := limiter.Allow(context.Background(), ratelimit.Key("user-123"), 1)
		if err != nil {
			panic(err)
		}
		fmt.Println(res.Allowed, res.Source)
	}
	// Output:
	// true store
	// false store
	// false deny-cache
	// false deny-cache
}
