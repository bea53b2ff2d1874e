package ratelimit_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
)

// start is T0 of the case list.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func micro(at time.Duration) int64 { return start.Add(at).UnixMicro() }

func machine(t testing.TB, l ratelimit.Limit) *ratelimit.Machine {
	t.Helper()
	m, err := ratelimit.NewMachine(l)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func tokens(capacity, rate int64, per time.Duration) ratelimit.Limit {
	return ratelimit.Limit{Rate: rate, Period: per, Burst: capacity}
}

func window(a ratelimit.Algorithm, rate int64, per time.Duration) ratelimit.Limit {
	return ratelimit.Limit{Algorithm: a, Rate: rate, Period: per}
}

func TestMachineStories(t *testing.T) {
	t.Parallel()
	const s, ms, us = time.Second, time.Millisecond, time.Microsecond
	type call struct {
		at        time.Duration
		cost      int64
		wait      time.Duration // 0: admitted
		remaining int64
	}
	for _, c := range []struct {
		name  string
		limit ratelimit.Limit
		calls []call
	}{
		{"R05 cost equal to the capacity", tokens(5, 1, s), []call{
			{0, 3, 0, 2},
			{0, 5, 3 * s, 2},
			{3 * s, 5, 0, 0},
			{3 * s, 6, ratelimit.Never, 0},
		}},
		{"R10 the announced wait", tokens(6, 6, time.Minute), []call{
			{0, 6, 0, 0},
			{0, 1, 10 * s, 0},
			{5001 * ms, 1, 4999 * ms, 0},
			{10*s - us, 1, us, 0},
			{10 * s, 1, 0, 0},
		}},
		{"R11 the exact moment", tokens(1, 1, time.Hour), []call{
			{0, 1, 0, 0},
			{1620 * s, 1, 1980 * s, 0},
			{time.Hour, 1, 0, 0},
		}},
		{"R26 one a day", tokens(1, 1, 24*time.Hour), []call{
			{0, 1, 0, 0},
			{s, 1, 86399 * s, 0},
			{24*time.Hour - ms, 1, ms, 0},
			{24 * time.Hour, 1, 0, 0},
		}},
		{"R32 a counter of one", window(ratelimit.SlidingCounter, 1, 3*s), []call{
			{0, 1, 0, 0},
			{s, 1, 5 * s, 0},
			{2 * s, 1, 4 * s, 0},
			{6*s - us, 1, us, 0},
			{6 * s, 1, 0, 0},
		}},
		{"R34 the oldest entry in the way", window(ratelimit.SlidingLog, 2, time.Minute), []call{
			{0, 1, 0, 1},
			{10 * s, 1, 0, 0},
			{20 * s, 1, 40 * s, 0},
			{20 * s, 2, 50 * s, 0},
			{60 * s, 1, 0, 0},
		}},
		{"R37 to and fro", tokens(10, 10, s), []call{
			{s, 10, 0, 0},
			{s / 2, 1, 600 * ms, 0},
			{s, 1, 100 * ms, 0},
			{s / 2, 1, 600 * ms, 0},
			{1100 * ms, 1, 0, 0},
		}},
		{"R46 idle windows", window(ratelimit.SlidingCounter, 10, time.Minute), []call{
			{5 * s, 10, 0, 0},
			{65 * s, 1, s, 0},
			{125 * s, 1, 0, 9},
		}},
		{"a bucket too wide for one number", tokens(1_000_000_000, 999_999_937, 366*24*time.Hour), []call{
			{0, 1_000_000_000, 0, 0},
			{0, 1, 31_623 * us, 0},
			{31_622 * us, 1, us, 0},
			{31_623 * us, 1, 0, 0},
			{366 * 24 * time.Hour, 999_999_936, 0, 0},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := machine(t, c.limit)
			var state ratelimit.State
			for i, call := range c.calls {
				res, changed := m.Take(&state, micro(call.at), call.cost, 0)
				if res.Allowed != (call.wait == 0) || res.RetryAfter != call.wait || res.Remaining != call.remaining || changed != res.Allowed {
					t.Errorf("call %d at T+%v of cost %d: %+v, changed %v; want a wait of %v and %d left",
						i+1, call.at, call.cost, res, changed, call.wait, call.remaining)
				}
			}
		})
	}
}

// R25: what a bucket and a log of the same numbers admit of two calls a second.
func TestBucketAndLogDiffer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit ratelimit.Limit
		want  int
	}{{tokens(17, 17, 30*time.Second), 33}, {window(ratelimit.SlidingLog, 17, 30*time.Second), 17}} {
		m := machine(t, c.limit)
		var state ratelimit.State
		admitted := 0
		for i := range 30 {
			for _, part := range []time.Duration{0, 250 * time.Millisecond} {
				if res, _ := m.Take(&state, micro(time.Duration(i)*time.Second+part), 1, 0); res.Allowed {
					admitted++
				}
			}
		}
		if admitted != c.want {
			t.Errorf("%v admitted %d, want %d", c.limit, admitted, c.want)
		}
	}
}

