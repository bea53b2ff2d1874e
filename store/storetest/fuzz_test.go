package storetest

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
)

// FuzzMachine compares the Machine with the model on histories that the fuzzer writes: each step is 14 bytes.
func FuzzMachine(f *testing.F) {
	for algorithm := range byte(3) {
		f.Add(algorithm, int64(10), int64(1_000_000), int64(0), []byte("\x01\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x05"))
		f.Add(algorithm, int64(999_983), int64(31_622_399_999_999), int64(1_000_000_000), make([]byte, 140))
	}
	f.Fuzz(func(t *testing.T, algorithm byte, rate, period, burst int64, history []byte) {
		l := ratelimit.Limit{Algorithm: ratelimit.Algorithm(algorithm), Rate: rate, Period: time.Duration(period) * us, Burst: burst}
		if period > 366*24*int64(h/us) || l.Validate() != nil {
			return
		}
		model := newModel()
		var state ratelimit.State
		now := t0.UnixMicro()
		for ; len(history) >= 14; history = history[14:] {
			op := history[0]
			if op&64 != 0 {
				changed := l
				changed.Rate = 1 + int64(history[1])*l.Rate/64
				changed.Period = (time.Duration(1+history[2]) * l.Period / 16).Truncate(us)
				if changed.Validate() == nil {
					l = changed
				}
			}
			now = step(now, op, int64(int32(binary.BigEndian.Uint32(history[3:]))), &l)
			cost := int64(int32(binary.BigEndian.Uint32(history[7:])))
			if op&8 != 0 {
				cost %= l.Capacity() + 2
			}
			req := ratelimit.Request{Key: "x", Limit: &l, Cost: cost, Extra: int64(history[11])}
			if cost < 0 {
				req.Extra = 0
			}
			m, err := ratelimit.NewMachine(l)
			if err != nil {
				t.Fatal(err)
			}
			before := state
			if op&16 != 0 { // through a database
				data, err := state.AppendBinary(nil)
				if err != nil {
					t.Fatal(err)
				}
				state = ratelimit.State{}
				if err := state.UnmarshalBinary(data); err != nil {
					t.Fatalf("%v: cannot read its own %x: %v", l, data, err)
				}
			}
			got, changed := m.Take(&state, now, req.Cost, req.Extra)
			if !changed && (got.Taken != 0 || before.Unused() != state.Unused()) {
				t.Fatalf("%v: a change that is none: %+v", l, got)
			}
			if want, right := model.judge([]ratelimit.Request{req}, now, []ratelimit.Result{got}); !right {
				t.Fatalf("%v at %d, cost %d, extra %d:\n got %+v\nwant %+v", l, now, req.Cost, req.Extra, got, want[0])
			}
			h, err := m.History(&state, now)
			if isLog := l.Algorithm == ratelimit.SlidingLog; isLog != (err == nil) {
				t.Fatalf("%v: history: %v", l, err)
			} else if isLog {
				sum := int64(0)
				for _, e := range h {
					sum += e.Cost
				}
				if want := max(0, l.Rate-sum); got.RetryAfter != ratelimit.Never && want != got.Remaining {
					t.Fatalf("%v: history of %d, but %d remain", l, sum, got.Remaining)
				}
			}
		}
	})
}

// step moves the clock by d, in units that op chooses, and keeps it between 1990 and 2250.
func step(now int64, op byte, d int64, l *ratelimit.Limit) int64 {
	period := l.Period.Microseconds()
	switch op & 7 {
	case 0:
		d = 0
	case 1:
		d %= 1000
	case 2:
		d = period * (d % 5)
	case 3:
		d = period*(d%5)/2 + d%7
	case 4:
		d = (d % 3) * (period/l.Rate + d%2)
	}
	if next := now + d; next > 631_152_000_000_000 && next < 8_835_000_000_000_000 {
		return next
	}
	return now
}
