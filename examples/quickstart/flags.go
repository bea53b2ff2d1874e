package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/sluicego/ratelimit"
)

const maxCalls = 10_000

// options are what the flags say.
type options struct {
	redis string
	limit ratelimit.Limit
	calls int
	flags *flag.FlagSet
}

// parse reads args. Its errors name the flag, and the bound that was passed.
func parse(args []string) (*options, error) {
	o := &options{flags: flag.NewFlagSet("quickstart", flag.ContinueOnError), limit: ratelimit.Limit{Rate: 2, Period: time.Second}}
	o.flags.SetOutput(io.Discard)
	o.flags.StringVar(&o.redis, "redis", "", "decide in the Redis at this `host:port`, not in memory")
	o.flags.TextVar(&o.limit.Algorithm, "algorithm", ratelimit.TokenBucket, "token-bucket, sliding-log or sliding-counter")
	rate := "2/s"
	o.flags.StringVar(&rate, "rate", rate, "units per period, such as 2/s, 100/m, 10/h or 5/500ms")
	o.flags.Int64Var(&o.limit.Burst, "burst", 10, "what a token bucket holds; the sliding windows have none")
	o.flags.IntVar(&o.calls, "n", 12, "`calls` at once, before the pause and two more")
	if err := o.flags.Parse(args); err != nil {
		return o, err
	}
	if o.flags.NArg() > 0 {
		return o, fmt.Errorf("argument %q: there are flags only", o.flags.Arg(0))
	}
	if o.calls < 1 || o.calls > maxCalls {
		return o, fmt.Errorf("-n %d is outside 1 to %d", o.calls, maxCalls)
	}
	if o.limit.Algorithm != ratelimit.TokenBucket && !o.given("burst") {
		o.limit.Burst = 0
	}
	var err error
	if o.limit.Rate, o.limit.Period, err = parseRate(rate); err != nil {
		return o, fmt.Errorf("-rate %q: %w", rate, err)
	}
	without := o.limit
	without.Burst = 0
	if err := without.Validate(); err != nil {
		return o, fmt.Errorf("-rate %q: %w", rate, err)
	}
	if err := o.limit.Validate(); err != nil {
		return o, fmt.Errorf("-burst %d: %w", o.limit.Burst, err)
	}
	return o, nil
}

// given tells whether the flag stood on the command line.
func (o *options) given(name string) (yes bool) {
	o.flags.Visit(func(f *flag.Flag) { yes = yes || f.Name == name })
	return yes
}

func (o *options) usage(w io.Writer) {
	o.flags.SetOutput(w)
	o.flags.Usage()
}

var errRate = errors.New("want units per period, such as 2/s, 100/m, 10/h or 5/500ms")

// parseRate reads "2/s", "100/m", "10/h", "1/d" or, with any period, "5/500ms".
func parseRate(text string) (n int64, per time.Duration, err error) {
	units, period, found := strings.Cut(text, "/")
	if !found {
		return 0, 0, errRate
	}
	if n, err = strconv.ParseInt(units, 10, 64); err != nil {
		return 0, 0, errRate
	}
	switch period {
	case "s", "m", "h", "ms":
		period = "1" + period
	case "d":
		period = "24h"
	}
	if per, err = time.ParseDuration(period); err != nil {
		return 0, 0, errRate
	}
	return n, per, nil
}
