package goredisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// R50: a server that never knows a script gets two commands a call, and the caller an outage.
func TestNoScriptForEver(t *testing.T) {
	eachClient(t, func() handler {
		return func(int, []string) redisserver.Reply {
			return redisserver.Error("NOSCRIPT No matching script. Please use EVAL.")
		}
	}, func(t *testing.T, stub *redisserver.Stub, s *goredisstore.Store) {
		for name, op := range operations(context.Background(), s) {
			sha, eval := stub.Count("EVALSHA"), stub.Count("EVAL")
			if err := op(); !errors.Is(err, ratelimit.ErrStoreUnavailable) {
				t.Errorf("%s: %v, want ErrStoreUnavailable", name, err)
			}
			if sha, eval = stub.Count("EVALSHA")-sha, stub.Count("EVAL")-eval; sha != 1 || eval != 1 {
				t.Errorf("%s: %d EVALSHA and %d EVAL, want one each", name, sha, eval)
			}
		}
		const n = 300
		before := stub.Count()
		for _, err := range race(n, func(key string) error { _, err := take(t.Context(), s, key); return err }) {
			if !errors.Is(err, ratelimit.ErrStoreUnavailable) {
				t.Errorf("in a batch: %v", err)
			}
		}
		if got := stub.Count() - before; got != 2*n {
			t.Errorf("%d decisions in batches took %d commands", n, got)
		}
	})
}

// R49: every operation finds its script again after a flush, in a batch too, and counts once.
func TestScriptFlush(t *testing.T) {
	server := redisserver.Single(t)
	for name, client := range clients {
		if strings.HasPrefix(name, "cluster") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			c, o := client(t, server.Addr)
			o.Prefix = strings.NewReplacer(" ", "-", ",", "").Replace(name)
			s := over(t, c, o)
			flush := func() {
				if _, err := server.Do("SCRIPT", "FLUSH"); err != nil {
					t.Fatal(err)
				}
			}
			for name, op := range operations(context.Background(), s) {
				flush()
				if err := op(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			flush()
			for key, err := range race(100, func(key string) error { _, err := take(t.Context(), s, key); return err }) {
				if err != nil {
					t.Fatal(err)
				}
				if res, err := take(context.Background(), s, key); err != nil || res.Remaining != 8 {
					t.Errorf("after two calls: %+v, %v", res, err)
				}
			}
		})
	}
}

// R59: EVALSHA and EVAL are all that a server needs, each with a key at least.
func TestNothingButScripts(t *testing.T) {
	server := redisserver.Single(t)
	stub := redisserver.NewRawStub(t, func(_ int, args []string) redisserver.Reply {
		switch args[0] {
		case "HELLO", "AUTH", "PING":
			reply, _ := redisserver.Handshake(args)
			return reply
		case "EVALSHA", "EVAL":
			if keys, err := strconv.Atoi(args[2]); err != nil || keys < 1 {
				t.Errorf("%s with %q keys", args[0], args[2])
			}
			return forward(server, args)
		}
		return redisserver.Error("ERR unknown command '" + args[0] + "'")
	})
	s := over(t, at(t, stub.Addr), goredisstore.Options{})
	for name, op := range operations(context.Background(), s) {
		if err := op(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if stub.Count("EVALSHA", "EVAL") == 0 {
		t.Error("nothing went through the stub")
	}
}

// forward has a real server answer.
func forward(server *redisserver.Server, args []string) redisserver.Reply {
	reply, err := server.Do(args...)
	if err != nil {
		return redisserver.Error(err.Error())
	}
	return encode(reply)
}

func encode(reply any) redisserver.Reply {
	switch r := reply.(type) {
	case int64:
		return redisserver.Int(r)
	case string:
		return redisserver.Bulk(r)
	case []any:
		list := make([]redisserver.Reply, len(r))
		for i := range r {
			list[i] = encode(r[i])
		}
		return redisserver.Array(list...)
	}
	return redisserver.Nil()
}

// What a server refuses is an outage that passes (R74, R76), a mistake in the set-up (R58, R59) or keys of several slots
// (R53). It is told at once and after one command; a Cluster's refusal that passes is asked about once more.
func TestRefusals(t *testing.T) {
	const secret = "secret"
	for reply, want := range map[string]error{
		"LOADING Redis is loading the dataset in memory":                                                                      ratelimit.ErrStoreUnavailable,
		"BUSY Redis is busy running a script.":                                                                                ratelimit.ErrStoreUnavailable,
		"MASTERDOWN Link with MASTER is down":                                                                                 ratelimit.ErrStoreUnavailable,
		"CLUSTERDOWN The cluster is down":                                                                                     ratelimit.ErrStoreUnavailable,
		"TRYAGAIN Multiple keys request during rehashing of slot":                                                             ratelimit.ErrStoreUnavailable,
		"OOM command not allowed when used memory > 'maxmemory'.":                                                             ratelimit.ErrStoreUnavailable,
		"ERR max number of clients reached":                                                                                   ratelimit.ErrStoreUnavailable,
		"ERR Error running script (call to f_0): @user_script:9: OOM no memory":                                               ratelimit.ErrStoreUnavailable,
		"CROSSSLOT Keys in request don't hash to the same slot":                                                               ratelimit.ErrCrossSlot,
		"NOPERM this user has no permissions to run the 'evalsha' command":                                                    ratelimit.ErrMisconfigured,
		"NOAUTH Authentication required.":                                                                                     ratelimit.ErrMisconfigured,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                                   ratelimit.ErrMisconfigured,
		"ERR unknown command 'EVALSHA', with args beginning with: 'rl:{secret}'":                                              ratelimit.ErrMisconfigured,
		"ERR Error running script (call to f_0): @user_script:9: Write commands not allowed after non deterministic commands": ratelimit.ErrMisconfigured,
	} {
		eachClient(t, func() handler {
			return func(int, []string) redisserver.Reply { return redisserver.Error(reply) }
		}, func(t *testing.T, stub *redisserver.Stub, s *goredisstore.Store) {
			most := 1
			if strings.HasPrefix(reply, "CLUSTERDOWN") || strings.HasPrefix(reply, "TRYAGAIN") {
				most = 2
			}
			start := time.Now()
			_, err := take(context.Background(), s, secret)
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("%s took %v", reply, d)
			}
			if n := stub.Count("EVALSHA", "EVAL"); n < 1 || n > most {
				t.Errorf("%s: %d commands for one decision", reply, n)
			}
			for _, class := range []error{ratelimit.ErrStoreUnavailable, ratelimit.ErrMisconfigured, ratelimit.ErrCrossSlot} {
				if errors.Is(err, class) != (class == want) {
					t.Errorf("%s is %v", reply, err)
				}
			}
			var driver redis.Error
			if !errors.As(err, &driver) {
				t.Errorf("%s: go-redis's error is not in %v", reply, err)
			}
			if err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the key is told by %v", reply, err)
			}
			if code, _, _ := strings.Cut(reply, " "); err != nil && !strings.Contains(err.Error(), code) {
				t.Errorf("%s: the code is not in %v", reply, err)
			}
			if strings.Contains(reply, "deterministic") && (err == nil || !strings.Contains(err.Error(), "Options.Clock")) {
				t.Errorf("%s: the way out is not in %v", reply, err)
			}
		})
	}
}

