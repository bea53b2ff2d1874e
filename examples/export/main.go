// Command export weighs requests: a search costs one unit and an export five, out of one bucket for each API key, which
// holds six and gets one back every ten seconds.
//
//	go run ./examples/export
//
//	curl -i -H 'X-Api-Key: a' localhost:8080/search    # 200, X-RateLimit-Remaining: 5
//	curl -i -H 'X-Api-Key: a' localhost:8080/export    # 200, X-RateLimit-Remaining: 0
//	curl -i -H 'X-Api-Key: a' localhost:8080/search    # 429, Retry-After: 10
//	curl -i -H 'X-Api-Key: a' localhost:8080/export    # 429, Retry-After: 50
//	curl -i -H 'X-Api-Key: b' localhost:8080/export    # 200, X-RateLimit-Remaining: 1
//	curl -i -H 'X-Api-Key: b' localhost:8080/export    # 429, X-RateLimit-Remaining: 1, Retry-After: 40
//	curl -i -H 'X-Api-Key: b' localhost:8080/search    # 200, X-RateLimit-Remaining: 0
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
	flags := flag.NewFlagSet("export", flag.ContinueOnError)
	address := flags.String("addr", "localhost:8080", "listen on this `host:port`")
	burst := flags.Int64("burst", 6, "units at once")
	refill := flags.Duration("refill", 10*time.Second, "one more after this time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	store := memstore.New(memstore.Options{})
	limiter, err := ratelimit.NewTokenBucket(store, ratelimit.Limit{Rate: 1, Period: *refill, Burst: *burst})
	if err != nil {
		return err
	}
	limit := httplimit.New(limiter, httplimit.Options{Key: httplimit.ByHeader("X-Api-Key")})
	mux := http.NewServeMux()
	mux.Handle("GET /search", limit(say("found nothing")))
	mux.Handle("GET /export", httplimit.WithCost(5)(limit(say("exported nothing"))))
	return program.Serve(ctx, *address, mux, ready)
}

func say(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, text) })
}
