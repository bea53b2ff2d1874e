package storetest

import (
	"time"

	"github.com/sluicego/ratelimit"
)

// clockChecks are clocks that step, and times at the edges.
var clockChecks = []check{
	{
		name: "[R] Remaining is 9 after the first of 10 per second, from 2025 to 2200",
		rule: "Times are whole microseconds, whatever the date.",
		run: func(k *kit) {
			l := bucket(0, 10, s)
			day := 0
			for at := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() <= 2200; at = at.Add(13*24*h + 7*m + 123457*us) {
				k.clock.set(at)
				if res := k.take("every day", l, 1); res != yes(l, 1, 9, 100*ms) {
					k.Fatalf("at %v: %+v", at, res)
				}
				if day++; day%50 > 0 {
					continue
				}
				fresh := k.key()
				for _, l := range []ratelimit.Limit{l, logOf(10, s)} {
					if res := k.take(fresh, l, 1); res.Remaining != 9 {
						k.Fatalf("at %v, %v on a new key: %+v", at, l, res)
					}
					k.clock.set(at.Add(us))
					if res := k.take(fresh, l, 10); res.Allowed || res.RetryAfter != map[ratelimit.Algorithm]time.Duration{
						ratelimit.TokenBucket: 100*ms - us, ratelimit.SlidingLog: s - us,
					}[l.Algorithm] {
						k.Fatalf("at %v, a microsecond later, %v: %+v", at, l, res)
					}
					k.clock.set(at)
				}
			}
		},
	},
	{
		name: "R16 the last call may be ages ago",
		rule: "From 1970, or a clock that says the zero time, to the year 2200 a key is as if unused.",
		run: func(k *kit) {
			for _, then := range []time.Time{{}, time.Unix(0, 0), time.Unix(1, 0), t0} {
				for _, l := range []ratelimit.Limit{bucket(5, 1, h), logOf(5, h), counter(5, h), bucket(0, 1_000_000_000, ms)} {
					key := k.key()
					k.clock.set(then)
					k.admit(key, l, 5, 1)
					k.clock.set(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC))
					if res := k.take(key, l, 1); !res.Allowed || res.Remaining != l.Capacity()-1 {
						k.Errorf("%v, last used %v: %+v", l, then, res)
					}
				}
			}
		},
	},
	{
		name: "R37 a clock to and fro mints nothing",
		rule: "While now is behind the stored time, elapsed counts as 0.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(10, 10, s), logOf(10, s), counter(10, s)} {
				key := k.key()
				k.at(s)
				k.admit(key, l, 10, 1)
				for range 300 {
					k.at(500 * ms)
					if res := k.take(key, l, 1); res.Allowed {
						k.Fatalf("%v: half a second before the last call: %+v", l, res)
					}
					k.at(s)
					if res := k.take(key, l, 1); res.Allowed {
						k.Fatalf("%v: at the time of the last call: %+v", l, res)
					}
				}
			}
		},
	},
	{
		name: "R38 time never runs backwards in the state",
		rule: "Calls, give-backs and changed limits that come late leave the stored time where it is.",
		run: func(k *kit) {
			l := bucket(1000, 100, s)
			key := k.key()
			k.at(10 * s)
			k.admit(key, l, 1000, 1)
			k.at(9 * s)
			k.want("a late give-back", k.take(key, l, -1), yes(l, -1, 1, 10990*ms))
			k.want("a late call", k.take(key, l, 1), yes(l, 1, 0, 11*s))
			other := bucket(2000, 100, s)
			k.want("a late change", k.take(key, other, 0), yes(other, 0, 0, 21*s))
			k.want("a late denial", k.take(key, l, 1), no(l, 0, 1010*ms, 11*s))
			k.at(11 * s)
			k.want("one second's worth", k.take(key, l, 0), yes(l, 0, 100, 9*s))
		},
	},
	{
		name: "R40 state in the future is state",
		rule: "A log enters late calls at its newest time; a counter counts them in its newest window; nothing is dropped.",
		run: func(k *kit) {
			l := logOf(3, s)
			k.at(5 * s)
			k.admit("log", l, 1, 1)
			k.at(4500 * ms)
			k.want("a late call", k.take("log", l, 1), yes(l, 1, 1, 1500*ms))
			k.want("too much", k.take("log", l, 2), no(l, 1, 1500*ms, 1500*ms))
			k.at(6*s - us)
			k.want("both count", k.take("log", l, 0), yes(l, 0, 1, us))
			l = counter(3, s)
			k.at(5 * s)
			k.admit("counter", l, 1, 1)
			k.at(4500 * ms)
			k.want("a late call", k.take("counter", l, 1), yes(l, 1, 1, 2500*ms))
			k.want("too much", k.take("counter", l, 2), no(l, 1, 2*s, 2500*ms))
			k.at(5 * s)
			k.want("both count", k.take("counter", l, 0), yes(l, 0, 1, 2*s))
		},
	},
	{
		name: "R41 forward and back",
		rule: "A wall clock that jumps 11 s to and fro refills a bucket once and never leaves it below 0.",
		run: func(k *kit) {
			l := bucket(3, 1, s)
			k.story(l, call{0, 3, 0, 0}, call{11 * s, 1, 0, 2}, call{0, 2, 0, 0}, call{0, 1, 12 * s, 0},
				call{11 * s, 1, s, 0}, call{0, 1, 12 * s, 0}, call{12 * s, 1, 0, 0}, call{s, 1, 12 * s, 0})
		},
	},
	{
		name: "R41 a clock set back heals after the full-refill time and a minute",
		rule: "Up to that far behind, elapsed counts as 0; beyond, what was spent counts as spent now.",
		run: func(k *kit) {
			for _, c := range []struct {
				limit       ratelimit.Limit
				edge        time.Duration // full-refill time or Period, and a minute
				wait, reset time.Duration // of a denial right after the healing
			}{
				{bucket(10, 1, s), 70 * s, s, 10 * s},
				{logOf(10, 10*s), 70 * s, 10 * s, 10 * s},
				{counter(10, 10*s), 70 * s, 11 * s, 20 * s},
			} {
				l := c.limit
				key := k.key()
				k.at(h)
				k.admit(key, l, 10, 1)
				k.at(h - c.edge)
				if res := k.take(key, l, 1); res.Allowed || res.RetryAfter != c.edge+c.wait {
					k.Errorf("%v, at the edge: %+v; want a wait of %v", l, res, c.edge+c.wait)
				}
				k.at(h - c.edge - 10*s)
				k.want("beyond the edge", k.take(key, l, 1), no(l, 0, c.wait, c.reset))
				k.at(h - c.edge - 10*s + c.wait - us)
				if res := k.take(key, l, 1); res.Allowed || res.RetryAfter != us {
					k.Errorf("%v: the denial that healed was not written: %+v", l, res)
				}
				k.at(h - c.edge - 10*s + c.wait)
				if res := k.take(key, l, 1); !res.Allowed {
					k.Errorf("%v, after the wait: %+v", l, res)
				}
			}
		},
	},
	{
		name: "a healed key keeps what it spent",
		rule: "The healing forgets nothing: an admission after it finds what was left; a log's and a counter's units start their time anew.",
		run: func(k *kit) {
			l := bucket(10, 1, s)
			k.at(24 * h)
			k.admit("bucket", l, 7, 1)
			k.at(0)
			k.want("bucket", k.take("bucket", l, 2), yes(l, 2, 1, 9*s))
			l = logOf(10, m)
			k.at(24 * h)
			k.admit("log", l, 3, 1)
			k.at(24*h + 30*s)
			k.admit("log", l, 4, 1)
			k.at(0)
			k.want("log", k.take("log", l, 2), yes(l, 2, 1, m))
			k.at(m - us)
			k.want("all nine leave together", k.take("log", l, 2), no(l, 1, us, us))
			l = counter(10, m)
			k.at(24 * h)
			k.admit("counter", l, 8, 1)
			k.at(24*h + 90*s) // 4 of 8 count
			k.admit("counter", l, 2, 1)
			k.at(0)
			k.want("both windows count", k.take("counter", l, 1), no(l, 0, 66*s, 2*m))
			k.at(66 * s)
			k.want("as one window before", k.take("counter", l, 1), yes(l, 1, 0, 114*s))
		},
	},
	{
		name: "R47 decisions need no timer",
		rule: "State is judged by its times alone: after ten windows in which nothing ran, all is right.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(5, 5, s), logOf(5, s), counter(5, s)} {
				key := k.key()
				for i := range 10 {
					k.at(time.Duration(i) * 10 * s)
					if n := k.count(key, l, 7); n != 5 {
						k.Errorf("%v, pause %d: %d admitted", l, i, n)
					}
					if res := k.take(key, l, 1); res.RetryAfter <= 0 {
						k.Errorf("%v, pause %d: %+v", l, i, res)
					}
				}
			}
		},
	},
	{
		name: "R44 one clock per decision",
		rule: "The clock is read once for a decision, also of several limits, so its parts belong to one moment.",
		run: func(k *kit) {
			limits := []ratelimit.Limit{bucket(1, 1, h), logOf(1, h), counter(1, h)}
			var reqs []ratelimit.Request
			for i := range limits {
				reqs = append(reqs, ratelimit.Request{Key: "a", Limit: &limits[i], Cost: 1})
			}
			k.clock.step = (2 * s).Microseconds()
			calls := 0
			for _, r := range reqs {
				k.ask(r)
				k.ask(r)
				calls += 2
			}
			k.takeAll(reqs...)
			if n := k.clock.readings(); n > calls+1 {
				k.Errorf("%d decisions read the clock %d times", calls+1, n)
			}
		},
	},
}
