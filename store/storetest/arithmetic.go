package storetest

import (
	"math/rand/v2"
	"time"

	"github.com/sluicego/ratelimit"
)

var arithmeticChecks = []check{
	{
		name: "R04 every rate counts in whole units",
		rule: "At one instant, Remaining is the capacity less what was admitted, from 1 per millisecond to 1e9 per hour.",
		run: func(k *kit) {
			for _, n := range []int64{1, 3, 7, 999_999, 1_000_000, 2_000_001, 1_000_000_000} {
				for _, per := range []time.Duration{ms, s, h} {
					for _, l := range []ratelimit.Limit{bucket(0, n, per), counter(n, per), logOf(min(n, 100_000), per)} {
						key := k.key()
						for i := range min(l.Rate, 4) {
							if res := k.take(key, l, 1); !res.Allowed || res.Remaining != l.Rate-i-1 {
								k.Errorf("%v, call %d: %+v", l, i+1, res)
							}
						}
					}
				}
			}
		},
	},
	{
		name: "R05 a cost of the whole capacity waits, and then passes",
		rule: "A cost equal to the capacity is admitted by a full bucket and has a finite RetryAfter before.",
		run: func(k *kit) {
			k.story(bucket(5, 1, s),
				call{0, 1, 0, 4}, call{0, 1, 0, 3}, call{0, 1, 0, 2},
				call{0, 5, 3 * s, 2}, call{3 * s, 5, 0, 0}, call{3 * s, 6, ratelimit.Never, 0})
		},
	},
	{
		name: "R10 RetryAfter is the truth",
		rule: "The wait that was announced is the wait there is, at every moment before.",
		run: func(k *kit) {
			k.story(bucket(6, 6, m),
				call{0, 6, 0, 0}, call{0, 1, 10 * s, 0}, call{5001 * ms, 1, 4999 * ms, 0},
				call{9999 * ms, 1, ms, 0}, call{10*s - us, 1, us, 0}, call{10 * s, 1, 0, 0})
		},
	},
	{
		name: "R11 nothing drifts",
		rule: "A token comes back at the exact moment, a thousand times over, however often it was asked for before.",
		run: func(k *kit) {
			k.story(bucket(1, 1, h), call{0, 1, 0, 0}, call{1620 * s, 1, 1980 * s, 0}, call{h - us, 1, us, 0}, call{h, 1, 0, 0})
			random := rand.New(rand.NewPCG(11, 11))
			for _, l := range []ratelimit.Limit{bucket(2, 1, h), bucket(2, 1, 3*s), bucket(2, 3, s), bucket(2, 7, 11*s), bucket(2, 1, 24*h)} {
				key := k.key()
				k.at(0)
				k.admit(key, l, 2, 1)
				var last int64
				for i := range int64(200) {
					// The bucket is never full, so no fraction is lost: the token is due when i+1 times Period/Rate is over.
					next := ((i+1)*l.Period.Microseconds() + l.Rate - 1) / l.Rate
					for range random.IntN(4) {
						k.at(time.Duration(last+random.Int64N(next-last)) * us)
						if k.take(key, l, 1).Allowed {
							k.Fatalf("%v: admitted before token %d was back", l, i+1)
						}
					}
					k.at(time.Duration(next-1) * us)
					if res := k.take(key, l, 1); res.Allowed || res.RetryAfter != us {
						k.Fatalf("%v: a tick before token %d is back: %+v", l, i+1, res)
					}
					k.at(time.Duration(next) * us)
					if res := k.take(key, l, 1); !res.Allowed {
						k.Fatalf("%v: token %d is back, and yet: %+v", l, i+1, res)
					}
					last = next
				}
			}
		},
	},
	{
		name: "R26 slow rates",
		rule: "One a day is one a day, by bucket and by log.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(1, 1, 24*h), logOf(1, 24*h)} {
				k.story(l, call{0, 1, 0, 0}, call{s, 1, 24*h - s, 0}, call{24*h - ms, 1, ms, 0}, call{24 * h, 1, 0, 0})
			}
		},
	},
	{
		name: "R28 Remaining is whole and rounded down",
		rule: "A third of a token is no token.",
		run: func(k *kit) {
			k.story(bucket(10, 10, s), call{0, 1, 0, 9}, call{33 * ms, 1, 0, 8}, call{100*ms - us, 0, 0, 8}, call{100 * ms, 0, 0, 9})
			k.story(counter(10, s), call{0, 10, 0, 0}, call{1050 * ms, 0, 0, 0}, call{1100*ms - us, 0, 0, 0}, call{1100 * ms, 0, 0, 1})
		},
	},
	{
		name: "R31 the last unit is admitted and the next denied",
		rule: "A cost fits if it is at most what is left.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(10, 1, h), logOf(10, h), counter(10, h)} {
				key := k.key()
				k.admit(key, l, 1, 9)
				if res := k.take(key, l, 1); !res.Allowed || res.Remaining != 0 {
					k.Errorf("%v, call 10: %+v", l, res)
				}
				if res := k.take(key, l, 1); res.Allowed {
					k.Errorf("%v, call 11: %+v", l, res)
				}
			}
		},
	},
	{
		name: "R43 RetryAfter holds for everyone who keeps to it",
		rule: "After RetryAfter the same cost is admitted, one tick earlier it is denied: R07, R08, R13.",
		run: func(k *kit) {
			random := rand.New(rand.NewPCG(43, 43))
			for i := range 400 {
				l := anyLimit(random)
				key := k.key()
				start := time.Duration(random.Int64N(int64(400 * 24 * h))).Truncate(us)
				k.at(start)
				k.admit(key, l, 1+random.Int64N(l.Capacity()), 1)
				k.at(start + time.Duration(random.Int64N(int64(l.Period))).Truncate(us))
				cost := 1 + random.Int64N(l.Capacity())
				before := k.take(key, l, cost)
				if before.Allowed {
					continue
				}
				if before.RetryAfter <= 0 {
					k.Fatalf("round %d, %v: denied with RetryAfter %v", i, l, before.RetryAfter)
				}
				if before.RetryAfter > 100*366*24*h {
					continue // beyond what the clock of a store has to reach
				}
				now := k.clock.micros()
				k.clock.set(time.UnixMicro(now + before.RetryAfter.Microseconds() - 1))
				if res := k.take(key, l, cost); res.Allowed || res.RetryAfter != us {
					k.Fatalf("round %d, %v: a tick before RetryAfter %v of cost %d: %+v", i, l, before.RetryAfter, cost, res)
				}
				k.clock.set(time.UnixMicro(now + before.RetryAfter.Microseconds()))
				if res := k.take(key, l, cost); !res.Allowed || res.RetryAfter != 0 {
					k.Fatalf("round %d, %v: after RetryAfter %v of cost %d: %+v", i, l, before.RetryAfter, cost, res)
				}
			}
		},
	},
	{
		name: "[R] 40 per minute with Burst 1",
		rule: "A bucket of one token admits one call every 1.5 s: 40 in a minute, not 60.",
		run: func(k *kit) {
			l := bucket(1, 40, m)
			key, admitted := k.key(), 0
			for i := range 600 {
				k.at(time.Duration(i) * 100 * ms)
				admitted += k.count(key, l, 1)
			}
			if admitted != 40 {
				k.Errorf("%v admitted %d in a minute, want 40", l, admitted)
			}
		},
	},
	{
		name: "[R] periods below a second limit",
		rule: "Five per 500 ms are five in the first half second and ten in the first second.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(0, 5, 500*ms), logOf(5, 500*ms), counter(5, 500*ms)} {
				key := k.key()
				if n := k.count(key, l, 20); n != 5 {
					k.Errorf("%v admitted %d at once", l, n)
				}
				k.at(500*ms - us)
				if n := k.count(key, l, 20); n > 4 {
					k.Errorf("%v admitted %d more within its period", l, n)
				}
				k.at(s)
				if n := k.count(key, l, 20); n != 5 {
					k.Errorf("%v admitted %d after two periods", l, n)
				}
				k.at(0)
			}
		},
	},
	{
		name: "[R] a denied cost leaves room for a smaller one",
		rule: "A denial spends nothing and stands in nobody's way.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(5, 1, h), logOf(5, h), counter(5, h)} {
				key := k.key()
				k.admit(key, l, 4, 1)
				if res := k.take(key, l, 5); res.Allowed || res.Remaining != 1 || res.Taken != 0 {
					k.Errorf("%v: cost 5 with 1 left: %+v", l, res)
				}
				if res := k.take(key, l, 1); !res.Allowed || res.Remaining != 0 {
					k.Errorf("%v: cost 1 with 1 left: %+v", l, res)
				}
			}
		},
	},
}

