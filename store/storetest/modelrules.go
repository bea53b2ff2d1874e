package storetest

import (
	"math"
	"math/big"
	"sort"
	"time"

	"github.com/sluicego/ratelimit"
)

// grace is how far beyond the full-refill time, or Period, a stored time has to lie ahead for the clock to count as set
// back.
const grace = int64(time.Minute / time.Microsecond)

// mostCounted is where a count stops that two windows run together into: the largest Rate.
const mostCounted = 1_000_000_000

// under reads a under limit l at now. healed means that the clock was set back and the reading is to be written.
func (a *account) under(l ratelimit.Limit, now int64) (v *account, healed bool) {
	switch l.Algorithm {
	case ratelimit.SlidingLog:
		return a.logUnder(l, now)
	case ratelimit.SlidingCounter:
		return a.counterUnder(l, now)
	default:
		return a.bucketUnder(l, now)
	}
}

func (a *account) bucketUnder(l ratelimit.Limit, now int64) (*account, bool) {
	capacity := big.NewRat(l.Capacity(), 1)
	if a == nil {
		return &account{limit: l, at: now, tokens: capacity}, false
	}
	v := &account{limit: l, at: a.at, tokens: a.tokens}
	if tokenTime(a.limit).Cmp(tokenTime(l)) != 0 || a.limit.Capacity() != l.Capacity() {
		v.tokens = least(new(big.Rat).SetInt(floor(a.tokens)), capacity)
	}
	full := ceil(new(big.Rat).Mul(capacity, tokenTime(l)))
	behind := big.NewInt(a.at - now)
	switch {
	case now > a.at:
		gained := new(big.Rat).Quo(big.NewRat(now-a.at, 1), tokenTime(l))
		v.tokens = least(gained.Add(gained, v.tokens), capacity)
		v.at = now
	case behind.Cmp(full.Add(full, big.NewInt(grace))) > 0:
		v.at = now
		return v, true
	}
	return v, false
}

func (a *account) logUnder(l ratelimit.Limit, now int64) (*account, bool) {
	v := &account{limit: l}
	if a == nil {
		return v, false
	}
	v.at = a.at
	period := l.Period.Microseconds()
	for _, s := range a.spends {
		if s.at+period > max(now, a.at) {
			v.spends = append(v.spends, s)
		}
	}
	if a.at-now > period+grace {
		v.at = now
		if len(v.spends) > 0 {
			v.spends = []spend{{now, v.sum()}}
		}
		return v, true
	}
	return v, false
}

func (a *account) counterUnder(l ratelimit.Limit, now int64) (*account, bool) {
	period := l.Period.Microseconds()
	start := now / period * period
	if a == nil {
		return &account{limit: l, at: start}, false
	}
	if a.limit.Period != l.Period {
		old, healed := a.counterUnder(a.limit, now)
		return &account{limit: l, at: start, current: min(ceil(old.estimate(now)).Int64(), mostCounted)}, healed
	}
	switch {
	case a.at-now > period+grace:
		return &account{limit: l, at: start, current: min(a.previous+a.current, mostCounted)}, true
	case start <= a.at:
		return &account{limit: l, at: a.at, current: a.current, previous: a.previous}, false
	case start == a.at+period:
		return &account{limit: l, at: start, previous: a.current}, false
	default:
		return &account{limit: l, at: start}, false
	}
}

// estimate is what a counter takes as spent at now, in the window it is in or the next.
func (a *account) estimate(now int64) *big.Rat {
	period := a.limit.Period.Microseconds()
	current, previous, elapsed := a.current, a.previous, max(0, now-a.at)
	if elapsed >= period {
		current, previous, elapsed = 0, a.current, elapsed-period
	}
	if elapsed >= period {
		return new(big.Rat)
	}
	used := big.NewRat(period-elapsed, period)
	used.Mul(used, big.NewRat(previous, 1))
	return used.Add(used, big.NewRat(current, 1))
}

// room is what could be spent at now from a reading made at now.
func (a *account) room(now int64) int64 {
	switch a.limit.Algorithm {
	case ratelimit.SlidingLog:
		return max(0, a.limit.Rate-a.sum())
	case ratelimit.SlidingCounter:
		return max(0, a.limit.Rate-ceil(a.estimate(now)).Int64())
	default:
		return floor(a.tokens).Int64()
	}
}

