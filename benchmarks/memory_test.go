// Package benchmarks compares ratelimit with other libraries on the same work.
//
//	go test -run '^$' -bench Memory -cpu 1,2 -count 8 | tee memory.txt
//	benchstat -col /lib memory.txt
package benchmarks

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkMemory is one decision in memory, over keys that come in random order: with room for nearly all, and denied.
func BenchmarkMemory(b *testing.B) {
	for _, row := range []struct {
		keys    int
		outcome string
		n       int
		period  time.Duration
	}{
		{1, "allowed", 1_000_000_000, 1000 * time.Second},
		{10_000, "allowed", 1_000_000_000, 1000 * time.Second},
		{1_000_000, "allowed", 1_000_000_000, 1000 * time.Second},
		{10_000, "denied", 1, 24 * time.Hour},
	} {
		b.Run(fmt.Sprintf("keys=%d/%s", row.keys, row.outcome), func(b *testing.B) {
			keys := randomKeys(row.keys)
			for _, lib := range libs {
				var l allow // made once for all counts, and filled
				var stop func()
				b.Run("lib="+lib.name, func(b *testing.B) {
					if l == nil {
						l, stop = lib.make(b, row.n, row.period)
						for _, i := range rand.Perm(len(keys)) { // not in the order in which they will be asked for
							l(keys[i])
						}
						runtime.GC()
					}
					decide(b, l, keys, row.outcome == "allowed")
				})
				if stop != nil {
					stop()
				}
				l, stop = nil, nil
				runtime.GC()
			}
		})
	}
}

// decide runs l over keys, each goroutine from a place of its own.
func decide(b *testing.B, l allow, keys []string, want bool) {
	var wrong atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		i, others := rand.IntN(len(keys)), int64(0)
		for pb.Next() {
			if l(keys[i]) != want {
				others++
			}
			if i++; i == len(keys) {
				i = 0
			}
		}
		wrong.Add(others)
	})
	b.StopTimer()
	if n := wrong.Load(); n > int64(b.N/2) {
		b.Fatalf("%d of %d decisions are not what the row is about", n, b.N)
	}
}

// randomKeys returns n different keys in random order, each in memory of its own.
func randomKeys(n int) []string {
	keys := make([]string, n)
	for i, k := range rand.Perm(n) {
		keys[i] = fmt.Sprintf("client-%08d:search", k)
	}
	return keys
}
