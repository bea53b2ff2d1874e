package goredisstore

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/lua"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// transport is what carries batches in these tests: each takes the time that delay says for its number, from 1.
type transport struct {
	mu      sync.Mutex
	sizes   []int
	flying  int
	highest int
	delay   func(n int) time.Duration
}

func (tr *transport) send(_ context.Context, calls []*call) {
	tr.mu.Lock()
	tr.sizes = append(tr.sizes, len(calls))
	n := len(tr.sizes)
	tr.flying++
	tr.highest = max(tr.highest, tr.flying)
	tr.mu.Unlock()
	<-time.After(tr.delay(n))
	tr.mu.Lock()
	tr.flying--
	tr.mu.Unlock()
	for _, c := range calls {
		c.cmd.SetVal(int64(0))
	}
}

func (tr *transport) most() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.highest
}

// length is how many wait, counted twice.
func (q *queue) length(t *testing.T) (n int) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	for c := q.head; c != nil; c = c.next {
		n++
	}
	if n != q.waiting || (n == 0) != (q.tail == nil) {
		t.Errorf("%d wait, %d counted", n, q.waiting)
	}
	return n
}

// rest lets the workers of a queue go home, without which a bubble cannot end.
func rest() {
	time.Sleep(3 * linger)
	synctest.Wait()
}

func newTestCall() *call { return newCall(lua.Reset, []string{"rl:{k}"}, nil) }

// A queue takes no more callers than it has room for, tells the others at once, and keeps its goroutines few, while nothing
// comes back; callers who leave make room.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &transport{delay: func(int) time.Duration { return time.Hour }}
		q := newQueue(tr.send, false, 0)
		ctx, cancel := context.WithCancel(t.Context())
		inFlight := 0
		for inFlight < batchLimit { // one after the other, so that each is a batch
			go func() { _ = q.do(ctx, newTestCall()) }()
			inFlight++
			time.Sleep(10 * patience)
			synctest.Wait()
		}
		for range maxWaiting {
			go func() { _ = q.do(ctx, newTestCall()) }()
		}
		synctest.Wait()
		start := time.Now()
		if err := q.do(t.Context(), newTestCall()); !errors.Is(err, ratelimit.ErrStoreUnavailable) || time.Since(start) > 0 {
			t.Errorf("one too many: %v after %v", err, time.Since(start))
		}
		if n := tr.most(); n != batchLimit {
			t.Errorf("%d batches in flight, want %d", n, batchLimit)
		}
		cancel()
		synctest.Wait()
		if n := q.length(t); n != 0 {
			t.Errorf("%d wait after all have left", n)
		}
		go func() { _ = q.do(t.Context(), newTestCall()) }()
		synctest.Wait()
		if n := q.length(t); n != 1 {
			t.Errorf("%d wait, want the one who came after the others left", n)
		}
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if !q.idle() {
			t.Error("the queue is not idle after all came back")
		}
	})
}

// What waits behind a batch that is slow goes out beside it after a moment, and once the server is well there is one batch
// at a time again.
func TestQueuePassesSlowBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const usual = 100 * time.Microsecond
		tr := &transport{delay: func(n int) time.Duration {
			if n <= 2 {
				return 3 * time.Second
			}
			return usual
		}}
		q := newQueue(tr.send, false, 0)
		for range 2 {
			go func() { _ = q.do(t.Context(), newTestCall()) }()
			synctest.Wait()
		}
		start := time.Now()
		if err := q.do(t.Context(), newTestCall()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > 3*patience {
			t.Errorf("the third waited %v for the first two", d)
		}
		start = time.Now()
		for range 100 {
			if err := q.do(t.Context(), newTestCall()); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(start); d > 101*usual {
			t.Errorf("100 decisions beside slow ones took %v", d)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		tr.mu.Lock()
		tr.highest = 0
		tr.mu.Unlock()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for range 100 {
					_ = q.do(t.Context(), newTestCall())
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		if n := tr.most(); n > 2 || !q.idle() || q.slow != 0 {
			t.Errorf("%d batches in flight at a time, %d slow", n, q.slow)
		}
		rest()
	})
}

// A batch's context ends with the last of its callers, so that what still waits for a connection stops waiting, and not
// before.
func TestBatchEndsWithItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches atomic.Int64
		ended := make(chan int, 10)
		q := newQueue(func(ctx context.Context, calls []*call) {
			if batches.Add(1) <= 2 { // those that the others wait for
				time.Sleep(patience / 2)
				return
			}
			<-ctx.Done()
			ended <- len(calls)
		}, false, 0)
		for range 2 {
			go func() { _ = q.do(t.Context(), newTestCall()) }()
			synctest.Wait()
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		later, cancelLater := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancelLater()
		for _, ctx := range []context.Context{soon, later, soon, soon} {
			go func() { _ = q.do(ctx, newTestCall()) }()
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if len(ended) != 0 {
			t.Error("a batch ended while one still waited for it")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(ended) != 1 || <-ended != 4 {
			t.Error("the batch of four did not end with its callers")
		}
		rest()
	})
}

// Servers that come and go do not leave a queue each behind.
func TestNodesAreForgotten(t *testing.T) {
	n := nodes{node: func(*redis.Client) *node { return &node{} }}
	for range 10_000 {
		n.queue(redis.NewClient(&redis.Options{}))
	}
	count := 0
	n.queues.Range(func(any, any) bool { count++; return true })
	if count != n.count || count > 2*firstSweep {
		t.Errorf("%d queues are kept, %d counted", count, n.count)
	}
}

// A decision takes at most 12 allocations, those of go-redis included.
func TestAllocations(t *testing.T) {
	server := redisserver.Single(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	s, err := New(client, Options{})
	if err != nil {
		t.Fatal(err)
	}
	limit := ratelimit.PerSecond(1000)
	for _, callers := range []int{1, 64} {
		const each = 200
		decide := func() {
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for range each {
						if _, err := s.Take(t.Context(), ratelimit.Request{Key: "user-1", Limit: &limit, Cost: 1}); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		}
		decide()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		decide()
		runtime.ReadMemStats(&after)
		if n := float64(after.Mallocs-before.Mallocs) / float64(callers*each); n > 12 {
			t.Errorf("%d callers: %.1f allocations a decision", callers, n)
		} else {
			t.Logf("%d callers: %.1f allocations a decision", callers, n)
		}
	}
}
