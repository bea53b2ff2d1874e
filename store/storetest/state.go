package storetest

import (
	"context"
	"math/big"
	"time"

	"github.com/sluicego/ratelimit"
)

// lingers is how much longer than twice the full-refill time a key may live: the margin, and the minute that keys of a
// store with a clock of its own last at least.
const lingers = 2 * m

// longest is the time to live that is long enough for anybody.
const longest = 50 * 365 * 24 * h

// ttlLimits are limits from very fast to very slow.
func ttlLimits() []ratelimit.Limit {
	limits := []ratelimit.Limit{
		bucket(100, 100, 10*ms), bucket(10, 10, 10*s), bucket(1, 1, 12*24*h), bucket(0, 1_000_000_000, ms),
		logOf(5, ms), logOf(5, 10*s), logOf(10, 24*h), counter(5, 1500*us), counter(10, 10*s), counter(10, 24*h),
	}
	for _, n := range []int64{1, 120, 1_000_000} {
		for _, per := range []time.Duration{s, h, 24 * h, 365 * 24 * h} {
			for _, capacity := range []int64{1, 1_000_000, 1_000_000_000} {
				limits = append(limits, bucket(capacity, n, per))
			}
		}
	}
	return limits
}

// fullAfter is how long the most that can be spent is remembered, at most longest.
func fullAfter(l ratelimit.Limit) time.Duration {
	switch l.Algorithm {
	case ratelimit.SlidingLog:
		return l.Period
	case ratelimit.SlidingCounter:
		return 2 * l.Period
	default:
		if float64(l.Capacity())*float64(l.Period)/float64(l.Rate) > float64(longest) {
			return longest
		}
		v := account{limit: l, tokens: new(big.Rat)}
		return v.wait(0, l.Capacity())
	}
}

// wantTTL checks the expiry of a state just written by a decision that began at start: not before it is as if unused,
// and not long after.
func (k *kit) wantTTL(store ratelimit.Store, key string, l ratelimit.Limit, res ratelimit.Result, start time.Time) {
	k.Helper()
	ttl := k.c.TTL(k.t, store, key, &l)
	if least := min(res.ResetAfter, longest) - time.Since(start); ttl == 0 || least > 0 && ttl < least {
		k.Errorf("%v expires in %v, before it is as if unused in %v", l, ttl, res.ResetAfter)
	}
	if full := fullAfter(l); full < longest && ttl > 2*full+lingers {
		k.Errorf("%v expires in %v, long after the %v it can be remembered", l, ttl, full)
	}
}

func needsTTL(c *Config) bool { return c.TTL != nil }

