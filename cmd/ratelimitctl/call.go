package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/sluicego/ratelimit"
)

// A call is a command with its flags and arguments.
type call struct {
	flags     *flag.FlagSet
	args      []string
	out, errs io.Writer
	format    string

	redis, prefix string
	cluster       bool
	rules         string
	limit         ratelimit.Limit
	scan          scanOptions
}

func newCall(name string, cmd command, out, errs io.Writer) *call {
	c := &call{flags: flag.NewFlagSet(name, flag.ContinueOnError), out: out, errs: errs}
	c.flags.SetOutput(errs)
	c.flags.Usage = func() {
		fmt.Fprintf(errs, "usage: ratelimitctl %s [flags] %s\n", name, cmd.usage)
		c.flags.PrintDefaults()
	}
	c.flags.StringVar(&c.format, "o", "text", "print `text or json`")
	if cmd.flags != nil {
		cmd.flags(c)
	}
	return c
}

func (c *call) redisFlags() {
	c.flags.StringVar(&c.redis, "redis", "", "`host:port` or redis:// URL; several with commas are a Cluster (or $RATELIMITCTL_REDIS)")
	c.flags.BoolVar(&c.cluster, "cluster", false, "it is a Cluster, of which one address is enough")
	c.flags.StringVar(&c.prefix, "prefix", "rl", "what Redis keys begin with")
}

func (c *call) rulesFlag() {
	c.flags.StringVar(&c.rules, "rules", "", "`source`: a JSON file, or the postgres:// URL of a database (or $RATELIMITCTL_RULES)")
}

// limitFlags are a limit: the default rule, or without rules the only one.
func (c *call) limitFlags() {
	c.flags.Int64Var(&c.limit.Rate, "rate", 0, "a limit: units per period; with -rules that of the service's default rule")
	c.flags.DurationVar(&c.limit.Period, "period", time.Second, "its period")
	c.flags.Int64Var(&c.limit.Burst, "burst", 0, "its burst, of a token bucket; 0 means rate")
	c.flags.StringVar(&c.limit.Name, "name", "", "its name")
	c.flags.TextVar(&c.limit.Algorithm, "algorithm", ratelimit.TokenBucket, "its `algorithm`: token-bucket, sliding-log or sliding-counter")
}

func (c *call) parse(args []string) error {
	if err := c.flags.Parse(args); err != nil {
		return err
	}
	c.args = c.flags.Args()
	if c.redis == "" {
		c.redis = os.Getenv("RATELIMITCTL_REDIS")
	}
	if c.rules == "" {
		c.rules = os.Getenv("RATELIMITCTL_RULES")
	}
	if c.format != "text" && c.format != "json" {
		return fmt.Errorf("-o %s is neither text nor json", c.format)
	}
	if c.limit.Rate != 0 {
		return c.limit.Validate()
	}
	return nil
}

// want fails unless there are n arguments.
func (c *call) want(n int, what string) error {
	if len(c.args) != n {
		return fmt.Errorf("got %d arguments; want %s", len(c.args), what)
	}
	return nil
}

// print prints v for programs, or for people what text writes, its columns parted by tabs.
func (c *call) print(v any, text func(w io.Writer)) error {
	if c.format == "json" {
		e := json.NewEncoder(c.out)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	text(w)
	return w.Flush()
}