// anyLimit returns a valid limit, of everyday size or at the edges.
func anyLimit(random *rand.Rand) ratelimit.Limit {
	l := ratelimit.Limit{Algorithm: ratelimit.Algorithm(random.IntN(3))}
	everyday := random.IntN(2) == 0
	if everyday {
		l.Rate = []int64{1, 2, 3, 5, 7, 10, 17, 60, 100, 1000}[random.IntN(10)]
		l.Period = []time.Duration{500 * ms, s, 3 * s, 10 * s, 30 * s, m, h, 24 * h}[random.IntN(8)]
	} else {
		l.Rate = spread(random, 1, 1_000_000_000)
		l.Period = time.Duration(spread(random, 1000, 366*24*int64(h/us))) * us
	}
	switch l.Algorithm {
	case ratelimit.SlidingLog:
		l.Rate = min(l.Rate, 100_000)
	case ratelimit.TokenBucket:
		switch {
		case random.IntN(2) == 0:
		case everyday:
			l.Burst = 1 + random.Int64N(2*l.Rate)
		default:
			l.Burst = spread(random, 1, 1_000_000_000)
		}
	}
	return l
}

// spread returns a number from low to high, of every length equally often, and the ends themselves now and then.
func spread(random *rand.Rand, low, high int64) int64 {
	switch random.IntN(20) {
	case 0:
		return low
	case 1:
		return high
	}
	n := low
	for n <= high/2 && random.IntN(12) > 0 {
		n *= 2
	}
	return min(high, n+random.Int64N(n))
}