// A replica that takes itself for no master is an outage.
func TestReadOnly(t *testing.T) {
	server := redisserver.Single(t)
	if _, err := server.Do("REPLICAOF", "127.0.0.1", "1"); err != nil {
		t.Fatal(err)
	}
	s := over(t, at(t, server.Addr), goredisstore.Options{})
	if _, err := take(context.Background(), s, "k"); !errors.Is(err, ratelimit.ErrStoreUnavailable) {
		t.Errorf("a replica: %v", err)
	}
}

// R73: a server out of memory is an outage and keeps no half of a state.
func TestOutOfMemory(t *testing.T) {
	server := redisserver.Single(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
	s := over(t, at(t, server.Addr), goredisstore.Options{})
	for name, op := range operations(context.Background(), s) {
		if err := op(); strings.HasPrefix(name, "Take") && !errors.Is(err, ratelimit.ErrStoreUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if size, err := server.Text("DBSIZE"); err != nil || size != "0" {
		t.Errorf("%s keys, %v", size, err)
	}
}

// Replies that no script of ours gives are no decisions, and no panics.
func TestStrangeReplies(t *testing.T) {
	for _, reply := range []redisserver.Reply{
		redisserver.Nil(), redisserver.Bulk(""), redisserver.Bulk("?"), redisserver.Simple("OK"), redisserver.Int(1 << 62),
		redisserver.Array(redisserver.Int(1), redisserver.Nil()), redisserver.Raw("_\r\n"),
	} {
		stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply { return reply })
		s := over(t, at(t, stub.Addr), goredisstore.Options{})
		for name, op := range operations(context.Background(), s) {
			err := op()
			if name != "Reset" && !errors.Is(err, ratelimit.ErrMisconfigured) {
				t.Errorf("%s on %+v: %v", name, reply, err)
			}
			if errors.Is(err, ratelimit.ErrStoreUnavailable) {
				t.Errorf("%s on %+v passes for an outage: %v", name, reply, err)
			}
		}
	}
}

// A client that the server refuses from the start is a mistake in the set-up, not an outage.
func TestWrongPassword(t *testing.T) {
	server := redisserver.Single(t, "--requirepass", "right")
	for _, password := range []string{"", "wrong"} {
		s := over(t, connect(t, &redis.UniversalOptions{Addrs: []string{server.Addr}, Password: password}), goredisstore.Options{})
		for _, err := range race(50, func(key string) error { _, err := take(t.Context(), s, key); return err }) {
			if !errors.Is(err, ratelimit.ErrMisconfigured) || errors.Is(err, ratelimit.ErrStoreUnavailable) {
				t.Fatalf("password %q: %v", password, err)
			}
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, client := range []goredisstore.Client{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil)} {
		if _, err := goredisstore.New(client, goredisstore.Options{}); err == nil {
			t.Errorf("%T(nil) is no error", client)
		}
	}
	stub := stubs(t, func(int, []string) redisserver.Reply { return admitted() })[0]
	for _, client := range clients {
		c, _ := client(t, stub.Addr)
		for _, prefix := range []string{"a:b", "{a}", "a b", "x-log"} {
			if _, err := goredisstore.New(c, goredisstore.Options{Prefix: prefix}); err == nil {
				t.Errorf("Prefix %q is no error", prefix)
			}
		}
		over(t, c, goredisstore.Options{Prefix: "A-Z_a.z-09"})
	}
	if n := stub.Count(); n != 0 {
		t.Errorf("New asked the server %d times", n)
	}
}

// misbehaving is a hook that does not return.
type misbehaving struct{ how func() }

func (m misbehaving) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (m misbehaving) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			m.how()
		}
		return next(ctx, cmd)
	}
}

