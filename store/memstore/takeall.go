package memstore

import (
	"context"
	"slices"

	"github.com/sluicego/ratelimit"
)

// TakeAll decides reqs together, under the locks of all their shards, taken in one order.
func (s *Store) TakeAll(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	merged, err := ratelimit.Merge(reqs)
	if err != nil {
		return nil, err
	}
	b := batch{n: len(merged.Requests)}
	for i := range merged.Requests {
		r := &merged.Requests[i]
		m, err := s.machines.get(r.Limit)
		if err != nil {
			return nil, err
		}
		b.set(i, s, ratelimit.BareKey(r.Key), r.Limit, ratelimit.Step{Machine: m, Cost: r.Cost, Extra: r.Extra})
	}
	now, used := s.moment()
	b.decide(s, now, used)
	return merged.Results(slices.Clone(b.results[:b.n])), nil
}

// A batch is the requests of one decision. Each state stands once.
type batch struct {
	n       int
	places  [ratelimit.MaxTakeAll]spot
	steps   [ratelimit.MaxTakeAll]ratelimit.Step
	results [ratelimit.MaxTakeAll]ratelimit.Result
	fresh   [ratelimit.MaxTakeAll]ratelimit.State // for keys without a state
	locks   []int                                 // numbers of the shards, in order
}

// A spot is where a state is, or belongs.
type spot struct {
	hash   uint64
	key    string
	limit  *ratelimit.Limit
	shard  *shard
	table  *table
	entry  *entry // nil if there is none; locked
	number int    // of the entry in the table
	weight int64  // before the decision; 0 if there is no state
	other  bool   // the state was last written under other numbers
}

func (b *batch) set(i int, s *Store, key string, limit *ratelimit.Limit, step ratelimit.Step) {
	hash := s.hash(key, limit)
	sh := s.shard(hash)
	b.places[i] = spot{hash: hash, key: key, limit: limit, shard: sh}
	b.steps[i] = step
	if n := sh.number; !slices.Contains(b.locks, n) {
		b.locks = append(b.locks, n)
		slices.Sort(b.locks)
	}
}

// decide fills in the results.
func (b *batch) decide(s *Store, now, used int64) {
	var reserved int64
	b.lock(s)
	for {
		need := b.find(used) - reserved
		if need <= 0 || s.reserve(need) {
			reserved += max(0, need)
			break
		}
		if !b.fits(now) {
			break // and then nothing new is written
		}
		b.unlock(s)
		s.makeRoom(b.places[0].shard, need, now) // which may be at the cost of a state of this batch
		reserved += need
		b.lock(s)
	}
	ratelimit.StepAll(now, b.steps[:b.n], b.results[:b.n])
	grown := b.note()
	inserted := b.insert(s, used)
	s.charged.Add(grown + inserted - reserved)
	b.unlock(s)
	if grown > 0 {
		s.trim(b.places[0].shard, used, now)
	}
	if s.sweeper.awake(now) {
		s.sweep(now)
	}
}

func (b *batch) lock(s *Store) {
	for _, n := range b.locks {
		s.shards[n].mu.Lock()
	}
}

func (b *batch) unlock(s *Store) {
	for i := range b.n {
		if e := b.places[i].entry; e != nil {
			e.mu.Unlock()
		}
	}
	for _, n := range b.locks {
		s.shards[n].mu.Unlock()
	}
}

// find locks the states there are and points the steps at them, and returns how many states there may be to insert.
func (b *batch) find(used int64) (need int64) {
	for i := range b.n {
		p := &b.places[i]
		p.table = p.shard.table.Load()
		if p.entry, p.number = p.table.find(p.hash, p.key, p.limit); p.entry != nil {
			p.entry.mu.Unlock() // it would be in the way of the search for others, and stays where it is
		}
	}
	for i := range b.n {
		p, st := &b.places[i], &b.steps[i]
		e := p.entry
		if e == nil {
			p.weight, p.other = 0, false
			st.State = &b.fresh[i]
			if st.Cost > 0 || st.Extra > 0 {
				need++
			}
			continue
		}
		e.mu.Lock()
		e.used = used
		st.State = &e.state
		p.weight, p.other = weight(&e.state), !e.state.Machine().Runs(p.limit)
	}
	return need
}

// fits tells whether the batch will be admitted.
func (b *batch) fits(now int64) bool {
	for _, st := range b.steps[:b.n] {
		state := *st.State // a call of cost 0 may heal it, which is not for here
		if res, _ := st.Machine.Take(&state, now, 0, 0); st.Cost > res.Remaining {
			return false
		}
	}
	return true
}

// note brings what is known of the states that were there up to date and unlocks them, and returns by how much they
// grew.
func (b *batch) note() (grown int64) {
	for i := range b.n {
		p, st := &b.places[i], &b.steps[i]
		if p.entry == nil {
			continue
		}
		if unused := st.State.Unused(); p.other || st.Cost < 0 || unused < p.shard.due.Load() {
			p.shard.unusedFrom(p.table, p.number, unused)
		}
		grown += weight(st.State) - p.weight
		p.entry.mu.Unlock()
		p.entry = nil
	}
	return grown
}

// insert keeps the states that are new, and returns how many they are.
func (b *batch) insert(s *Store, used int64) (n int64) {
	for i := range b.n {
		if p := &b.places[i]; b.fresh[i].Machine() != nil {
			s.insert(p.shard, p.hash, p.key, &b.fresh[i], used)
			n++
		}
	}
	return n
}
