package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
)

// Sharded splits the limit of each key over several sub-keys, so that the nodes of a Redis Cluster carry one hot key
// together. It is a Store, safe for concurrent use, and has nothing to close.
//
// Every shard has a part of the limit, and the parts sum to the whole exactly, capacity and rate both, so nothing is
// ever admitted that one key would not admit. A shard is chosen at random; if it has not the room the others are asked,
// one after the other, before the call is denied, and a cost that no shard has room for alone is put together from
// several. So an admission is one call of the store as a rule, and a denial is as many as there are shards: a DenyCache
// around a Sharded pays.
//
// What an admission says is Remaining is an estimate: what the shards that were asked have left, extended to those that
// were not. Cost 0 and a denial ask all of them, and their Remaining is the sum. RetryAfter is the wait until the
// shards have the room together, and for a cost of 1 the shortest of the shards' own; for a cost above 1 of a sliding
// window it may be longer than need be. ResetAfter is the longest of the shards that were asked.
//
// The fractions and roundings of one key are those of n: a sliding counter may admit up to n-1 units less than its
// rate, as each shard rounds up what it has spent.
//
// Decisions that need several shards are no transaction: while units are put together, or given back because somebody
// else was quicker, other callers may be denied up to that cost. They are never admitted too much. What a store cannot
// take back before the context ends, and half a millisecond more, stays spent. In a stack it stands for the store: a
// Fallback goes around it, as does what else wraps a store.
//
// Another number of shards is another division. Shards that are new start unused, so a change from n to m > n admits
// once up to (m-n)/m of the limit beyond it: from 4 shards to 8, half. While both are in use at once it is up to the
// limit once more.
type Sharded struct {
	store  Store
	n      int
	splits splitCache
}

var (
	_ Store     = (*Sharded)(nil)
	_ Historian = (*Sharded)(nil)
)

const maxShards = 256

// NewSharded returns a Store that splits each key of store over n sub-keys, 1 to 256. To reach all nodes of a Cluster
// about evenly takes two to three times as many. A limit whose capacity is below n cannot be split and is
// ErrInvalidLimit when it is used.
//
// The sub-keys of Key("user-1", "search") are Key("user-1#a0", "search"), Key("user-1#b0", "search") and so on; do not
// use keys of that form on the same store for anything else.
func NewSharded(store Store, n int) (*Sharded, error) {
	if store == nil {
		return nil, errors.New("ratelimit: store is nil")
	}
	if n < 1 || n > maxShards {
		return nil, fmt.Errorf("ratelimit: %d shards are outside 1 to %d", n, maxShards)
	}
	return &Sharded{store: store, n: n, splits: splitCache{n: n}}, nil
}

// Unwrap returns the store that keeps the sub-keys.
func (s *Sharded) Unwrap() Store { return s.store }

// Take decides req. A give-back goes to the shards in turn until all of it has found room, and Extra is taken from them
// in turn until there is none left.
func (s *Sharded) Take(ctx context.Context, req Request) (Result, error) {
	if err := req.Validate(); err != nil {
		return Result{}, err
	}
	parts, err := s.splits.get(req.Limit)
	if err != nil {
		return Result{}, err
	}
	if req.Cost > req.Limit.Capacity() {
		return Result{Limit: req.Limit.Capacity(), RetryAfter: Never, Name: req.Limit.Name}, nil
	}
	first := rand.IntN(s.n)
	var res Result
	asked := (req.Cost != 0 || req.Extra != 0) && req.Cost <= parts[first].Capacity()
	if asked {
		res, err = s.store.Take(ctx, Request{Key: shardKey(req.Key, first), Limit: &parts[first], Cost: req.Cost, Extra: req.Extra})
		if err != nil {
			return Result{}, err
		}
		if res.Allowed && res.Taken == addCosts(req.Cost, req.Extra) {
			res.extend(req.Limit, &parts[first])
			return res, nil
		}
	}
	r := round{sharded: s, reqs: []Request{req}, parts: [][]Limit{parts}, first: first}
	next := 0
	if asked && res.RetryAfter != Never {
		r.note(first, 0, req.Cost, res)
		if res.Allowed {
			return r.settle(ctx, first)[0], nil
		}
		next = 1
	}
	results, err := r.decide(ctx, next)
	if err != nil {
		return Result{}, err
	}
	return results[0], nil
}

// TakeAll decides reqs together on one shard after the other, each of which decides all or nothing. Keys that share a
// hash tag share it on every shard. What no shard has room for alone is put together from several, request by request,
// and given back if somebody else was quicker.
func (s *Sharded) TakeAll(ctx context.Context, reqs []Request) ([]Result, error) {
	batch, err := Merge(reqs)
	if err != nil || len(reqs) == 0 {
		return nil, err
	}
	parts := make([][]Limit, len(batch.Requests))
	for j := range parts {
		if parts[j], err = s.splits.get(batch.Requests[j].Limit); err != nil {
			return nil, err
		}
	}
	r := round{sharded: s, reqs: batch.Requests, parts: parts, first: rand.IntN(s.n)}
	results, err := r.decide(ctx, 0)
	if err != nil {
		return nil, err
	}
	return batch.Results(results), nil
}

// Reset forgets what key has spent, on every shard. It goes on after an error, and returns all there were.
func (s *Sharded) Reset(ctx context.Context, key string, limits ...*Limit) error {
	if len(limits) == 0 {
		return fmt.Errorf("%w: none to reset", ErrInvalidLimit)
	}
	parts := make([][]Limit, len(limits))
	for j, l := range limits {
		req := Request{Key: key, Limit: l}
		if err := req.Validate(); err != nil {
			return err
		}
		var err error
		if parts[j], err = s.splits.get(l); err != nil {
			return err
		}
	}
	var errs []error
	for shard := range s.n {
		of := make([]*Limit, len(limits))
		for j := range of {
			of[j] = &parts[j][shard]
		}
		errs = append(errs, s.store.Reset(ctx, shardKey(key, shard), of...))
	}
	return errors.Join(errs...)
}

// History returns what key has spent on all shards, oldest first.
func (s *Sharded) History(ctx context.Context, key string, limit *Limit) ([]Entry, error) {
	req := Request{Key: key, Limit: limit}
	if err := req.Validate(); err != nil {
		return nil, err
	}
	parts, err := s.splits.get(limit)
	if err != nil {
		return nil, err
	}
	var all []Entry
	for shard := range parts {
		entries, err := history(ctx, s.store, shardKey(key, shard), &parts[shard])
		if err != nil {
			return nil, err
		}
		all = append(all, entries...)
	}
	slices.SortStableFunc(all, func(a, b Entry) int { return cmp.Compare(a.Time.UnixMicro(), b.Time.UnixMicro()) })
	return all, nil
}
