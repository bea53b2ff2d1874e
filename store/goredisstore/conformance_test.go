package goredisstore_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/storetest"
	"github.com/sluicego/ratelimit/store/storetest/redishooks"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// A place is servers that the suite runs against. Every store there has a Prefix of its own.
type place struct {
	t       *testing.T
	options func() *redis.UniversalOptions // of clients; the first call starts the servers
	masters func() []*redisserver.Server
	noBatch bool

	client   func() redis.UniversalClient
	mu       sync.Mutex
	prefixes map[ratelimit.Store]string
}

var prefixes atomic.Int64

func (p *place) open(t *testing.T, client redis.UniversalClient, prefix string, clock func() time.Time) ratelimit.Store {
	t.Helper()
	s := over(t, client, goredisstore.Options{Prefix: prefix, Clock: clock, NoBatch: p.noBatch})
	p.mu.Lock()
	p.prefixes[s] = prefix
	p.mu.Unlock()
	return s
}

func (p *place) prefix(s ratelimit.Store) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.prefixes[s]
}

// config is the suite's configuration, with all hooks. In the other process of a race nothing but Join is called.
func (p *place) config() storetest.Config {
	p.prefixes = make(map[ratelimit.Store]string)
	p.options = sync.OnceValue(p.options)
	p.client = sync.OnceValue(func() redis.UniversalClient { return connect(p.t, p.options()) })
	c := storetest.Config{
		New: func(t *testing.T, clock func() time.Time) ratelimit.Store {
			return p.open(t, p.client(), fmt.Sprintf("t%d-%d", os.Getpid(), prefixes.Add(1)), clock)
		},
		Address: func(_ *testing.T, s ratelimit.Store) string {
			o := p.options()
			return strings.Join([]string{p.prefix(s), fmt.Sprint(o.IsClusterMode), o.MasterName, strings.Join(o.Addrs, ",")}, " ")
		},
		Join: func(t *testing.T, address string, clock func() time.Time) ratelimit.Store {
			part := strings.Split(address, " ")
			o := &redis.UniversalOptions{IsClusterMode: part[1] == "true", MasterName: part[2], Addrs: strings.Split(part[3], ",")}
			return p.open(t, connect(t, o), part[0], clock)
		},
	}
	hooks := redishooks.Hooks{Masters: p.masters, Prefix: p.prefix}
	hooks.Fill(&c)
	return c
}

func single(t *testing.T) *place {
	p := &place{t: t}
	var srv *redisserver.Server
	p.options = func() *redis.UniversalOptions {
		srv = redisserver.Single(t)
		return &redis.UniversalOptions{Addrs: []string{srv.Addr}}
	}
	p.masters = func() []*redisserver.Server { return []*redisserver.Server{srv} }
	return p
}

func TestSingle(t *testing.T) {
	redisserver.Need(t)
	t.Parallel()
	storetest.Run(t, single(t).config())
}

func TestSingleNoBatch(t *testing.T) {
	redisserver.Need(t)
	t.Parallel()
	p := single(t)
	p.noBatch = true
	c := p.config()
	c.Traces = 40
	storetest.Run(t, c)
}

func TestSingleRESP2(t *testing.T) {
	redisserver.Need(t)
	t.Parallel()
	p := single(t)
	start := p.options
	p.options = func() *redis.UniversalOptions {
		o := start()
		o.Protocol = 2
		return o
	}
	c := p.config()
	c.Traces = 40
	storetest.Run(t, c)
}

func TestCluster(t *testing.T) {
	redisserver.Need(t)
	t.Parallel()
	p := &place{t: t}
	var c *redisserver.ClusterServers
	p.options = func() *redis.UniversalOptions {
		c = redisserver.Cluster(t)
		return &redis.UniversalOptions{Addrs: c.Addrs(), IsClusterMode: true}
	}
	p.masters = func() []*redisserver.Server { return c.Nodes }
	storetest.Run(t, p.config())
}

func TestSentinel(t *testing.T) {
	redisserver.Need(t)
	t.Parallel()
	p := &place{t: t}
	var s *redisserver.SentinelServers
	p.options = func() *redis.UniversalOptions {
		s = redisserver.Sentinel(t)
		return &redis.UniversalOptions{Addrs: s.Addrs(), MasterName: s.MasterName}
	}
	p.masters = func() []*redisserver.Server { return []*redisserver.Server{s.Master()} }
	storetest.Run(t, p.config())
}

func TestMiniredis(t *testing.T) {
	t.Parallel()
	p := &place{t: t}
	var srv *redisserver.Server
	p.options = func() *redis.UniversalOptions {
		srv = &redisserver.Server{Addr: miniredis.RunT(t).Addr()}
		return &redis.UniversalOptions{Addrs: []string{srv.Addr}}
	}
	p.masters = func() []*redisserver.Server { return []*redisserver.Server{srv} }
	c := p.config()
	c.Address, c.Join = nil, nil // it lives in this process
	c.Writes = nil               // it does not count
	c.Traces = 40
	c.Except = map[string]string{
		"R61 what expired is gone":                  "in miniredis time passes by FastForward alone",
		"R02 R70 unreadable state counts as unused": "redis.pcall of miniredis gives no error back",
	}
	storetest.Run(t, c)
}
