package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/memstore"
)

// A fleet is the instances of one service. Here they are one process; each has a Redis client, a store and a breaker of
// its own, and knows of the others only how many they are.
type fleet struct {
	clients   []*redis.Client
	fallbacks []*ratelimit.Fallback
	limiters  []ratelimit.Limiter

	mu    sync.Mutex
	calls []call // since the last tally
}

// A call is one decision.
type call struct {
	admitted bool
	source   ratelimit.Source
	took     time.Duration
}

func newFleet(addr string, instances int, limit ratelimit.Limit) (*fleet, error) {
	logging.Disable() // go-redis tells of every connection that fails
	f := &fleet{}
	for range instances {
		client := redis.NewClient(&redis.Options{Addr: addr})
		f.clients = append(f.clients, client)
		store, err := goredisstore.New(client, goredisstore.Options{})
		if err != nil {
			return nil, err
		}
		fallback, err := ratelimit.NewFallback(store, memstore.New(memstore.Options{}), ratelimit.FallbackOptions{
			Instances:     func() int { return instances },
			OnStateChange: func(_, _ ratelimit.BreakerState) {}, // the timeline tells
		})
		if err != nil {
			return nil, err
		}
		f.fallbacks = append(f.fallbacks, fallback)
		limiter, err := ratelimit.New(fallback, limit)
		if err != nil {
			return nil, err
		}
		f.limiters = append(f.limiters, limiter)
	}
	return f, nil
}

func (f *fleet) close() {
	for _, fallback := range f.fallbacks {
		_ = fallback.Close()
	}
	for _, client := range f.clients {
		_ = client.Close()
	}
}

// work spreads so many calls a second evenly over the instances until ctx ends.
func (f *fleet) work(ctx context.Context, offered int64) {
	var wg sync.WaitGroup
	defer wg.Wait()
	each := time.Duration(int64(time.Second) * int64(len(f.limiters)) / offered)
	for _, limiter := range f.limiters {
		wg.Go(func() {
			ticks := time.NewTicker(each)
			defer ticks.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-ticks.C:
				}
				start := time.Now()
				res, err := limiter.Allow(ctx, ratelimit.Key("tenant-1", "search"), 1)
				if err == nil {
					f.note(call{res.Allowed, res.Source, time.Since(start)})
				}
			}
		})
	}
}

func (f *fleet) note(c call) {
	f.mu.Lock()
	f.calls = append(f.calls, c)
	f.mu.Unlock()
}

// A tally sums up the calls of one step.
type tally struct {
	store, local count // by who decided
	p99          time.Duration
}

type count struct{ decided, admitted int }

func (t tally) admitted() int { return t.store.admitted + t.local.admitted }
func (t tally) denied() int   { return t.store.decided + t.local.decided - t.admitted() }

func (f *fleet) takeTally() (t tally) {
	f.mu.Lock()
	calls := f.calls
	f.calls = nil
	f.mu.Unlock()
	took := make([]time.Duration, 0, len(calls))
	for _, c := range calls {
		by := &t.local
		if c.source == ratelimit.SourceStore {
			by = &t.store
		}
		by.decided++
		if c.admitted {
			by.admitted++
		}
		took = append(took, c.took)
	}
	if len(took) > 0 {
		slices.Sort(took)
		t.p99 = took[(len(took)-1)*99/100]
	}
	return t
}
