package main

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A config is what the flags say.
type config struct {
	address, admin string
	memory         bool
	redis          *redis.Options // nil in memory
	postgres       string
	instances      int
	budget         time.Duration
	tenants        string
	upstream       *url.URL
}

func parse(args []string) (c config, err error) {
	flags := flag.NewFlagSet("gateway", flag.ContinueOnError)
	flags.StringVar(&c.address, "addr", "localhost:8080", "listen on this `host:port`")
	flags.StringVar(&c.admin, "admin", "", "tell operators how the limits stand on this `host:port`, which clients must not reach")
	flags.BoolVar(&c.memory, "memory", false, "decide in this process's memory, not in Redis")
	server := flags.String("redis", "", "decide in the Redis at this `host:port`, or redis://user:password@host:port/0")
	flags.StringVar(&c.postgres, "postgres", "", "load rules from the database at this `URL`; without it the default rule holds for everybody")
	flags.IntVar(&c.instances, "instances", 1, "so many gateways share the limits: each gives that part of them while Redis is away")
	flags.DurationVar(&c.budget, "budget", 5*time.Millisecond, "how long a decision may wait for Redis")
	flags.StringVar(&c.tenants, "tenants", "", "JSON `file` of API keys and their tenants; without it demo-a is shop-a and demo-b is shop-b")
	upstream := flags.String("upstream", "", "forward to this `URL`; without it a server of our own answers")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	switch {
	case flags.NArg() > 0:
		return c, fmt.Errorf("argument %q: there are flags only", flags.Arg(0))
	case c.memory == (*server != ""):
		return c, errors.New("say either -memory or -redis host:port")
	case c.instances < 1:
		return c, fmt.Errorf("-instances %d is below 1", c.instances)
	}
	if *server != "" {
		c.redis, err = redisOptions(*server)
		if err != nil {
			return c, err
		}
	}
	if *upstream != "" {
		c.upstream, err = url.Parse(*upstream)
		if err != nil || c.upstream.Host == "" {
			return c, fmt.Errorf("-upstream %q is no URL of a server", *upstream)
		}
	}
	return c, nil
}

func redisOptions(server string) (*redis.Options, error) {
	if !strings.Contains(server, "://") {
		return &redis.Options{Addr: server}, nil
	}
	o, err := redis.ParseURL(server)
	if err != nil {
		return nil, errors.New("-redis is no redis:// URL") // err may quote a password
	}
	return o, nil
}
