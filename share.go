package ratelimit

import (
	"fmt"
	"math/big"
	"sync"
	"time"
)

// maxSharePeriod bounds the Period of a share: a unit per century is as good as none.
const maxSharePeriod = 100 * 365 * 24 * time.Hour

// Share returns numerator/denominator of limit, for an instance or a region that decides alone. Its Name, Algorithm and
// OnFailure are those of limit.
//
// A token bucket keeps its exact rate, Rate*numerator per Period*denominator, and holds that part of the capacity,
// rounded down, but at least 1. A sliding window admits that part of Rate per Period, rounded down; below one unit it
// admits 1 per as many whole Periods as it takes to be no more than the part. So shares of one limit sum to no higher rate
// than limit's, and to no more capacity than limit's and one unit a share.
//
// A Period may pass the 366 days that Validate holds other limits to, up to 100 years: a part of less than a unit in
// that time is a unit in that time, and only so may shares sum to a higher rate than limit's. Stores in memory take such
// a limit, the Redis stores do not. Where the exact numbers of a token bucket pass the bounds of a Limit, its rate is
// rounded down.
//
// ErrInvalidLimit is a limit that Validate refuses and a part outside 0 < numerator <= denominator.
func Share(limit Limit, numerator, denominator int64) (Limit, error) {
	if err := limit.Validate(); err != nil {
		return Limit{}, err
	}
	if numerator < 1 || numerator > denominator {
		return Limit{}, fmt.Errorf("%w: share %d/%d is outside 0 < numerator <= denominator", ErrInvalidLimit, numerator, denominator)
	}
	d := gcd(numerator, denominator)
	numerator, denominator = numerator/d, denominator/d
	if denominator == 1 {
		return limit, nil
	}
	share := limit
	if limit.Algorithm == TokenBucket {
		share.Burst, _ = mulDiv(limit.Capacity(), numerator, denominator)
		share.Burst = max(1, share.Burst)
		share.Rate, share.Period = shareRate(limit, numerator, denominator)
	} else if share.Rate, _ = mulDiv(limit.Rate, numerator, denominator); share.Rate == 0 {
		share.Rate = 1
		share.Period = periods(limit.Period, (denominator-1)/(limit.Rate*numerator)+1)
	}
	share.long = share.Period > maxPeriod
	return share, nil
}

// periods is n periods, or as long as a share's may be.
func periods(period time.Duration, n int64) time.Duration {
	if n > int64(maxSharePeriod/period) {
		return maxSharePeriod
	}
	return period * time.Duration(n)
}

// shareRate is limit's rate times numerator/denominator in numbers that a Limit may have: as they come, else in lowest
// terms, else rounded down.
func shareRate(limit Limit, numerator, denominator int64) (rate int64, period time.Duration) {
	units, micros := product(limit.Rate, numerator), product(limit.Period.Microseconds(), denominator)
	exact := new(big.Rat).SetFrac(units, micros)
	if !shareFits(units, micros, maxPeriod) {
		units, micros = exact.Num(), exact.Denom()
	}
	if shortest := minPeriod.Microseconds(); micros.IsInt64() && micros.Int64() < shortest {
		k := big.NewInt(shortest/micros.Int64() + 1)
		units, micros = new(big.Int).Mul(units, k), new(big.Int).Mul(micros, k)
	}
	if !shareFits(units, micros, maxSharePeriod) {
		micros = product(maxSharePeriod.Microseconds(), 1)
		if longest := exactDiv(product(maxRate, 1), exact.Denom(), exact.Num()); longest.Cmp(micros) < 0 {
			micros = longest
		}
		units = exactDiv(micros, exact.Num(), exact.Denom())
	}
	return max(1, units.Int64()), time.Duration(micros.Int64()) * time.Microsecond
}

func shareFits(units, micros *big.Int, longest time.Duration) bool {
	return units.Cmp(big.NewInt(maxRate)) <= 0 && micros.Cmp(big.NewInt(longest.Microseconds())) <= 0
}

func product(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

// exactDiv is a*b/c, rounded down.
func exactDiv(a, b, c *big.Int) *big.Int {
	ab := new(big.Int).Mul(a, b)
	return ab.Div(ab, c)
}

// A shareOf is a part of a limit.
type shareOf struct {
	limit                  Limit
	numerator, denominator int64
}

// shareCache keeps shares, which are worked out once. It is safe for concurrent use.
type shareCache struct {
	mu     sync.RWMutex
	shares map[shareOf]*Limit
}

// maxShares bounds a shareCache. Limits and fleets change seldom; a cache that overflows begins anew.
const maxShares = 1 << 16

// get returns Share(*limit, numerator, denominator).
func (c *shareCache) get(limit *Limit, numerator, denominator int64) (*Limit, error) {
	of := shareOf{*limit, numerator, denominator}
	c.mu.RLock()
	share := c.shares[of]
	c.mu.RUnlock()
	if share != nil {
		return share, nil
	}
	l, err := Share(*limit, numerator, denominator)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shares == nil || len(c.shares) >= maxShares {
		c.shares = make(map[shareOf]*Limit)
	}
	c.shares[of] = &l
	return &l, nil
}