var stateChecks = []check{
	{
		name: "R17 R61 R62 every state expires, in time",
		rule: "A TTL is above 0, at least the time until the state is as if unused, and no thousand times that.",
		run: func(k *kit) {
			own := k.c.New(k.t, nil)
			for _, store := range []ratelimit.Store{k.store, own} {
				for _, l := range ttlLimits() {
					for _, cost := range []int64{1, l.Capacity()} {
						key := k.key()
						start := time.Now()
						res, err := store.Take(context.Background(), ratelimit.Request{Key: key, Limit: &l, Cost: cost})
						if err != nil || !res.Allowed {
							k.Fatalf("%v: %+v, %v", l, res, err)
						}
						if store == own && res.ResetAfter < s {
							continue // it may be gone by now
						}
						k.wantTTL(store, key, l, res, start)
					}
				}
			}
		},
		needs: needsTTL,
	},
	{
		name: "R68 the TTL outlives the debt in steady use",
		rule: "Whenever the TTL is renewed, what is spent since never outlasts it.",
		run: func(k *kit) {
			store := k.c.New(k.t, nil)
			limits := []ratelimit.Limit{bucket(50, 50, 400*ms), logOf(50, 400*ms), counter(50, 200*ms)}
			tick := time.NewTicker(10 * ms)
			defer tick.Stop()
			for end := time.Now().Add(1200 * ms); time.Now().Before(end); <-tick.C {
				for _, l := range limits {
					start := time.Now()
					res, err := store.Take(context.Background(), ratelimit.Request{Key: "steady", Limit: &l, Cost: 1})
					if err != nil {
						k.Fatalf("%v: %v", l, err)
					}
					if res.Allowed {
						k.wantTTL(store, "steady", l, res, start)
					}
				}
			}
		},
		needs: needsTTL,
	},
	{
		name: "R124 the TTL follows the limit",
		rule: "After a change to a slower limit the next admitted call makes the state live as long as that needs.",
		run: func(k *kit) {
			for _, pair := range [][2]ratelimit.Limit{
				{bucket(0, 10, s), bucket(0, 10, 24*h)},
				{bucket(0, 10, s), bucket(1_000_000, 10, s)},
				{logOf(10, m), logOf(10, 24*h)},
				{counter(10, m), counter(10, 24*h)},
			} {
				key := k.key()
				for _, l := range []ratelimit.Limit{pair[0], pair[1], pair[1]} {
					start := time.Now()
					res := k.admit(key, l, 1, 1)
					k.wantTTL(k.store, key, l, res, start)
				}
			}
		},
		needs: needsTTL,
	},
	{
		name: "looks and denials leave no key",
		rule: "Where nothing was admitted there is nothing to keep.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(5, 1, h), logOf(5, h), counter(5, h)} {
				key := k.key()
				k.take(key, l, 0)
				k.take(key, l, 6)
				k.take(key, l, -1)
				k.takeAll(ratelimit.Request{Key: key, Limit: &l, Cost: 1}, ratelimit.Request{Key: key, Limit: named(l, "n"), Cost: 6})
				if ttl := k.c.TTL(k.t, k.store, key, &l); ttl >= 0 {
					k.Errorf("%v: there is a state, for %v", l, ttl)
				}
				k.admit(key, l, 1, 1)
				if ttl := k.c.TTL(k.t, k.store, key, &l); ttl <= 0 {
					k.Errorf("%v: after an admission the state has a TTL of %v", l, ttl)
				}
				if err := k.store.Reset(k.t.Context(), key, &l); err != nil {
					k.Fatalf("Reset: %v", err)
				}
				if ttl := k.c.TTL(k.t, k.store, key, &l); ttl >= 0 {
					k.Errorf("%v: after Reset there is a state, for %v", l, ttl)
				}
			}
		},
		needs: needsTTL,
	},
	{
		name: "[R] a key that lost its TTL gets one",
		rule: "With the first admitted write of a later refill period.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(10, 10, 10*s), logOf(10, 10*s), counter(10, 10*s)} {
				key := k.key()
				k.at(0)
				k.admit(key, l, 1, 2)
				k.c.Persist(k.t, k.store, key, &l)
				if ttl := k.c.TTL(k.t, k.store, key, &l); ttl != 0 {
					k.Fatalf("%v: Persist left a TTL of %v", l, ttl)
				}
				k.at(25 * s)
				start := time.Now()
				res := k.admit(key, l, 1, 1)
				k.wantTTL(k.store, key, l, res, start)
				if res.Remaining != 9 {
					k.Errorf("%v, after 25 s: %+v", l, res)
				}
			}
		},
		needs: func(c *Config) bool { return c.TTL != nil && c.Persist != nil },
	},
	{
		name: "R61 what expired is gone",
		rule: "Keys used once leave nothing behind after their time to live.",
		run: func(k *kit) {
			store := k.c.New(k.t, nil)
			for _, l := range []ratelimit.Limit{bucket(100, 100, 10*ms), logOf(5, ms), counter(5, 1500*us)} {
				if _, err := store.Take(context.Background(), ratelimit.Request{Key: "once", Limit: &l, Cost: 5}); err != nil {
					k.Fatalf("%v: %v", l, err)
				}
				ttl := k.c.TTL(k.t, store, "once", &l)
				if ttl > 5*s {
					continue // a margin too long to wait for; its length is checked elsewhere
				}
				if !eventually(ttl+k.patience, func() bool { return k.c.TTL(k.t, store, "once", &l) < 0 }) {
					k.Fatalf("%v: still there %v after its end", l, k.patience)
				}
				res, err := store.Take(context.Background(), ratelimit.Request{Key: "once", Limit: &l, Cost: 1})
				if err != nil || res.Remaining != l.Capacity()-1 {
					k.Errorf("%v after it expired: %+v, %v", l, res, err)
				}
			}
		},
		needs: needsTTL,
	},
	{
		name: "R02 R70 unreadable state counts as unused",
		rule: "Looks and denials find an unused key and do not fail; the next admitted call replaces it.",
		run: func(k *kit) {
			for _, bad := range k.c.Corruptions {
				for _, l := range []ratelimit.Limit{bucket(5, 5, 10*s), logOf(5, 10*s), counter(5, 10*s)} {
					key := k.key()
					spoil := func() {
						k.admit(key, l, 3, 1)
						bad.Make(k.t, k.store, key, &l)
					}
					spoil()
					k.want(bad.Name+", a look", k.take(key, l, 0), yes(l, 0, 5, 0))
					k.want(bad.Name+", never", k.take(key, l, 6), never(l))
					k.want(bad.Name+", giving back", k.take(key, l, -1), yes(l, 0, 5, 0))
					start := time.Now()
					res := k.take(key, l, 1)
					if !res.Allowed || res.Remaining != 4 || res.Taken != 1 {
						k.Errorf("%s, %v: %+v", bad.Name, l, res)
					}
					if k.c.TTL != nil {
						k.wantTTL(k.store, key, l, res, start)
					}
					if res := k.take(key, l, 5); res.Allowed || res.Remaining != 4 {
						k.Errorf("%s, %v, the call after: %+v", bad.Name, l, res)
					}
					if err := k.store.Reset(k.t.Context(), key, &l); err != nil {
						k.Fatalf("Reset: %v", err)
					}

					spoil()
					other := named(l, "other")
					got := k.takeAll(ratelimit.Request{Key: key, Limit: &l, Cost: 2}, ratelimit.Request{Key: key, Limit: other, Cost: 1})
					if !got[0].Allowed || got[0].Remaining != 3 || !got[1].Allowed {
						k.Errorf("%s, %v, in a TakeAll: %+v", bad.Name, l, got)
					}
					bad.Make(k.t, k.store, key, &l)
					if err := k.store.Reset(k.t.Context(), key, &l); err != nil {
						k.Errorf("%s, %v: Reset: %v", bad.Name, l, err)
					}
					if res := k.take(key, l, 5); !res.Allowed {
						k.Errorf("%s, %v, after Reset: %+v", bad.Name, l, res)
					}
				}
			}
		},
		needs: func(c *Config) bool { return len(c.Corruptions) > 0 },
	},
	{
		name: "the store's own clock",
		rule: "Without a clock given, time passes by itself, forward, and waits are near what the limit says.",
		run: func(k *kit) {
			store := k.c.New(k.t, nil)
			for _, l := range []ratelimit.Limit{bucket(5, 5, 24*h), logOf(5, 24*h), counter(5, 24*h)} {
				take := func(cost int64) ratelimit.Result {
					res, err := store.Take(context.Background(), ratelimit.Request{Key: "slow", Limit: &l, Cost: cost})
					if err != nil {
						k.Fatalf("%v: %v", l, err)
					}
					return res
				}
				first, second := take(5), take(1)
				if !first.Allowed || second.Allowed || second.RetryAfter <= 0 || second.RetryAfter > 48*h {
					k.Errorf("%v: %+v, then %+v", l, first, second)
				}
				if l.Algorithm == ratelimit.TokenBucket && (second.RetryAfter > 24*h/5 || second.RetryAfter < 24*h/5-m) {
					k.Errorf("%v: a wait of %v", l, second.RetryAfter)
				}
			}
			for _, l := range []ratelimit.Limit{bucket(1, 1, 50*ms), logOf(1, 50*ms), counter(1, 50*ms)} {
				calls := 0
				admitted := 0
				if !eventually(k.patience, func() bool {
					res, err := store.Take(context.Background(), ratelimit.Request{Key: "fast", Limit: &l, Cost: 1})
					if err != nil {
						k.Fatalf("%v: %v", l, err)
					}
					calls++
					if res.Allowed {
						admitted++
					}
					return admitted == 3
				}) {
					k.Errorf("%v: %d of %d calls admitted in %v", l, admitted, calls, k.patience)
				}
			}
		},
	},
	{
		name: "R08 two stores over one state",
		rule: "What one spends the other misses, and both give the same answers.",
		run: func(k *kit) {
			other := k.c.Join(k.t, k.c.Address(k.t, k.store), k.clock.now)
			for _, l := range []ratelimit.Limit{bucket(10, 10, m), logOf(10, m), counter(10, m)} {
				key := k.key()
				req := ratelimit.Request{Key: key, Limit: &l, Cost: 3}
				for i := range int64(4) {
					k.at(time.Duration(i) * s)
					store, stranger := k.store, other
					if i%2 == 1 {
						store, stranger = stranger, store
					}
					res, err := store.Take(context.Background(), req)
					if err != nil || res.Allowed != (i < 3) || res.Remaining != 10-3*min(i+1, 3) {
						k.Errorf("%v, call %d: %+v, %v", l, i+1, res, err)
					}
					look := ratelimit.Request{Key: key, Limit: &l}
					here, err1 := store.Take(context.Background(), look)
					there, err2 := stranger.Take(context.Background(), look)
					if here != there || err1 != nil || err2 != nil {
						k.Errorf("%v: here %+v, %v; there %+v, %v", l, here, err1, there, err2)
					}
				}
			}
		},
		needs: needsJoin,
	},
}

func needsJoin(c *Config) bool { return c.Address != nil && c.Join != nil }

// eventually polls until ok is true or the time is over.
func eventually(within time.Duration, ok func() bool) bool {
	tick := time.NewTicker(ms)
	defer tick.Stop()
	for end := time.Now().Add(within); ; <-tick.C {
		if ok() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}
