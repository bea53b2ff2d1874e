package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// ShareParts is how many parts the shares of a Rebalancer are counted in: 700 is 7 %.
const ShareParts = 10_000

// A Region is one of those a Rebalancer divides limits among. Shares are in parts of ShareParts.
type Region struct {
	Name string
	// Share is what it begins with: what was published last, if another Rebalancer moved the shares before. If it is 0
	// for all regions, they begin alike.
	Share int64
	// Least and Most bound its share. A Least of 0 means 500, that is 5 %, or Share or an even share if that is less; a
	// Most of 0 means ShareParts.
	Least, Most int64
}

// RebalancerOptions are the options of NewRebalancer. Regions and Demand are required.
type RebalancerOptions struct {
	Regions []Region
	// Demand returns how many units were asked for in each region lately, admitted or not, by name. If a region is
	// missing nothing is moved: no news is not no demand.
	Demand func(ctx context.Context) (map[string]int64, error)
	// Publish, if not nil, carries the shares to those who decide by them in other processes. It is called with shares
	// that sum to at most ShareParts, first with those that shrink and after Settle with those that grow. The map is
	// its to keep. After an error nothing grows.
	Publish func(ctx context.Context, shares map[string]int64) error
	// Every is how often shares are moved; 0 means 5 minutes.
	Every time.Duration
	// Settle is how long those who shrink have to learn of it before others grow, less than Every; 0 means 30 s, or
	// half of Every if that is less.
	Settle time.Duration
	// Step is the most a region gains or loses at once; 0 means 1000, that is 10 %.
	Step int64
	// OnError, if not nil, is told why nothing was moved.
	OnError func(error)
}

// A Rebalancer moves the shares that regions have of every limit towards the demand of each. One process runs it, with
// Run; the shares are read by the functions that Share returns, for NewRegional, and go to other processes by Publish.
// It is safe for concurrent use and owns no goroutine.
//
// Shares are whole parts and sum to ShareParts. A move has two phases: first the regions that lose shrink, and only
// after Settle do the others grow, so at no time do the shares in use sum to more than ShareParts, if all learn within
// Settle.
//
// What is admitted while shares move exceeds the limit by at most
//
//	moved/ShareParts * capacity * max(0, 1 - (Settle-lag)/full)
//
// in any window, beyond the one unit a region of Share's rounding: lag is how late shares are learned, and full is how
// long a bucket takes to refill from empty; for a sliding window it is all of moved/ShareParts * capacity until
// Settle-lag reaches the Period, of a counter two, and then nothing. The reason is that a region may have spent its
// larger share just before it shrinks, and another, idle, is credited its larger one. Moving 70/30 to 30/70 at once,
// under a bucket of 100 a minute with a Settle of 30 s that is learned at once, is 4000/10000 * 100 * (1 - 30/60) = 20
// units; with the default Settle, Step and 100 a second it is none.
type Rebalancer struct {
	o      RebalancerOptions
	shares atomic.Pointer[[]int64] // in use, in the order of Regions; never changed in place
}

// NewRebalancer returns a Rebalancer whose regions have the shares they begin with. Errors name the field and its
// bound.
func NewRebalancer(o RebalancerOptions) (*Rebalancer, error) {
	if len(o.Regions) < 1 || len(o.Regions) > ShareParts {
		return nil, fmt.Errorf("ratelimit: %d RebalancerOptions.Regions are outside 1 to %d", len(o.Regions), ShareParts)
	}
	if o.Demand == nil {
		return nil, errors.New("ratelimit: RebalancerOptions.Demand is nil")
	}
	if o.Every == 0 {
		o.Every = 5 * time.Minute
	}
	if o.Settle == 0 {
		o.Settle = min(30*time.Second, o.Every/2)
	}
	if o.Step == 0 {
		o.Step = ShareParts / 10
	}
	switch {
	case o.Every < 0:
		return nil, fmt.Errorf("ratelimit: RebalancerOptions.Every %v is below 0", o.Every)
	case o.Settle < 0 || o.Settle >= o.Every:
		return nil, fmt.Errorf("ratelimit: RebalancerOptions.Settle %v is outside 0 to Every, %v", o.Settle, o.Every)
	case o.Step < 1 || o.Step > ShareParts:
		return nil, fmt.Errorf("ratelimit: RebalancerOptions.Step %d is outside 1 to %d", o.Step, ShareParts)
	}
	var err error
	if o.Regions, err = validRegions(o.Regions); err != nil {
		return nil, err
	}
	shares := make([]int64, len(o.Regions))
	for i, reg := range o.Regions {
		shares[i] = reg.Share
	}
	r := &Rebalancer{o: o}
	r.shares.Store(&shares)
	return r, nil
}

