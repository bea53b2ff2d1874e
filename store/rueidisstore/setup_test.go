package rueidisstore_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/rueidisstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// patience is how long anything may take that is bound to happen. Only a failure spends it.
const patience = 30 * time.Second

var (
	bucket = ratelimit.Limit{Rate: 10, Period: time.Hour}
	logOf  = ratelimit.Limit{Algorithm: ratelimit.SlidingLog, Rate: 10, Period: time.Hour}
)

// connect returns a client with these options.
func connect(t testing.TB, o rueidis.ClientOption) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// storeOn returns a store over a client of its own with these options.
func storeOn(t testing.TB, o rueidis.ClientOption) *rueidisstore.Store {
	t.Helper()
	return over(t, connect(t, o), rueidisstore.Options{})
}

func over(t testing.TB, client rueidis.Client, o rueidisstore.Options) *rueidisstore.Store {
	t.Helper()
	s, err := rueidisstore.New(client, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// at is the options of a client of one server, else at their defaults.
func at(addr string) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: []string{addr}}
}

// sentinelOf is the options of a client that asks sentinels for the master, else at their defaults.
func sentinelOf(s *redisserver.SentinelServers) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: s.Addrs(), Sentinel: rueidis.SentinelOption{MasterSet: s.MasterName}}
}

// clients are the ways a client may work, in the options that matter here.
var clients = map[string]func(o *rueidis.ClientOption){
	"defaults": func(*rueidis.ClientOption) {},
	"resp2":    func(o *rueidis.ClientOption) { o.AlwaysRESP2, o.DisableCache = true, true },
	"pooled": func(o *rueidis.ClientOption) { // a connection for each call under way, so not of a megabyte each
		o.DisableAutoPipelining, o.ReadBufferEachConn, o.WriteBufferEachConn = true, 4096, 4096
	},
	"pipelined": func(o *rueidis.ClientOption) { o.AlwaysPipelining = true },
}

// eachClient runs f for each of them, over stub.
func eachClient(t *testing.T, handler func() func(conn int, args []string) redisserver.Reply, f func(t *testing.T, stub *redisserver.Stub, s *rueidisstore.Store)) {
	for name, set := range clients {
		t.Run(name, func(t *testing.T) {
			stub := redisserver.NewStub(t, handler())
			o := at(stub.Addr)
			set(&o)
			f(t, stub, storeOn(t, o))
		})
	}
}

// clusterOf starts a stub for each handler, which are the masters of one Cluster.
func clusterOf(t *testing.T, handlers ...func(conn int, args []string) redisserver.Reply) (stubs []*redisserver.Stub, o rueidis.ClientOption) {
	t.Helper()
	topology := make(chan redisserver.Reply, 1)
	for _, handler := range handlers {
		stubs = append(stubs, redisserver.NewRawStub(t, func(conn int, args []string) redisserver.Reply {
			if args[0] == "CLUSTER" {
				reply := <-topology
				topology <- reply
				return reply
			}
			if reply, ok := redisserver.Handshake(args); ok {
				return reply
			}
			return handler(conn, args)
		}))
	}
	for _, stub := range stubs {
		o.InitAddress = append(o.InitAddress, stub.Addr)
	}
	topology <- redisserver.ClusterSlots(o.InitAddress...)
	return stubs, o
}

// admitted is the reply of the token bucket's script for an admission that leaves nothing.
func admitted() redisserver.Reply { return redisserver.Int(0) }

func take(ctx context.Context, s *rueidisstore.Store, key string) (ratelimit.Result, error) {
	return s.Take(ctx, ratelimit.Request{Key: key, Limit: &bucket, Cost: 1})
}

// operations are all that a Store can be asked.
func operations(ctx context.Context, s *rueidisstore.Store) map[string]func() error {
	limited := func(l *ratelimit.Limit) ratelimit.Request { return ratelimit.Request{Key: "k", Limit: l, Cost: 1} }
	return map[string]func() error{
		"Take":     func() error { _, err := s.Take(ctx, limited(&bucket)); return err },
		"Take log": func() error { _, err := s.Take(ctx, limited(&logOf)); return err },
		"TakeAll": func() error {
			_, err := s.TakeAll(ctx, []ratelimit.Request{limited(&bucket), limited(&logOf)})
			return err
		},
		"Reset":   func() error { return s.Reset(ctx, "k", &bucket, &logOf) },
		"History": func() error { _, err := s.History(ctx, "k", &logOf); return err },
	}
}

// eventually waits until f is nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// goroutines is how many run code of rueidis or of this store, whose calls travel in goroutines of their own.
func goroutines() (n int) {
	stacks := make([]byte, 1<<20)
	for {
		size := runtime.Stack(stacks, true)
		if size < len(stacks) {
			stacks = stacks[:size]
			break
		}
		stacks = make([]byte, 2*len(stacks))
	}
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "/rueidis.") || strings.Contains(stack, "/rueidisstore.(") {
			n++
		}
	}
	return n
}

// leavesNone waits until no more goroutines than before are there, but for a few that rueidis starts for a connection
// when it comes to be shared.
func leavesNone(t *testing.T, before int) {
	t.Helper()
	eventually(t, func() error {
		if now := goroutines(); now > before+8 {
			return fmt.Errorf("%d goroutines, %d before", now, before)
		}
		return nil
	})
}
