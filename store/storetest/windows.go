package storetest

import (
	"errors"
	"time"

	"github.com/sluicego/ratelimit"
)

// windowChecks are the sliding log and the sliding counter.
var windowChecks = []check{
	{
		name: "R34 the oldest entry in the way decides",
		rule: "A log's RetryAfter is when so many of the oldest units have left that the cost fits.",
		run: func(k *kit) {
			k.story(logOf(2, m), call{0, 1, 0, 1}, call{10 * s, 1, 0, 0}, call{20 * s, 1, 40 * s, 0},
				call{20 * s, 2, 50 * s, 0}, call{m - us, 1, us, 0}, call{m, 1, 0, 0})
		},
	},
	{
		name: "log: an entry counts while its time and Period are after now",
		rule: "An entry of cost 3 leaves as a whole, exactly one Period after it came.",
		run: func(k *kit) {
			l := logOf(10, s)
			key := k.key()
			k.admit(key, l, 3, 1)
			k.at(400 * ms)
			k.admit(key, l, 7, 1)
			k.at(s - us)
			k.want("a tick before", k.take(key, l, 1), no(l, 0, us, 400*ms+us))
			k.at(s)
			k.want("the three have left", k.take(key, l, 4), no(l, 3, 400*ms, 400*ms))
			k.want("three fit", k.take(key, l, 3), yes(l, 3, 0, s))
			k.at(1400 * ms)
			k.want("the seven have left", k.take(key, l, 0), yes(l, 0, 7, 600*ms))
		},
	},
	{
		name: "log: calls of one microsecond are one entry, and every one counts",
		rule: "Five calls at one instant leave together.",
		run: func(k *kit) {
			k.story(logOf(5, s), call{0, 1, 0, 4}, call{0, 1, 0, 3}, call{0, 1, 0, 2}, call{0, 1, 0, 1}, call{us, 1, 0, 0},
				call{s - us, 1, us, 0}, call{s, 4, 0, 0}, call{s, 1, us, 0})
		},
	},
	{
		name: "R32 a counter of one",
		rule: "The estimate is strict: of a limit of 1 the next call fits once the window after next begins.",
		run: func(k *kit) {
			k.story(counter(1, 3*s), call{0, 1, 0, 0}, call{s, 1, 5 * s, 0}, call{2 * s, 1, 4 * s, 0},
				call{6*s - us, 1, us, 0}, call{6 * s, 1, 0, 0})
		},
	},
	{
		name: "R46 idle windows",
		rule: "After one window the count is the previous one, after two or more it is gone.",
		run: func(k *kit) {
			k.story(counter(10, m), call{5 * s, 10, 0, 0}, call{65 * s, 1, s, 0}, call{125 * s, 1, 0, 9})
			for _, gap := range []time.Duration{1, 2, 3, 1000, 4_000_000} {
				l := counter(10, m)
				key := k.key()
				k.at(5 * s)
				k.admit(key, l, 10, 1)
				k.at(5*s + gap*m)
				remaining := int64(10)
				if gap == 1 {
					remaining = 0
				}
				if res := k.take(key, l, 0); res.Remaining != remaining {
					k.Errorf("after %d windows %d remain, want %d", gap, res.Remaining, remaining)
				}
			}
		},
	},
	{
		name: "counter: RetryAfter in this window and in the next",
		rule: "The wait is solved for the time, also where the current count has to wane in the next window.",
		run: func(k *kit) {
			l := counter(10, 10*s)
			key := k.key()
			k.admit(key, l, 10, 1)
			k.at(15 * s) // 5 of 10 still count
			k.want("fits at 0.6 of this window", k.take(key, l, 6), no(l, 5, s, 5*s))
			k.want("five fit", k.take(key, l, 5), yes(l, 5, 0, 15*s))
			k.want("this window never has room for 6 more", k.take(key, l, 6), no(l, 0, 7*s, 15*s))
			k.want("10 fit once both windows are over", k.take(key, l, 10), no(l, 0, 15*s, 15*s))
		},
	},
	{
		name: "R65 a client that never stops calling is released",
		rule: "Denied calls do not prolong anything: over a minute a counter or log of 5 per second admits what it should.",
		run: func(k *kit) {
			for _, c := range []struct {
				limit     ratelimit.Limit
				low, high int
			}{{logOf(5, s), 300, 300}, {counter(5, s), 180, 300}} {
				key, admitted := k.key(), 0
				for i := range 600 {
					k.at(time.Duration(i) * 100 * ms)
					admitted += k.count(key, c.limit, 1)
				}
				if admitted < c.low || admitted > c.high {
					k.Errorf("%v admitted %d in a minute, want %d to %d", c.limit, admitted, c.low, c.high)
				}
			}
		},
	},
	{
		name: "R67 history is kept as long as it counts",
		rule: "A counter needs its previous window to the end, a log each entry for a Period.",
		run: func(k *kit) {
			for _, c := range []struct {
				limit ratelimit.Limit
				want  int
			}{{counter(10, h), 1}, {logOf(10, h), 2}} {
				key := k.key()
				k.at(0)
				k.admit(key, c.limit, 1, 1)
				k.at(59 * m)
				k.admit(key, c.limit, 1, 8)
				k.at(61 * m)
				if n := k.count(key, c.limit, 12); n != c.want {
					k.Errorf("%v admitted %d at T+61m, want %d", c.limit, n, c.want)
				}
			}
		},
	},
	{
		name: "R91 R92 a slow bucket in steady use",
		rule: "State is not dropped before it is as if unused, however old it is.",
		run: func(k *kit) {
			for _, c := range []struct {
				limit      ratelimit.Limit
				every      time.Duration
				calls, max int
			}{{bucket(10, 10, h), 20 * s, 180, 19}, {bucket(10, 10, 10*s), 500 * ms, 1200, 609}, {bucket(2, 1, m), s, 3600, 61}} {
				key, admitted := k.key(), 0
				for i := range c.calls {
					k.at(time.Duration(i) * c.every)
					admitted += k.count(key, c.limit, 1)
				}
				if admitted != c.max {
					k.Errorf("%v admitted %d of %d calls every %v, want %d", c.limit, admitted, c.calls, c.every, c.max)
				}
			}
		},
	},
	{
		name: "R35 a window may have been idle for ever",
		rule: "Ten years of windows of a millisecond are one step.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{counter(5, ms), logOf(5, ms), bucket(0, 5, ms)} {
				k.at(0)
				key := k.key()
				k.admit(key, l, 5, 1)
				k.at(10 * 365 * 24 * h)
				start := time.Now()
				if n := k.count(key, l, 6); n != 5 {
					k.Errorf("%v admitted %d after ten years", l, n)
				}
				if d := time.Since(start); d > 2*s {
					k.Errorf("%v took %v after ten years", l, d)
				}
			}
		},
	},
	{
		name: "History lists what still counts",
		rule: "A store that keeps history returns times and costs of a log's entries still in the window, oldest first.",
		run: func(k *kit) {
			keeper, ok := k.store.(ratelimit.Historian)
			if !ok {
				return
			}
			l := logOf(10, m)
			key := k.key()
			k.wantHistory(keeper, key, l)
			k.admit(key, l, 3, 1)
			k.at(20 * s)
			k.admit(key, l, 1, 2)
			k.take(key, l, 10) // denied: leaves no entry
			k.at(50 * s)
			k.admit(key, l, 4, 1)
			k.wantHistory(keeper, key, l, spend{0, 3}, spend{20, 2}, spend{50, 4})
			k.take(key, l, -4)
			k.wantHistory(keeper, key, l, spend{20, 1}, spend{50, 4})
			k.at(80 * s)
			k.wantHistory(keeper, key, l, spend{50, 4})
			k.at(110 * s)
			k.wantHistory(keeper, key, l)
			for _, other := range []ratelimit.Limit{bucket(10, 10, m), counter(10, m)} {
				if _, err := keeper.History(k.t.Context(), key, &other); !errors.Is(err, ratelimit.ErrInvalidLimit) {
					k.Errorf("history of %v: %v, want ErrInvalidLimit", other, err)
				}
			}
		},
	},
}

// wantHistory compares with entries whose times are seconds after t0.
func (k *kit) wantHistory(keeper ratelimit.Historian, key string, l ratelimit.Limit, want ...spend) {
	k.Helper()
	got, err := keeper.History(k.t.Context(), key, &l)
	if err != nil {
		k.Fatalf("History: %v", err)
	}
	same := len(got) == len(want)
	for i := 0; same && i < len(want); i++ {
		same = got[i].Time.Equal(t0.Add(time.Duration(want[i].at)*s)) && got[i].Cost == want[i].cost
	}
	if !same {
		k.Errorf("history is %v, want seconds and costs %v", got, want)
	}
}
