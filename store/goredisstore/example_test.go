package goredisstore_test

import (
	"context"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
)

func ExampleNew() {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"localhost:6379"}})
	defer client.Close()
	store, err := goredisstore.New(client, goredisstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := ratelimit.New(store, ratelimit.PerSecond(10))
	if err != nil {
		log.Fatal(err)
	}
	res, err := limiter.Allow(context.Background(), ratelimit.Key("user-123", "search"), 1)
	if err != nil {
		log.Fatal(err)
	}
	log.Println(res.Allowed, res.Remaining)
}
