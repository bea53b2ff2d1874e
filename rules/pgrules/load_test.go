package pgrules

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/sluicego/ratelimit/rules"
)

// peak returns a function that tells how many bytes the process has come to hold at most since, by the kernel's account
// where there is one.
func peak() func() uint64 {
	runtime.GC()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // Linux: the peak begins anew
	return func() uint64 {
		status, _ := os.ReadFile("/proc/self/status")
		for line := range bytes.Lines(status) {
			if f := bytes.Fields(line); len(f) > 1 && string(f[0]) == "VmHWM:" {
				kb, _ := strconv.ParseUint(string(f[1]), 10, 64)
				return kb << 10
			}
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.Sys
	}
}

// BenchmarkLoad is the first load of 500,000 rules of 100,000 tenants, a refresh that finds ten changes among them, and one
// that reads all again.
func BenchmarkLoad(b *testing.B) {
	bed := withSchema(b)
	bed.exec(`ALTER TABLE rate_limit_rule DISABLE TRIGGER USER;
		INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second, updated_at)
		SELECT 'tenant-' || n % 100000, 'route-' || n / 100000, 100 * (n % 7 + 1), 50 * (n % 7 + 1), now() - interval '1 hour' FROM generate_series(0, 499999) n;
		ALTER TABLE rate_limit_rule ENABLE TRIGGER USER; ANALYZE rate_limit_rule`)
	load := func(b *testing.B, source rules.Source) *rules.Set { // no Cleanup that keeps it in memory
		b.Helper()
		s, err := rules.New(b.Context(), source, rules.Options{Default: rules.Rule{Mode: rules.DenyAll}, Interval: time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	check := func(b *testing.B, s *rules.Set) {
		b.Helper()
		if got := s.Stats(); got.Rules != 500_000 {
			b.Fatalf("%+v", got)
		}
	}
	b.Run("first", func(b *testing.B) {
		most := peak()
		for b.Loop() {
			s := load(b, rules.SQL(bed.db))
			check(b, s)
			s.Close()
		}
		b.ReportMetric(float64(most())/(1<<20), "MB-peak")
	})
	b.Run("ten-changes", func(b *testing.B) {
		s := load(b, rules.SQL(bed.db))
		defer s.Close()
		for n := 0; b.Loop(); n++ {
			b.StopTimer()
			bed.exec("UPDATE rate_limit_rule SET capacity = " + strconv.Itoa(1000+n) + " WHERE id % 50000 = 7")
			b.StartTimer()
			refresh(b, s)
			b.StopTimer()
			if got := burst(s, "tenant-6", "route-0"); got != int64(1000+n) {
				b.Fatalf("%d holds; want %d", got, 1000+n)
			}
			b.StartTimer()
		}
	})
	b.Run("again", func(b *testing.B) {
		source := rules.SQL(bed.db)
		source.FullEvery = time.Nanosecond
		s := load(b, source)
		defer s.Close()
		most := peak()
		for b.Loop() {
			refresh(b, s)
		}
		check(b, s)
		b.ReportMetric(float64(most())/(1<<20), "MB-peak")
	})
}
