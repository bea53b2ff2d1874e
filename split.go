package ratelimit

import (
	"fmt"
	"sync"
	"time"
)

// split divides limit over n shards whose capacities and rates sum to limit's exactly. The first shards have what does
// not divide evenly, so of two limits that are spent together the larger has the larger part on every shard.
//
// The shards of a token bucket have the same rate, Rate per n Periods, and those of a sliding window the same Period.
func split(limit *Limit, n int) ([]Limit, error) {
	if err := limit.Validate(); err != nil {
		return nil, err
	}
	if limit.Capacity() < int64(n) {
		return nil, fmt.Errorf("%w: a capacity of %d is below 1 for each of %d shards", ErrInvalidLimit, limit.Capacity(), n)
	}
	parts := make([]Limit, n)
	for i := range parts {
		p := *limit
		capacity := limit.Capacity() / int64(n)
		if int64(i) < limit.Capacity()%int64(n) {
			capacity++
		}
		if limit.Algorithm == TokenBucket {
			p.Burst = capacity
			p.Rate, p.Period = shareRate(*limit, 1, int64(n))
		} else {
			p.Rate = capacity
		}
		if p.Period > maxPeriod { // and so it is for a unit: shareRate has tried the lowest terms
			return nil, fmt.Errorf("%w: a unit per %v and shard is outside 366 days, with %d shards", ErrInvalidLimit, p.Period/time.Duration(p.Rate), n)
		}
		parts[i] = p
	}
	return parts, nil
}

// A splitCache keeps what split works out, for one number of shards. It is safe for concurrent use.
type splitCache struct {
	n     int
	mu    sync.RWMutex
	parts map[Limit][]Limit
}

func (c *splitCache) get(limit *Limit) ([]Limit, error) {
	c.mu.RLock()
	parts := c.parts[*limit]
	c.mu.RUnlock()
	if parts != nil {
		return parts, nil
	}
	parts, err := split(limit, c.n)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parts == nil || len(c.parts)*c.n >= maxShares {
		c.parts = make(map[Limit][]Limit)
	}
	c.parts[*limit] = parts
	return parts, nil
}
