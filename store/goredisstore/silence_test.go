package goredisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// crowd has n callers, each with a deadline of d, call at once. It returns how many were answered, and how much later than
// its context the slowest returned. As many again, who call nobody, tell what of that is the machine's doing.
func crowd(t *testing.T, s *goredisstore.Store, n int, d time.Duration) (answered int, slowest time.Duration) {
	t.Helper()
	var good atomic.Int64
	late := make([]time.Duration, 2*n)
	barrier := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 2 * n {
		wg.Go(func() {
			<-barrier
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			ended := make(chan time.Time, 1) // the runtime's own delay in ending a context on a busy machine is not ours
			stop := context.AfterFunc(ctx, func() { ended <- time.Now() })
			var err error
			if i < n {
				_, err = take(ctx, s, fmt.Sprint("key-", i))
			} else {
				<-ctx.Done()
				err = ctx.Err()
			}
			if !stop() {
				late[i] = time.Since(<-ended)
			}
			switch {
			case err == nil:
				good.Add(1)
			case !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ratelimit.ErrStoreUnavailable):
				t.Errorf("a caller's deadline is %v", err)
			}
		})
	}
	close(barrier)
	wg.Wait()
	ours, machine := slices.Max(late[:n]), slices.Max(late[n:])
	if ours > time.Second {
		t.Logf("the slowest returned %v after its context; %v where nobody was called", ours, machine)
	}
	return int(good.Load()), max(0, ours-2*machine)
}

// A server that is stopped, with its connections open: 5,000 callers leave with their contexts again and again, leave no
// goroutine behind each, and are served when it goes on.
func TestStoppedServer(t *testing.T) {
	for name, client := range clients {
		if name != "defaults" && name != "no batches" && name != "ring" && name != "stranger" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			server := redisserver.Single(t)
			c, o := client(t, server.Addr)
			s := over(t, c, o)
			race(64, func(key string) error { _, err := take(context.Background(), s, key); return err })
			leavesNone(t)
			before, _ := goroutines()
			server.Pause()
			for range 3 {
				answered, slowest := crowd(t, s, 5000, 100*time.Millisecond)
				if answered > 0 {
					t.Errorf("%d were answered by a server that stands still", answered)
				}
				if slowest > time.Second {
					t.Errorf("the slowest of 5,000 returned %v after its context", slowest)
				}
				mine := places(c, o)
				leavesFew(t, before, mine+poolSize, mine) // as many as the pool holds may be dialing
			}
			server.Resume()
			start := time.Now()
			if _, err := take(context.Background(), s, "after"); err != nil {
				t.Error(err)
			}
			if d := time.Since(start); d > 2*time.Second {
				t.Errorf("served %v after the server went on", d)
			}
			leavesNone(t)
			if p, ok := c.(interface{ PoolStats() *redis.PoolStats }); ok && p.PoolStats().TotalConns > uint32(poolSize) {
				t.Errorf("%d connections, more than the pool holds", p.PoolStats().TotalConns)
			}
		})
	}
}

// A master of a Cluster that is stopped is no trouble for the keys of the others.
func TestStoppedMaster(t *testing.T) {
	servers := redisserver.Cluster(t)
	for _, n := range servers.Nodes {
		if _, err := n.Do("CONFIG", "SET", "cluster-require-full-coverage", "no"); err != nil {
			t.Fatal(err)
		}
	}
	s := over(t, connect(t, &redis.UniversalOptions{Addrs: servers.Addrs(), IsClusterMode: true}), goredisstore.Options{})
	race(64, func(key string) error { _, err := take(context.Background(), s, key); return err })
	stopped := servers.Nodes[1]
	var sound []string
	for i := 0; len(sound) < 300; i++ {
		if key := fmt.Sprintf("key-%d", i); servers.Owner(servers.Slot("{"+key+"}")) != stopped {
			sound = append(sound, key)
		}
	}
	stopped.Pause()
	var wg sync.WaitGroup
	wg.Go(func() { crowd(t, s, 3000, 300*time.Millisecond) })
	for _, key := range sound {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			start := time.Now()
			if _, err := take(ctx, s, key); err != nil {
				t.Errorf("a key of another master: %v", err)
			}
			if d := time.Since(start); d > 2*time.Second {
				t.Errorf("a key of another master took %v", d)
			}
		})
	}
	wg.Wait()
	stopped.Resume()
	leavesNone(t)
}

// R142: an address where connecting neither succeeds nor fails. Callers, many at once or one after the other, leave with
// their contexts and leave nothing of ours behind, from the first one on. What go-redis still dials for them the pool bounds.
func TestBlackHole(t *testing.T) {
	hole := redisserver.BlackHole(t)
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			c, o := client(t, hole)
			s := over(t, c, o)
			before, _ := goroutines()
			const few = 4 // with which go-redis looks after itself
			for range 3 {
				if answered, slowest := crowd(t, s, 500, 20*time.Millisecond); answered > 0 || slowest > time.Second {
					t.Errorf("%d answered, the slowest returned %v after its context", answered, slowest)
				}
				leavesFew(t, before, poolSize+few, 0)
			}
			for range 200 {
				crowd(t, s, 1, 2*time.Millisecond)
			}
			leavesFew(t, before, poolSize+few, 0)
		})
	}
}

