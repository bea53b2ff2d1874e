package storetest

import (
	"time"

	"github.com/sluicego/ratelimit"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
	s  = time.Second
	m  = time.Minute
	h  = time.Hour
)

// articleChecks are the examples that articles on rate limiting print.
var articleChecks = []check{
	{
		name: "article: bucket of 10 refilled 2 per second",
		rule: "Of 12 calls at once ten pass and two fail; half a second later one passes and one fails.",
		run: func(k *kit) {
			l := bucket(10, 2, s)
			key := k.key()
			for i := range int64(10) {
				k.want("one of the first ten", k.take(key, l, 1), yes(l, 1, 9-i, time.Duration(i+1)*500*ms))
			}
			for range 2 {
				k.want("beyond ten", k.take(key, l, 1), no(l, 0, 500*ms, 5*s))
			}
			k.at(500 * ms)
			k.want("half a second later", k.take(key, l, 1), yes(l, 1, 0, 5*s))
			k.want("half a second later, again", k.take(key, l, 1), no(l, 0, 500*ms, 5*s))
		},
	},
	{
		name: "article: bucket of 2 refilled 1 per second, a clock moved by hand",
		rule: "Two pass, the third fails; after one second one passes; after a long pause only two do.",
		run: func(k *kit) {
			k.story(bucket(2, 1, s),
				call{0, 1, 0, 1}, call{0, 1, 0, 0}, call{0, 1, s, 0},
				call{s, 1, 0, 0}, call{s, 1, s, 0}, call{1500 * ms, 1, 500 * ms, 0},
				call{h, 1, 0, 1}, call{h, 1, 0, 0}, call{h, 1, s, 0})
		},
	},
	{
		name: "article: log of 100 in 60 s filled within ten seconds",
		rule: "The log is closed until the first entries leave, and then opens one entry at a time.",
		run: func(k *kit) {
			l := logOf(100, m)
			key := k.key()
			for i := range 100 {
				k.at(time.Duration(i) * 100 * ms)
				k.admit(key, l, 1, 1)
			}
			k.at(10 * s)
			k.want("full", k.take(key, l, 1), no(l, 0, 50*s, 59900*ms))
			k.at(m - us)
			k.want("a tick before the first leaves", k.take(key, l, 1), no(l, 0, us, 9900*ms+us))
			k.at(m)
			k.want("the first has left", k.take(key, l, 1), yes(l, 1, 0, m))
			k.want("and no other", k.take(key, l, 1), no(l, 0, 100*ms, m))
		},
	},
	{
		name: "article: counter at 30 % of a window",
		rule: "What counts as spent is 70 % of the previous window and all of the current.",
		run: func(k *kit) {
			l := counter(100, m)
			key := k.key()
			k.at(30 * s)
			k.admit(key, l, 80, 1)
			k.at(78 * s)
			k.want("80 * 0.7 = 56 count", k.take(key, l, 10), yes(l, 10, 34, 102*s))
			k.want("56 and 10 leave 34", k.take(key, l, 35), no(l, 34, 750*ms, 102*s))
			k.want("just what is left", k.take(key, l, 34), yes(l, 34, 0, 102*s))
		},
	},
	{
		name: "R25 a bucket's burst and refill against a log",
		rule: "Two calls a second for 30 s: a bucket of 17 per 30 s admits its 17 and what comes back, 33; a log of 17 admits 17.",
		run: func(k *kit) {
			for _, c := range []struct {
				limit ratelimit.Limit
				want  int
			}{{bucket(17, 17, 30*s), 33}, {logOf(17, 30*s), 17}} {
				key, admitted := k.key(), 0
				for i := range 30 {
					k.at(time.Duration(i) * s)
					admitted += k.count(key, c.limit, 1)
					k.at(time.Duration(i)*s + 250*ms)
					admitted += k.count(key, c.limit, 1)
				}
				if admitted != c.want {
					k.Errorf("%v admitted %d in 30 s, want %d", c.limit, admitted, c.want)
				}
			}
		},
	},
}
