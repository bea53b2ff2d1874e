// Command gateway is a reverse proxy that limits each tenant on each route: the whole system in one program. Rules come
// from PostgreSQL and change while it runs, decisions from Redis, and neither need be there for it to go on.
//
//	go run ./examples/gateway -memory
//	go run ./examples/gateway -redis localhost:6379 -postgres postgres://localhost/limits -instances 3 -upstream http://localhost:9000
//
//	curl -i -X POST -H 'X-Api-Key: demo-a' localhost:8080/orders    # 200, X-RateLimit-Limit: 20, X-RateLimit-Remaining: 19
//	curl -i -H 'X-Api-Key: demo-a' localhost:8080/orders/7          # 200, X-RateLimit-Limit: 20, X-RateLimit-Remaining: 19
//	curl -i -X POST -H 'X-Api-Key: demo-b' localhost:8080/orders    # 200, X-RateLimit-Remaining: 19
//	curl -i -X POST -H 'X-Api-Key: made-up' localhost:8080/orders   # 401, no X-RateLimit-Limit
//	curl -i -X POST localhost:8080/orders                           # 401, no X-RateLimit-Limit
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	err := run(ctx, os.Args[1:], func(address string) { slog.Info("gateway: listening", "address", address) })
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		slog.Error("gateway: " + err.Error())
		os.Exit(1)
	}
}

// run serves until ctx is done. A request goes one way: who is calling and for what, and whether there is room
// (guard), and on to the upstream (proxy).
func run(ctx context.Context, args []string, ready func(address string)) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	tenants, err := loadTenants(c.tenants)
	if err != nil {
		return err
	}
	upstream, stop, err := startUpstream(c.upstream)
	if err != nil {
		return err
	}
	defer stop()
	limits, err := newLimits(ctx, c)
	if err != nil {
		return err
	}
	defer limits.close()

	guarded := guard(limits.limiter(), tenants)(proxy(upstream, tenants))
	servers := []server{{c.address, guarded, ready}}
	if c.admin != "" {
		servers = append(servers, server{c.admin, limits.admin(), func(address string) {
			slog.Info("gateway: admin", "address", address)
		}})
	}
	return serve(ctx, servers...)
}
