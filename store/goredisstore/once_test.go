package goredisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/lua"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// A ledger counts how often each key's decision was executed. Looks in the place of what is not wanted any more do not
// count.
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
	if args[1] != lua.History.SHA1 {
		l.counts[args[3]]++
	}
	l.all++
	return l.all
}

func (l *ledger) of(key string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts["rl:{"+key+"}"]
}

func (l *ledger) total() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.counts {
		n += c
	}
	return n
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
			eachClient(t, func() handler {
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
			}, func(t *testing.T, _ *redisserver.Stub, s *goredisstore.Store) {
				checkOnce(t, book, race(1000, func(key string) error {
					_, err := take(ctx, s, key)
					return err
				}))
				leavesNone(t)
			})
		})
	}
}

// A batch that breaks in the middle: who was answered by then has a decision, though go-redis calls the whole pipeline a
// failure; the others have an outage; nothing is sent again.
func TestBrokenBatch(t *testing.T) {
	const n, good = 20, 7
	held := make(chan struct{})
	book := &ledger{}
	stub := redisserver.NewStub(t, func(_ int, args []string) redisserver.Reply {
		switch at := book.add(args); {
		case at <= 2:
			return admitted().After(held)
		case at == 2+good+1:
			return redisserver.Drop()
		}
		return admitted()
	})
	client := at(t, stub.Addr)
	var sizes pipelines
	client.AddHook(&sizes)
	s := over(t, client, goredisstore.Options{})
	var wg sync.WaitGroup
	var answered, failed atomic.Int64
	ask := func(key string) {
		wg.Go(func() {
			switch _, err := take(context.Background(), s, key); {
			case err == nil:
				answered.Add(1)
			case errors.Is(err, ratelimit.ErrStoreUnavailable) && errors.Is(err, io.EOF):
				failed.Add(1)
			default:
				t.Errorf("a lost reply is %v", err)
			}
		})
	}
	// Two that are held on the way keep the others waiting, until these go out together.
	ask("first")
	ask("second")
	eventually(t, func() error { return atLeast(2, stub.Count()) })
	for i := range n {
		ask(fmt.Sprint("key-", i))
	}
	eventually(t, func() error { return atLeast(2+good+1, stub.Count()) })
	close(held)
	wg.Wait()
	if sizes.most() < good+1 {
		t.Fatalf("the largest batch had %d calls, so nothing broke", sizes.most())
	}
	if answered.Load() < 2+good || failed.Load() == 0 || answered.Load()+failed.Load() != n+2 {
		t.Errorf("%d answered, %d failed", answered.Load(), failed.Load())
	}
	for i := range n {
		if got := book.of(fmt.Sprint("key-", i)); got > 1 {
			t.Errorf("a decision was executed %d times", got)
		}
	}
}

// A reply that breaks off in its middle is an outage, whatever its kind: no list of half the length, no strange reply. In a
// batch it takes nothing from the replies before it.
func TestHalfReplies(t *testing.T) {
	list := redisserver.Array(redisserver.Bulk("0"), redisserver.Bulk("0"), redisserver.Bulk("1000"), redisserver.Bulk("1"))
	whole := map[string]redisserver.Reply{"TakeAll": redisserver.Bulk("0,1 1 0 9 0"), "History": list}
	for operation, reply := range whole {
		t.Run(operation, func(t *testing.T) {
			var held chan struct{}
			eachClient(t, func() handler {
				held = make(chan struct{})
				n := 0
				return func(int, []string) redisserver.Reply {
					switch n++; {
					case n <= 2: // keeps the others waiting, until they go out together
						return reply.After(held)
					case n == 6:
						return reply.Half().ThenClose()
					}
					return reply
				}
			}, func(t *testing.T, stub *redisserver.Stub, s *goredisstore.Store) {
				ask := operations(context.Background(), s)[operation]
				outcomes := make(chan error, 8)
				for i := range cap(outcomes) {
					go func() { outcomes <- ask() }()
					if i == 1 {
						eventually(t, func() error { return atLeast(1, stub.Count()) })
					}
				}
				close(held)
				failed := 0
				for range cap(outcomes) {
					if err := <-outcomes; err != nil {
						failed++
						if !errors.Is(err, ratelimit.ErrStoreUnavailable) {
							t.Errorf("half a reply is %v", err)
						}
					}
				}
				if failed == 0 || failed > 3 {
					t.Errorf("%d of %d failed", failed, cap(outcomes))
				}
			})
		})
	}
}

func atLeast(want, got int) error {
	if got < want {
		return fmt.Errorf("%d, want %d", got, want)
	}
	return nil
}

