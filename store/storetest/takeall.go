package storetest

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/sluicego/ratelimit"
)

// takeAllChecks are decisions over several requests.
var takeAllChecks = []check{
	{
		name: "R122 TakeAll spends all or nothing",
		rule: "If one limit has no room nothing is spent anywhere; each denied result carries its own wait, 0 where there was room.",
		run: func(k *kit) {
			group, special, log := bucket(10, 10, m).Named("group"), counter(3, m).Named("special"), logOf(20, m)
			reqs := []ratelimit.Request{{Key: "u", Limit: &group, Cost: 1}, {Key: "u", Limit: &special, Cost: 1}, {Key: "u", Limit: &log, Cost: 2}}
			for i := range int64(3) {
				got := k.takeAll(reqs...)
				k.want("group", got[0], yes(group, 1, 9-i, time.Duration(i+1)*6*s))
				k.want("special", got[1], yes(special, 1, 2-i, 2*m))
				k.want("log", got[2], yes(log, 2, 18-2*i, m))
			}
			for range 2 {
				got := k.takeAll(reqs...)
				k.want("group, denied", got[0], no(group, 7, 0, 18*s))
				k.want("special, denied", got[1], no(special, 0, 80*s, 2*m))
				k.want("log, denied", got[2], no(log, 14, 0, m))
			}
			k.want("the group still has seven", k.take("u", group, 7), yes(group, 7, 0, m))
		},
	},
	{
		name: "TakeAll: each its own wait",
		rule: "Of several that have no room each tells how long it takes itself; a cost above a capacity is never.",
		run: func(k *kit) {
			a, b, c := bucket(2, 1, s), logOf(2, m).Named("b"), bucket(5, 1, h).Named("c")
			k.admit("u", a, 2, 1)
			k.admit("u", b, 2, 1)
			reqs := []ratelimit.Request{{Key: "u", Limit: &c, Cost: 6}, {Key: "u", Limit: &a, Cost: 2}, {Key: "u", Limit: &b, Cost: 1}}
			got := k.takeAll(reqs...)
			k.want("above capacity", got[0], never(c))
			k.want("a bucket", got[1], no(a, 0, 2*s, 2*s))
			k.want("a log", got[2], no(b, 0, m, m))
			k.want("nothing was spent", k.take("u", c, 5), yes(c, 5, 0, 5*h))
		},
	},
	{
		name: "TakeAll: one state named twice",
		rule: "The same key and limit are summed before the decision and share it; each takes its own.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(10, 1, h), logOf(10, h), counter(10, h)} {
				key := k.key()
				same := l
				other := l.Named("other")
				reqs := []ratelimit.Request{
					{Key: key, Limit: &l, Cost: 4},
					{Key: key, Limit: &other, Cost: 1},
					{Key: ratelimit.Key(key), Limit: &same, Cost: 2},
				}
				got := k.takeAll(reqs...)
				for i, taken := range []int64{4, 1, 2} {
					if !got[i].Allowed || got[i].Taken != taken || got[i].Remaining != []int64{4, 9, 4}[i] {
						k.Errorf("%v, result %d: %+v", l, i, got[i])
					}
				}
				for i, res := range k.takeAll(reqs...) {
					if res.Allowed || res.Taken != 0 || res.Remaining != []int64{4, 9, 4}[i] || (res.RetryAfter > 0) != (i != 1) {
						k.Errorf("%v, 4 and 2 with 4 left, result %d: %+v", l, i, res)
					}
				}
				for i, res := range k.takeAll(ratelimit.Request{Key: key, Limit: &l, Cost: 10}, ratelimit.Request{Key: key, Limit: &l, Cost: math.MaxInt64}) {
					k.want([]string{"10", "and the largest"}[i], res, never(l))
				}
				k.takeAll(ratelimit.Request{Key: key, Limit: &l, Cost: 2}, ratelimit.Request{Key: key, Limit: &l, Cost: 2})
				if res := k.take(key, l, 0); res.Remaining != 0 {
					k.Errorf("%v: 2 and 2 of 4 leave %d", l, res.Remaining)
				}
			}
		},
	},
	{
		name: "TakeAll: Extra is served in order, if all are admitted",
		rule: "What is left after all costs goes to the extras in the order they came; a denial takes none.",
		run: func(k *kit) {
			l, full := bucket(10, 1, h), bucket(1, 1, h).Named("full")
			key := k.key()
			got := k.takeAll(
				ratelimit.Request{Key: key, Limit: &l, Cost: 2, Extra: 3},
				ratelimit.Request{Key: key, Limit: &l, Cost: 1, Extra: 100},
				ratelimit.Request{Key: key, Limit: &l, Extra: 5},
				ratelimit.Request{Key: key, Limit: named(l, "n"), Cost: 1, Extra: 4})
			for i, taken := range []int64{5, 5, 0, 5} {
				if !got[i].Allowed || got[i].Taken != taken || got[i].Remaining != []int64{0, 0, 0, 5}[i] {
					k.Errorf("result %d: %+v, want %d taken", i, got[i], taken)
				}
			}
			k.admit(key, full, 1, 1)
			key2 := ratelimit.Key(key, "2")
			got = k.takeAll(ratelimit.Request{Key: key2, Limit: &l, Cost: 1, Extra: 5}, ratelimit.Request{Key: key, Limit: &full, Cost: 1})
			if got[0].Allowed || got[0].Taken != 0 || got[0].RetryAfter != 0 || got[1].Allowed {
				k.Errorf("one of two has no room: %+v", got)
			}
			if res := k.take(key2, l, 0); res.Remaining != 10 {
				k.Errorf("an Extra was taken by a denial: %+v", res)
			}
		},
	},
	{
		name: "TakeAll gives back and spends together",
		rule: "Negative costs join in: given back if the rest is admitted, and not if it is denied; with a cost for the same state they cancel out.",
		run: func(k *kit) {
			a, b := bucket(10, 1, h), logOf(5, h)
			k.admit("u", a, 6, 1)
			k.admit("u", b, 4, 1)
			got := k.takeAll(ratelimit.Request{Key: "u", Limit: &a, Cost: -2}, ratelimit.Request{Key: "u", Limit: &b, Cost: 2})
			if got[0].Allowed || got[0].Taken != 0 || got[0].Remaining != 4 || got[0].RetryAfter != 0 || got[1].Remaining != 1 {
				k.Errorf("denied: %+v", got)
			}
			got = k.takeAll(ratelimit.Request{Key: "u", Limit: &a, Cost: -2}, ratelimit.Request{Key: "u", Limit: &b, Cost: 1})
			k.want("bucket", got[0], yes(a, -2, 6, 4*h))
			k.want("log", got[1], yes(b, 1, 0, h))
			got = k.takeAll(ratelimit.Request{Key: "u", Limit: &a, Cost: -3}, ratelimit.Request{Key: "u", Limit: &a, Cost: 8})
			if !got[0].Allowed || got[0].Taken+got[1].Taken != 5 || got[0].Remaining != 1 || got[1].Remaining != 1 {
				k.Errorf("3 back and 8 spent of 6: %+v", got)
			}
		},
	},
	{
		name: "TakeAll takes sixteen requests and no more",
		rule: "Seventeen are ErrInvalidLimit, also where they add up to fewer states, and spend nothing.",
		run: func(k *kit) {
			l := bucket(100, 1, h)
			reqs := make17(ratelimit.Request{Key: "u", Limit: &l, Cost: 1})
			_, err := k.store.TakeAll(context.Background(), reqs)
			k.wantError("seventeen of one state", err, ratelimit.ErrInvalidLimit, "")
			for i := range reqs {
				reqs[i].Key = ratelimit.Key("u", string(rune('a'+i)))
			}
			_, err = k.store.TakeAll(context.Background(), reqs)
			k.wantError("seventeen", err, ratelimit.ErrInvalidLimit, "")
			for i, res := range k.takeAll(reqs[:16]...) {
				if !res.Allowed || res.Remaining != 99 {
					k.Errorf("result %d of sixteen: %+v", i, res)
				}
			}
		},
	},
	{
		name: "TakeAll: two limits for one state",
		rule: "Different numbers under one Algorithm and Name on one key are ErrInvalidLimit, and nothing is spent.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(5, 1, h), logOf(5, h), counter(5, h)} {
				key, other := k.key(), l
				other.Rate, other.Burst = 7, 0
				_, err := k.store.TakeAll(context.Background(), []ratelimit.Request{{Key: key, Limit: &l, Cost: 1}, {Key: ratelimit.Key(key), Limit: &other, Cost: 1}})
				k.wantError(l.String(), err, ratelimit.ErrInvalidLimit, "")
				if res := k.take(key, l, 0); res.Remaining != 5 {
					k.Errorf("%v: %d remain", l, res.Remaining)
				}
			}
		},
	},
	{
		name: "TakeAll leaves its arguments alone",
		rule: "Requests and limits are the caller's; results come in the order of the requests, mixed algorithms and names included.",
		run: func(k *kit) {
			var reqs []ratelimit.Request
			for i, name := range []string{"z", "a", "", "m"} {
				for _, l := range []ratelimit.Limit{counter(10, h), bucket(10, 1, h), logOf(10, h)} {
					reqs = append(reqs, ratelimit.Request{Key: "u", Limit: named(l, name), Cost: int64(i + 1), Extra: int64(i % 2)})
				}
			}
			reqs = append(reqs, reqs[1], reqs[0])
			asked := slices.Clone(reqs)
			var limits []ratelimit.Limit
			for _, r := range reqs {
				limits = append(limits, *r.Limit)
			}
			for i, res := range k.takeAll(reqs...) {
				if want := asked[i].Cost + asked[i].Extra; !res.Allowed || res.Name != limits[i].Name || res.Taken != want {
					k.Errorf("result %d of %v, cost %d, extra %d: %+v", i, limits[i], asked[i].Cost, asked[i].Extra, res)
				}
				if reqs[i] != asked[i] || *reqs[i].Limit != limits[i] {
					k.Errorf("request %d was changed", i)
				}
			}
		},
	},
	{
		name: "of several limits the binding one speaks",
		rule: "Denied: the longest wait, Never the longest; allowed: the least that remains; ties: the first given.",
		run: func(k *kit) {
			a, b, c := bucket(100, 100, m).Named("a"), bucket(2, 2, m).Named("b"), logOf(2, m).Named("c")
			l, err := ratelimit.New(k.store, a, b, c)
			if err != nil {
				k.Fatalf("New: %v", err)
			}
			allow := func(what string, cost int64, want ratelimit.Result) {
				k.Helper()
				res, err := l.Allow(context.Background(), "u", cost)
				if err != nil {
					k.Fatalf("Allow: %v", err)
				}
				k.want(what, res, want)
			}
			allow("least remains, first of two", 1, yes(b, 1, 1, 30*s))
			allow("again", 1, yes(b, 1, 0, m))
			allow("longest wait", 1, no(c, 0, m, m))
			allow("never", 3, never(b))
			k.want("nothing was spent by denials", k.take("u", a, 0), yes(a, 0, 98, 1200*ms))
		},
	},
}
