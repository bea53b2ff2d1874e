// Command echo limits a server of echo, for which there is no adapter but the few lines of limit here: each API key may
// make two requests at once to each route, and one more every half minute.
//
//	go run ./examples/echo
//
//	curl -i -H 'X-Api-Key: a' localhost:8080/items/1    # 200, X-RateLimit-Remaining: 1, no Retry-After
//	curl -i -H 'X-Api-Key: a' localhost:8080/items/2    # 200, X-RateLimit-Remaining: 0, no Retry-After
//	curl -i -H 'X-Api-Key: a' localhost:8080/items/3    # 429, X-RateLimit-Remaining: 0, Retry-After: 30
//	curl -i -H 'X-Api-Key: a' localhost:8080/search     # 200, X-RateLimit-Remaining: 1
//	curl -i -H 'X-Api-Key: b' localhost:8080/items/1    # 200, X-RateLimit-Remaining: 1
//	curl -i -H 'X-Api-Key: a' localhost:8080/made-up    # 404, X-RateLimit-Remaining: 1
//	curl -i -H 'X-Api-Key: a' localhost:8080/another    # 404, X-RateLimit-Remaining: 0
//	curl -i localhost:8080/items/1                      # 401, Content-Type: application/problem+json
package main

import (
	"context"
	"flag"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/examples/internal/program"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

func main() { program.Main(run) }

// limit is middleware of echo that asks g.
func limit(g *httplimit.Guard) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			// What ByPattern reads. Paths without a route are one bucket, or everybody could make up buckets.
			if c.Request().Pattern = c.Path(); c.Path() == "" {
				c.Request().Pattern = "unmatched"
			}
			if !g.Write(c.Response(), c.Request(), g.Decide(c.Request(), nil)) {
				return nil
			}
			return next(c)
		}
	}
}

func run(ctx context.Context, args []string, ready func(address string)) error {
	flags := flag.NewFlagSet("echo", flag.ContinueOnError)
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
	e := echo.New()
	e.Use(limit(httplimit.NewGuard(limiter, httplimit.Options{
		Key: httplimit.Join(httplimit.ByHeader("X-Api-Key"), httplimit.ByPattern),
	})))
	e.GET("/items/:id", item)
	e.GET("/search", search)
	return program.Serve(ctx, *address, e, ready)
}

func item(c echo.Context) error { return c.String(http.StatusOK, "item "+c.Param("id")+"\n") }

func search(c echo.Context) error { return c.String(http.StatusOK, "found nothing\n") }
