package faults

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// storm has one instance asked n times, once an interval, whether it has answered or not.
func (f *Fleet) storm(n int, interval time.Duration) {
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for range n {
		<-ticks.C
		f.Go(func() {
			u, key := pick()
			f.Take(context.Background(), 0, key, &u.limit, 1)
		})
	}
	f.Stop()
}

// R80: a server that accepts and never answers, under a thousand requests a second: the breaker never gets to know it
// well, and neither connections nor goroutines nor the heap pile up behind it.
func TestStorm(t *testing.T) {
	const pool = 10
	for name, o := range map[string]ratelimit.FallbackOptions{
		"defaults":                         {},
		"a breaker that hardly ever opens": {MinCalls: 1_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
				var well atomic.Bool
				well.Store(true)
				stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply {
					if well.Load() {
						return left()
					}
					return redisserver.Reply{}
				})
				f := NewFleet(t, connect(Target{Addrs: []string{stub.Addr}, PoolSize: pool}), o)
				f.closed(t, 0)
				well.Store(false)
				start := time.Now()
				f.storm(300, time.Millisecond)
				living, _ := goroutines(f.label)
				before := heap()
				f.storm(700, time.Millisecond)
				later, _ := goroutines(f.label)
				laterHeap := heap() - before // of all who are at it at the same time
				f.Check(t)
				all := f.All()
				t.Logf("p99 at first %v, later %v; %d goroutines, then %d; heap grew by %d KB",
					all.Between(start, start.Add(50*time.Millisecond)).P99(), all.Since(start.Add(400*time.Millisecond)).P99(), living, later, laterHeap>>10)
				if n := all.Since(start).By(ratelimit.SourceFallback); n != 1000 {
					t.Errorf("%d of 1,000 decisions are local", n)
				}
				if later > living+200 { // rueidisstore waits for 128 replies at most
					t.Errorf("%d goroutines, then %d", living, later)
				}
				if _, peak, _ := stub.Conns(); peak > Instances*(pool+1) { // one of each may be closing
					t.Errorf("%d connections at a time from %d pools of %d", peak, Instances, pool)
				}
				if laterHeap > 20<<20 {
					t.Errorf("the heap grew by %d bytes", laterHeap)
				}
			})
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// R79: a pool of two connections that are stuck with a silent server under load. It serves within a probe's time of the
// server's return and the client's own time-out, in which the connections are given up.
func TestStuckPool(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
		var well atomic.Bool
		well.Store(true)
		stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply {
			if well.Load() {
				return left()
			}
			return redisserver.Reply{}
		})
		f := NewFleet(t, connect(Target{Addrs: []string{stub.Addr}, PoolSize: 2}), ratelimit.FallbackOptions{Timeout: timeout, OpenFor: openFor})
		f.closed(t, 0)
		well.Store(false)
		f.storm(500, 2*time.Millisecond)
		well.Store(true)
		start := time.Now()
		f.closed(t, 0)
		t.Logf("the store decides after %v", time.Since(start))
		f.Returned(t, start, time.Now())
		f.Check(t)
	})
}

// R136: callers who leave say nothing of the server, whose breaker stays closed, and nothing is decided for them.
func TestCallersLeave(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
		server := redisserver.Single(t)
		f := NewFleet(t, connect(Target{Addrs: []string{server.Addr}}), ratelimit.FallbackOptions{Timeout: time.Second, Mode: ratelimit.FailOpen})
		f.closed(t, 0)
		server.Pause()
		const patient = 5 * time.Millisecond
		var left atomic.Int64
		for range 200 {
			f.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patient)
				defer cancel()
				if d := f.Take(ctx, 0, "a", &uses[0].limit, 1); d.Err != nil && ctx.Err() != nil {
					left.Add(1)
				}
			})
		}
		f.Stop()
		server.Resume()
		if n := left.Load(); n != 200 {
			t.Errorf("%d of 200 callers who left got their context's error", n)
		}
		if s := f.Instances[0].Fallback.State(); s != ratelimit.BreakerClosed {
			t.Errorf("the breaker is %v", s)
		}
		for _, d := range f.All().where(func(d *Decision) bool { return d.Err != nil }) {
			if d.took() > patient+grace+machine.Within(d.Start, d.End) {
				t.Errorf("a caller left after %v", d.took())
			}
		}
		f.closed(t, 0)
	})
}
