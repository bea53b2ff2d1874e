// Command nethttp limits a server of net/http: each API key may make two requests at once to each route, and one more
// every half minute.
//
//	go run ./examples/nethttp
//
//	curl -i -H 'X-Api-Key: a' localhost:8080/items/1    # 200, X-RateLimit-Remaining: 1, no Retry-After
//	curl -i -H 'X-Api-Key: a' localhost:8080/items/2    # 200, X-RateLimit-Remaining: 0, no Retry-After
//	curl -i -H 'X-Api-Key: a' localhost:8080/items/3    # 429, X-RateLimit-Remaining: 0, Retry-After: 30
//	curl -i -H 'X-Api-Key: a' localhost:8080/search     # 200, X-RateLimit-Remaining: 1
//	curl -i -H 'X-Api-Key: b' localhost:8080/items/1    # 200, X-RateLimit-Remaining: 1
//	curl -i localhost:8080/items/1                      # 401, Content-Type: application/problem+json
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/examples/internal/program"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

func main() { program.Main(run) }

func run(ctx context.Context, args []string, ready func(address string)) error {
	flags := flag.NewFlagSet("nethttp", flag.ContinueOnError)
	address := flags.String("addr", "localhost:8080", "listen on this `host:port`")
	burst := flags.Int64("burst", 2, "requests at once")
	refill := flags.Duration("refill", 30*time.Second, "one more after this time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	store := memstore.New(memstore.Options{})
	limiter, err := ratelimit.NewTokenBucket(store, ratelimit.Limit{Rate: 1, Period: *refill, Burst: *burst})
	if err != nil {
		return err
	}
	// ByPattern needs the pattern, which the mux has found where the limiter is inside it.
	limit := httplimit.New(limiter, httplimit.Options{
		Key: httplimit.Join(httplimit.ByHeader("X-Api-Key"), httplimit.ByPattern),
	})
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", limit(http.HandlerFunc(item)))
	mux.Handle("GET /search", limit(http.HandlerFunc(search)))
	return program.Serve(ctx, *address, mux, ready)
}

func item(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "item", r.PathValue("id")) }

func search(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "found nothing") }
