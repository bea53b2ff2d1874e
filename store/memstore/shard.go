package memstore

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/sluicego/ratelimit"
)

// A shard is a part of the states under one lock.
type shard struct {
	// What each decision needs is on one cache line.
	mu    sync.Mutex
	table table
	uses  uint64 // how often entries were used

	room    int           // how many empty entries may yet be filled
	live    int           // entries that are not free
	number  int           // which of the shards it is
	due     *atomic.Int64 // no state equals an unused key before this time
	hand    int           // the entry that the sweep looks at next
	soonest int64         // what the sweep will set due to when it is through
	victims *victims      // nil until an eviction needs it
	_       [8]byte
}

// victims are the entries of a shard in the order in which they may have to go.
type victims struct {
	idle queue // by when they equal an unused key, or earlier
	old  queue // by last use, but for those used since it was made
}

// never is later than any time.
const never = 1 << 62

// hash is that of a state: what tells it apart is the key and the limit's Algorithm and Name.
func (s *Store) hash(key string, l *ratelimit.Limit) uint64 {
	return mix(maphash.String(s.seed, key), s.seed, l)
}

func (s *Store) hashOf(e *entry) uint64 {
	l := e.state.Machine().Limit()
	if e.size == isLong {
		return s.hash(*e.long, &l)
	}
	return mix(maphash.Bytes(s.seed, e.text[:e.size]), s.seed, &l)
}

func mix(hash uint64, seed maphash.Seed, l *ratelimit.Limit) uint64 {
	if l.Name != "" || l.Algorithm != 0 {
		const odd = 0x9e3779b97f4a7c15
		hash ^= (maphash.String(seed, l.Name) + uint64(l.Algorithm)) * odd
	}
	return hash
}

func (s *Store) shard(hash uint64) *shard { return &s.shards[hash>>s.shift] }

// insert adds to sh, which is locked, a state that is not there yet and has its place reserved.
func (s *Store) insert(sh *shard, hash uint64, key string, state ratelimit.State) {
	if sh.room == 0 {
		s.resize(sh, s.grown(sh.live))
	}
	e, wasEmpty := sh.table.add(hash)
	if wasEmpty {
		sh.room--
	}
	sh.live++
	sh.uses++
	e.state, e.used = state, sh.uses
	e.setKey(key)
	s.keys.Add(1)
	sh.unusedFrom(e, state.Unused())
}

// forget removes e from sh, which is locked.
func (s *Store) forget(sh *shard, e *entry) {
	s.keys.Add(-1)
	s.charged.Add(-weight(&e.state))
	sh.live--
	if sh.table.remove(s.hashOf(e), e) {
		sh.room++
	}
}

// resize makes the table of sh anew, for up to n entries.
func (s *Store) resize(sh *shard, n int) {
	old := sh.table.entries
	groups := (n + 6) / 7
	sh.table = newTable(groups)
	sh.room = groups*7 - sh.live
	for i := range old {
		if !old[i].isFree() {
			e, _ := sh.table.add(s.hashOf(&old[i]))
			*e = old[i]
		}
	}
	sh.hand, sh.victims = 0, nil
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
