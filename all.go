package ratelimit

import (
	"context"
	"fmt"
	"time"
)

// A Check is one question among several that All decides together.
type Check struct {
	Limiter Limiter
	Key     string
	Cost    int64
}

// All decides several limiters, keys and costs together: a user's limit, an address's and one for everybody. All of
// them are spent or none. Unlike several limits of one StoreLimiter they may live on different stores, and on any slots
// of a Cluster.
//
// The checks are asked in order. If one denies or fails, those after it are not asked, and what those before it spent
// is given back in reverse. So put first what denies most often, or costs least. The Result is that of the check that
// denied; if all admit it is that of the least Remaining, of equals the first.
//
// Every limiter but the last that spends has to be a Refunder. One that is not is an error before anything is asked, as
// are no checks at all and a nil Limiter; so are a cost below 0, ErrInvalidCost, and an empty key, ErrInvalidKey.
//
// It is no transaction. Never is too much admitted, but while a call is under way that will be denied, others may be
// denied what it holds: at any moment at most the sum of the costs of such calls. With 20 of cost 1 in flight against a
// limit of 100, at least 80 are admitted. Giving back does not end with ctx; it takes up to 100 ms beyond it, and what
// a store cannot take back by then stays spent. A SlidingLog gives back its oldest units, so denied calls prolong what
// is in it: let it come last.
func All(ctx context.Context, checks ...Check) (Result, error) {
	if err := validChecks(checks); err != nil {
		return Result{}, err
	}
	var (
		space [4]int64
		taken = space[:0]
		bound Result
	)
	for i := range checks {
		c := &checks[i]
		res, err := c.Limiter.Allow(ctx, c.Key, c.Cost)
		if err != nil || !res.Allowed {
			giveBack(ctx, checks, taken)
			return res, err
		}
		if res.Source == SourceFailOpen {
			res.Taken = 0 // admitted without a count: giving it back would be a gift
		}
		taken = append(taken, res.Taken)
		if bound.Limit == 0 || res.Limit > 0 && res.Remaining < bound.Remaining { // 0 is no limit at all
			bound = res
			bound.Taken = c.Cost
		}
	}
	return bound, nil
}

func validChecks(checks []Check) error {
	if len(checks) == 0 {
		return fmt.Errorf("%w: no checks", ErrInvalidLimit)
	}
	for i := range checks {
		c := &checks[i]
		switch {
		case c.Limiter == nil:
			return fmt.Errorf("ratelimit: the Limiter of check %d is nil", i)
		case c.Cost < 0:
			return fmt.Errorf("%w: %d of check %d is below 0", ErrInvalidCost, c.Cost, i)
		case c.Key == "":
			return ErrInvalidKey
		}
		if _, ok := c.Limiter.(Refunder); !ok && c.Cost > 0 && i < len(checks)-1 {
			return fmt.Errorf("ratelimit: check %d of %d is no Refunder and has to be the last", i, len(checks))
		}
	}
	return nil
}

// giveBack returns what the first checks took, the last of them first.
func giveBack(ctx context.Context, checks []Check, taken []int64) {
	ctx, cancel := givingBack(ctx)
	defer cancel()
	for i := len(taken) - 1; i >= 0; i-- {
		if taken[i] > 0 {
			// What fails stays spent: the caller has its answer, and waiting restores it.
			_, _ = checks[i].Limiter.(Refunder).Refund(ctx, checks[i].Key, taken[i])
		}
	}
}

// giveBackTimeout is what the caller may have to wait beyond its own deadline.
const giveBackTimeout = 100 * time.Millisecond

// givingBack is the context in which units go back that were spent under ctx, which may have ended.
func givingBack(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
}
