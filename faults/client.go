package faults

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/rueidisstore"
)

// A Target is where the clients of a test connect, and how.
type Target struct {
	Addrs              []string
	Cluster            bool
	MasterName         string // of Sentinel
	Username, Password string
	TLS                *tls.Config
	PoolSize           int // of go-redis, 0 for its default
	// Dial replaces the clients' own way to connect.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// clientTimeout is how long a client waits for a connection or a reply. The default of either client is seconds, in which a
// connection whose peer has vanished stays in use. Decisions do not depend on it, what they find on the server's return does.
const clientTimeout = 300 * time.Millisecond

// bufferSize suffices for a few small commands. To fill a larger one with zeros is dear with the race detector.
const bufferSize = 4 << 10

// Clients connect a store to a Target. None needs the server to be up.
var Clients = map[string]func(tb testing.TB, to Target) (store ratelimit.Store, end func()){
	"go-redis": func(tb testing.TB, to Target) (ratelimit.Store, func()) {
		o := &redis.UniversalOptions{
			Addrs: to.Addrs, IsClusterMode: to.Cluster, MasterName: to.MasterName,
			Username: to.Username, Password: to.Password, TLSConfig: to.TLS, PoolSize: to.PoolSize,
			DialTimeout: clientTimeout, ReadTimeout: clientTimeout,
			ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
		}
		if to.Dial != nil {
			o.Dialer = func(ctx context.Context, _, addr string) (net.Conn, error) { return to.Dial(ctx, addr) }
		}
		client := redis.NewUniversalClient(o)
		store, err := goredisstore.New(client, goredisstore.Options{})
		if err != nil {
			tb.Fatal(err)
		}
		return store, func() { _ = client.Close() }
	},
	"rueidis": func(tb testing.TB, to Target) (ratelimit.Store, func()) {
		o := rueidis.ClientOption{
			InitAddress: to.Addrs, Username: to.Username, Password: to.Password, TLSConfig: to.TLS,
			Sentinel:         rueidis.SentinelOption{MasterSet: to.MasterName},
			ConnWriteTimeout: clientTimeout, Dialer: net.Dialer{Timeout: clientTimeout, KeepAlive: clientTimeout},
			ForceSingleClient:  !to.Cluster && to.MasterName == "",
			ReadBufferEachConn: bufferSize, WriteBufferEachConn: bufferSize, RingScaleEachConn: 8,
		}
		if to.Dial != nil {
			o.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return to.Dial(ctx, addr)
			}
		}
		store, err := rueidisstore.NewLazy(func() (rueidis.Client, error) { return rueidis.NewClient(o) }, rueidisstore.Options{})
		if err != nil {
			tb.Fatal(err)
		}
		return store, store.Close
	},
}
