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

// ask has an instance decide about a bucket of a key of its own, without a recording of it.
func (f *Fleet) ask(t *testing.T, instance int) ratelimit.Result {
	t.Helper()
	res, err := f.Instances[instance].Fallback.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &uses[0].limit, Cost: 1})
	if err != nil {
		t.Error(err)
	}
	return res
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
				late := 0
				for range 100 {
					start := time.Now()
					if res := f.ask(t, 0); res.Source != ratelimit.SourceFallback {
						t.Fatalf("%+v from a server that cannot", res)
					}
					if time.Since(start) > timeout+f.Slack() {
						late++
					}
				}
				if s := f.Instances[0].Fallback.State(); late > 0 || s != ratelimit.BreakerOpen {
					t.Errorf("%d late answers, the breaker is %v", late, s)
				}
				well.Store(true)
				start := time.Now()
				f.closed(t, 0)
				f.Returned(t, time.Since(start))
				if n, err := f.Mistakes(); n > 0 {
					t.Errorf("told of %d mistakes in the set-up, such as %v", n, err)
				}
			})
		})
	}
}

// R77: a deadline bounds the call whatever the client's own time-outs are, and late replies leave no goroutine.
func TestLateReplies(t *testing.T) {
	each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
		stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply {
			late := make(chan struct{})
			time.AfterFunc(200*time.Millisecond, func() { close(late) })
			return left().After(late)
		})
		f := NewFleet(t, connect(Target{Addrs: []string{stub.Addr}}), ratelimit.FallbackOptions{OpenFor: 10 * time.Millisecond})
		f.Load()
		f.goOn(t, time.Second)
		f.Stop()
		f.Check(t, 5*time.Millisecond)
		all := f.All()
		t.Logf("p99 of %d: %v", len(all), all.P99())
		if n := all.By(ratelimit.SourceFallback); n != len(all) {
			t.Errorf("%d of %d decisions are local", n, len(all))
		}
	})
}

// R133: of a crowd that waits for the breaker to try the store, a few may. Each failure opens it anew.
func TestFewProbes(t *testing.T) {
	each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
		var well atomic.Bool
		well.Store(true)
		stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply {
			if well.Load() {
				return left()
			}
			return redisserver.Error("LOADING not yet")
		})
		f := NewFleet(t, connect(Target{Addrs: []string{stub.Addr}}), ratelimit.FallbackOptions{Timeout: timeout, OpenFor: 200 * time.Millisecond})
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
					<-time.After(time.Millisecond)
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
