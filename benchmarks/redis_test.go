package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// BenchmarkRedis is one decision on a real server that this process shares the machine with, over 10,000 keys in random
// order, all admitted, by one caller and by 64 at a time:
//
//	go test -run '^$' -bench Redis -count 8 | tee redis.txt
//	benchstat -col /lib redis.txt
func BenchmarkRedis(b *testing.B) {
	bucket := ratelimit.Limit{Rate: 600_000, Period: time.Minute}
	log := ratelimit.Limit{Algorithm: ratelimit.SlidingLog, Rate: 100_000, Period: time.Minute}
	counter := ratelimit.Limit{Algorithm: ratelimit.SlidingCounter, Rate: 600_000, Period: time.Minute}
	server := redisserver.Single(b)
	keys := userKeys(10_000)
	for _, row := range []struct {
		name    string
		limits  []ratelimit.Limit
		timeout time.Duration // of each call; 0: none
	}{
		{"token-bucket", []ratelimit.Limit{bucket}, 0},
		{"token-bucket-5ms", []ratelimit.Limit{bucket}, 5 * time.Millisecond},
		{"sliding-log", []ratelimit.Limit{log}, 0},
		{"sliding-counter", []ratelimit.Limit{counter}, 0},
		{"take-all-3", []ratelimit.Limit{bucket.Named("tenant"), bucket.Named("user"), bucket.Named("route")}, 0},
	} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("row=%s/callers=%d", row.name, callers), func(b *testing.B) {
				for _, lib := range redisLibs {
					l := lib.make(b, server.Addr, row.limits)
					if l == nil {
						continue
					}
					filled := false // once for all counts
					b.Run("lib="+lib.name, func(b *testing.B) {
						if !filled {
							share(callers, len(keys), func(i int) { _, _ = l(context.Background(), keys[i]) })
							filled = true
						}
						before, own := serverTime(b, server), ownTime(b)
						ask(b, l, keys, callers, row.timeout)
						b.ReportMetric((ownTime(b)-own)*1e9/float64(b.N), "client-ns/op")
						b.ReportMetric((serverTime(b, server)-before)*1e9/float64(b.N), "server-ns/op")
					})
				}
			})
		}
	}
}

// ask makes b.N decisions from exactly so many goroutines.
func ask(b *testing.B, l remote, keys []string, callers int, timeout time.Duration) {
	var denied, late atomic.Int64
	var failed atomic.Pointer[error]
	start := rand.IntN(len(keys))
	b.ReportAllocs()
	b.ResetTimer()
	share(callers, b.N, func(i int) {
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if timeout > 0 {
			ctx, cancel = context.WithTimeout(ctx, timeout)
		}
		allowed, err := l(ctx, keys[(start+i)%len(keys)])
		cancel()
		switch {
		case timeout > 0 && errors.Is(err, context.DeadlineExceeded):
			late.Add(1)
		case err != nil:
			failed.Store(&err)
		case !allowed:
			denied.Add(1)
		}
	})
	b.StopTimer()
	if err := failed.Load(); err != nil {
		b.Fatal(*err)
	}
	if n := denied.Load(); n > 0 {
		b.Fatalf("%d of %d decisions were denied", n, b.N)
	}
	if timeout > 0 {
		b.ReportMetric(float64(late.Load())/float64(b.N), "timeouts/op")
	}
}

// serverTime is the seconds of processor time that the server has used. What it uses for a decision depends less on what
// else the machine is doing than the time a decision takes.
func serverTime(b *testing.B, server *redisserver.Server) float64 {
	b.Helper()
	info, err := server.Info("cpu")
	if err != nil {
		b.Fatal(err)
	}
	sum := 0.0
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info[field], 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += seconds
	}
	return sum
}

// ownTime is the seconds of processor time that this process has used.
func ownTime(b *testing.B) float64 {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

// share calls f for 0 to n-1 from so many goroutines at a time.
func share(callers, n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				f(int(i - 1))
			}
		})
	}
	wg.Wait()
}

// userKeys returns n different keys in random order. With "rl:{}" or "rate:" around them they have 24 bytes.
func userKeys(n int) []string {
	keys := make([]string, n)
	for i, k := range rand.Perm(n) {
		keys[i] = fmt.Sprintf("user-%014d", k)
	}
	return keys
}