func (m misbehaving) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) > 0 && strings.HasPrefix(cmds[0].Name(), "eval") {
			m.how()
		}
		return next(ctx, cmds)
	}
}

// Panics of the client and its hooks do not cross over, nobody waits for ever, and it is no outage.
func TestPanics(t *testing.T) {
	for name, how := range map[string]func(){
		"a panic":         func() { panic("secret") },
		"a runtime error": func() { var none []string; _ = none[len(clients)] },
		"Goexit":          runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply { return admitted() })
			client := at(t, stub.Addr)
			client.AddHook(misbehaving{how})
			s := over(t, client, goredisstore.Options{})
			// Goexit ends the goroutine of a caller who does the work himself, as it should.
			contexts := []context.Context{t.Context()}
			if name != "Goexit" {
				contexts = append(contexts, context.Background())
			}
			for _, ctx := range contexts {
				for _, err := range race(200, func(key string) error { _, err := take(ctx, s, key); return err }) {
					if err == nil || errors.Is(err, ratelimit.ErrStoreUnavailable) || strings.Contains(err.Error(), "secret") {
						t.Fatalf("error %v", err)
					}
				}
			}
			leavesNone(t)
		})
	}
}

// A caller whose goroutine a hook ends while it sends does not keep the others waiting.
func TestGoexitOfALeader(t *testing.T) {
	stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply { return admitted() })
	client := at(t, stub.Addr)
	entered, proceed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	client.AddHook(misbehaving{func() {
		once.Do(func() {
			close(entered)
			<-proceed
			runtime.Goexit()
		})
	}})
	s := over(t, client, goredisstore.Options{})
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = take(context.Background(), s, "ended") })
	<-entered
	var others sync.WaitGroup
	for i := range 30 {
		others.Go(func() {
			if _, err := take(context.Background(), s, fmt.Sprint(i)); err != nil {
				t.Error(err)
			}
		})
	}
	close(proceed)
	wg.Wait()
	others.Wait()
	leavesNone(t)
}

// A refusal that takes longer to arrive than anybody waits is told to those who come after, for else a password that was
// rotated is taken for an outage. It is forgotten when the server answers.
func TestSlowRefusal(t *testing.T) {
	var mood atomic.Value
	mood.Store("refuses")
	stub := redisserver.NewRawStub(t, func(_ int, args []string) redisserver.Reply {
		switch {
		case mood.Load() == "is silent":
			return redisserver.Reply{}
		case mood.Load() == "refuses":
			late := make(chan struct{})
			time.AfterFunc(20*time.Millisecond, func() { close(late) })
			return redisserver.Error("WRONGPASS invalid username-password pair or user is disabled.").After(late)
		}
		if reply, ok := redisserver.Handshake(args); ok {
			return reply
		}
		return admitted()
	})
	s := over(t, connect(t, &redis.UniversalOptions{Addrs: []string{stub.Addr}, Password: "old", ReadTimeout: 100 * time.Millisecond}), goredisstore.Options{})
	hurried := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel()
		_, err := take(ctx, s, "k")
		return err
	}
	told := func() error {
		err := hurried()
		if errors.Is(err, ratelimit.ErrStoreUnavailable) {
			t.Errorf("a refusal is an outage: %v", err)
		}
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ratelimit.ErrMisconfigured) {
			return fmt.Errorf("%w, want the deadline and the refusal", err)
		}
		return nil
	}
	forgotten := func() error {
		if err := hurried(); err == nil || errors.Is(err, ratelimit.ErrMisconfigured) {
			return fmt.Errorf("%v, want a deadline alone", err)
		}
		return nil
	}
	eventually(t, told)
	mood.Store("is well")
	inARow := 0 // so many that no refusal is on its way any more
	eventually(t, func() error {
		for inARow++; inARow < 1000; inARow++ {
			if err := hurried(); err != nil {
				inARow = 0
				return err
			}
		}
		return nil
	})
	mood.Store("is silent")
	eventually(t, forgotten)
}