// R16, R17: times and products at the ends of what numbers hold.
func TestExtremes(t *testing.T) {
	t.Parallel()
	for _, now := range []int64{math.MinInt64, time.Time{}.UnixMicro(), 0, micro(0), 1<<53 - 1, math.MaxInt64} {
		for _, l := range []ratelimit.Limit{
			tokens(5, 1, 24*time.Hour), tokens(1_000_000_000, 1, 366*24*time.Hour), tokens(1_000_000_000, 1_000_000_000, time.Millisecond),
			window(ratelimit.SlidingLog, 5, time.Hour), window(ratelimit.SlidingCounter, 1_000_000_000, 366*24*time.Hour),
		} {
			m := machine(t, l)
			var state ratelimit.State
			m.Take(&state, now, 2, 0)
			res, _ := m.Take(&state, now, 1, 0)
			if !res.Allowed || res.Remaining != l.Capacity()-3 || res.ResetAfter <= 0 {
				t.Errorf("%v at %d: %+v", l, now, res)
			}
			if unused := state.Unused(); unused <= 0 || m.FullAfter() <= 0 {
				t.Errorf("%v at %d: unused at %d, full after %d", l, now, unused, m.FullAfter())
			}
			for _, cost := range []int64{math.MinInt64, math.MaxInt64} {
				res, _ = m.Take(&state, now, cost, 0)
				if cost < 0 && (res.Taken != -3 || res.Remaining != l.Capacity()) || cost > 0 && res.RetryAfter != ratelimit.Never {
					t.Errorf("%v at %d, cost %d: %+v", l, now, cost, res)
				}
			}
		}
	}
}

func TestStateBinary(t *testing.T) {
	t.Parallel()
	for _, l := range []ratelimit.Limit{
		tokens(10, 3, time.Second), tokens(1_000_000_000, 999_999_937, 366*24*time.Hour),
		window(ratelimit.SlidingLog, 10, time.Minute), window(ratelimit.SlidingCounter, 10, time.Minute),
	} {
		m := machine(t, l)
		var state ratelimit.State
		for i, cost := range []int64{0, 1, 4, 2, -1, 1, -100, 5} {
			now := micro(time.Duration(i) * 17 * time.Second)
			m.Take(&state, now, cost, 0)
			data, err := state.AppendBinary([]byte("before"))
			if err != nil || string(data[:6]) != "before" {
				t.Fatalf("%v: %q, %v", l, data, err)
			}
			var back ratelimit.State
			if err := back.UnmarshalBinary(data[6:]); err != nil {
				t.Fatalf("%v after call %d: %v", l, i+1, err)
			}
			if back.Unused() != state.Unused() || back.Entries() != state.Entries() {
				t.Errorf("%v after call %d: unused at %d, then at %d", l, i+1, state.Unused(), back.Unused())
			}
			// Also a clock that stepped back finds the same in both.
			for _, later := range []time.Duration{-20 * time.Second, 0, time.Second} {
				here, there := state, back
				a, _ := m.Take(&here, now+later.Microseconds(), 0, 0)
				b, _ := m.Take(&there, now+later.Microseconds(), 0, 0)
				if a != b {
					t.Errorf("%v after call %d and %v: %+v, then %+v", l, i+1, later, a, b)
				}
			}
			for cut := range data[6:] {
				if cut == 1 {
					continue // the version alone is an unused key
				}
				if err := back.UnmarshalBinary(data[6 : 6+cut]); err == nil {
					t.Errorf("%v: cut to %d of %d bytes it reads", l, cut, len(data)-6)
				}
				if back.Unused() != 0 || back.Machine() != nil {
					t.Errorf("%v: after an error it is not unused", l)
				}
			}
			if err := back.UnmarshalBinary(append(data[6:], 0)); err == nil {
				t.Errorf("%v: with a byte more it reads", l)
			}
		}
	}
}

// An empty log keeps its time through the binary form, and windows that run together stay countable.
func TestStateBinaryAtTheEdges(t *testing.T) {
	t.Parallel()
	again := func(s ratelimit.State) (back ratelimit.State) {
		data, err := s.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := back.UnmarshalBinary(data); err != nil {
			t.Fatal(err)
		}
		return back
	}
	m := machine(t, window(ratelimit.SlidingLog, 5, time.Minute))
	var state ratelimit.State
	m.Take(&state, micro(30*time.Second), 2, 0)
	m.Take(&state, micro(30*time.Second), -2, 0)
	state = again(state)
	if res, _ := m.Take(&state, micro(0), 1, 0); res.ResetAfter != 90*time.Second {
		t.Errorf("a log given back whole at T+30s, then one at T: %+v", res)
	}

	m = machine(t, window(ratelimit.SlidingCounter, 1_000_000_000, time.Minute))
	state = ratelimit.State{}
	for i := range 5 {
		at := time.Duration(10-2*i) * time.Hour
		m.Take(&state, micro(at), 0, 1_000_000_000)
		m.Take(&state, micro(at+119*time.Second), 0, 1_000_000_000)
		state = again(state)
	}
}

