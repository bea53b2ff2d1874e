package goredisstore

import (
	"bytes"
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// crew is a transport that tells apart the goroutines it is called on.
type crew struct {
	mu      sync.Mutex
	members map[string]bool
	delay   time.Duration
}

func (c *crew) send(_ context.Context, calls []*call) {
	var stack [64]byte
	id, _, _ := bytes.Cut(stack[:runtime.Stack(stack[:], false)], []byte(" ["))
	c.mu.Lock()
	if c.members == nil {
		c.members = make(map[string]bool)
	}
	c.members[string(id)] = true
	c.mu.Unlock()
	time.Sleep(c.delay)
	for _, call := range calls {
		call.cmd.SetVal(int64(0))
	}
}

func (q *queue) idlers() (parked int, sweeping bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.parked, q.sweeping
}

// One decision after the other, each by a caller who may leave, takes one worker, whose stack has grown to what the client
// needs. It goes home soon after the last of them.
func TestWorkerStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crew{delay: patience / 10}
		q := newQueue(c.send, false, 0)
		for range 1000 {
			if err := q.do(t.Context(), newTestCall()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if n := len(c.members); n != 1 {
			t.Errorf("%d workers for decisions one after the other", n)
		}
		if n, sweeping := q.idlers(); n != 1 || !sweeping {
			t.Errorf("%d are parked, sweeping: %v", n, sweeping)
		}
		time.Sleep(2*linger + 1)
		synctest.Wait()
		if n, sweeping := q.idlers(); n != 0 || sweeping {
			t.Errorf("%d are parked when nothing has happened for %v, sweeping: %v", n, 2*linger, sweeping)
		}
	})
}

// Workers, at work and parked, are never more than there may be batches in flight; those a burst needed go home though one
// stays in use.
func TestWorkersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 20
		c := &crew{delay: patience}
		q := newQueue(c.send, true, limit)
		var wg sync.WaitGroup
		for range 10 * limit {
			wg.Go(func() { _ = q.do(t.Context(), newTestCall()) })
		}
		wg.Wait()
		synctest.Wait()
		if n := len(c.members); n > limit {
			t.Errorf("%d workers, want at most %d", n, limit)
		}
		if n, _ := q.idlers(); n == 0 || n > limit {
			t.Errorf("%d are parked after a burst", n)
		}
		for start := time.Now(); time.Since(start) < 3*linger; {
			_ = q.do(t.Context(), newTestCall())
		}
		synctest.Wait()
		if n, _ := q.idlers(); n != 1 {
			t.Errorf("%d are parked where one is needed", n)
		}
		rest()
	})
}

// A worker whose goroutine a hook of the client's ends is not counted on afterwards.
func TestWorkerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crew{}
		deadly := false
		q := newQueue(func(ctx context.Context, calls []*call) {
			c.send(ctx, calls)
			if deadly {
				runtime.Goexit()
			}
		}, false, 0)
		for range 10 {
			for _, deadly = range []bool{false, true} {
				if err := q.do(t.Context(), newTestCall()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
		}
		if n, _ := q.idlers(); n != 0 {
			t.Errorf("%d are parked, and all have ended", n)
		}
		rest()
	})
}

// A client of an unknown type may be a fake in a bubble like these, which ends with its last goroutine.
func TestStrangersKeepNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(fake{}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.do(t.Context(), newTestCall()); err != nil {
			t.Error(err)
		}
	})
}

type fake struct{}

func (fake) Process(_ context.Context, cmd redis.Cmder) error {
	cmd.(interface{ SetVal(any) }).SetVal(int64(0))
	return nil
}
