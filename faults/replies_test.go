package faults

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// left is a script's reply of an admission that leaves nothing, for the limit of ask.
func left() redisserver.Reply { return redisserver.Int(0) }

// ask has an instance decide about a bucket of a key of its own.
func (f *Fleet) ask(t *testing.T, instance int) ratelimit.Result {
	t.Helper()
	d := f.Take(t.Context(), instance, "k", &uses[0].limit, 1)
	if d.Err != nil {
		t.Error(d.Err)
	}
	return d.Result
}

// closed has an instance decide until its breaker is closed and the store decides.
func (f *Fleet) closed(t *testing.T, instance int) {
	t.Helper()
	err := Poll(patience, func() error {
		if s := f.ask(t, instance).Source; s != ratelimit.SourceStore || f.Instances[instance].Fallback.State() != ratelimit.BreakerClosed {
			return fmt.Errorf("%v decides, the breaker is %v", s, f.Instances[instance].Fallback.State())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// R74: a server that answers that it cannot, now. Decisions are local at once, and the store's when it can again.
func TestCannotNow(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{
		"LOADING Redis is loading the dataset in memory",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"CLUSTERDOWN The cluster is down",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"READONLY You can't write against a read only replica.",
		"OOM command not allowed when used memory > 'maxmemory'.",
	} {
		t.Run(reply[:6], func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
				var well atomic.Bool
				well.Store(true)
				stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply {
					if well.Load() {
						return left()
					}
					return redisserver.Error(reply)
				})
				f := NewFleet(t, connect(Target{Addrs: []string{stub.Addr}}), ratelimit.FallbackOptions{Timeout: timeout, OpenFor: openFor})
				f.closed(t, 0)
				well.Store(false)
				for range 100 {
					if res := f.ask(t, 0); res.Source != ratelimit.SourceFallback {
						t.Fatalf("%+v from a server that cannot", res)
					}
				}
				if f.opened.Load() == nil {
					t.Error("the breaker did not open")
				}
				well.Store(true)
				start := time.Now()
				f.closed(t, 0)
				f.Returned(t, start, time.Now())
				f.Check(t)
				if n, err := f.Mistakes(); n > 0 {
					t.Errorf("told of %d mistakes in the set-up, such as %v", n, err)
				}
			})
		})
	}
}

// R77: a deadline bounds the call whatever the client's own time-outs are, and late replies leave no goroutine.
func TestLateReplies(t *testing.T) {
	t.Parallel()
	const late = 200 * time.Millisecond
	each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
		stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply {
			due := make(chan struct{})
			time.AfterFunc(late, func() { close(due) })
			return left().After(due)
		})
		f := NewFleet(t, connect(Target{Addrs: []string{stub.Addr}}), ratelimit.FallbackOptions{OpenFor: 10 * time.Millisecond})
		f.Load()
		f.goOn(t, time.Second)
		f.Stop()
		f.Check(t)
		// Who waits so long, as Check allows where the machine stood still, finds a reply.
		all := f.All().where(func(d *Decision) bool { return d.took() < late })
		t.Logf("p99 of %d: %v", len(all), all.P99())
		if n := all.By(ratelimit.SourceFallback); n == 0 || n != len(all) {
			t.Errorf("%d of %d decisions are local", n, len(all))
		}
	})
}

// R133: of a crowd that waits for the breaker to try the store, a few may. Each failure opens it anew.
func TestFewProbes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
		var well atomic.Bool
		well.Store(true)
		stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply {
			if well.Load() {
				return left()
			}
			return redisserver.Error("LOADING not yet")
		})
		f := NewFleet(t, connect(Target{Addrs: []string{stub.Addr}}), ratelimit.FallbackOptions{Timeout: time.Second, OpenFor: 200 * time.Millisecond})
		one := f.Instances[0].Fallback
		f.closed(t, 0)
		well.Store(false)
		for one.State() != ratelimit.BreakerOpen {
			f.ask(t, 0)
		}
		before, start := stub.Count(), time.Now()
		for range 200 {
			f.Go(func() {
				for time.Since(start) < time.Second {
					f.ask(t, 0)
					<-time.After(10 * time.Millisecond)
				}
			})
		}
		f.Stop()
		n := stub.Count() - before
		opened := int(time.Since(start)/(150*time.Millisecond)) + 1 // times at most, of three probes each
		t.Logf("%d commands reached a sick server in %v", n, time.Since(start))
		if n == 0 || n > 3*opened {
			t.Errorf("%d commands reached a sick server, and may be 1 to %d", n, 3*opened)
		}
		well.Store(true)
		f.closed(t, 0)
	})
}
