package memstore

import (
	"math"
	"math/bits"
	"strings"

	"github.com/sluicego/ratelimit"
)

// An entry is the state of one key under one limit.
type entry struct {
	state ratelimit.State // its Machine tells the limit's Algorithm and Name, and is nil only in a free entry
	used  uint64          // the shard's count of uses at the last one
	long  *string         // the key if it does not fit in text, which would be one more place in memory to wait for
	size  uint8           // of the key in text; 0 in a free entry
	text  [39]byte
}

// isLong is the size of a key that is in long.
const isLong = math.MaxUint8

func (e *entry) setKey(key string) {
	if len(key) <= len(e.text) {
		e.size = uint8(copy(e.text[:], key))
		return
	}
	key = strings.Clone(key) // it may be part of a large buffer
	e.size, e.long = isLong, &key
}

func (e *entry) hasKey(key string) bool {
	if e.size == isLong {
		return *e.long == key
	}
	return string(e.text[:e.size]) == key
}

func (e *entry) isFree() bool { return e.size == 0 }

// A table finds entries: open addressing by groups of eight, each with a word of eight control bytes that is looked at
// before the entries are, as in the Swiss tables of Abseil. An entry stays where it is until the table is made anew.
type table struct {
	groups  []group
	entries []entry // eight for each group
}

// A group is the control bytes of eight entries: 7 bits of the hash, or empty, or gone, which does not end a search.
type group uint64

const (
	empty = 0x80
	gone  = 0xfe

	eachLow  group = 0x0101010101010101
	eachHigh group = 0x8080808080808080
)

func newTable(groups int) (t table) {
	t.groups, t.entries = make([]group, groups), make([]entry, groups*8)
	for i := range t.groups {
		t.groups[i] = empty * eachLow
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

func (g *group) set(i int, control uint8) {
	*g = *g&^(0xff<<(8*i)) | group(control)<<(8*i)
}

func tag(hash uint64) uint8 { return uint8(hash>>32) & 0x7f }

// home is the group where the search for hash begins.
func (t *table) home(hash uint64) int { return int(uint64(uint32(hash)) * uint64(len(t.groups)) >> 32) }

func (t *table) next(g int) int {
	if g++; g < len(t.groups) {
		return g
	}
	return 0
}

// find returns the entry of key under limit's Algorithm and Name, or nil.
func (t *table) find(hash uint64, key string, limit *ratelimit.Limit) *entry {
	if len(t.groups) == 0 {
		return nil
	}
	for g := t.home(hash); ; g = t.next(g) {
		control := t.groups[g]
		for m := control.tagged(hash); m != 0; m &= m - 1 {
			if e := &t.entries[g*8+m.lowest()]; e.hasKey(key) && e.state.Machine().Shares(limit) {
				return e
			}
		}
		if control.empties() != 0 {
			return nil
		}
	}
}

// add returns a free entry for hash, and whether it was empty. There is one.
func (t *table) add(hash uint64) (e *entry, wasEmpty bool) {
	g := t.home(hash)
	for t.groups[g].frees() == 0 {
		g = t.next(g)
	}
	i := t.groups[g].frees().lowest()
	wasEmpty = t.groups[g]>>(8*i)&0xff == empty
	t.groups[g].set(i, tag(hash))
	return &t.entries[g*8+i], wasEmpty
}

// remove frees e, whose hash is given, and reports whether it is empty now.
func (t *table) remove(hash uint64, e *entry) (isEmpty bool) {
	for g := t.home(hash); ; g = t.next(g) {
		for m := t.groups[g].tagged(hash); m != 0; m &= m - 1 {
			if i := m.lowest(); &t.entries[g*8+i] == e {
				*e = entry{}
				if t.groups[g].empties() != 0 {
					t.groups[g].set(i, empty)
					return true
				}
				t.groups[g].set(i, gone)
				return false
			}
		}
	}
}
