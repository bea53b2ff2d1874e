// Reload keeps rules in a SQLite file and has every process hear of a change over Redis Pub/Sub. Any other bus, Kafka or
// NATS, takes the place of follow: one loop that calls Refresh.
//
//	go run ./examples/reload -redis localhost:6379 -db rules.db
//	sqlite3 rules.db "INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('shop-a', '*', 200, 100)"
//	redis-cli PUBLISH rate_limit_rule ''
//
// It prints what shop-a may spend whenever that changes, until it is interrupted.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/rules"
)

const channel = "rate_limit_rule"

// table is all that a database without triggers needs. It is then read whole each time.
const table = `CREATE TABLE IF NOT EXISTS rate_limit_rule (
	id INTEGER PRIMARY KEY, tenant_id TEXT NOT NULL, route_id TEXT NOT NULL,
	capacity INTEGER NOT NULL CHECK (capacity > 0), refill_per_second NUMERIC NOT NULL CHECK (refill_per_second > 0),
	updated_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, UNIQUE (tenant_id, route_id))`

func main() {
	addr := flag.String("redis", "localhost:6379", "address of Redis")
	path := flag.String("db", "rules.db", "SQLite file of the rules")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addr, *path, func(r rules.Rule) { fmt.Println(r.Limits) }); err != nil {
		log.Fatal(err)
	}
}

// run tells changed what holds for shop-a, at first and after each change.
func run(ctx context.Context, addr, path string, changed func(rules.Rule)) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, table); err != nil {
		return err
	}
	set, err := rules.New(ctx, rules.SQL(db), rules.Options{
		Default: rules.Rule{Limits: []ratelimit.Limit{{Rate: 10, Period: time.Second, Burst: 20}}},
		OnError: func(err error) { log.Print(err) },
	})
	if err != nil {
		return err
	}
	defer set.Close()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	last := ""
	return follow(ctx, client, func() {
		if err := set.Refresh(ctx); err != nil {
			return // OnError was told, and the set polls
		}
		r, _ := set.Find("shop-a", rules.Any)
		if now := fmt.Sprint(r.Limits); now != last {
			last = now
			changed(r)
		}
	})
}

// follow calls refresh for each message, and each time that the subscription stands again, for what was missed.
func follow(ctx context.Context, client *redis.Client, refresh func()) error {
	sub := client.Subscribe(ctx, channel)
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })() // Receive does not heed ctx
	defer sub.Close()
	for {
		_, err := sub.Receive(ctx) // a message, or that the subscription stands
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, redis.ErrClosed):
			return err
		case err != nil: // the connection is lost; the next Receive makes another
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return nil
			}
		default:
			refresh()
		}
	}
}
