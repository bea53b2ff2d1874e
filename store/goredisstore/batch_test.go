package goredisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/lua"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// pipelines is a hook that notes how many commands went out together.
type pipelines struct {
	mu    sync.Mutex
	sizes []int
}

func (p *pipelines) note(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sizes = append(p.sizes, n)
}

func (p *pipelines) all() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sizes)
}

func (p *pipelines) most() int { return slices.Max(append(p.all(), 0)) }

func (p *pipelines) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (p *pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			p.note(1)
		}
		return next(ctx, cmd)
	}
}

func (p *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) > 0 && strings.HasPrefix(cmds[0].Name(), "eval") {
			p.note(len(cmds))
		}
		return next(ctx, cmds)
	}
}

// A lone decision goes out alone, at once; what arrives while others are on their way goes out together, and everybody
// gets the answer to his own question.
func TestBatches(t *testing.T) {
	for _, noBatch := range []bool{false, true} {
		t.Run(fmt.Sprintf("NoBatch %v", noBatch), func(t *testing.T) {
			held := make(chan struct{})
			var count atomic.Int64
			stub := redisserver.NewStub(t, func(_ int, args []string) redisserver.Reply {
				count.Add(1)
				if strings.HasPrefix(args[3], "rl:{held") {
					return admitted().After(held)
				}
				// The key is a number of tokens, which are this many parts.
				var left, parts int64
				_, _ = fmt.Sscanf(args[3], "rl:{%d}", &left)
				_, _ = fmt.Sscanf(args[4], "%d:", &parts)
				return redisserver.Int(left * parts)
			})
			client := at(t, stub.Addr)
			var sizes pipelines
			client.AddHook(&sizes)
			s := over(t, client, goredisstore.Options{NoBatch: noBatch})
			var wg sync.WaitGroup
			for i := range 2 {
				wg.Go(func() {
					if _, err := take(t.Context(), s, fmt.Sprint("held-", i)); err != nil {
						t.Error(err)
					}
				})
				eventually(t, func() error { return atLeast(i+1, int(count.Load())) })
			}
			for i := range int64(200) {
				wg.Go(func() {
					res, err := take(t.Context(), s, fmt.Sprint(i%10))
					if err != nil || res.Remaining != i%10 {
						t.Errorf("the answer for %d is %+v, %v", i%10, res, err)
					}
				})
			}
			eventually(t, func() error { return atLeast(202, int(count.Load())) })
			close(held)
			wg.Wait()
			leavesNone(t)
			got := sizes.all()
			if got[0] != 1 || got[1] != 1 {
				t.Errorf("lone decisions went out in batches of %d and %d", got[0], got[1])
			}
			if noBatch && len(got) != 202 || !noBatch && len(got) > 60 {
				t.Errorf("202 decisions took %d batches: %v", len(got), got)
			}
		})
	}
}

// A caller that leaves while it waits for the next batch is not sent; one that leaves on the way leaves the others alone.
func TestLeavingLeavesOthersAlone(t *testing.T) {
	book := &ledger{}
	held := make(chan struct{})
	stub := redisserver.NewStub(t, func(_ int, args []string) redisserver.Reply {
		book.add(args)
		return admitted().After(held)
	})
	client := connect(t, &redis.UniversalOptions{Addrs: []string{stub.Addr}, PoolSize: 1})
	s := over(t, client, goredisstore.Options{})
	var wg sync.WaitGroup
	stay := func(key string) {
		wg.Go(func() {
			if _, err := take(t.Context(), s, key); err != nil {
				t.Errorf("a caller who stayed: %v", err)
			}
		})
	}
	stay("first")
	eventually(t, func() error { return atLeast(1, stub.Count()) })
	// With a pool of one connection all these wait, some in the queue and some for the connection.
	var leavers sync.WaitGroup
	for i := range 300 {
		stay(fmt.Sprint("stayed-", i))
		ctx, cancel := context.WithCancel(t.Context())
		entered := make(chan struct{})
		leavers.Go(func() {
			close(entered)
			if _, err := take(ctx, s, fmt.Sprint("left-", i)); !errors.Is(err, context.Canceled) || errors.Is(err, ratelimit.ErrStoreUnavailable) {
				t.Errorf("a caller who left: %v", err)
			}
		})
		<-entered
		runtime.Gosched()
		cancel()
	}
	leavers.Wait()
	close(held)
	wg.Wait()
	leavesNone(t)
	for i := range 300 {
		if stayed, left := book.of(fmt.Sprint("stayed-", i)), book.of(fmt.Sprint("left-", i)); stayed != 1 || left != 0 {
			t.Fatalf("executed %d times for one who stayed, and %d for one who left before", stayed, left)
		}
	}
}

// While a connection is being made its callers leave. What is then sent over it is not their decisions.
func TestLeftBeforeTheHandshake(t *testing.T) {
	for name, client := range clients {
		if strings.HasPrefix(name, "cluster") {
			continue // it asks for the masters first, and that answer is held back too
		}
		t.Run(name, func(t *testing.T) {
			held := make(chan struct{})
			var hellos atomic.Int64
			book := &ledger{}
			stub := redisserver.NewRawStub(t, func(_ int, args []string) redisserver.Reply {
				if args[0] == "HELLO" {
					hellos.Add(1)
				}
				if reply, ok := redisserver.Handshake(args); ok {
					return reply.After(held)
				}
				book.add(args)
				if args[1] == lua.History.SHA1 {
					return redisserver.Array()
				}
				return admitted()
			})
			c, o := client(t, stub.Addr)
			s := over(t, c, o)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					if _, err := take(ctx, s, fmt.Sprint("left-", i)); !errors.Is(err, context.Canceled) {
						t.Errorf("a caller who left: %v", err)
					}
				})
			}
			eventually(t, func() error { return atLeast(1, int(hellos.Load())) })
			cancel()
			wg.Wait()
			close(held)
			if _, err := take(t.Context(), s, "stayed"); err != nil {
				t.Fatal(err)
			}
			leavesNone(t)
			if n := book.total(); n != 1 {
				t.Errorf("%d decisions were executed, want the one of the caller who stayed", n)
			}
		})
	}
}
