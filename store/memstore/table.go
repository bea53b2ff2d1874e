package memstore

import (
	"math"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluicego/ratelimit"
)

// A table finds entries: open addressing by groups of eight, each with a word of eight control bytes that is looked at
// before the entries are, as in the Swiss tables of Abseil. An entry stays where it is until the table is made anew.
//
// To find an entry takes no lock but the entry's own, under which its key is compared: whoever comes upon one that was
// forgotten or moved meanwhile finds another key there, or none, and looks again under the shard's lock. Entries come,
// go and move under both locks, so either is enough to read a key.
type table struct {
	groups []atomic.Uint64 // a group each
	lines  []lines         // entries and keys; see entry and name
}

// lines are cache lines: two entries, and the keys of the second and of the first of the lines that follow, so that an
// entry lies beside its key and a decision writes to one line.
type lines struct {
	entries [2]entry
	names   [2]name
}

// An entry is the state of one key under one limit.
type entry struct {
	mu    sync.Mutex
	used  int64           // when, by Store.moment
	state ratelimit.State // its Machine tells the limit's Algorithm and Name, and is nil only in a free entry
	long  *string         // the key if it does not fit in the name, which would be one more place in memory to wait for
}

// A name is the key of an entry.
type name struct {
	size uint8 // 0 in a free entry
	text [31]byte
}

// isLong is the size of a key that is in long.
const isLong = math.MaxUint8

func (t *table) entry(i int) *entry { return &t.lines[(i+1)>>1].entries[(i+1)&1] }

func (t *table) name(i int) *name { return &t.lines[i>>1].names[i&1] }

func (t *table) setKey(i int, key string) {
	n := t.name(i)
	if len(key) <= len(n.text) {
		n.size = uint8(copy(n.text[:], key))
		return
	}
	key = strings.Clone(key) // it may be part of a large buffer
	n.size, t.entry(i).long = isLong, &key
}

// key is not to be kept.
func (t *table) key(i int) string {
	n := t.name(i)
	if n.size == isLong {
		return *t.entry(i).long
	}
	return string(n.text[:n.size])
}

func (t *table) hasKey(i int, key string) bool {
	n := t.name(i)
	if n.size == isLong {
		return *t.entry(i).long == key
	}
	return string(n.text[:n.size]) == key
}

// A group is the control bytes of eight entries: 7 bits of the hash, or empty, or gone, which does not end a search.
type group uint64

const (
	empty = 0x80
	gone  = 0xfe

	eachLow  group = 0x0101010101010101
	eachHigh group = 0x8080808080808080
)

func newTable(groups int) *table {
	t := &table{groups: make([]atomic.Uint64, groups), lines: make([]lines, groups*4+1)}
	for i := range t.groups {
		t.groups[i].Store(uint64(empty * eachLow))
	}
	return t
}

// tagged marks the entries whose tag may be that of hash, empties those that are empty, and frees those that are empty
// or gone. The lowest mark is 8 times the number of its entry, and 7.
func (g group) tagged(hash uint64) group {
	x := g ^ eachLow*group(tag(hash))
	return (x - eachLow) &^ x & eachHigh
}

func (g group) empties() group { return g &^ (g << 6) & eachHigh }

func (g group) frees() group { return g & eachHigh }

func (g group) lowest() int { return bits.TrailingZeros64(uint64(g)) / 8 }

func tag(hash uint64) uint8 { return uint8(hash>>32) & 0x7f }

func (t *table) group(g int) group { return group(t.groups[g].Load()) }

func (t *table) mark(g, i int, control uint8) {
	t.groups[g].Store(uint64(t.group(g)&^(0xff<<(8*i)) | group(control)<<(8*i)))
}

// len is how many entries there are, free or not.
func (t *table) len() int { return 8 * len(t.groups) }

// lock returns entry i, locked, or nil if it is free. The shard is locked.
func (t *table) lock(i int) *entry {
	if t.name(i).size == 0 {
		return nil
	}
	e := t.entry(i)
	e.mu.Lock()
	return e
}

// home is the group where the search for hash begins.
func (t *table) home(hash uint64) int { return int(uint64(uint32(hash)) * uint64(len(t.groups)) >> 32) }

func (t *table) next(g int) int {
	if g++; g < len(t.groups) {
		return g
	}
	return 0
}

// find returns the entry of key under limit's Algorithm and Name, locked, and its number; or nil.
func (t *table) find(hash uint64, key string, limit *ratelimit.Limit) (e *entry, i int) {
	for g := t.home(hash); ; g = t.next(g) {
		control := t.group(g)
		if e, i = t.among(g, control.tagged(hash), key, limit); e != nil || control.empties() != 0 {
			return e, i
		}
	}
}

// among is find among the marked entries of group g.
func (t *table) among(g int, marks group, key string, limit *ratelimit.Limit) (e *entry, i int) {
	for ; marks != 0; marks &= marks - 1 {
		i := g*8 + marks.lowest()
		e := t.entry(i)
		e.mu.Lock()
		if t.hasKey(i, key) && e.state.Machine().Shares(limit) {
			return e, i
		}
		e.mu.Unlock()
	}
	return nil, 0
}

// add returns the number of a free entry for hash, and whether it was empty. There is one.
func (t *table) add(hash uint64) (i int, wasEmpty bool) {
	g := t.home(hash)
	for t.group(g).frees() == 0 {
		g = t.next(g)
	}
	j := t.group(g).frees().lowest()
	wasEmpty = t.group(g)>>(8*j)&0xff == empty
	t.mark(g, j, tag(hash))
	return g*8 + j, wasEmpty
}

// remove frees entry i, which is locked, and reports whether it is empty now.
func (t *table) remove(i int) (isEmpty bool) {
	e, g, j := t.entry(i), i/8, i%8
	e.used, e.state, e.long, *t.name(i) = 0, ratelimit.State{}, nil, name{}
	if t.group(g).empties() != 0 {
		t.mark(g, j, empty)
		return true
	}
	t.mark(g, j, gone)
	return false
}
