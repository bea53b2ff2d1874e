package ratelimit_test

import (
	"context"
	"fmt"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// A goneStore is one that nobody answers for.
type goneStore struct{ ratelimit.Store }

func (goneStore) Take(context.Context, ratelimit.Request) (ratelimit.Result, error) {
	return ratelimit.Result{}, ratelimit.ErrStoreUnavailable
}

// Ten instances share a limit. While the store is away each gives a tenth of it, but for the limit that is too dear to guess.
func ExampleNewFallback() {
	primary := goneStore{} // a store over Redis, in a service
	store, err := ratelimit.NewFallback(primary, memstore.New(memstore.Options{}), ratelimit.FallbackOptions{
		Instances: func() int { return 10 },
	})
	if err != nil {
		panic(err)
	}
	defer store.Close()

	login := ratelimit.PerMinute(30).Named("login")
	login.OnFailure = ratelimit.FailClosed
	for _, limit := range []ratelimit.Limit{ratelimit.PerSecond(100), login} {
		limiter, err := ratelimit.NewTokenBucket(store, limit)
		if err != nil {
			panic(err)
		}
		res, err := limiter.Allow(context.Background(), ratelimit.Key("user-123"), 1)
		fmt.Println(res.Allowed, res.Remaining, "of", res.Limit, res.Source, err)
	}
	// Output:
	// true 9 of 100 fallback <nil>
	// false 0 of 30 fail-closed <nil>
}
