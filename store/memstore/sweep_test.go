package memstore

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
)

func TestSweepIsBounded(t *testing.T) {
	t.Parallel()
	s, c := newStore(0)
	l := ratelimit.PerSecond(10)
	const n = 50_000
	for i := range n {
		take(t, s, fmt.Sprint(i), l, 1)
	}
	c.advance(time.Minute)
	writes := 0
	for before := s.Len(); s.Len() > 1; writes++ {
		take(t, s, "one", l, 1)
		if gone := before - s.Len(); gone > sweepSteps {
			t.Fatalf("one write forgot %d", gone)
		}
		before = s.Len()
		c.advance(100 * time.Millisecond)
		if writes > n {
			t.Fatalf("Len is still %d after %d writes", s.Len(), writes)
		}
	}
	if got := s.Stats(); got.Expired != n || got.Evicted != 0 {
		t.Errorf("%+v, want %d expired", got, n)
	}
	s.check(t)
}

// R40: the sweep's clock may stand behind a state's.
func TestR40SweepBehindTheState(t *testing.T) {
	t.Parallel()
	for _, l := range algorithms(10, time.Second) {
		s, c := newStore(0)
		c.set(10 * time.Millisecond)
		take(t, s, "k", l, 4)
		for _, at := range []time.Duration{0, -time.Hour, -20 * 365 * 24 * time.Hour} {
			c.set(at)
			s.sweeper.work()
			s.sweep(c.now().UnixMicro())
			if s.Len() != 1 {
				t.Fatalf("%v: swept at %v", l, at)
			}
		}
		c.set(10 * time.Millisecond)
		if res := take(t, s, "k", l, 0); res.Remaining != 6 {
			t.Errorf("%v: %d left, want 6", l, res.Remaining)
		}
	}
}

// After the clock was set back, states written since are swept by it, and those of the future when they are due.
func TestSweepAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	s, c := newStore(0)
	l := ratelimit.PerSecond(10)
	c.set(365 * 24 * time.Hour)
	for i := range 1000 {
		take(t, s, fmt.Sprint(i), l, 1)
	}
	c.set(0)
	for i := range 1000 {
		take(t, s, fmt.Sprint(i), l, 1)
	}
	c.set(time.Minute)
	for range 1000 {
		take(t, s, "one", l, 1)
	}
	if n := s.Len(); n != 1 {
		t.Errorf("Len %d, want 1", n)
	}
	s.check(t)
}

// R89: a store costs next to nothing until it is used, and neither store nor limit has a goroutine.
func TestR89ManyLimits(t *testing.T) {
	s, _ := newStore(0)
	goroutines := runtime.NumGoroutine()
	before := heap()
	for i := range 2000 {
		l := ratelimit.PerMinute(10).Named(fmt.Sprint("rule-", i))
		take(t, s, "k", l, 1)
	}
	if grown := heap() - before; grown > 20<<20 {
		t.Errorf("2000 limits take %d bytes", grown)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
	if s.Len() != 2000 {
		t.Errorf("Len %d", s.Len())
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
