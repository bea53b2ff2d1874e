package rueidisstore_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/rueidisstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// A ledger counts how often each key's script was executed.
type ledger struct {
	mu     sync.Mutex
	counts map[string]int
	all    int
}

func (l *ledger) add(args []string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts == nil {
		l.counts = make(map[string]int)
	}
	l.counts[args[3]]++
	l.all++
	return l.all
}

func (l *ledger) of(key string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts["rl:{"+key+"}"]
}

// race makes n decisions by 64 callers, each on a key of its own, and says how each went.
func race(n int, decide func(key string) error) map[string]error {
	var mu sync.Mutex
	outcomes := make(map[string]error, n)
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				key := fmt.Sprintf("key-%d", i)
				err := decide(key)
				mu.Lock()
				outcomes[key] = err
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return outcomes
}

// A stub that closes the connection after executing, in the middle of what was sent together, counts one execution a
// decision at most, and exactly one of each that was answered.
func TestDroppedConnection(t *testing.T) {
	for _, mode := range []string{"with contexts that end", "with contexts that do not"} {
		t.Run(mode, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if mode == "with contexts that do not" {
				ctx = context.Background()
			}
			var book *ledger
			eachClient(t, func() func(int, []string) redisserver.Reply {
				book = &ledger{}
				return func(_ int, args []string) redisserver.Reply {
					switch book.add(args) % 50 {
					case 0:
						return redisserver.Drop()
					case 25:
						return admitted().Half().ThenClose()
					}
					return admitted()
				}
			}, func(t *testing.T, _ *redisserver.Stub, s *rueidisstore.Store) {
				checkOnce(t, book, race(1000, func(key string) error {
					_, err := take(ctx, s, key)
					return err
				}))
			})
		})
	}
}

func checkOnce(t *testing.T, book *ledger, outcomes map[string]error) {
	t.Helper()
	failed := 0
	for key, err := range outcomes {
		n := book.of(key)
		switch {
		case err == nil && n != 1:
			t.Errorf("an answered decision was executed %d times", n)
		case err != nil && n > 1:
			t.Errorf("a decision was executed %d times: %v", n, err)
		case err != nil && !errors.Is(err, ratelimit.ErrStoreUnavailable):
			t.Errorf("a lost reply is %v, want ErrStoreUnavailable", err)
		}
		if err != nil {
			failed++
		}
	}
	if failed == 0 || failed == len(outcomes) {
		t.Errorf("%d of %d decisions failed: the stub did not do its part", failed, len(outcomes))
	}
}

// The same in a Cluster, whose client has retries of its own.
func TestDroppedConnectionCluster(t *testing.T) {
	book := &ledger{}
	handler := func(_ int, args []string) redisserver.Reply {
		if book.add(args)%50 == 0 {
			return redisserver.Drop()
		}
		return admitted()
	}
	_, o := clusterOf(t, handler, handler, handler)
	s := storeOn(t, o)
	checkOnce(t, book, race(1000, func(key string) error {
		_, err := take(context.Background(), s, key)
		return err
	}))
}

// An answer that comes when the caller has left: the caller has its context's error, which is no outage, and the
// decision was executed once.
func TestLateAnswers(t *testing.T) {
	var book *ledger
	var ready chan struct{}
	eachClient(t, func() func(int, []string) redisserver.Reply {
		book, ready = &ledger{}, make(chan struct{})
		return func(_ int, args []string) redisserver.Reply {
			book.add(args)
			return admitted().After(ready)
		}
	}, func(t *testing.T, stub *redisserver.Stub, s *rueidisstore.Store) {
		const n = 200
		outcomes := race(n, func(key string) error {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			_, err := take(ctx, s, key)
			return err
		})
		executed := stub.Count()
		for _, err := range outcomes {
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ratelimit.ErrStoreUnavailable) {
				t.Errorf("the caller's deadline is %v", err)
			}
		}
		close(ready)
		eventually(t, func() error { _, err := take(context.Background(), s, "one more"); return err })
		for key := range outcomes {
			if got := book.of(key); got > 1 {
				t.Errorf("a late decision was executed %d times", got)
			}
		}
		if executed == 0 || stub.Count("EVAL") != 0 {
			t.Errorf("%d commands, and then %d EVAL, for %d decisions", executed, stub.Count("EVAL"), n)
		}
	})
}

