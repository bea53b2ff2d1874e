package rueidisstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/rueidis"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/rueidisstore"
)

func ExampleNew() {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store, err := rueidisstore.New(client, rueidisstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := ratelimit.New(store, ratelimit.PerMinute(100))
	if err != nil {
		log.Fatal(err)
	}
	res, err := limiter.Allow(context.Background(), ratelimit.Key("user-123"), 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Allowed, res.Remaining)
}

// A service that starts while Redis is down gets decisions as soon as Redis is up.
func ExampleNewLazy() {
	store, err := rueidisstore.NewLazy(func() (rueidis.Client, error) {
		return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
	}, rueidisstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
}
