// Command outage shows what becomes of a limit when its Redis dies and comes back. A small fleet shares one limit on a
// Redis server that this program starts, kills and starts again, empty; a line every half second tells who decided, how
// much was admitted and how long it took, and a drawing of it all is left in an SVG file.
//
//	go run ./examples/outage
//	go run ./examples/outage -instances 3 -limit 500 -down 10s
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/sluicego/ratelimit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "outage:", err)
		os.Exit(1)
	}
}

// options are what the flags say.
type options struct {
	instances      int
	limit, offered int64
	up, down       time.Duration
	svg            string
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("outage", flag.ContinueOnError)
	flags.IntVar(&o.instances, "instances", 5, "how many share the limit")
	flags.Int64Var(&o.limit, "limit", 100, "units a second, of a bucket that holds as many")
	flags.Int64Var(&o.offered, "offered", 0, "calls a second of the whole fleet; 0 means three times the limit")
	flags.DurationVar(&o.up, "up", 3*time.Second, "how long Redis is there, before the outage and after it")
	flags.DurationVar(&o.down, "down", 4*time.Second, "how long it is gone")
	flags.StringVar(&o.svg, "svg", "outage.svg", "the drawing; empty means none")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.offered == 0 {
		o.offered = 3 * o.limit
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("argument %q: there are flags only", flags.Arg(0))
	case o.instances < 1 || o.instances > 100:
		return o, fmt.Errorf("-instances %d is outside 1 to 100", o.instances)
	case o.limit < 1 || o.limit > 10_000:
		return o, fmt.Errorf("-limit %d is outside 1 to 10000", o.limit)
	case o.offered < 1 || o.offered > 20_000:
		return o, fmt.Errorf("-offered %d is outside 1 to 20000", o.offered)
	case o.up < step || o.up > time.Hour || o.down < step || o.down > time.Hour:
		return o, fmt.Errorf("-up %v or -down %v is outside %v to 1h", o.up, o.down, step)
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	server, err := newServer()
	if err != nil {
		return err
	}
	defer server.remove()
	if err := server.start(); err != nil {
		return err
	}
	fleet, err := newFleet(server.addr, o.instances, ratelimit.PerSecond(o.limit))
	if err != nil {
		return err
	}
	defer fleet.close()

	fmt.Fprintf(out, "%d instances share %v and get %d calls a second.\n", o.instances, ratelimit.PerSecond(o.limit), o.offered)
	fmt.Fprintln(out, "A bucket that is full, at the start and of a server that comes back empty, admits one limit more; docs/fallback.md has the bounds.")
	fmt.Fprintln(out)
	fmt.Fprintln(out, "  time  redis   admitted/s  denied/s  decided by store / local share    p99")
	lines, err := timeline(ctx, o, server, fleet, out)
	if err != nil {
		return err
	}
	if o.svg == "" {
		return nil
	}
	if err := os.WriteFile(o.svg, draw(o, lines), 0o644); err != nil {
		return err
	}
	fmt.Fprintln(out, "\ndrawn in", o.svg)
	return nil
}

// step is how long a line of the timeline is.
const step = 500 * time.Millisecond

// A line is one step of the timeline.
type line struct {
	at time.Duration
	up bool
	tally
}

// timeline lets the fleet work, takes the server away from it and gives it back, and tells every step.
func timeline(ctx context.Context, o options, server *server, fleet *fleet, out io.Writer) (lines []line, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	working := make(chan struct{})
	go func() {
		defer close(working)
		fleet.work(ctx, o.offered)
	}()
	defer func() { cancel(); <-working }()

	up, ticks := true, time.NewTicker(step)
	defer ticks.Stop()
	for at := step; at <= 2*o.up+o.down; at += step {
		select {
		case <-ctx.Done():
			return lines, ctx.Err()
		case <-ticks.C:
		}
		l := line{at: at, up: up, tally: fleet.takeTally()}
		lines = append(lines, l)
		fmt.Fprintln(out, l)
		switch gone := at >= o.up && at < o.up+o.down; {
		case gone && up:
			server.kill()
			up = false
		case !gone && !up:
			if err := server.start(); err != nil {
				return lines, err
			}
			up = true
		}
	}
	return lines, nil
}

func (l line) String() string {
	state := "up"
	if !l.up {
		state = "killed"
	}
	return fmt.Sprintf("%5.1fs  %-6s  %10.0f  %8.0f  %16d / %-12d  %8v", l.at.Seconds(), state, rate(l.admitted()), rate(l.denied()),
		l.store.decided, l.local.decided, l.p99.Round(10*time.Microsecond))
}

// rate is what the count of one step is a second.
func rate(n int) float64 { return float64(n) / step.Seconds() }
