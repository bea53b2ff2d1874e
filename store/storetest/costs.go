package storetest

import (
	"math"

	"github.com/sluicego/ratelimit"
)

// costChecks are costs that are not a plain spending: none, too much, up to as much as there is, and giving back.
var costChecks = []check{
	{
		name: "cost 0 looks",
		rule: "Cost 0 is allowed with RetryAfter 0 and Taken 0, even when nothing is left, and changes nothing.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(2, 1, m), logOf(2, m), counter(2, m)} {
				key := k.key()
				k.want("an unused key", k.take(key, l, 0), yes(l, 0, 2, 0))
				k.admit(key, l, 2, 1)
				reset := k.take(key, l, 1).ResetAfter
				for range 3 {
					k.want("an empty key", k.take(key, l, 0), yes(l, 0, 0, reset))
				}
			}
		},
	},
	{
		name: "cost 0 writes nothing",
		rule: "Neither a look nor a denial sends a writing command or leaves a key.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(2, 1, m), logOf(2, m), counter(2, m)} {
				key := k.key()
				before := k.c.Writes(k.t, k.store)
				k.take(key, l, 0)
				k.take(key, l, 3)
				k.takeAll(ratelimit.Request{Key: key, Limit: &l}, ratelimit.Request{Key: key, Limit: named(l, "other")})
				if n := k.c.Writes(k.t, k.store) - before; n != 0 {
					k.Errorf("%v: %d writes for looks at an unused key", l, n)
				}
				k.admit(key, l, 2, 1)
				after := k.c.Writes(k.t, k.store)
				if after == before {
					k.Errorf("%v: an admission is no write", l)
				}
				k.at(s)
				k.take(key, l, 0)
				k.take(key, l, 2)
				k.take(key, l, 1)
				k.takeAll(ratelimit.Request{Key: key, Limit: &l, Cost: 1}, ratelimit.Request{Key: key, Limit: named(l, "other"), Cost: 1})
				if n := k.c.Writes(k.t, k.store) - after; n != 0 {
					k.Errorf("%v: %d writes for looks and denials", l, n)
				}
				k.at(0)
			}
		},
		needs: func(c *Config) bool { return c.Writes != nil },
	},
	{
		name: "R22 a cost above the capacity is never",
		rule: "It is denied with RetryAfter Never, no error, Remaining 0 and ResetAfter 0, and spends nothing; a raised capacity may hold it.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(3, 3, 2*s), logOf(3, 2*s), counter(3, 2*s)} {
				key := k.key()
				k.want("on an unused key", k.take(key, l, 4), never(l))
				k.want("the largest there is", k.take(key, l, math.MaxInt64), never(l))
				if res := k.take(key, l, 1); !res.Allowed || res.Remaining != 2 {
					k.Errorf("%v: cost 1 after it: %+v", l, res)
				}
				k.want("on a used key", k.take(key, l, 4), never(l))
				k.want("with Extra", k.ask(ratelimit.Request{Key: key, Limit: &l, Cost: 4, Extra: 1}), never(l))
				raised := l
				raised.Rate, raised.Burst = 10, 0
				if res := k.take(k.key(), raised, 4); !res.Allowed || res.Remaining != 6 {
					k.Errorf("%v: cost 4: %+v", raised, res)
				}
			}
		},
	},
	{
		name: "Extra takes as much as there is",
		rule: "After Cost, whole units up to Extra are spent; Taken tells how many in all.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(10, 1, h), logOf(10, h), counter(10, h)} {
				ask := func(what string, cost, extra, taken, remaining int64) {
					k.Helper()
					res := k.ask(ratelimit.Request{Key: what, Limit: &l, Cost: cost, Extra: extra})
					if !res.Allowed || res.Taken != taken || res.Remaining != remaining || res.RetryAfter != 0 {
						k.Errorf("%v, cost %d, extra %d: %+v; want taken %d, remaining %d", l, cost, extra, res, taken, remaining)
					}
				}
				key := k.key()
				ask(key, 1, 3, 4, 6)
				ask(key, 0, 2, 2, 4)
				ask(key, 1, 100, 4, 0)
				ask(key, 0, math.MaxInt64, 0, 0)
				if res := k.ask(ratelimit.Request{Key: key, Limit: &l, Cost: 1, Extra: 5}); res.Allowed || res.Taken != 0 {
					k.Errorf("%v: cost 1 and extra of nothing: %+v", l, res)
				}
				ask(k.key(), 10, math.MaxInt64, 10, 0)
				ask(k.key(), 0, 10, 10, 0)
			}
		},
	},
	{
		name: "Extra takes no part of a token",
		rule: "Half a token stays in the bucket and is whole half a second later.",
		run: func(k *kit) {
			l := bucket(5, 1, s)
			key := k.key()
			k.admit(key, l, 5, 1)
			k.at(2500 * ms)
			k.want("two and a half", k.ask(ratelimit.Request{Key: key, Limit: &l, Extra: 5}), yes(l, 2, 0, 4500*ms))
			k.want("half is none", k.take(key, l, 1), no(l, 0, 500*ms, 4500*ms))
			k.at(3 * s)
			k.want("the other half", k.take(key, l, 1), yes(l, 1, 0, 5*s))
		},
	},
	{
		name: "R23 a bucket takes back up to its capacity",
		rule: "The clock advances first, then units come back, never past a full bucket; Taken is minus what came back.",
		run: func(k *kit) {
			l := bucket(10, 10, m)
			key := k.key()
			k.want("into a full one", k.take(key, l, -1), yes(l, 0, 10, 0))
			k.admit(key, l, 10, 1)
			k.want("one", k.take(key, l, -1), yes(l, -1, 1, 54*s))
			k.at(9 * s) // and one and a half of itself
			k.want("one more", k.take(key, l, -1), yes(l, -1, 3, 39*s))
			k.want("a hundred", k.take(key, l, -100), yes(l, -7, 10, 0))
			k.want("the least there is", k.take(key, l, math.MinInt64), yes(l, 0, 10, 0))
			k.want("ten at last, not eleven", k.take(key, l, 11), never(l))
			k.want("ten at last", k.take(key, l, 10), yes(l, 10, 0, m))
			k.want("and the half is lost", k.take(key, l, 1), no(l, 0, 6*s, m))
			k.want("a lot back", k.take(key, l, -math.MaxInt64), yes(l, -10, 10, 0))
		},
	},
	{
		name: "R23 a log takes back the oldest units in the window",
		rule: "Units that have left the window are not given back; the oldest that count are, also parts of an entry.",
		run: func(k *kit) {
			l := logOf(10, m)
			key := k.key()
			k.want("into an unused one", k.take(key, l, -1), yes(l, 0, 10, 0))
			k.admit(key, l, 2, 1)
			k.at(30 * s)
			k.admit(key, l, 3, 1)
			k.at(40 * s)
			k.admit(key, l, 5, 1)
			k.want("three of the oldest", k.take(key, l, -3), yes(l, -3, 3, m))
			k.want("the next to leave is of T+30s", k.take(key, l, 4), no(l, 3, 50*s, m))
			k.at(90 * s)
			k.want("two have left, five are there", k.take(key, l, -100), yes(l, -5, 10, 0))
			k.want("unused", k.take(key, l, 10), yes(l, 10, 0, m))
		},
	},
	{
		name: "R23 a counter takes back from the previous window first",
		rule: "Then from the current one, never below 0.",
		run: func(k *kit) {
			l := counter(10, 10*s)
			key := k.key()
			k.want("into an unused one", k.take(key, l, -1), yes(l, 0, 10, 0))
			k.admit(key, l, 8, 1)
			k.at(15 * s) // 4 of 8 count
			k.admit(key, l, 4, 1)
			k.want("six of the previous", k.take(key, l, -6), yes(l, -6, 5, 15*s))
			k.want("two of it and one of this", k.take(key, l, -3), yes(l, -3, 7, 15*s))
			k.want("no more than there is", k.take(key, l, math.MinInt64), yes(l, -3, 10, 0))
			k.want("unused", k.take(key, l, 10), yes(l, 10, 0, 15*s))
		},
	},
	{
		name: "the result's Limit, Name and ResetAfter",
		rule: "Limit is a bucket's Burst or a window's Rate; ResetAfter the time to full, until the newest entry leaves, or to the end of the window that remembers.",
		run: func(k *kit) {
			l := bucket(20, 10, s).Named("b.1")
			k.want("bucket", k.take("a", l, 5), yes(l, 5, 15, 500*ms))
			l = logOf(20, s).Named("l_2")
			k.want("log", k.take("a", l, 5), yes(l, 5, 15, s))
			k.at(300 * ms)
			k.want("log later", k.take("a", l, 5), yes(l, 5, 10, s))
			l = counter(20, s).Named("c-3")
			k.want("counter", k.take("a", l, 5), yes(l, 5, 15, 1700*ms))
			k.at(1300 * ms)
			k.want("counter with a previous window only", k.take("a", l, 0), yes(l, 0, 16, 700*ms))
			k.want("R29 an admission has no RetryAfter", k.take("a", l, 16), yes(l, 16, 0, 1700*ms))
		},
	},
}

// named returns a copy of l with another name.
func named(l ratelimit.Limit, name string) *ratelimit.Limit {
	l = l.Named(name)
	return &l
}
