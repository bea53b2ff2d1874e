package ratelimit

import (
	"hash/maphash"
	"strings"
	"sync"
)

// A stateID names a state as stores do: by key, algorithm and name, and by nothing else of a limit.
type stateID struct {
	key, name string
	algorithm Algorithm
}

func idOf(key string, l *Limit) stateID {
	return stateID{key: BareKey(key), name: l.Name, algorithm: l.Algorithm}
}

// A table keeps what a wrapper remembers of the states it has seen lately: at most so many, of which those that were not
// asked for since the last round make room (the CLOCK algorithm, F. J. Corbató 1969). It is safe for concurrent use;
// states are spread over shards, each with a lock.
type table[V any] struct {
	seed   maphash.Seed
	shards []tableShard[V]
}

// A tableShard is locked while it is used, and what find and add return is good until it is unlocked.
type tableShard[V any] struct {
	sync.Mutex
	index   map[stateID]*tableEntry[V]
	ring    []*tableEntry[V]
	hand    int
	most    int
	evicted func(stateID, *V)
	_       [64]byte // a neighbour's lock is on another line
}

type tableEntry[V any] struct {
	id    stateID
	value V
	place int // in ring
	used  bool
}

const (
	tableShards     = 64
	tableShardLeast = 64 // states that a shard is worth having for
)

// newTable returns a table of at most most states. evicted, if not nil, is told what had to make room, with the shard
// locked.
func newTable[V any](most int, evicted func(stateID, *V)) *table[V] {
	n := min(tableShards, max(1, most/tableShardLeast))
	t := &table[V]{seed: maphash.MakeSeed(), shards: make([]tableShard[V], n)}
	for i := range t.shards {
		s := &t.shards[i]
		s.index = make(map[stateID]*tableEntry[V])
		s.most = most / n
		if i < most%n {
			s.most++
		}
		s.evicted = evicted
	}
	return t
}

// lock returns id's shard, locked.
func (t *table[V]) lock(id *stateID) *tableShard[V] {
	s := &t.shards[maphash.String(t.seed, id.key)%uint64(len(t.shards))]
	s.Lock()
	return s
}

// find returns what is kept of id, or nil.
func (s *tableShard[V]) find(id *stateID) *V {
	e := s.index[*id]
	if e == nil {
		return nil
	}
	e.used = true
	return &e.value
}

// add makes a place for id, which has none, and returns the zero V in it. It keeps a copy of id's texts.
func (s *tableShard[V]) add(id *stateID) *V {
	e := &tableEntry[V]{id: *id, place: len(s.ring)}
	if len(s.ring) < s.most {
		s.ring = append(s.ring, e)
	} else {
		old := s.oldest()
		if s.evicted != nil {
			s.evicted(old.id, &old.value)
		}
		delete(s.index, old.id)
		e.place = old.place
		s.ring[e.place] = e
	}
	e.id.key = strings.Clone(id.key)
	s.index[e.id] = e
	return &e.value
}

// oldest moves the hand on to an entry that was not used since it passed the last time.
func (s *tableShard[V]) oldest() *tableEntry[V] {
	for {
		s.hand = (s.hand + 1) % len(s.ring)
		e := s.ring[s.hand]
		if !e.used {
			return e
		}
		e.used = false
	}
}

// drop forgets id.
func (s *tableShard[V]) drop(id *stateID) {
	e := s.index[*id]
	if e == nil {
		return
	}
	delete(s.index, e.id)
	last := s.ring[len(s.ring)-1]
	last.place = e.place
	s.ring[e.place] = last
	s.ring[len(s.ring)-1] = nil
	s.ring = s.ring[:len(s.ring)-1]
}

// pop forgets some state and returns what was kept of it. ok is false where there is none.
func (t *table[V]) pop() (id stateID, v V, ok bool) {
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		if n := len(s.ring); n > 0 {
			id, v, ok = s.ring[n-1].id, s.ring[n-1].value, true
			s.drop(&id)
		}
		s.Unlock()
		if ok {
			break
		}
	}
	return id, v, ok
}

// each calls f for all that is kept, shard by shard, each locked meanwhile. What f returns false for is forgotten.
func (t *table[V]) each(f func(id stateID, v *V) (keep bool)) {
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		for at := len(s.ring) - 1; at >= 0; at-- {
			if e := s.ring[at]; !f(e.id, &e.value) {
				s.drop(&e.id)
			}
		}
		s.Unlock()
	}
}

// len is how many states are kept.
func (t *table[V]) len() (n int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		n += len(s.ring)
		s.Unlock()
	}
	return n
}