// A log of one entry is only numbers: no memory of its own, and all that longer ones can.
func TestLogOfOneEntry(t *testing.T) {
	m := machine(t, window(ratelimit.SlidingLog, 5, time.Minute))
	if n := testing.AllocsPerRun(100, func() {
		var state ratelimit.State
		m.Take(&state, micro(0), 2, 0)
		m.Take(&state, micro(0), 2, 0) // shares the entry
		m.Take(&state, micro(0), 2, 0) // denied
		m.Take(&state, micro(time.Minute), 1, 0)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	entries := func(s *ratelimit.State, at time.Duration) string {
		t.Helper()
		h, err := m.History(s, micro(at))
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, e := range h {
			text += fmt.Sprintf("%v:%d ", time.Duration(e.Time.UnixMicro()-micro(0))*time.Microsecond, e.Cost)
		}
		return text
	}
	var state ratelimit.State
	for _, c := range []struct {
		at      time.Duration
		cost    int64
		wait    time.Duration
		history string
	}{
		{0, 3, 0, "0s:3 "},
		{time.Second, 3, 59 * time.Second, "0s:3 "},
		{time.Second, -1, 0, "0s:2 "},
		{2 * time.Second, 3, 0, "0s:2 2s:3 "},
		{time.Minute - time.Microsecond, 1, time.Microsecond, "0s:2 2s:3 "},
		{time.Minute, 1, 0, "2s:3 1m0s:1 "},
		{-2 * time.Minute, 5, time.Minute, "-2m0s:4 "}, // the clock was set back: heals
		{-2 * time.Minute, -4, 0, ""},
		{-time.Minute, 5, 0, "-1m0s:5 "},
	} {
		res, _ := m.Take(&state, micro(c.at), c.cost, 0)
		if res.RetryAfter != c.wait || res.Allowed != (c.wait == 0) {
			t.Errorf("at %v, cost %d: %+v, want to wait %v", c.at, c.cost, res, c.wait)
		}
		if got := entries(&state, c.at); got != c.history {
			t.Errorf("at %v, cost %d: history %q, want %q", c.at, c.cost, got, c.history)
		}
		data, err := state.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		var back ratelimit.State
		if err := back.UnmarshalBinary(data); err != nil || entries(&back, c.at) != c.history || back.Unused() != state.Unused() || back.Entries() != state.Entries() {
			t.Errorf("at %v, cost %d: %q came back as %q, %v", c.at, c.cost, c.history, entries(&back, c.at), err)
		}
	}
}

func FuzzState(f *testing.F) {
	for _, l := range []ratelimit.Limit{tokens(10, 3, time.Second), window(ratelimit.SlidingLog, 10, time.Minute), window(ratelimit.SlidingCounter, 10, time.Minute)} {
		var state ratelimit.State
		m, err := ratelimit.NewMachine(l)
		if err != nil {
			f.Fatal(err)
		}
		m.Take(&state, micro(0), 3, 0)
		m.Take(&state, micro(time.Second), 2, 0)
		data, err := state.AppendBinary(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, int64(0), int64(1))
		f.Add(data, int64(-1_000_000_000), int64(-3))
	}
	f.Fuzz(func(t *testing.T, data []byte, later, cost int64) {
		var state ratelimit.State
		if err := state.UnmarshalBinary(data); err != nil {
			if state.Machine() != nil {
				t.Fatal("after an error it is not unused")
			}
			return
		}
		for _, l := range []ratelimit.Limit{
			tokens(10, 3, time.Second), window(ratelimit.SlidingLog, 10, time.Minute), window(ratelimit.SlidingCounter, 10, time.Minute),
		} {
			if m := state.Machine(); m != nil {
				if m.Limit().Algorithm != l.Algorithm {
					continue
				}
				l = m.Limit()
			}
			var s ratelimit.State
			if err := s.UnmarshalBinary(data); err != nil {
				t.Fatal(err)
			}
			m := machine(t, l)
			for range 3 {
				res, _ := m.Take(&s, micro(0)+later%(1<<54), cost, 0)
				if res.Remaining < 0 || res.Remaining > res.Limit || res.RetryAfter < 0 || res.ResetAfter < 0 || res.Allowed != (res.RetryAfter == 0) {
					t.Fatalf("%v: %+v", l, res)
				}
				again, err := s.AppendBinary(nil)
				if err != nil {
					t.Fatal(err)
				}
				var back ratelimit.State
				if err := back.UnmarshalBinary(again); err != nil {
					t.Fatalf("%v: cannot read its own %x: %v", l, again, err)
				}
			}
		}
	})
}
