package memstore

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/sluicego/ratelimit"
)

// A shard is a part of the states, with one lock under which they come and go. What is locked of it and of its entries is
// locked in this order.
type shard struct {
	table  atomic.Pointer[table]
	due    *atomic.Int64 // no state equals an unused key before this time
	number int           // which of the shards it is
	_      [40]byte      // what most calls only read stays off the lines that others write

	mu      sync.Mutex
	room    int   // how many empty entries may yet be filled
	live    int   // entries that are not free
	hand    int   // the entry that the sweep looks at next
	soonest int64 // what the sweep will set due to when it is through
	idle    queue // entries by when they equal an unused key, or earlier; nil until an eviction needs it
	old     queue // entries by last use, but for those used since it was made
	_       [40]byte
}

// never is later than any time.
const never = 1 << 62

// hash is that of a state: what tells it apart is the key and the limit's Algorithm and Name.
func (s *Store) hash(key string, l *ratelimit.Limit) uint64 {
	hash := maphash.String(s.seed, key)
	if l.Name != "" || l.Algorithm != 0 {
		const odd = 0x9e3779b97f4a7c15
		hash ^= (maphash.String(s.seed, l.Name) + uint64(l.Algorithm)) * odd
	}
	return hash
}

func (s *Store) shard(hash uint64) *shard { return &s.shards[hash>>s.shift] }

// find returns the entry of key under limit's Algorithm and Name, locked, and its number in a table; or nil, and then sh
// is locked.
func (sh *shard) find(hash uint64, key string, limit *ratelimit.Limit) (e *entry, i int, t *table) {
	t = sh.table.Load()
	if e, i = t.find(hash, key, limit); e == nil {
		sh.mu.Lock()
		t = sh.table.Load()
		if e, i = t.find(hash, key, limit); e != nil {
			sh.mu.Unlock()
		}
	}
	return e, i, t
}

// insert adds to sh, which is locked, a state that is not there yet and has its place reserved.
func (s *Store) insert(sh *shard, hash uint64, key string, state *ratelimit.State, used int64) {
	if sh.room == 0 {
		s.resize(sh, s.grown(sh.live))
	}
	t := sh.table.Load()
	i, wasEmpty := t.add(hash)
	e := t.entry(i)
	e.mu.Lock()
	e.state, e.used = *state, used
	t.setKey(i, key)
	e.mu.Unlock()
	if wasEmpty {
		sh.room--
	}
	sh.live++
	s.keys.Add(1)
	sh.unusedFrom(t, i, state.Unused())
}

// forget removes entry e, the ith of sh. Both are locked.
func (s *Store) forget(sh *shard, e *entry, i int) {
	s.keys.Add(-1)
	s.charged.Add(-weight(&e.state))
	sh.live--
	if sh.table.Load().remove(i) {
		sh.room++
	}
}

// resize makes the table of sh, which is locked, anew, for up to n entries.
func (s *Store) resize(sh *shard, n int) {
	old, groups := sh.table.Load(), (n+6)/7
	t := newTable(groups)
	for i := range old.len() {
		e := old.lock(i)
		if e == nil {
			continue
		}
		l := e.state.Machine().Limit()
		j, _ := t.add(s.hash(old.key(i), &l))
		to := t.entry(j)
		to.state, to.used, to.long, *t.name(j) = e.state, e.used, e.long, *old.name(i)
		old.remove(i) // for those who are still looking there
		e.mu.Unlock()
	}
	sh.table.Store(t)
	sh.room = groups*7 - sh.live
	sh.hand, sh.idle, sh.old = 0, nil, nil
}

// grown is what to make room for where there are n entries. One step is to a little more than a shard's share of
// MaxKeys, where it will stay.
func (s *Store) grown(n int) int {
	fair := int(s.max) / len(s.shards)
	if share := fair + fair/32 + 64; share/2 < n && n < share-share/64 {
		return share
	}
	return max(14, n*3/2)
}
