package rueidisstore_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/rueidisstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// A crowd of n callers, each with a deadline of d, calls at once. It returns how many were answered, and how much later
// than its deadline the slowest left and half of them had.
func crowd(t *testing.T, s *rueidisstore.Store, n int, d time.Duration, key func(i int) string) (answered int, slowest, median time.Duration) {
	t.Helper()
	var good atomic.Int64
	late := make([]time.Duration, n)
	barrier := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-barrier
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			_, err := take(ctx, s, key(i))
			<-ctx.Done() // the runtime's own delay in ending a context on a busy machine is not ours
			deadline, _ := ctx.Deadline()
			late[i] = time.Since(deadline)
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
	slices.Sort(late)
	return int(good.Load()), late[n-1], late[n/2]
}

// A server that is stopped, with its connections open: 5,000 callers leave on time again and again, leave no goroutine
// each, and are served when it goes on.
func TestStoppedServer(t *testing.T) {
	for _, key := range []func(i int) string{
		func(int) string { return "one" },
		func(i int) string { return fmt.Sprintf("key-%d", i) },
	} {
		server := redisserver.Single(t)
		s := storeOn(t, at(server.Addr))
		race(64, func(key string) error { _, err := take(context.Background(), s, key); return err })
		before := goroutines()
		server.Pause()
		for range 3 {
			answered, slowest, median := crowd(t, s, 5000, 100*time.Millisecond, key)
			if answered > 0 {
				t.Errorf("%d were answered by a server that stands still", answered)
			}
			if slowest > 2*time.Second {
				t.Errorf("the slowest of 5,000 left %v after its deadline, half of them %v", slowest, median)
			}
			t.Logf("the slowest of 5,000 left %v after its deadline, half of them %v", slowest, median)
			if n := goroutines() - before; n > 1000 {
				t.Errorf("%d goroutines are left", n)
			}
		}
		server.Resume()
		leavesNone(t, before)
		if _, err := take(context.Background(), s, "after"); err != nil {
			t.Error(err)
		}
	}
}

// A master of a Cluster that is stopped is no trouble for the keys of the others.
func TestStoppedMaster(t *testing.T) {
	servers := redisserver.Cluster(t)
	client := connect(t, rueidis.ClientOption{InitAddress: servers.Addrs()})
	s := over(t, client, rueidisstore.Options{})
	for _, n := range servers.Nodes {
		if _, err := n.Do("CONFIG", "SET", "cluster-require-full-coverage", "no"); err != nil {
			t.Fatal(err)
		}
	}
	stopped := servers.Nodes[1]
	const slots = 16_384
	var silent, sound []string
	for i := 0; len(silent) < 1000 || len(sound) < 1000; i++ {
		key := fmt.Sprintf("key-%d", i)
		cmd := client.B().Get().Key("rl:{" + key + "}").Build()
		switch slot := int(cmd.Slot()); {
		case slots/3 <= slot && slot < slots*2/3:
			silent = append(silent, key)
		case slot/512 != slots/3/512 && slot/512 != slots*2/3/512: // parts of the slots that two masters share
			sound = append(sound, key)
		}
	}
	race(64, func(key string) error { _, err := take(context.Background(), s, key); return err })
	before := goroutines()
	stopped.Pause()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			crowd(t, s, 2000, 300*time.Millisecond, func(i int) string { return silent[i%len(silent)] })
		})
		answered, _, _ := crowd(t, s, 200, 2*time.Second, func(i int) string { return sound[i] })
		if answered < 200 {
			t.Errorf("%d of 200 decisions of other masters were answered", answered)
		}
	}
	wg.Wait()
	stopped.Resume()
	leavesNone(t, before)
	eventually(t, func() error { _, err := take(context.Background(), s, silent[0]); return err })
}

// A server that is lost and where connecting neither succeeds nor fails: callers leave on time while one of them dials,
// and are served as soon as it can be reached again.
func TestBlackHole(t *testing.T) {
	stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply { return admitted() })
	hole := redisserver.BlackHole(t)
	var lost atomic.Bool
	o := at(stub.Addr)
	o.Dialer.Timeout = time.Second
	o.PipelineMultiplex = -1 // one connection, whose loss is known for sure
	o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		if lost.Load() {
			addr = hole
		}
		return d.DialContext(ctx, "tcp", addr)
	}
	s := storeOn(t, o)
	if _, err := take(context.Background(), s, "k"); err != nil {
		t.Fatal(err)
	}
	before := goroutines()
	lost.Store(true)
	stub.Down()
	stub.Up()
	eventually(t, func() error { // until the lost connection is known as such
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if _, err := take(ctx, s, "k"); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("not lost yet: %w", err)
		}
		return nil
	})
	_, slowest, _ := crowd(t, s, 500, 50*time.Millisecond, func(int) string { return "k" })
	if slowest > 700*time.Millisecond {
		t.Errorf("the slowest left %v after its deadline: it waited for a dial", slowest)
	}
	if _, err := take(context.Background(), s, "k"); !errors.Is(err, ratelimit.ErrStoreUnavailable) {
		t.Errorf("a caller without a deadline: %v", err)
	}
	lost.Store(false)
	eventually(t, func() error { _, err := take(context.Background(), s, "k"); return err })
	leavesNone(t, before)
}
