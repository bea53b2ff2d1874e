package faults

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// R72, and what must open no door: a server that answers and refuses. Every decision is the local share's, though the mode
// is to admit all while the store is away; the operator is told; and it is over when the server refuses no more.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][2][]string{
		"a rotated password": {{"resetpass", ">new"}, {"resetpass", ">app"}},
		"no EVALSHA":         {{"-evalsha", "-eval"}, {"+evalsha", "+eval"}},
		"no TIME":            {{"-time"}, {"+time"}},
		"other keys":         {{"resetkeys", "~other:*"}, {"~rl*"}},
		"switched off":       {{"off"}, {"on"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
				server := redisserver.Single(t)
				user := func(rules ...string) {
					run(t, server, append([]string{"ACL", "SETUSER", "app"}, rules...)...)
				}
				user("on", ">app", "~rl*", "+@all")
				f := Outage{
					Connect: connect(Target{Addrs: []string{server.Addr}, Username: "app", Password: "app"}),
					// A refusal that comes too late is an outage to those who wait for it.
					Options: ratelimit.FallbackOptions{Mode: ratelimit.FailOpen, Timeout: time.Second, OpenFor: 100 * time.Millisecond},
					Break: func() {
						user(args[0]...)
						// Who is in stays in until then, unless switched off. The tests' own user is another.
						run(t, server, "CLIENT", "KILL", "USER", "app")
					},
					Lasts: 600 * time.Millisecond,
					Mend:  func() { user(args[1]...) },
				}.Run(t)
				if n, err := f.Mistakes(); n == 0 || !errors.Is(err, ratelimit.ErrMisconfigured) {
					t.Errorf("told of %d mistakes in the set-up, %v", n, err)
				}
			})
		})
	}
}

// R53, R116: refusals as a stub puts them, and a server that is gone, under each mode.
func TestModes(t *testing.T) {
	t.Parallel()
	down := "" // no server
	for _, tt := range []struct {
		reply string
		mode  ratelimit.FailureMode
		want  ratelimit.Source
	}{
		{"CROSSSLOT Keys in request don't hash to the same slot", ratelimit.FailOpen, ratelimit.SourceFallback},
		{"NOAUTH Authentication required.", ratelimit.FailOpen, ratelimit.SourceFallback},
		{"WRONGPASS invalid username-password pair or user is disabled.", ratelimit.FailOpen, ratelimit.SourceFallback},
		{"NOPERM this user has no permissions to run the 'evalsha' command", ratelimit.FailOpen, ratelimit.SourceFallback},
		{"ERR user_script:1: Script attempted to access nonexistent global variable 'x'", ratelimit.FailOpen, ratelimit.SourceFallback},
		{"ERR unknown command 'EVALSHA'", ratelimit.FailClosed, ratelimit.SourceFallback},
		{down, ratelimit.FailLocal, ratelimit.SourceFallback},
		{down, ratelimit.FailOpen, ratelimit.SourceFailOpen},
		{down, ratelimit.FailClosed, ratelimit.SourceFailClosed},
	} {
		t.Run(tt.mode.String()+" "+tt.reply[:min(len(tt.reply), 9)], func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
				stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply { return redisserver.Error(tt.reply) })
				budget := time.Second // a refusal that comes too late is an outage
				if tt.reply == down {
					stub.Down()
					budget = 20 * time.Millisecond
				}
				f := NewFleet(t, connect(Target{Addrs: []string{stub.Addr}}), ratelimit.FallbackOptions{Mode: tt.mode, Timeout: budget})
				if tt.reply != down { // a lazy client has to have connected before it can be refused
					if err := Poll(patience, func() error {
						if stub.Count() == 0 {
							f.Take(t.Context(), 0, "first", &uses[0].limit, 1)
							return errAway
						}
						return nil
					}); err != nil {
						t.Fatal(err)
					}
				}
				f.Load()
				since := time.Now()
				f.goOn(t, 300*time.Millisecond)
				f.Stop()
				f.Check(t)
				all := f.All().Since(since)
				if n := all.By(tt.want); n == 0 || tt.reply == down && n != len(all) || n < len(all)/2 {
					t.Errorf("%d of %d decisions are of %v", n, len(all), tt.want)
				}
				n, err := f.Mistakes()
				if (n > 0) != (tt.reply != down) {
					t.Errorf("told of %d mistakes in the set-up, such as %v", n, err)
				}
			})
		})
	}
}

// A server that comes back from an outage and refuses: the door, which the outage opened, is shut.
func TestBackAndRefuses(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
		var refuses atomic.Bool
		stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply {
			if refuses.Load() {
				return redisserver.Error("NOPERM this user has no permissions to run the 'evalsha' command")
			}
			return left()
		})
		f := NewFleet(t, connect(Target{Addrs: []string{stub.Addr}}),
			ratelimit.FallbackOptions{Mode: ratelimit.FailOpen, Timeout: 2 * timeout, OpenFor: openFor, MinCalls: callers, Window: window})
		f.Load()
		f.AwaitStore(t, time.Now())
		stub.Down()
		if err := Poll(patience, f.open); err != nil {
			t.Fatal(err)
		}
		refuses.Store(true)
		stub.Up()
		up := time.Now()
		f.goOn(t, returnWithin+500*time.Millisecond)
		f.Stop()
		all := f.All().Since(later(up, f.spoiled(up, time.Now())).Add(returnWithin))
		open, local := all.By(ratelimit.SourceFailOpen), all.By(ratelimit.SourceFallback)
		if n, _ := f.Mistakes(); open > 0 || local == 0 && len(all) > 0 || n == 0 {
			t.Errorf("%v after its return %d decisions are open, %d local; told of %d mistakes", returnWithin, open, local, n)
		}
	})
}

// R72: a refusal that takes longer to arrive than callers wait is an outage until one has arrived, and none after that.
func TestSlowRefusal(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
		stub := redisserver.NewRawStub(t, func(_ int, args []string) redisserver.Reply {
			if args[0] == "HELLO" || args[0] == "AUTH" {
				late := make(chan struct{})
				time.AfterFunc(10*time.Millisecond, func() { close(late) })
				return redisserver.Error("WRONGPASS invalid username-password pair or user is disabled.").After(late)
			}
			return redisserver.Error("NOAUTH Authentication required.")
		})
		f := NewFleet(t, connect(Target{Addrs: []string{stub.Addr}, Username: "app", Password: "old"}), ratelimit.FallbackOptions{Mode: ratelimit.FailOpen})
		f.Load()
		if err := Poll(patience, func() error { // until all of the last second are local
			late := f.Since(time.Now().Add(-time.Second))
			if n, local := late.By(ratelimit.SourceFailOpen), late.By(ratelimit.SourceFallback); n > 0 || local < callers {
				return fmt.Errorf("%d decisions were open, and %d local", n, local)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		f.Stop()
		if n, err := f.Mistakes(); n == 0 || !errors.Is(err, ratelimit.ErrMisconfigured) {
			t.Errorf("told of %d mistakes in the set-up, %v", n, err)
		}
	})
}
