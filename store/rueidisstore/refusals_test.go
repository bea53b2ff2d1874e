package rueidisstore_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/rueidisstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// R50: a server that never knows a script gets two commands a call, and the caller an outage.
func TestNoScriptForEver(t *testing.T) {
	stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply {
		return redisserver.Error("NOSCRIPT No matching script. Please use EVAL.")
	})
	s := storeOn(t, at(stub.Addr))
	for name, op := range operations(context.Background(), s) {
		sha, eval := stub.Count("EVALSHA"), stub.Count("EVAL")
		if err := op(); !errors.Is(err, ratelimit.ErrStoreUnavailable) {
			t.Errorf("%s: %v, want ErrStoreUnavailable", name, err)
		}
		if sha, eval = stub.Count("EVALSHA")-sha, stub.Count("EVAL")-eval; sha != 1 || eval != 1 {
			t.Errorf("%s: %d EVALSHA and %d EVAL, want one each", name, sha, eval)
		}
	}
}

// R49: every operation finds its script again after a flush.
func TestScriptFlush(t *testing.T) {
	server := redisserver.Single(t)
	s := storeOn(t, at(server.Addr))
	for name, op := range operations(context.Background(), s) {
		if _, err := server.Do("SCRIPT", "FLUSH"); err != nil {
			t.Fatal(err)
		}
		if err := op(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := server.Do("SCRIPT", "FLUSH"); err != nil {
		t.Fatal(err)
	}
	for key, err := range race(10, func(key string) error { _, err := take(context.Background(), s, key); return err }) {
		if err != nil {
			t.Fatal(err)
		}
		if res, err := take(context.Background(), s, key); err != nil || res.Remaining != 8 {
			t.Errorf("after two calls: %+v, %v", res, err)
		}
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
	o := at(stub.Addr)
	o.DisableCache = true // which takes CLIENT TRACKING
	s := storeOn(t, o)
	before := stub.Count("EVALSHA", "EVAL")
	for name, op := range operations(context.Background(), s) {
		if err := op(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if stub.Count("EVALSHA", "EVAL") == before {
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
// (R53), at once and after one command, in a Cluster too, whose client retries some of it for commands that only read.
func TestRefusals(t *testing.T) {
	const secret = "secret"
	for reply, want := range map[string]error{
		"LOADING Redis is loading the dataset in memory":                                                                      ratelimit.ErrStoreUnavailable,
		"BUSY Redis is busy running a script.":                                                                                ratelimit.ErrStoreUnavailable,
		"MASTERDOWN Link with MASTER is down":                                                                                 ratelimit.ErrStoreUnavailable,
		"CLUSTERDOWN The cluster is down":                                                                                     ratelimit.ErrStoreUnavailable,
		"TRYAGAIN Multiple keys request during rehashing of slot":                                                             ratelimit.ErrStoreUnavailable,
		"READONLY You can't write against a read only replica.":                                                               ratelimit.ErrStoreUnavailable,
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
		handler := func(int, []string) redisserver.Reply { return redisserver.Error(reply) }
		single := redisserver.NewStub(t, handler)
		masters, cluster := clusterOf(t, handler)
		for stub, o := range map[*redisserver.Stub]rueidis.ClientOption{single: at(single.Addr), masters[0]: cluster} {
			s := storeOn(t, o)
			before := stub.Count("EVALSHA", "EVAL")
			start := time.Now()
			_, err := take(context.Background(), s, secret)
			if d := time.Since(start); d > time.Second {
				t.Errorf("%s took %v", reply, d)
			}
			if n := stub.Count("EVALSHA", "EVAL") - before; n != 1 {
				t.Errorf("%s: %d commands for one decision", reply, n)
			}
			for _, class := range []error{ratelimit.ErrStoreUnavailable, ratelimit.ErrMisconfigured, ratelimit.ErrCrossSlot} {
				if errors.Is(err, class) != (class == want) {
					t.Errorf("%s is %v", reply, err)
				}
			}
			var driver *rueidis.RedisError
			if !errors.As(err, &driver) {
				t.Errorf("%s: rueidis's error is not in %v", reply, err)
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
		}
	}
}

// Replies that no script of ours gives are no decisions, and no panics.
func TestStrangeReplies(t *testing.T) {
	for _, reply := range []redisserver.Reply{
		redisserver.Nil(), redisserver.Bulk(""), redisserver.Bulk("?"), redisserver.Simple("OK"), redisserver.Int(1 << 62),
		redisserver.Array(), redisserver.Array(redisserver.Int(1), redisserver.Nil()), redisserver.Raw("_\r\n"),
	} {
		stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply { return reply })
		s := storeOn(t, at(stub.Addr))
		for name, op := range operations(context.Background(), s) {
			err := op()
			if strings.HasPrefix(name, "Take") && !errors.Is(err, ratelimit.ErrMisconfigured) {
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
	o := at(server.Addr)
	o.Password = "wrong"
	s, err := rueidisstore.NewLazy(func() (rueidis.Client, error) { return rueidis.NewClient(o) }, rueidisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	eventually(t, func() error {
		if _, err := take(context.Background(), s, "k"); !errors.Is(err, ratelimit.ErrMisconfigured) {
			return err
		}
		return nil
	})
}

func TestNewRefuses(t *testing.T) {
	if _, err := rueidisstore.New(nil, rueidisstore.Options{}); err == nil {
		t.Error("a nil client is no error")
	}
	if _, err := rueidisstore.NewLazy(nil, rueidisstore.Options{}); err == nil {
		t.Error("a nil connect is no error")
	}
	stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply { return admitted() })
	client := connect(t, at(stub.Addr))
	for _, prefix := range []string{"a:b", "{a}", "a b", "x-log"} {
		if _, err := rueidisstore.New(client, rueidisstore.Options{Prefix: prefix}); err == nil {
			t.Errorf("Prefix %q is no error", prefix)
		}
		never := func() (rueidis.Client, error) { t.Error("connects without a store"); return nil, nil }
		if _, err := rueidisstore.NewLazy(never, rueidisstore.Options{Prefix: prefix}); err == nil {
			t.Errorf("Prefix %q is no error", prefix)
		}
	}
	before := stub.Count()
	over(t, client, rueidisstore.Options{Prefix: "A-Z_a.z-09"})
	if n := stub.Count() - before; n != 0 {
		t.Errorf("New asked the server %d times", n)
	}
}

// A misbehaving client does something else in place of what it is asked, as a hook around it may.
type misbehaving struct {
	rueidis.Client
	how func()
}

func (m misbehaving) Do(context.Context, rueidis.Completed) rueidis.RedisResult {
	m.how()
	return rueidis.RedisResult{}
}

// A client that panics or ends the goroutine fails the decision, not the process, is no outage, and takes no place away.
func TestPanics(t *testing.T) {
	for name, how := range map[string]func(){
		"a panic":         func() { panic("secret") },
		"a runtime error": func() { var none []string; _ = none[len(clients)] },
		"Goexit":          runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply { return admitted() })
			s := over(t, misbehaving{connect(t, at(stub.Addr)), how}, rueidisstore.Options{})
			// Goexit ends the goroutine of a caller who does the work himself, as it should.
			contexts := []context.Context{t.Context()}
			if name != "Goexit" {
				contexts = append(contexts, context.Background())
			}
			for _, ctx := range contexts {
				for range 1000 { // more than there are places
					_, err := s.Take(ctx, ratelimit.Request{Key: "k", Limit: &bucket, Cost: 1})
					if err == nil || errors.Is(err, ratelimit.ErrStoreUnavailable) || strings.Contains(err.Error(), "secret") {
						t.Fatalf("error %v", err)
					}
				}
			}
		})
	}
}