// R77: a caller's deadline bounds the call, whatever rueidis waits for, and hundreds of late answers leave no
// goroutine.
func TestDeadlineBoundsTheCall(t *testing.T) {
	eachClient(t, func() func(int, []string) redisserver.Reply {
		return func(int, []string) redisserver.Reply {
			late := make(chan struct{})
			time.AfterFunc(time.Second, func() { close(late) })
			return admitted().After(late)
		}
	}, func(t *testing.T, _ *redisserver.Stub, s *rueidisstore.Store) {
		if _, err := take(context.Background(), s, "first"); err != nil {
			t.Fatal(err)
		}
		race(64, func(key string) error { _, err := take(context.Background(), s, key); return err }) // starts what rueidis starts once
		before := goroutines()
		var slowest atomic.Int64
		for _, deadline := range []time.Duration{5 * time.Millisecond, time.Hour} { // the second is cancelled after 5 ms
			race(300, func(key string) error {
				ctx, cancel := context.WithTimeout(context.Background(), deadline)
				defer cancel()
				if deadline > time.Second {
					time.AfterFunc(5*time.Millisecond, cancel)
				}
				start := time.Now()
				_, err := take(ctx, s, key)
				if err == nil || errors.Is(err, ratelimit.ErrStoreUnavailable) {
					t.Errorf("deadline %v: %v", deadline, err)
				}
				if d := int64(time.Since(start)); d > slowest.Load() {
					slowest.Store(d)
				}
				return err
			})
		}
		if d := time.Duration(slowest.Load()); d > 900*time.Millisecond {
			t.Errorf("a call with 5ms took %v: it waited for the reply", d)
		}
		leavesNone(t, before)
	})
}

// Replies that get lost on the way from real servers: what Redis holds is one execution a decision at most.
func TestLostReplies(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) rueidis.ClientOption{
		"single": func(t *testing.T) rueidis.ClientOption { return at(redisserver.Single(t).Addr) },
		"cluster": func(t *testing.T) rueidis.ClientOption {
			return rueidis.ClientOption{InitAddress: redisserver.Cluster(t).Addrs()}
		},
		"sentinel": func(t *testing.T) rueidis.ClientOption { return sentinelOf(redisserver.Sentinel(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			o := start(t)
			sound := storeOn(t, o)
			var losing atomic.Bool
			var reads, lost atomic.Int64
			o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
				conn, err := d.DialContext(ctx, "tcp", addr)
				return &lossy{Conn: conn, loses: func() bool {
					if losing.Load() && reads.Add(1)%20 == 0 {
						lost.Add(1)
						return true
					}
					return false
				}}, err
			}
			s := storeOn(t, o)
			losing.Store(true)
			outcomes := race(1000, func(key string) error { _, err := take(context.Background(), s, key); return err })
			losing.Store(false)
			if lost.Load() == 0 {
				t.Fatal("no reply was lost")
			}
			for key, err := range outcomes {
				res, lookErr := sound.Take(context.Background(), ratelimit.Request{Key: key, Limit: &bucket})
				if lookErr != nil {
					t.Fatal(lookErr)
				}
				spent := bucket.Rate - res.Remaining
				if spent > 1 || err == nil && spent != 1 {
					t.Errorf("a decision (error %v) spent %d", err, spent)
				}
				if err != nil && !errors.Is(err, ratelimit.ErrStoreUnavailable) {
					t.Errorf("a lost reply is %v", err)
				}
			}
		})
	}
}

// A lossy connection loses what the server has sent, and breaks.
type lossy struct {
	net.Conn
	loses func() bool
}

func (c *lossy) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.loses() {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}