// An answer that comes when the caller has left: the caller has its context's error, which is no outage, and the
// decision was executed once.
func TestLateAnswers(t *testing.T) {
	var book *ledger
	var ready chan struct{}
	eachClient(t, func() handler {
		book, ready = &ledger{}, make(chan struct{})
		return func(_ int, args []string) redisserver.Reply {
			book.add(args)
			return admitted().After(ready)
		}
	}, func(t *testing.T, stub *redisserver.Stub, s *goredisstore.Store) {
		const n = 200
		outcomes := race(n, func(key string) error {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			_, err := take(ctx, s, key)
			return err
		})
		for _, err := range outcomes {
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ratelimit.ErrStoreUnavailable) {
				t.Errorf("the caller's deadline is %v", err)
			}
		}
		executed := stub.Count("EVALSHA")
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
		leavesNone(t)
	})
}

// Replies that get lost on the way from real servers: what Redis holds is one execution a decision at most.
func TestLostReplies(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) *redis.UniversalOptions{
		"single": func(t *testing.T) *redis.UniversalOptions {
			return &redis.UniversalOptions{Addrs: []string{redisserver.Single(t).Addr}}
		},
		"cluster": func(t *testing.T) *redis.UniversalOptions {
			return &redis.UniversalOptions{Addrs: redisserver.Cluster(t).Addrs(), IsClusterMode: true}
		},
		"sentinel": func(t *testing.T) *redis.UniversalOptions {
			servers := redisserver.Sentinel(t)
			return &redis.UniversalOptions{Addrs: servers.Addrs(), MasterName: servers.MasterName}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := start(t)
			sound := over(t, connect(t, o), goredisstore.Options{})
			var losing atomic.Bool
			var reads, lost atomic.Int64
			lossyOptions := *o
			lossyOptions.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				return &lossy{Conn: conn, loses: func() bool {
					if losing.Load() && reads.Add(1)%20 == 0 {
						lost.Add(1)
						return true
					}
					return false
				}}, err
			}
			s := over(t, connect(t, &lossyOptions), goredisstore.Options{})
			if _, err := take(context.Background(), s, "first"); err != nil {
				t.Fatal(err)
			}
			losing.Store(true)
			outcomes := race(2000, func(key string) error { _, err := take(context.Background(), s, key); return err })
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

// A history of several pages reads as it was written.
func TestLongHistory(t *testing.T) {
	server := redisserver.Single(t)
	var now atomic.Int64
	s := over(t, at(t, server.Addr), goredisstore.Options{Clock: func() time.Time { return time.UnixMicro(now.Load()) }})
	limit := ratelimit.Limit{Algorithm: ratelimit.SlidingLog, Rate: 100_000, Period: time.Hour}
	for _, n := range []int{0, 1, 499, 500, 501, 1000, 1702} {
		key := fmt.Sprint("key-", n)
		for i := range n {
			now.Store(1_000_000 + int64(i))
			if _, err := s.Take(t.Context(), ratelimit.Request{Key: key, Limit: &limit, Cost: int64(i%7) + 1}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := s.History(t.Context(), key, &limit)
		if err != nil || len(got) != n {
			t.Fatalf("%d entries of %d, %v", len(got), n, err)
		}
		for i, e := range got {
			if e.Time.UnixMicro() != 1_000_000+int64(i) || e.Cost != int64(i%7)+1 {
				t.Fatalf("entry %d of %d is %+v", i, n, e)
			}
		}
	}
}

// R64: a key that expires just when it is used is the old one or a new one, never a mixture.
func TestExpiringKey(t *testing.T) {
	server := redisserver.Single(t)
	s := over(t, at(t, server.Addr), goredisstore.Options{})
	counter := ratelimit.Limit{Algorithm: ratelimit.SlidingCounter, Rate: 10, Period: 24 * time.Hour}
	kept, renewed := 0, 0
	for i := range 500 {
		for l, key := range map[*ratelimit.Limit]string{&bucket: "rl:{%s}", &logOf: "rl-log:{%s}", &counter: "rl-win:{%s}"} {
			name := fmt.Sprint("key-", i)
			spend := func(cost int64) ratelimit.Result {
				res, err := s.Take(t.Context(), ratelimit.Request{Key: name, Limit: l, Cost: cost})
				if err != nil || !res.Allowed {
					t.Fatalf("%v: %+v, %v", l, res, err)
				}
				return res
			}
			spend(3)
			if _, err := server.Do("PEXPIRE", fmt.Sprintf(key, name), "1"); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(time.Duration(i) * 4 * time.Microsecond); time.Now().Before(end); {
			}
			switch res := spend(1); res.Remaining {
			case 6:
				kept++
			case 9:
				renewed++
				if ttl, err := server.Text("PTTL", fmt.Sprintf(key, name)); err != nil || len(ttl) < 4 {
					t.Errorf("%v: a new key expires in %s ms, %v", l, ttl, err)
				}
			default:
				t.Errorf("%v: %+v", l, res)
			}
		}
	}
	if kept == 0 || renewed == 0 {
		t.Errorf("%d kept, %d renewed: the time of expiry was not hit", kept, renewed)
	}
}
