// Command gin limits a server of gin: each API key may make two requests at once to each route, and one more every half
// minute.
//
//	go run ./examples/gin
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
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/examples/internal/program"
	"github.com/sluicego/ratelimit/middleware/ginlimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

func main() { program.Main(run) }

func run(ctx context.Context, args []string, ready func(address string)) error {
	flags := flag.NewFlagSet("gin", flag.ContinueOnError)
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
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.Recovery(), ginlimit.New(limiter, ginlimit.Options{
		Key: httplimit.Join(httplimit.ByHeader("X-Api-Key"), ginlimit.ByFullPath),
	}))
	router.GET("/search", search)
	router.Group("/v1").GET("/items/:id", item)
	return program.Serve(ctx, *address, router, ready)
}

func item(c *gin.Context) { c.String(http.StatusOK, "item %s\n", c.Param("id")) }

func search(c *gin.Context) { c.String(http.StatusOK, "found nothing\n") }
