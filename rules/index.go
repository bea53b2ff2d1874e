package rules

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"time"
)

// An index finds entries by owner and route: a hash table of open addressing, in shards. A look-up must not see it change, so
// what changes is copied, shard by shard. The entries lie in it, for a look-up among many waits for memory and for little else.
type index struct {
	seed   maphash.Seed
	any    uint64 // hash of Any
	none   uint64 // hash of ""
	shards [shards]shard
}

const shards = 256

// A shard is at most three quarters used.
type shard struct {
	slots    []entry
	ids      []string // of the slots' entries
	used     int      // slots that hold an entry, or held one
	borrowed bool     // another index has the same slots
}

// What the hash of a slot's entry is if it has none.
const (
	empty = iota
	gone  // there was one, and those behind it are to be found
)

func newIndex() index {
	x := index{seed: maphash.MakeSeed()}
	x.any, x.none = x.hash(Any), x.hash("")
	return x
}

func (x *index) hash(text string) uint64 { return maphash.String(x.seed, text) }

// mix is the hash of an entry, by those of owner and route.
func mix(owner, route uint64) uint64 { return owner ^ bits.RotateLeft64(route, 31) }

// mark is what an entry keeps of its hash.
func mark(hash uint64) uint16 { return uint16(hash>>16) | 2 }

func (x *index) shard(hash uint64) *shard { return &x.shards[hash%shards] }

// get returns the entry of an owner and a route, whose hashes are given, or none.
func (x *index) get(owner string, oh uint64, route string, rh uint64) hit {
	hash := mix(oh, rh)
	s := x.shard(hash)
	if i, ok := s.locate(hash, owner, route); ok {
		return hit{&s.slots[i], &s.ids[i]}
	}
	return hit{}
}

// locate returns the slot of an entry, and whether it is there; if not, it is the empty one that would be next.
func (s *shard) locate(hash uint64, owner, route string) (i int, ok bool) {
	if len(s.slots) == 0 {
		return 0, false
	}
	for i = s.start(hash); ; i = s.after(i) {
		e := &s.slots[i]
		if e.hash == mark(hash) && e.of(owner) && e.route == route {
			return i, true
		}
		if e.hash == empty {
			return i, false
		}
	}
}

// start is where to begin looking for a hash.
func (s *shard) start(hash uint64) int {
	i, _ := bits.Mul64(hash, uint64(len(s.slots)))
	return int(i)
}

func (s *shard) after(i int) int {
	if i++; i < len(s.slots) {
		return i
	}
	return 0
}

// find is get without hashes.
func (x *index) find(owner, route string) hit {
	return x.get(owner, x.hash(owner), route, x.hash(route))
}

// rule returns the rule of an owner for a route that holds now: that of the route, else that of any, or none. It returns the
// hash of the owner, too.
func (x *index) rule(owner, route string, clock func() time.Time) (hit, uint64) {
	oh := x.hash(owner)
	if route != Any && route != "" { // to who asks these are routes as any other, and no rule is for them
		if h := x.get(owner, oh, route, x.hash(route)); h.entry != nil && h.holds(clock) {
			return h, oh
		}
	}
	if h := x.get(owner, oh, Any, x.any); h.entry != nil && h.holds(clock) {
		return h, oh
	}
	return hit{}, oh
}

// put adds e, in the place of another for the same owner and route if there is one. It tells whether there was none.
func (x *index) put(e entry, id string) (added bool) {
	owner := e.owner()
	hash := mix(x.hash(owner), x.hash(e.route))
	e.hash = mark(hash)
	s := x.shard(hash)
	if (s.used+1)*4 > len(s.slots)*3 {
		x.grow(s)
	}
	s.own()
	i, there := s.locate(hash, owner, e.route)
	s.slots[i], s.ids[i] = e, id
	if !there {
		s.used++
	}
	return !there
}

// drop takes out the entry of an owner and a route. It tells whether there was one.
func (x *index) drop(owner, route string) bool {
	hash := mix(x.hash(owner), x.hash(route))
	s := x.shard(hash)
	i, ok := s.locate(hash, owner, route)
	if ok {
		s.own()
		s.slots[i], s.ids[i] = entry{hash: gone}, ""
	}
	return ok
}

// own makes the slots ones that may be changed.
func (s *shard) own() {
	if s.borrowed {
		s.slots, s.ids, s.borrowed = slices.Clone(s.slots), slices.Clone(s.ids), false
	}
}

// grow makes room for more in s.
func (x *index) grow(s *shard) {
	old, ids := s.slots, s.ids
	s.used = 0
	for i := range old {
		if old[i].hash > gone {
			s.used++
		}
	}
	n := s.used*5/3 + 4
	s.slots, s.ids, s.borrowed = make([]entry, n), make([]string, n), false
	for i := range old {
		e := &old[i]
		if e.hash <= gone {
			continue
		}
		at := s.start(mix(x.hash(e.owner()), x.hash(e.route)))
		for s.slots[at].hash != empty {
			at = s.after(at)
		}
		s.slots[at], s.ids[at] = *e, ids[i]
	}
}

// borrow shares the slots with the index that x is a copy of.
func (x *index) borrow() {
	for i := range x.shards {
		x.shards[i].borrowed = true
	}
}

// each yields every entry, in no order.
func (x *index) each(yield func(hit) bool) {
	for i := range x.shards {
		s := &x.shards[i]
		for j := range s.slots {
			if e := &s.slots[j]; e.hash > gone && !yield(hit{e, &s.ids[j]}) {
				return
			}
		}
	}
}
