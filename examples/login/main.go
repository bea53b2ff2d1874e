// Command login limits guesses at passwords: an account has three failures at once, and one more every five minutes. A
// login that succeeds gives back what it took, so that only failures count; and when the store cannot be asked, nobody
// logs in, since guesses would go uncounted.
//
//	go run ./examples/login
//	go run ./examples/login -redis localhost:6379
//
//	curl -i -X POST -u ann:wrong localhost:8080/login        # 401, X-RateLimit-Remaining: 2
//	curl -i -X POST -u ann:swordfish localhost:8080/login    # 200, X-RateLimit-Remaining: 1
//	curl -i -X POST -u ann:swordfish localhost:8080/login    # 200, X-RateLimit-Remaining: 1
//	curl -i -X POST -u Ann:guess localhost:8080/login        # 401, X-RateLimit-Remaining: 1
//	curl -i -X POST -u ann:again localhost:8080/login        # 401, X-RateLimit-Remaining: 0
//	curl -i -X POST -u ann:swordfish localhost:8080/login    # 429, Retry-After: 300
//	curl -i -X POST -u bob:wrong localhost:8080/login        # 401, X-RateLimit-Remaining: 2
//
// Whoever knows a name can lock it out like that; where that matters, Join the name with httplimit.ByIP, and give the
// address a limit of its own.
package main

import (
	"context"
	"crypto/subtle"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/examples/internal/program"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/memstore"
)

func main() { program.Main(run) }

func run(ctx context.Context, args []string, ready func(address string)) error {
	flags := flag.NewFlagSet("login", flag.ContinueOnError)
	address := flags.String("addr", "localhost:8080", "listen on this `host:port`")
	redisAddress := flags.String("redis", "", "decide in the Redis at this `host:port`, not in memory")
	burst := flags.Int64("burst", 3, "failures at once")
	refill := flags.Duration("refill", 5*time.Minute, "one more after this time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var store ratelimit.Store = memstore.New(memstore.Options{})
	if *redisAddress != "" {
		client := redis.NewClient(&redis.Options{Addr: *redisAddress})
		defer client.Close()
		primary, err := goredisstore.New(client, goredisstore.Options{})
		if err != nil {
			return err
		}
		if store, err = ratelimit.NewFallback(primary, store, ratelimit.FallbackOptions{}); err != nil {
			return err
		}
	}
	limiter, err := ratelimit.NewTokenBucket(store, ratelimit.Limit{
		Name: "login", Rate: 1, Period: *refill, Burst: *burst,
		OnFailure: ratelimit.FailClosed, // other limits on this store would go on locally
	})
	if err != nil {
		return err
	}
	limit := httplimit.New(limiter, httplimit.Options{
		Key: httplimit.FirstOf(byAccount, httplimit.ByIP()),
		Refund: func(_ *http.Request, status int) int64 {
			if status == http.StatusOK {
				return 1
			}
			return 0
		},
	})
	mux := http.NewServeMux()
	mux.Handle("POST /login", limit(http.HandlerFunc(login)))
	return program.Serve(ctx, *address, mux, ready)
}

// byAccount is the account that a request wants to log in to, in one spelling.
func byAccount(r *http.Request) (string, error) {
	user, _, ok := r.BasicAuth()
	if !ok || user == "" {
		return "", httplimit.ErrNoKey
	}
	return ratelimit.Key("account=" + strings.ToLower(user)), nil
}

func login(w http.ResponseWriter, r *http.Request) {
	_, password, _ := r.BasicAuth()
	if subtle.ConstantTimeCompare([]byte(password), []byte("swordfish")) == 0 {
		w.Header().Set("WWW-Authenticate", `Basic realm="login"`)
		http.Error(w, "wrong name or password", http.StatusUnauthorized)
		return
	}
	fmt.Fprintln(w, "welcome")
}
