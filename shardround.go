package ratelimit

import (
	"context"
	"math"
	"time"
)

// A round is one decision that takes more than one shard to make.
type round struct {
	sharded *Sharded
	reqs    []Request  // each state once
	parts   [][]Limit  // of each request's limit
	first   int        // the shard to begin with
	seen    [][]glance // by shard and request; nil until there is one
	source  Source
}

// A glance is how a shard stood when it was asked last.
type glance struct {
	Result
	asked bool
	cost  int64 // that it was asked for
}

func (r *round) note(shard, j int, cost int64, res Result) {
	if r.seen == nil {
		n := len(r.reqs)
		space := make([]glance, r.sharded.n*n)
		r.seen = make([][]glance, r.sharded.n)
		for i := range r.seen {
			r.seen[i] = space[i*n : (i+1)*n]
		}
	}
	r.seen[shard][j] = glance{Result: res, asked: true, cost: cost}
	r.source = res.Source
}

// shard is the k'th to be asked.
func (r *round) shard(k int) int { return (r.first + k) % r.sharded.n }

func (r *round) sub(j, shard int, cost, extra int64) Request {
	return Request{Key: shardKey(r.reqs[j].Key, shard), Limit: &r.parts[j][shard], Cost: cost, Extra: extra}
}

// decide asks one shard after the other, from the k'th on.
func (r *round) decide(ctx context.Context, k int) ([]Result, error) {
	looking := true
	for _, req := range r.reqs {
		looking = looking && req.Cost == 0 && req.Extra == 0
	}
	for ; k < r.sharded.n; k++ {
		shard := r.shard(k)
		results, err := r.ask(ctx, shard)
		if err != nil {
			return nil, err
		}
		admitted := !looking && r.fits(shard) && results[0].Allowed
		if admitted && r.seen == nil && r.complete(results) {
			for j, req := range r.reqs {
				results[j].extend(req.Limit, &r.parts[j][shard])
			}
			return results, nil
		}
		for j, res := range results {
			r.note(shard, j, r.reqs[j].Cost, res)
		}
		if admitted {
			return r.settle(ctx, shard), nil
		}
	}
	if looking {
		return r.results(true, make([]int64, len(r.reqs))), nil
	}
	for j, req := range r.reqs {
		if room, _ := r.room(j); req.Cost > room {
			return r.results(false, nil), nil
		}
	}
	return r.gather(ctx)
}

// fits tells whether a shard could have room for everything.
func (r *round) fits(shard int) bool {
	for j, req := range r.reqs {
		if req.Cost > r.parts[j][shard].Capacity() {
			return false
		}
	}
	return true
}

// complete tells whether nothing is left to take, or to give back.
func (r *round) complete(results []Result) bool {
	for j, req := range r.reqs {
		if results[j].Taken != addCosts(req.Cost, req.Extra) {
			return false
		}
	}
	return true
}

// ask lets one shard decide everything. Of what it could never hold it only says how it stands.
func (r *round) ask(ctx context.Context, shard int) ([]Result, error) {
	results := []Result{{RetryAfter: Never}}
	var err error
	switch {
	case len(r.reqs) > 1:
		subs := make([]Request, len(r.reqs))
		for j, req := range r.reqs {
			subs[j] = Request{Limit: &r.parts[j][shard], Cost: req.Cost, Extra: req.Extra}
			if j > 0 && req.Key == r.reqs[j-1].Key { // the limits of one key
				subs[j].Key = subs[j-1].Key
			} else {
				subs[j].Key = shardKey(req.Key, shard)
			}
		}
		results, err = takeAll(ctx, r.sharded.store, subs)
	case r.fits(shard):
		results[0], err = r.sharded.store.Take(ctx, r.sub(0, shard, r.reqs[0].Cost, r.reqs[0].Extra))
	}
	for j := range results {
		if err == nil && results[j].RetryAfter == Never && r.reqs[j].Cost <= r.reqs[j].Limit.Capacity() {
			results[j], err = r.sharded.store.Take(ctx, r.sub(j, shard, 0, 0))
			if r.reqs[j].Cost <= r.parts[j][shard].Capacity() { // the store holds less than the shard's part
				results[j].Allowed, results[j].RetryAfter = false, Never
			}
		}
	}
	return results, err
}

// settle gets from the other shards, or gives them, what the one that admitted could not. What they refuse with an
// error is left at that: the decision has been made.
func (r *round) settle(ctx context.Context, shard int) []Result {
	taken := make([]int64, len(r.reqs))
	for j := range r.reqs {
		taken[j] = r.seen[shard][j].Taken
	}
	r.goOn(ctx, taken)
	return r.results(true, taken)
}

// goOn asks the shards in turn for what is still missing of each request's Extra, or of what it gives back.
func (r *round) goOn(ctx context.Context, taken []int64) {
	for j, req := range r.reqs {
		for k := 0; k < r.sharded.n && taken[j] != addCosts(req.Cost, req.Extra); k++ {
			shard := r.shard(k)
			sub, useless := r.sub(j, shard, 0, 0), int64(0)
			if req.Cost < 0 {
				sub.Cost, useless = addCosts(req.Cost, -taken[j]), sub.Limit.Capacity()
			} else {
				sub.Extra = addCosts(req.Cost, req.Extra) - taken[j]
			}
			if g := &r.seen[shard][j]; g.asked && g.Remaining == useless {
				continue
			}
			res, err := r.sharded.store.Take(ctx, sub)
			if err != nil {
				return
			}
			r.note(shard, j, sub.Cost, res)
			taken[j] = addCosts(taken[j], res.Taken)
		}
	}
}