// R77: a caller's context bounds the call, whatever the client's options say, whether it ends by itself or is cancelled;
// late answers leave no goroutine.
func TestContextBoundsTheCall(t *testing.T) {
	eachClient(t, func() handler {
		return func(int, []string) redisserver.Reply {
			late := make(chan struct{})
			time.AfterFunc(200*time.Millisecond, func() { close(late) })
			return admitted().After(late)
		}
	}, func(t *testing.T, _ *redisserver.Stub, s *goredisstore.Store) {
		if _, err := take(context.Background(), s, "first"); err != nil {
			t.Fatal(err)
		}
		for _, cancelled := range []bool{false, true} {
			var slow atomic.Int64
			for _, err := range race(1000, func(key string) error {
				limit := 5 * time.Millisecond
				if cancelled {
					limit = time.Hour
				}
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				defer cancel()
				if cancelled {
					time.AfterFunc(5*time.Millisecond, cancel)
				}
				start := time.Now()
				_, err := take(ctx, s, key)
				if time.Since(start) > 150*time.Millisecond {
					slow.Add(1)
				}
				return err
			}) {
				if errors.Is(err, ratelimit.ErrStoreUnavailable) { // nil is an answer, and slow
					t.Errorf("a caller who left after 5ms: %v", err)
				}
			}
			if n := slow.Load(); n > 300 { // a busy machine stands still now and then
				t.Errorf("%d of 1,000 calls of 5ms took almost as long as the answer", n)
			}
		}
		leavesNone(t)
	})
}

// The cause of a context's end is in the error, beside what it ended with.
func TestCause(t *testing.T) {
	stub := redisserver.NewSilent(t)
	s := over(t, at(t, stub.Addr), goredisstore.Options{})
	cause := errors.New("went home")
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(10*time.Millisecond, func() { cancel(cause) })
	for range 2 {
		if _, err := take(ctx, s, "k"); !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || errors.Is(err, ratelimit.ErrStoreUnavailable) {
			t.Errorf("error %v", err)
		}
	}
}

// R79, R80: a server that accepts and never answers, under load, gets no more connections than the pool holds, and serves
// as soon as it is well. The reads that are stuck meanwhile end with the client's own timeout.
func TestSilentServer(t *testing.T) {
	var well atomic.Bool
	stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply {
		if well.Load() {
			return admitted()
		}
		return redisserver.Reply{}
	})
	client := connect(t, &redis.UniversalOptions{Addrs: []string{stub.Addr}, PoolSize: 2, ReadTimeout: 500 * time.Millisecond})
	s := over(t, client, goredisstore.Options{})
	for range 5 {
		if answered, slowest := crowd(t, s, 500, 20*time.Millisecond); answered > 0 || slowest > time.Second {
			t.Errorf("%d answered, the slowest returned %v after its context", answered, slowest)
		}
	}
	well.Store(true)
	start := time.Now()
	eventually(t, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		_, err := take(ctx, s, "k")
		return err
	})
	t.Logf("served again after %v", time.Since(start))
	if _, peak, _ := stub.Conns(); peak > 2+1 { // one may be closing
		t.Errorf("%d connections at a time from a pool of 2", peak)
	}
	leavesNone(t)
}

// One connection of the pool that has gone silent does not hold up those who find another.
func TestOneSilentConnection(t *testing.T) {
	var victim atomic.Int64
	stub := redisserver.NewStub(t, func(conn int, args []string) redisserver.Reply {
		if args[3] == "rl:{victim}" {
			victim.Store(int64(conn))
		}
		if int64(conn) == victim.Load() {
			return redisserver.Reply{}
		}
		return admitted()
	})
	s := over(t, at(t, stub.Addr), goredisstore.Options{})
	var wg sync.WaitGroup
	for range 2 {
		before := stub.Count()
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if _, err := take(ctx, s, "victim"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("on the silent connection: %v", err)
			}
		})
		eventually(t, func() error { return atLeast(before+1, stub.Count()) })
		victim.Store(0)
	}
	for range 3 {
		start := time.Now()
		for _, err := range race(200, func(key string) error { _, err := take(t.Context(), s, key); return err }) {
			if err != nil {
				t.Errorf("on another connection: %v", err)
			}
		}
		if d := time.Since(start); d > 900*time.Millisecond {
			t.Errorf("200 decisions took %v: they waited for a silent connection", d)
		}
	}
	wg.Wait()
}

// A client that is dialing slowly is not kept from it by callers who cannot wait that long.
func TestSlowDial(t *testing.T) {
	stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply { return admitted() })
	client := connect(t, &redis.UniversalOptions{
		Addrs: []string{stub.Addr}, ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return slow{conn}, err
		},
	})
	s := over(t, client, goredisstore.Options{})
	eventually(t, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		_, err := take(ctx, s, "k")
		return err
	})
}

// A slow connection takes 30 ms for the first bytes it reads, which are a handshake.
type slow struct{ net.Conn }

func (c slow) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 60 {
		<-time.After(30 * time.Millisecond)
	}
	return n, err
}