// wait is the shortest time after which cost fits.
func (a *account) wait(now, cost int64) time.Duration {
	switch a.limit.Algorithm {
	case ratelimit.SlidingLog:
		for i, s := range a.spends {
			rest := account{spends: a.spends[i+1:]}
			if rest.sum()+cost <= a.limit.Rate {
				return micros(big.NewInt(s.at + a.limit.Period.Microseconds() - now))
			}
		}
		panic("a cost that an empty log cannot hold never waits")
	case ratelimit.SlidingCounter:
		// What is taken as spent never grows, so the first moment is found by halving.
		span := a.at + 2*a.limit.Period.Microseconds() - now
		limit := big.NewRat(a.limit.Rate-cost, 1)
		d := sort.Search(int(span), func(d int) bool { return a.estimate(now+int64(d)).Cmp(limit) <= 0 })
		return micros(big.NewInt(int64(d)))
	default:
		missing := new(big.Rat).Sub(big.NewRat(cost, 1), a.tokens)
		us := ceil(missing.Mul(missing, tokenTime(a.limit)))
		return micros(us.Add(us, big.NewInt(a.at-now)))
	}
}

// unused is when a is as if it had never been used, under the limit it was written under.
func (a *account) unused() int64 {
	period := a.limit.Period.Microseconds()
	switch {
	case a.limit.Algorithm == ratelimit.SlidingLog && len(a.spends) > 0:
		return a.at + period
	case a.limit.Algorithm == ratelimit.SlidingCounter && a.current > 0:
		return a.at + 2*period
	case a.limit.Algorithm == ratelimit.SlidingCounter && a.previous > 0:
		return a.at + period
	case a.limit.Algorithm != ratelimit.TokenBucket:
		return 0
	}
	missing := new(big.Rat).Sub(big.NewRat(a.limit.Capacity(), 1), a.tokens)
	if missing.Sign() == 0 {
		return 0
	}
	us := ceil(missing.Mul(missing, tokenTime(a.limit)))
	us.Add(us, big.NewInt(a.at))
	if !us.IsInt64() {
		return math.MaxInt64
	}
	return us.Int64()
}

// spent is a after n more units.
func (a *account) spent(now, n int64) *account {
	v := *a
	switch {
	case n == 0:
	case a.limit.Algorithm == ratelimit.SlidingCounter:
		v.current += n
	case a.limit.Algorithm == ratelimit.TokenBucket:
		v.tokens = new(big.Rat).Sub(a.tokens, big.NewRat(n, 1))
	default:
		v.at = max(a.at, now) // time does not run backwards in a log
		v.spends = append([]spend(nil), a.spends...)
		if last := len(v.spends) - 1; last >= 0 && v.spends[last].at == v.at {
			v.spends[last].cost += n
		} else {
			v.spends = append(v.spends, spend{v.at, n})
		}
	}
	return &v
}

// given is a after up to n units came back, and minus how many did.
func (a *account) given(n int64) (*account, int64) {
	v := *a
	switch a.limit.Algorithm {
	case ratelimit.SlidingLog:
		left := n
		v.spends = nil
		for _, s := range a.spends {
			back := min(left, s.cost)
			left -= back
			if s.cost > back {
				v.spends = append(v.spends, spend{s.at, s.cost - back})
			}
		}
		return &v, left - n
	case ratelimit.SlidingCounter:
		previous := min(n, a.previous)
		current := min(n-previous, a.current)
		v.previous -= previous
		v.current -= current
		return &v, -previous - current
	default:
		back := min(n, ceil(new(big.Rat).Sub(big.NewRat(a.limit.Capacity(), 1), a.tokens)).Int64())
		v.tokens = new(big.Rat).Add(a.tokens, big.NewRat(back, 1))
		v.tokens = least(v.tokens, big.NewRat(a.limit.Capacity(), 1))
		return &v, -back
	}
}

// sum is all of a log.
func (a *account) sum() (total int64) {
	for _, s := range a.spends {
		total += s.cost
	}
	return total
}

// tokenTime is how many microseconds bring one token.
func tokenTime(l ratelimit.Limit) *big.Rat { return big.NewRat(l.Period.Microseconds(), l.Rate) }

func floor(x *big.Rat) *big.Int { return new(big.Int).Div(x.Num(), x.Denom()) }

func ceil(x *big.Rat) *big.Int {
	n := new(big.Int).Neg(x.Num())
	return n.Neg(n.Div(n, x.Denom()))
}

func least(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}
