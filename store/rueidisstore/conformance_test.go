package rueidisstore_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/rueidisstore"
	"github.com/sluicego/ratelimit/store/storetest"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// A place is servers that the suite runs against: every store has a prefix of its own on them.
type place struct {
	t       *testing.T
	options func() rueidis.ClientOption // starts the servers, once
	client  func() rueidis.Client

	mu       sync.Mutex
	prefixes map[ratelimit.Store]string
}

var stores atomic.Int64

// on returns a place. start is called when it is first needed, which is never in the other process of a race.
func on(t *testing.T, start func() rueidis.ClientOption) *place {
	p := &place{t: t, options: sync.OnceValue(start), prefixes: make(map[ratelimit.Store]string)}
	p.client = sync.OnceValue(func() rueidis.Client { return connect(t, p.options()) })
	return p
}

func (p *place) open(t *testing.T, client rueidis.Client, prefix string, clock func() time.Time) ratelimit.Store {
	t.Helper()
	s := over(t, client, rueidisstore.Options{Prefix: prefix, Clock: clock})
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

func (p *place) config() storetest.Config {
	return storetest.Config{
		New: func(t *testing.T, clock func() time.Time) ratelimit.Store {
			return p.open(t, p.client(), fmt.Sprintf("t%d-%d", os.Getpid(), stores.Add(1)), clock)
		},
		HashTags: true,
		Address: func(_ *testing.T, s ratelimit.Store) string {
			o := p.options()
			return strings.Join([]string{p.prefix(s), o.Sentinel.MasterSet, strings.Join(o.InitAddress, ",")}, " ")
		},
		Join: func(t *testing.T, address string, clock func() time.Time) ratelimit.Store {
			part := strings.Split(address, " ")
			o := rueidis.ClientOption{
				InitAddress: strings.Split(part[2], ","), Sentinel: rueidis.SentinelOption{MasterSet: part[1]},
			}
			return p.open(t, connect(t, o), part[0], clock)
		},
	}
}

func TestSingle(t *testing.T) {
	p := on(t, func() rueidis.ClientOption { return at(redisserver.Single(t).Addr) })
	storetest.Run(t, p.config())
}

func TestCluster(t *testing.T) {
	p := on(t, func() rueidis.ClientOption { return rueidis.ClientOption{InitAddress: redisserver.Cluster(t).Addrs()} })
	storetest.Run(t, p.config())
}

func TestSentinel(t *testing.T) {
	p := on(t, func() rueidis.ClientOption {
		servers := redisserver.Sentinel(t)
		return rueidis.ClientOption{InitAddress: servers.Addrs(), Sentinel: rueidis.SentinelOption{MasterSet: servers.MasterName}}
	})
	storetest.Run(t, p.config())
}

func TestMiniredis(t *testing.T) {
	p := on(t, func() rueidis.ClientOption {
		o := at(miniredis.RunT(t).Addr())
		o.DisableCache = true // it has no client-side caching
		return o
	})
	c := p.config()
	c.Address, c.Join = nil, nil // it lives in this process
	storetest.Run(t, c)
}
