// Command tiers has different limits for callers who say who they are and for everybody else: five requests at once for
// each user, two for each address, and one more every half minute for either.
//
//	go run ./examples/tiers
//
//	curl -i localhost:8080/search                                       # 200, X-RateLimit-Limit: 2, X-RateLimit-Remaining: 1
//	curl -i localhost:8080/search                                       # 200, X-RateLimit-Remaining: 0
//	curl -i localhost:8080/search                                       # 429, X-RateLimit-Limit: 2, Retry-After: 30
//	curl -i -H 'Authorization: Bearer ann-1' localhost:8080/search      # 200, X-RateLimit-Limit: 5, X-RateLimit-Remaining: 4
//	curl -i -H 'Authorization: Bearer ann-2' localhost:8080/search      # 200, X-RateLimit-Limit: 5, X-RateLimit-Remaining: 3
//	curl -i -H 'Authorization: Bearer made-up' localhost:8080/search    # 401, no X-RateLimit-Limit
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/examples/internal/program"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

func main() { program.Main(run) }

func run(ctx context.Context, args []string, ready func(address string)) error {
	flags := flag.NewFlagSet("tiers", flag.ContinueOnError)
	address := flags.String("addr", "localhost:8080", "listen on this `host:port`")
	refill := flags.Duration("refill", 30*time.Second, "one more after this time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	store := memstore.New(memstore.Options{})
	tier := func(name string, burst int64, key httplimit.KeyFunc) (*httplimit.Guard, error) {
		limiter, err := ratelimit.NewTokenBucket(store, ratelimit.Limit{Name: name, Rate: 1, Period: *refill, Burst: burst})
		if err != nil {
			return nil, err
		}
		return httplimit.NewGuard(limiter, httplimit.Options{Key: key}), nil
	}
	anonymous, err := tier("anonymous", 2, httplimit.ByIP())
	if err != nil {
		return err
	}
	known, err := tier("known", 5, httplimit.ByUser(user))
	if err != nil {
		return err
	}
	limit := httplimit.Choose(func(r *http.Request) *httplimit.Guard {
		if user(r.Context()) != "" {
			return known
		}
		return anonymous
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /search", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "found nothing") })
	return program.Serve(ctx, *address, authenticate(limit(mux)), ready)
}

// users have tokens, one of them several.
var users = map[string]string{"ann-1": "ann", "ann-2": "ann", "bob-1": "bob"}

type userKey struct{}

func user(ctx context.Context) string {
	u, _ := ctx.Value(userKey{}).(string)
	return u
}

// authenticate is outside of the limits: a token that is nobody's gets no further.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token := r.Header.Get("Authorization"); token != "" {
			u, ok := users[strings.TrimPrefix(token, "Bearer ")]
			if !ok {
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, "no such token", http.StatusUnauthorized)
				return
			}
			r = r.WithContext(context.WithValue(r.Context(), userKey{}, u))
		}
		next.ServeHTTP(w, r)
	})
}
