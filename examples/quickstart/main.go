// Command quickstart shows a limit at work: a number of calls at once, half a second of pause, two calls more, and what
// became of each. It needs nothing; with -redis the same decisions are made in Redis.
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -rate 100/m -burst 5 -n 8
//	go run ./examples/quickstart -algorithm sliding-log -rate 5/500ms
//	go run ./examples/quickstart -redis localhost:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/memstore"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

const (
	pause   = 500 * time.Millisecond
	after   = 2               // calls after the pause
	timeout = 5 * time.Second // for each call
)

func run(args []string, stdout io.Writer) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		o.usage(stdout)
		return nil
	}
	if err != nil {
		return err
	}
	store, where := ratelimit.Store(memstore.New(memstore.Options{})), "memory"
	if o.redis != "" {
		client := redis.NewClient(&redis.Options{Addr: o.redis})
		defer client.Close()
		if store, err = goredisstore.New(client, goredisstore.Options{}); err != nil {
			return err
		}
		where = "Redis at " + o.redis
	}
	limiter, err := ratelimit.New(store, o.limit)
	if err != nil {
		return err
	}
	if err := show(limiter, o.calls, stdout, fmt.Sprintf("%v, in %s", o.limit, where)); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return nil
}

// show makes the calls and prints a line for each.
func show(limiter *ratelimit.StoreLimiter, calls int, w io.Writer, title string) error {
	key := ratelimit.Key("quickstart")
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := limiter.Reset(ctx, key); err != nil { // what an earlier run left in Redis
		return err
	}
	fmt.Fprintf(w, "%s\n\n", title)
	fmt.Fprintf(w, "  time  call  decision  remaining  retry after  reset after\n")
	start := time.Now()
	for call := 1; call <= calls+after; call++ {
		if call == calls+1 {
			time.Sleep(pause)
		}
		at := time.Since(start)
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		res, err := limiter.Allow(ctx, key, 1)
		cancel()
		if err != nil {
			return err
		}
		decision, retry := "allowed", "-"
		if !res.Allowed {
			decision, retry = "denied", short(res.RetryAfter)
		}
		fmt.Fprintf(w, "%5.2fs  %4d  %-8s  %9d  %11s  %11s\n", at.Seconds(), call, decision, res.Remaining, retry, short(res.ResetAfter))
	}
	return nil
}

// short rounds up to a millisecond, so that who waits that long has waited long enough.
func short(d time.Duration) string {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond).String()
}
