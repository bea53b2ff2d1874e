package goredisstore_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// A road is a dialer that gets nowhere until it is open, and counts who is on it.
type road struct {
	open       atomic.Bool
	dials, now atomic.Int64
	most       atomic.Int64
}

func (r *road) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	r.dials.Add(1)
	n := r.now.Add(1)
	defer r.now.Add(-1)
	for most := r.most.Load(); n > most && !r.most.CompareAndSwap(most, n); most = r.most.Load() {
	}
	if !r.open.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// Callers who leave while the client dials, one after the other and all at once, leave no more dials behind than its pool
// holds. These end with the client's own timeout, and service is back soon after connecting is possible again.
func TestDialsAreBounded(t *testing.T) {
	const (
		pool    = 5
		timeout = 300 * time.Millisecond
		prober  = 1 // of go-redis, after as many failures as the pool holds
	)
	stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply { return admitted() })
	for name, how := range map[string]struct {
		options  goredisstore.Options
		stranger bool
	}{
		"defaults":   {},
		"no batches": {options: goredisstore.Options{NoBatch: true}},
		"stranger":   {stranger: true},
	} {
		t.Run(name, func(t *testing.T) {
			var r road
			client := connect(t, &redis.UniversalOptions{
				Addrs: []string{stub.Addr}, Dialer: r.dial, PoolSize: pool, DialTimeout: timeout, DialerRetries: 1,
			})
			var c goredisstore.Client = client
			if how.stranger {
				c = stranger{client}
			}
			s := over(t, c, how.options)
			brief := func(key string) error {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
				defer cancel()
				if _, err := take(ctx, s, key); err == nil {
					t.Error("answered over a road that is closed")
				}
				return nil
			}
			for start := time.Now(); time.Since(start) < timeout/2; {
				_ = brief("one after the other")
			}
			if n := r.now.Load(); n == 0 {
				t.Error("nobody dials: this shows nothing")
			}
			race(2000, brief)
			if n := r.most.Load(); n > pool+prober {
				t.Errorf("%d dials at a time, want at most %d", n, pool+prober)
			}
			r.open.Store(true)
			start := time.Now()
			eventually(t, func() error {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
				defer cancel()
				_, err := take(ctx, s, "k")
				return err
			})
			// The dials that hang end; a prober waits for a second between two of its own.
			if d := time.Since(start); d > timeout+2*time.Second {
				t.Errorf("served again %v after the road was opened", d)
			}
			t.Logf("served again after %v; %d dials, %d at a time", time.Since(start), r.dials.Load(), r.most.Load())
			leavesNone(t)
			eventually(t, func() error {
				if n := r.now.Load(); n > 0 {
					return fmt.Errorf("%d dials are left", n)
				}
				return nil
			})
		})
	}
}
