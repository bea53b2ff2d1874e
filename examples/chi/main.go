// Command chi limits a server of chi: each API key may make two requests at once to each route, and one more every half
// minute. It needs nothing; with -redis any number of such servers share the limits.
//
//	go run ./examples/chi
//	go run ./examples/chi -redis localhost:6379 -burst 10000 -refill 10ms
//
//	curl -i -H 'X-Api-Key: a' localhost:8080/v1/items/1    # 200, X-RateLimit-Remaining: 1, no Retry-After
//	curl -i -H 'X-Api-Key: a' localhost:8080/v1/items/2    # 200, X-RateLimit-Remaining: 0, no Retry-After
//	curl -i -H 'X-Api-Key: a' localhost:8080/v1/items/3    # 429, X-RateLimit-Remaining: 0, Retry-After: 30
//	curl -i -H 'X-Api-Key: a' localhost:8080/search        # 200, X-RateLimit-Remaining: 1
//	curl -i -H 'X-Api-Key: b' localhost:8080/v1/items/1    # 200, X-RateLimit-Remaining: 1
//	curl -i localhost:8080/v1/items/1                      # 401, Content-Type: application/problem+json
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/examples/internal/program"
	"github.com/sluicego/ratelimit/middleware/chilimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/memstore"
)

func main() { program.Main(run) }

func run(ctx context.Context, args []string, ready func(address string)) error {
	flags := flag.NewFlagSet("chi", flag.ContinueOnError)
	address := flags.String("addr", "localhost:8080", "listen on this `host:port`")
	redisAddress := flags.String("redis", "", "decide in the Redis at this `host:port`, not in memory")
	burst := flags.Int64("burst", 2, "requests at once")
	refill := flags.Duration("refill", 30*time.Second, "one more after this time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var store ratelimit.Store = memstore.New(memstore.Options{})
	if *redisAddress != "" {
		client := redis.NewClient(&redis.Options{Addr: *redisAddress})
		defer client.Close()
		var err error
		if store, err = goredisstore.New(client, goredisstore.Options{}); err != nil {
			return err
		}
	}
	limiter, err := ratelimit.NewTokenBucket(store, ratelimit.Limit{Rate: 1, Period: *refill, Burst: *burst})
	if err != nil {
		return err
	}
	router := chi.NewRouter()
	router.Use(httplimit.New(limiter, httplimit.Options{
		Key: httplimit.Join(httplimit.ByHeader("X-Api-Key"), chilimit.ByRoutePattern()),
	}))
	router.Get("/search", search)
	router.Route("/v1", func(r chi.Router) {
		r.Get("/items/{id}", item)
	})
	return program.Serve(ctx, *address, router, ready)
}

func item(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "item", chi.URLParam(r, "id")) }

func search(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "found nothing") }