// gather puts together from several shards what they were seen to have between them.
func (r *round) gather(ctx context.Context) ([]Result, error) {
	type debit struct {
		shard, j int
		units    int64
	}
	var spent []debit
	undo := func() {
		back, cancel := givingBack(ctx)
		defer cancel()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(time.Millisecond/2, cancel) })() // as a Store has to
		for _, d := range spent {
			sub := r.sub(d.j, d.shard, -d.units, 0)
			if res, err := r.sharded.store.Take(back, sub); err == nil {
				r.note(d.shard, d.j, 0, res)
			}
		}
	}
	taken := make([]int64, len(r.reqs))
	for j, req := range r.reqs {
		for k := 0; k < r.sharded.n && taken[j] < req.Cost; {
			shard := r.shard(k)
			part := min(req.Cost-taken[j], r.seen[shard][j].Remaining)
			if part == 0 {
				k++
				continue
			}
			res, err := r.sharded.store.Take(ctx, r.sub(j, shard, part, 0))
			if err != nil {
				undo()
				return nil, err
			}
			if res.Allowed {
				spent = append(spent, debit{shard, j, part})
				taken[j] += part
			} else { // somebody was quicker, and here is less than was seen: it is asked for that
				res.Remaining = min(res.Remaining, part-1)
			}
			r.note(shard, j, part, res)
		}
		if taken[j] < req.Cost {
			undo()
			results := r.results(false, nil)
			// There may be room again by now, if somebody gave back.
			results[j].RetryAfter = max(results[j].RetryAfter, time.Microsecond)
			return results, nil
		}
	}
	r.goOn(ctx, taken)
	return r.results(true, taken), nil
}

// room is what the shards that were asked have left for request j, and what they hold at most.
func (r *round) room(j int) (room, capacity int64) {
	for shard := range r.seen {
		if r.seen[shard][j].asked {
			room += r.seen[shard][j].Remaining
			capacity += r.parts[j][shard].Capacity()
		}
	}
	return room, capacity
}

func (r *round) results(allowed bool, taken []int64) []Result {
	results := make([]Result, len(r.reqs))
	for j, req := range r.reqs {
		res := &results[j]
		*res = Result{Allowed: allowed, Limit: req.Limit.Capacity(), Name: req.Limit.Name, Source: r.source}
		if req.Cost > res.Limit {
			res.RetryAfter = Never
			continue
		}
		room, capacity := r.room(j)
		res.Remaining, _ = mulDiv(room, res.Limit, capacity)
		for shard := range r.seen {
			res.ResetAfter = max(res.ResetAfter, r.seen[shard][j].ResetAfter)
		}
		if allowed {
			res.Taken = taken[j]
		} else if room < req.Cost {
			r.denyFor(j, res, r.wait(j))
		}
	}
	return results
}

// denyFor makes res a denial for so long. No time at all is a store that holds less than the parts: one that has a share
// of its own never will hold more, and one that stands in for another does not tell how long it will.
func (r *round) denyFor(j int, res *Result, wait time.Duration) {
	for shard := range r.seen {
		if wait == 0 && r.seen[shard][j].Source != SourceStore {
			wait = time.Second
		}
	}
	if wait == 0 || wait == Never {
		wait, res.Remaining, res.ResetAfter = Never, 0, 0
	}
	res.RetryAfter = wait
}

// wait is how long until the shards have room for request j between them, all of which were asked.
func (r *round) wait(j int) time.Duration {
	soon, late := time.Duration(0), time.Duration(0)
	for shard := range r.seen {
		late = max(late, r.seen[shard][j].ResetAfter, r.seen[shard][j].RetryAfter)
	}
	for late-soon >= 2*time.Microsecond {
		middle := (soon + (late-soon)/2).Truncate(time.Microsecond)
		if r.roomAfter(j, middle) < r.reqs[j].Cost {
			soon = middle
		} else {
			late = middle
		}
	}
	return late
}

// roomAfter is what the shards are sure to have between them in d.
func (r *round) roomAfter(j int, d time.Duration) (sum int64) {
	for shard := range r.seen {
		g, part := &r.seen[shard][j], &r.parts[j][shard]
		room := g.Remaining
		switch {
		case d >= g.ResetAfter && d >= g.RetryAfter:
			room = part.Capacity()
		case d >= g.ResetAfter: // it says that it is as if unused, and yet without room
		case part.Algorithm == TokenBucket && g.ResetAfter < duration(math.MaxInt64): // beyond, it does not say
			missing, rem := mulDiv((g.ResetAfter - d).Microseconds(), part.Rate, part.Period.Microseconds())
			if rem > 0 {
				missing++
			}
			room = max(room, part.Capacity()-missing)
		}
		if !g.Allowed && d >= g.RetryAfter {
			room = max(room, g.cost)
		}
		sum += room
	}
	return sum
}

// extend makes the Result of a shard, which has part of limit, an estimate of what all shards would say.
func (res *Result) extend(limit, part *Limit) {
	res.Remaining, _ = mulDiv(res.Remaining, limit.Capacity(), part.Capacity())
	res.Limit = limit.Capacity()
}