// validRegions returns regions with their defaults filled in.
func validRegions(regions []Region) ([]Region, error) {
	regions = slices.Clone(regions)
	n := int64(len(regions))
	alike := !slices.ContainsFunc(regions, func(r Region) bool { return r.Share != 0 })
	var most, sum int64
	for i := range regions {
		r := &regions[i]
		if slices.ContainsFunc(regions[:i], func(other Region) bool { return other.Name == r.Name }) {
			return nil, fmt.Errorf("ratelimit: two RebalancerOptions.Regions have the Name %q", r.Name)
		}
		if r.Most == 0 {
			r.Most = ShareParts
		}
		if r.Least == 0 {
			r.Least = min(ShareParts/20, ShareParts/n, r.Most)
			if !alike {
				r.Least = max(1, min(r.Least, r.Share))
			}
		}
		if alike {
			r.Share = ShareParts / n
			if int64(i) < ShareParts%n {
				r.Share++
			}
		}
		switch {
		case r.Least < 1 || r.Most > ShareParts || r.Least > r.Most:
			return nil, fmt.Errorf("ratelimit: Region %q: Least %d and Most %d are not 1 to %d in order", r.Name, r.Least, r.Most, ShareParts)
		case r.Share < r.Least || r.Share > r.Most:
			return nil, fmt.Errorf("ratelimit: Region %q: Share %d is outside Least %d to Most %d", r.Name, r.Share, r.Least, r.Most)
		}
		most, sum = most+r.Most, sum+r.Share
	}
	if sum > ShareParts || most < ShareParts {
		return nil, fmt.Errorf("ratelimit: Regions: Share sums to %d, above %d, or Most to %d, below it", sum, ShareParts, most)
	}
	return regions, nil
}

// Share returns the function that tells the share of a region at any time, for NewRegional. A region that there is not
// has a share of 0, which NewRegional refuses.
func (r *Rebalancer) Share(region string) func() (num, den int64) {
	i := slices.IndexFunc(r.o.Regions, func(reg Region) bool { return reg.Name == region })
	return func() (num, den int64) {
		if i < 0 {
			return 0, ShareParts
		}
		return (*r.shares.Load())[i], ShareParts
	}
}

// Shares returns the shares in use, by region.
func (r *Rebalancer) Shares() map[string]int64 {
	return r.named(*r.shares.Load())
}

func (r *Rebalancer) named(shares []int64) map[string]int64 {
	m := make(map[string]int64, len(shares))
	for i, reg := range r.o.Regions {
		m[reg.Name] = shares[i]
	}
	return m
}

// Run moves shares every Every until ctx ends, and returns its error. The caller owns the goroutine. Only one Run moves
// the shares of a set of regions at a time. If it ends between the phases the regions that were to grow have not; a
// successor that begins with the shares last published makes up for it.
func (r *Rebalancer) Run(ctx context.Context) error {
	tick := time.NewTicker(r.o.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if err := r.move(ctx); err != nil && ctx.Err() == nil && r.o.OnError != nil {
			r.o.OnError(err)
		}
	}
}

// move is one round: who loses shrinks, and after Settle who gains grows.
func (r *Rebalancer) move(ctx context.Context) error {
	demand, err := r.o.Demand(ctx)
	if err != nil {
		return fmt.Errorf("ratelimit: demand of regions: %w", err)
	}
	now := *r.shares.Load()
	target, err := apportion(r.o.Regions, now, r.o.Step, demand)
	if err != nil {
		return err
	}
	shrunk := slices.Clone(now)
	for i := range shrunk {
		shrunk[i] = min(shrunk[i], target[i])
	}
	if err := r.use(ctx, shrunk); err != nil || slices.Equal(shrunk, target) {
		return err
	}
	if err := sleep(ctx, r.o.Settle); err != nil {
		return err
	}
	return r.use(ctx, target)
}

func (r *Rebalancer) use(ctx context.Context, shares []int64) error {
	r.shares.Store(&shares)
	if r.o.Publish == nil {
		return nil
	}
	if err := r.o.Publish(ctx, r.named(shares)); err != nil {
		return fmt.Errorf("ratelimit: publishing shares: %w", err)
	}
	return nil
}
