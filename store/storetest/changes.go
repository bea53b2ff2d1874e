package storetest

import (
	"time"

	"github.com/sluicego/ratelimit"
)

// changeChecks are limits that change while keys are in use.
var changeChecks = []check{
	{
		name: "[R] R121 raised: 10 per hour exhausted, then 100 per second",
		rule: "An exhausted key is usable within a second of its limit being raised, and not at once full.",
		run: func(k *kit) {
			slow, fast := bucket(0, 10, h), bucket(0, 100, s)
			key := k.key()
			k.admit(key, slow, 10, 1)
			k.want("at once", k.take(key, fast, 1), no(fast, 0, 10*ms, s))
			k.at(10 * ms)
			k.want("one token later", k.take(key, fast, 1), yes(fast, 1, 0, s))
			k.at(s)
			k.want("within the second", k.take(key, fast, 99), yes(fast, 99, 0, s))
		},
	},
	{
		name: "[R] R121 lowered: 100 per second drained, then 10 per hour",
		rule: "A lower limit gives no fresh burst, and more than its capacity is cut off.",
		run: func(k *kit) {
			slow, fast := bucket(0, 10, h), bucket(0, 100, s)
			key := k.key()
			k.admit(key, fast, 100, 1)
			k.want("drained", k.take(key, slow, 1), no(slow, 0, 6*m, h))
			key = k.key()
			k.admit(key, fast, 20, 1)
			k.want("80 left, cut to 10", k.take(key, slow, 1), yes(slow, 1, 9, 6*m))
			k.want("and not given back by a change back", k.take(key, fast, 0), yes(fast, 0, 9, 910*ms))
		},
	},
	{
		name: "R121 10 to 1000 per 20 s",
		rule: "What is left stays left when the rate goes up a hundredfold.",
		run: func(k *kit) {
			slow, fast := bucket(16, 10, 20*s), bucket(16, 1000, 20*s)
			key := k.key()
			k.admit(key, slow, 1, 3)
			k.want("raised", k.take(key, fast, 1), yes(fast, 1, 12, 80*ms))
			k.want("and lowered", k.take(key, slow, 1), yes(slow, 1, 11, 10*s))
		},
	},
	{
		name: "a bucket's whole tokens carry over, its fraction does not",
		rule: "After a change of rate or capacity the time since the last write counts at the new rate.",
		run: func(k *kit) {
			first, second := bucket(10, 1, s), bucket(10, 2, s)
			key := k.key()
			k.admit(key, first, 10, 1)
			k.at(3500 * ms)
			k.admit(key, first, 1, 1) // two and a half are left
			k.want("two are left", k.take(key, second, 3), no(second, 2, 500*ms, 4*s))
			k.at(4 * s)
			k.want("two and one", k.take(key, second, 3), yes(second, 3, 0, 5*s))
			same := bucket(10, 120, m)
			k.at(4250 * ms)
			k.want("2 per second is 120 per minute: nothing changed", k.take(key, same, 1), no(same, 0, 250*ms, 4750*ms))
			bigger := bucket(20, 2, s)
			k.want("a larger capacity is not filled", k.take(key, bigger, 1), no(bigger, 0, 250*ms, 9750*ms))
		},
	},
	{
		name: "R122 refused calls do not count against a raised limit",
		rule: "Of 50 calls against 10 per hour ten pass; of 20 per hour exactly ten more do.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{logOf(10, h), counter(10, h)} {
				key := k.key()
				if n := k.count(key, l, 50); n != 10 {
					k.Errorf("%v admitted %d", l, n)
				}
				l.Rate = 20
				if n := k.count(key, l, 50); n != 10 {
					k.Errorf("%v admitted %d more", l, n)
				}
				l.Rate = 5
				if res := k.take(key, l, 1); res.Allowed || res.Remaining != 0 || res.Limit != 5 {
					k.Errorf("%v: %+v", l, res)
				}
			}
		},
	},
	{
		name: "R124 a log's history is judged by the limit of the call",
		rule: "A longer Period finds entries that had left the shorter one, as long as no write has dropped them; a shorter one lets go at once.",
		run: func(k *kit) {
			long, short := logOf(4, h), logOf(4, m)
			key := k.key()
			k.admit(key, long, 4, 1)
			k.at(2 * m)
			k.want("still in the hour", k.take(key, long, 1), no(long, 0, 58*m, 58*m))
			k.want("not in the minute", k.take(key, short, 0), yes(short, 0, 4, 0))
			k.want("the look changed nothing", k.take(key, long, 1), no(long, 0, 58*m, 58*m))
			k.want("not in the minute", k.take(key, short, 1), yes(short, 1, 3, m))
		},
	},
	{
		name: "R124 a counter whose Period changed starts with the old estimate",
		rule: "Rounded up, in a new window of the new length.",
		run: func(k *kit) {
			before, after := counter(10, 10*s), counter(10, 4*s)
			key := k.key()
			k.admit(key, before, 7, 1)
			k.at(15 * s) // 3.5 of 7 count
			k.admit(key, before, 2, 1)
			k.want("5.5 is 6", k.take(key, after, 5), no(after, 4, 1667*ms-333*us, 5*s))
			k.want("four are left", k.take(key, after, 4), yes(after, 4, 0, 5*s))
			k.at(18 * s) // the window of T+12s is over, half of the next is
			k.want("ten waned to five", k.take(key, after, 5), yes(after, 5, 0, 6*s))
			day := counter(10, 24*h)
			k.want("also into a longer one", k.take(key, day, 1), no(day, 0, 24*h-18*s+24*h/10, 48*h-18*s))
		},
	},
	{
		name: "R125 a limit starts with what it saw itself",
		rule: "Another Name or Algorithm has a state of its own: 60 calls under one limit are none under a new one.",
		run: func(k *kit) {
			key := k.key()
			a := bucket(100, 100, m)
			k.admit(key, a, 1, 60)
			for _, l := range []ratelimit.Limit{a.Named("x"), logOf(50, h), counter(50, h), logOf(50, h).Named("x"), counter(50, h).Named("x")} {
				if res := k.take(key, l, 0); res.Remaining != l.Capacity() || res.ResetAfter != 0 {
					k.Errorf("%v on a key it has not seen: %+v", l, res)
				}
				k.admit(key, l, 1, 3)
			}
			if res := k.take(key, a, 0); res.Remaining != 40 {
				k.Errorf("%v afterwards: %+v", a, res)
			}
		},
	},
	{
		name: "R71 three algorithms on one key",
		rule: "Interleaved calls never meet each other's state and never fail.",
		run: func(k *kit) {
			a, b, c := bucket(2, 2, s), logOf(100, m), counter(10, s)
			want := []int64{2, 100, 10}
			for i := range 30 {
				for j, l := range []ratelimit.Limit{a, b, c} {
					if res := k.take("u1", l, 1); res.Allowed {
						want[j]--
					} else if want[j] > 0 {
						k.Fatalf("%v, round %d: %+v", l, i, res)
					}
				}
			}
			if want[0] != 0 || want[1] != 70 || want[2] != 0 {
				k.Errorf("left are %v, want 0, 70, 0", want)
			}
		},
	},
	{
		name: "R128 a limit changed twice",
		rule: "30 to nothing, which is refused, to 150: the next decision uses 150.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(0, 30, s), logOf(30, s), counter(30, s)} {
				key := k.key()
				k.admit(key, l, 30, 1)
				l.Rate = 0
				if _, err := k.store.Take(k.t.Context(), ratelimit.Request{Key: key, Limit: &l, Cost: 1}); err == nil {
					k.Errorf("%v is accepted", l)
				}
				l.Rate = 150
				k.at(time.Duration(2) * s)
				if n := k.count(key, l, 200); n != 150 {
					k.Errorf("%v admitted %d", l, n)
				}
				k.at(0)
			}
		},
	},
	{
		name: "limits are compared by value",
		rule: "Two pointers to equal limits mean one state, and OnFailure is no business of a store.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(3, 1, h), logOf(3, h), counter(3, h)} {
				key := k.key()
				first, second := l, l
				second.OnFailure = ratelimit.FailClosed
				k.ask(ratelimit.Request{Key: key, Limit: &first, Cost: 2})
				if res := k.ask(ratelimit.Request{Key: key, Limit: &second, Cost: 2}); res.Allowed || res.Remaining != 1 {
					k.Errorf("%v: %+v", l, res)
				}
			}
		},
	},
	{
		name: "Reset forgets what it names",
		rule: "The limits given are as if unused, others and other keys are not touched.",
		run: func(k *kit) {
			limits := []ratelimit.Limit{bucket(5, 1, h), bucket(5, 1, h).Named("n"), logOf(5, h), counter(5, h), counter(5, h).Named("n")}
			for _, key := range []string{"a", "b"} {
				for _, l := range limits {
					k.admit(key, l, 5, 1)
				}
			}
			if err := k.store.Reset(k.t.Context(), "a", &limits[0], &limits[2], &limits[4]); err != nil {
				k.Fatalf("Reset: %v", err)
			}
			for i, l := range limits {
				want := int64(i+1) % 2 * 5
				if res := k.take("a", l, 0); res.Remaining != want {
					k.Errorf("%v after Reset: %d remain, want %d", l, res.Remaining, want)
				}
				if res := k.take("b", l, 0); res.Remaining != 0 {
					k.Errorf("%v: Reset of another key gave back %d", l, res.Remaining)
				}
			}
		},
	},
}
