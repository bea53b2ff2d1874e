package memstore

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluicego/ratelimit"
)

// An entry is the state of one key under one limit: one cache line. It is free if key is empty.
type entry struct {
	key   string
	state ratelimit.State // its Machine tells the limit's Algorithm and Name, and is never nil
	used  uint64          // the shard's count of uses at the last one; of a free entry, the next free one plus 1
}

// A shard is a part of the states under one lock: entries in one slice, and an open-addressing table of places in it.
type shard struct {
	mu      sync.Mutex
	slots   []slot // its length is a power of two, at least 4/3 of the capacity of entries
	entries []entry
	free    uint64        // the first free entry plus 1; 0 if there is none
	live    int           // entries that are not free
	uses    uint64        // how often entries were used
	due     *atomic.Int64 // no state equals an unused key before this time
	number  int           // which of the shards it is
	hand    int           // the entry that the sweep looks at next
	soonest int64         // what the sweep will set due to when it is through
	idle    queue         // entries by when they equal an unused key, or earlier; nil until an eviction needs it
	old     queue         // entries by last use, but for those used since it was made; nil until an eviction needs it
}

// never is later than any time.
const never = 1 << 62

// A slot is the lower half of a hash and a place in entries plus 1; 0 is empty.
type slot uint64

func slotOf(hash uint64, place int) slot { return slot(hash<<32 | uint64(place+1)) }

func (s slot) place() int { return int(uint32(s)) - 1 }

// tag is the lower half of the hash, whose lower bits are where in the table the slot belongs.
func (s slot) tag() uint32 { return uint32(s >> 32) }

// find returns the entry of key under limit's Algorithm and Name, or nil.
func (sh *shard) find(hash uint64, key string, limit *ratelimit.Limit) *entry {
	mask := len(sh.slots) - 1
	if mask < 0 {
		return nil
	}
	for i := int(uint32(hash)) & mask; ; i = (i + 1) & mask {
		sl := sh.slots[i]
		if sl == 0 {
			return nil
		}
		if sl.tag() != uint32(hash) {
			continue
		}
		if e := &sh.entries[sl.place()]; e.key == key && e.state.Machine().Shares(limit) {
			return e
		}
	}
}

// insert adds a state that is not there yet.
func (sh *shard) insert(hash uint64, key string, state ratelimit.State) {
	if sh.free == 0 && len(sh.entries) == cap(sh.entries) {
		sh.resize(max(12, cap(sh.entries)*3/2))
	}
	place := int(sh.free) - 1
	if place >= 0 {
		sh.free = sh.entries[place].used
	} else {
		place = len(sh.entries)
		sh.entries = sh.entries[:place+1]
	}
	sh.uses++
	sh.live++
	e := &sh.entries[place]
	*e = entry{key: strings.Clone(key), state: state, used: sh.uses} // key may be part of a large buffer
	sh.put(slotOf(hash, place))
	sh.unusedFrom(e, state.Unused())
}

func (sh *shard) put(sl slot) {
	mask := len(sh.slots) - 1
	i := int(sl.tag()) & mask
	for sh.slots[i] != 0 {
		i = (i + 1) & mask
	}
	sh.slots[i] = sl
}

// resize gives room for n entries, and moves them together.
func (sh *shard) resize(n int) {
	slots, entries := sh.slots, sh.entries
	size := 16
	for size*3 < n*4 {
		size *= 2
	}
	sh.slots, sh.entries = make([]slot, size), make([]entry, 0, n)
	for _, sl := range slots {
		if sl != 0 {
			sh.put(sl&^math.MaxUint32 | slot(len(sh.entries)+1))
			sh.entries = append(sh.entries, entries[sl.place()])
		}
	}
	sh.free, sh.hand, sh.idle, sh.old = 0, 0, nil, nil
}

// remove frees e, whose hash is given.
func (sh *shard) remove(hash uint64, e *entry) {
	mask := len(sh.slots) - 1
	hole := int(uint32(hash)) & mask
	for sh.slots[hole].tag() != uint32(hash) || &sh.entries[sh.slots[hole].place()] != e {
		hole = (hole + 1) & mask
	}
	*e = entry{used: sh.free}
	sh.free = uint64(sh.slots[hole].place()) + 1
	sh.live--
	for i := (hole + 1) & mask; sh.slots[i] != 0; i = (i + 1) & mask {
		if (i-int(sh.slots[i].tag()))&mask >= (i-hole)&mask { // then the hole lies between its home and it
			sh.slots[hole] = sh.slots[i]
			hole = i
		}
	}
	sh.slots[hole] = 0
}
