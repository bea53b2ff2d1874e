package ratelimit

import (
	"context"
	"fmt"
	"math"
)

// A Batch is the requests of one TakeAll with every state named once.
type Batch struct {
	// Requests are what to decide, all or nothing. Nobody changes them.
	Requests []Request

	asked []Request // as they came; nil if that is Requests
	place []int     // where in Requests each of asked went
}

// Merge validates the requests of a TakeAll and adds up those of the same key and limit. Two limits of one Algorithm
// and Name on one key have one state between them, and are ErrInvalidLimit.
func Merge(reqs []Request) (Batch, error) {
	if len(reqs) > MaxTakeAll {
		return Batch{}, fmt.Errorf("%w: %d requests in one TakeAll, above %d", ErrInvalidLimit, len(reqs), MaxTakeAll)
	}
	b := Batch{Requests: reqs}
	for i := range reqs {
		if err := reqs[i].Validate(); err != nil {
			return Batch{}, err
		}
		twin := -1
		for j := range b.Requests[:min(i, len(b.Requests))] {
			if sameState(&b.Requests[j], &reqs[i]) {
				twin = j
				break
			}
		}
		switch {
		case twin < 0 && b.asked == nil:
		case twin < 0:
			b.place = append(b.place, len(b.Requests))
			b.Requests = append(b.Requests, reqs[i])
		default:
			if b.asked == nil {
				b.split(reqs, i)
			}
			b.place = append(b.place, twin)
			if err := b.Requests[twin].add(&reqs[i]); err != nil {
				return Batch{}, err
			}
		}
	}
	for i := range b.Requests { // of sums, so that the order of reqs does not matter
		if r := &b.Requests[i]; r.Cost < 0 && r.Extra > 0 {
			return Batch{}, fmt.Errorf("%w: Extra %d with a negative Cost %d", ErrInvalidCost, r.Extra, r.Cost)
		}
	}
	return b, nil
}

// split makes Requests a copy of its own, of the first n, so that they can be added to.
func (b *Batch) split(reqs []Request, n int) {
	b.asked = reqs
	b.Requests = append(make([]Request, 0, len(reqs)), reqs[:n]...)
	b.place = make([]int, n, len(reqs))
	for i := range b.place {
		b.place[i] = i
	}
}

func sameState(a, b *Request) bool {
	return a.Limit.Algorithm == b.Limit.Algorithm && a.Limit.Name == b.Limit.Name && BareKey(a.Key) == BareKey(b.Key)
}

func (r *Request) add(other *Request) error {
	if *r.Limit != *other.Limit {
		return fmt.Errorf("%w: two different limits of one Algorithm and Name on one key", ErrInvalidLimit)
	}
	r.Cost, r.Extra = addCosts(r.Cost, other.Cost), addCosts(r.Extra, other.Extra)
	return nil
}

func addCosts(a, b int64) int64 {
	switch {
	case a > 0 && b > math.MaxInt64-a:
		return math.MaxInt64
	case a < 0 && b < -math.MaxInt64-a:
		return -math.MaxInt64
	default:
		return a + b
	}
}

// takeAll is store.TakeAll. It is an error if the results are not as many as reqs.
func takeAll(ctx context.Context, store Store, reqs []Request) ([]Result, error) {
	results, err := store.TakeAll(ctx, reqs)
	if err == nil && len(results) != len(reqs) {
		return nil, fmt.Errorf("ratelimit: the store has %d results for %d requests", len(results), len(reqs))
	}
	return results, err
}

// Results turns the results of Requests into those of what was asked: requests that were added up share a decision,
// and what was taken is theirs in the order they came.
func (b *Batch) Results(decided []Result) []Result {
	if b.asked == nil {
		return decided
	}
	results := make([]Result, len(b.asked))
	for i, place := range b.place {
		results[i] = decided[place]
		results[i].Taken = 0
	}
	for place := range decided {
		if decided[place].Allowed {
			b.share(place, decided[place].Taken, results)
		}
	}
	return results
}

// share divides what one state took, or got back, among the requests that were added up for it.
func (b *Batch) share(place int, taken int64, results []Result) {
	sum := max(b.Requests[place].Cost, -math.MaxInt64)
	rest := taken - sum // taken as Extra; if the sum is below zero, what did not fit of the give-backs
	for i, p := range b.place {
		if p != place {
			continue
		}
		cost := max(b.asked[i].Cost, -math.MaxInt64)
		part := b.asked[i].Extra
		if sum < 0 {
			part = max(0, -cost)
		}
		part = min(part, rest)
		results[i].Taken = cost + part
		rest -= part
	}
}
