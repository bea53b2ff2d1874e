package memstore

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
)

func TestSingleLimitDoesNotAllocate(t *testing.T) {
	s := New(Options{})
	ctx := context.Background()
	for _, l := range algorithms(1000, time.Hour) {
		lim, err := ratelimit.New(s, l)
		if err != nil {
			t.Fatal(err)
		}
		for range 1000 { // a log's entries have room then
			lim.Allow(ctx, "denied", 1)
		}
		for _, c := range []struct {
			what string
			call func() (ratelimit.Result, error)
		}{
			{"admitted", func() (ratelimit.Result, error) {
				lim.Refund(ctx, "denied", 1)
				return lim.Allow(ctx, "denied", 1)
			}},
			{"denied", func() (ratelimit.Result, error) { return lim.Allow(ctx, "denied", 1) }},
			{"looked at", func() (ratelimit.Result, error) { return lim.Peek(ctx, "denied") }},
			{"never seen", func() (ratelimit.Result, error) { return lim.Peek(ctx, "never seen") }},
		} {
			if n := testing.AllocsPerRun(500, func() { c.call() }); n != 0 {
				t.Errorf("%v, %s: %v allocations", l, c.what, n)
			}
		}
	}
}

func TestMemoryOfAMillionKeys(t *testing.T) {
	const most = 150
	n := DefaultMaxKeys
	if raced {
		n /= 8 // in the same layout
	}
	bucket := ratelimit.PerHour(100)
	log, counter := bucket, bucket
	log.Algorithm, counter.Algorithm = ratelimit.SlidingLog, ratelimit.SlidingCounter
	for _, c := range []struct {
		format string
		limit  ratelimit.Limit
	}{
		{"%x", bucket},
		{"client-%09d:search/v1", bucket},
		{"client-%09d:search/v1", log},
		{"client-%09d:search/v1", counter},
		{"tenant-%08d/a-long-key-that-has-memory-of-its-own", bucket},
	} {
		format, l := c.format, c.limit
		before := heap()
		s := New(Options{MaxKeys: n})
		text := 0
		for i := range n {
			key := fmt.Sprintf(format, i)
			text += len(key)
			take(t, s, key, l, 1)
		}
		if s.Len() != n {
			t.Fatalf("Len %d, want %d", s.Len(), n)
		}
		each := float64(heap()-before-int64(text)) / float64(n)
		t.Logf("%v, %q: %.1f bytes a key beyond its text", l.Algorithm, format, each)
		if each > most {
			t.Errorf("%v, %q: %.1f bytes a key beyond its text, above %d", l.Algorithm, format, each, most)
		}
		runtime.KeepAlive(s)
	}
}
