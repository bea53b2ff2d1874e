package faults

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// A server that stands still with its connections open, and goes on.
func TestStopped(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
		server := redisserver.Single(t)
		Outage{
			Connect: connect(Target{Addrs: []string{server.Addr}}),
			Break:   server.Pause, Lasts: 650 * time.Millisecond, Mend: server.Resume,
		}.Run(t)
	})
}

// The promise at the defaults: with the server stopped and 64 callers who ask again at once, each is answered within 6 ms
// before the breaker opens and within 0.1 ms after, at p99. That is for a machine with nothing else to do, so here it is
// told and not held.
func TestStoppedAtDefaults(t *testing.T) {
	eachAlone(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
		server := redisserver.Single(t)
		f := NewFleet(t, connect(Target{Addrs: []string{server.Addr}}), ratelimit.FallbackOptions{})
		f.closed(t, 0)
		server.Pause()
		start := time.Now()
		for range 64 {
			f.Go(func() {
				for time.Since(start) < 500*time.Millisecond {
					u, key := pick()
					f.Take(context.Background(), 0, key, &u.limit, 1)
					<-time.After(time.Millisecond)
				}
			})
		}
		f.Stop()
		opened := f.opened.Load()
		if opened == nil {
			t.Fatal("the breaker did not open")
		}
		all := f.All().Since(start)
		before := all.Between(start, *opened)
		t.Logf("opened after %v; p99 of %d before %v, of %d after %v", opened.Sub(start), len(before), before.P99(),
			len(all.Since(*opened)), all.Since(*opened).P99())
		f.Check(t)
		if n := all.By(ratelimit.SourceFallback); n != len(all) {
			t.Errorf("%d of %d decisions are local", n, len(all))
		}
	})
}

// R142: a server that hangs from the first request on, in whatever part of connecting. Everybody is answered locally within
// the budget, and the fleet admits what it may.
func TestHangsFromTheStart(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]func(t *testing.T) Target{
		"black hole": func(t *testing.T) Target { return Target{Addrs: []string{redisserver.BlackHole(t)}} },
		"hello":      func(t *testing.T) Target { return Target{Addrs: []string{redisserver.NewSilent(t).Addr}} },
		"tls hello": func(t *testing.T) Target {
			return Target{Addrs: []string{redisserver.NewSilent(t).Addr}, TLS: &tls.Config{InsecureSkipVerify: true}}
		},
		"name": func(t *testing.T) Target {
			return Target{Addrs: []string{"redis.invalid:6379"}, Dial: func(context.Context, string) (net.Conn, error) {
				<-time.After(300 * time.Millisecond) // without regard to the context, as some resolvers do
				return nil, &net.DNSError{Err: "no answer", IsTimeout: true}
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
				to := hang(t)
				f := NewFleet(t, connect(to), ratelimit.FallbackOptions{})
				start := time.Now()
				f.Load()
				f.goOn(t, 600*time.Millisecond)
				f.Stop()
				f.Check(t)
				all := f.All()
				if n := all.By(ratelimit.SourceFallback); n != len(all) {
					t.Errorf("%d of %d decisions are local", n, len(all))
				}
				if err := all.Admitted(Gift{From: start, To: time.Now(), Units: Instances}); err != nil {
					t.Error(err)
				}
				t.Logf("p99 at first %v, later %v", all.Between(start, start.Add(100*ms)).P99(), all.Since(start.Add(300*ms)).P99())
			})
		})
	}
}

// A server that hangs when the fleet starts, and comes to: no instance has to be started again.
func TestComesToLater(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
		server := redisserver.Single(t)
		proxy := NewProxy(t, server.Addr)
		proxy.Silence()
		f := NewFleet(t, connect(Target{Addrs: []string{proxy.Addr}}), ratelimit.FallbackOptions{Timeout: timeout})
		start := time.Now()
		f.Load()
		f.goOn(t, 600*time.Millisecond)
		proxy.Speak()
		spoke := time.Now()
		back := f.AwaitStore(t, spoke)
		t.Logf("the store decides after %v", back.Sub(spoke))
		f.goOn(t, 200*time.Millisecond)
		f.Stop()
		f.Check(t)
		if err := f.All().Admitted(Gift{From: start, To: back, Units: Instances}, Gift{From: spoke, To: back, Twice: true}); err != nil {
			t.Error(err)
		}
	})
}

// R130: while the server is known to be down, nobody dials in the way of a request, and decisions are quick.
func TestNoDialWhileOpen(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
		var dials atomic.Int64
		f := NewFleet(t, connect(Target{
			Addrs: []string{"127.0.0.1:1"}, // where nobody listens
			Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				dials.Add(1)
				return new(net.Dialer).DialContext(ctx, "tcp", addr)
			},
		}), ratelimit.FallbackOptions{})
		f.Load()
		if err := Poll(patience, f.open); err != nil {
			t.Fatal(err)
		}
		f.goOn(t, 600*time.Millisecond) // go-redis dials five times where it was asked to once
		since, before := time.Now(), dials.Load()
		f.goOn(t, time.Second)
		f.Stop()
		n, all := dials.Load()-before, f.All().Since(since)
		t.Logf("%d dials for %d decisions, p99 %v", n, len(all), all.P99())
		// A breaker that opens for a second lets a few probes pass meanwhile, and lazy clients try by themselves.
		if n > Instances*20 {
			t.Errorf("%d dials for %d decisions", n, len(all))
		}
		f.Check(t)
	})
}
