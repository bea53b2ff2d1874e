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
	"github.com/sluicego/ratelimit/store/storetest/redishooks"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// A place is servers that the suite runs against: every store has a prefix of its own on them.
type place struct {
	start  func() (rueidis.ClientOption, []*redisserver.Server) // starts the servers, once, and says who holds the keys
	client func() rueidis.Client

	mu       sync.Mutex
	prefixes map[ratelimit.Store]string
}

var stores atomic.Int64

// on returns a place. start is called when it is first needed, which is never in the other process of a race.
func on(t *testing.T, start func() (rueidis.ClientOption, []*redisserver.Server)) *place {
	p := &place{start: sync.OnceValues(start), prefixes: make(map[ratelimit.Store]string)}
	p.client = sync.OnceValue(func() rueidis.Client {
		o, _ := p.start()
		return connect(t, o)
	})
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
	c := storetest.Config{
		New: func(t *testing.T, clock func() time.Time) ratelimit.Store {
			return p.open(t, p.client(), fmt.Sprintf("t%d-%d", os.Getpid(), stores.Add(1)), clock)
		},
		Address: func(_ *testing.T, s ratelimit.Store) string {
			o, _ := p.start()
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
	hooks := &redishooks.Hooks{Prefix: p.prefix, Masters: func() []*redisserver.Server {
		_, masters := p.start()
		return masters
	}}
	hooks.Fill(&c)
	return c
}

func TestSingle(t *testing.T) {
	redisserver.Need(t)
	storetest.Run(t, on(t, func() (rueidis.ClientOption, []*redisserver.Server) {
		server := redisserver.Single(t)
		return at(server.Addr), []*redisserver.Server{server}
	}).config())
}

func TestCluster(t *testing.T) {
	redisserver.Need(t)
	storetest.Run(t, on(t, func() (rueidis.ClientOption, []*redisserver.Server) {
		servers := redisserver.Cluster(t)
		return rueidis.ClientOption{InitAddress: servers.Addrs()}, servers.Nodes
	}).config())
}

func TestSentinel(t *testing.T) {
	redisserver.Need(t)
	storetest.Run(t, on(t, func() (rueidis.ClientOption, []*redisserver.Server) {
		servers := redisserver.Sentinel(t)
		return sentinelOf(servers), []*redisserver.Server{servers.Master()}
	}).config())
}

// miniredis runs the scripts in another Lua, and has no client-side caching and no count of commands.
func TestMiniredis(t *testing.T) {
	c := on(t, func() (rueidis.ClientOption, []*redisserver.Server) {
		addr := miniredis.RunT(t).Addr()
		o := at(addr)
		o.DisableCache = true
		return o, []*redisserver.Server{{Addr: addr}}
	}).config()
	c.Address, c.Join, c.Writes = nil, nil, nil
	c.Except = map[string]string{"R61 what expired is gone": "time passes in miniredis only when it is told so"}
	storetest.Run(t, c)
}
