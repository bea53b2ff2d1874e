package ratelimit

import (
	"encoding/binary"
	"fmt"
	"sort"
	"time"
)

// The sliding log: every admitted call is remembered, and counts while its time + Period > now. Exact: no window of one
// Period ever admits more than Rate. Entries hold running totals, so the sum of any stretch is one subtraction and one
// entry holds any cost.

type logEntry struct {
	at    int64 // microseconds
	total int64 // everything spent up to and with this entry
}

// A spendLog is the entries of a sliding log in order of time; those before head have been dropped. A State needs none
// for one entry, which is its units at its time: that is all there is of most keys of a large service.
type spendLog struct {
	entries []logEntry
	head    int
	base    int64 // the running total before entries[head]
}

func (l *spendLog) newest() int64 {
	if l == nil || l.head == len(l.entries) {
		return 0
	}
	return l.entries[len(l.entries)-1].at
}

func (l *spendLog) spent() int64 {
	if l == nil || l.head == len(l.entries) {
		return 0
	}
	return l.entries[len(l.entries)-1].total - l.base
}

// before is the running total before entries[i].
func (l *spendLog) before(i int) int64 {
	if i == l.head {
		return l.base
	}
	return l.entries[i-1].total
}

// drop forgets the entries before i, and compacts once they are half.
func (l *spendLog) drop(i int) {
	l.base, l.head = l.before(i), i
	if l.head >= 16 && l.head >= len(l.entries)/2 {
		kept := l.entries[l.head:]
		if cap(l.entries) > 4*len(kept) {
			l.entries = append(make([]logEntry, 0, 2*len(kept)), kept...)
		} else {
			l.entries = l.entries[:copy(l.entries, kept)]
		}
		l.head = 0
	}
}

func (m *Machine) lookLog(s *State, now int64) (v view) {
	v.State = *s
	after := max(now, s.at) - m.period
	if l := s.log; l == nil {
		if s.at <= after {
			v.units = 0
		}
	} else {
		v.part = int64(l.firstLive(after))
		v.units = 0
		if int(v.part) < len(l.entries) {
			v.units = l.entries[len(l.entries)-1].total - l.before(int(v.part))
		}
	}
	if s.at-now > m.period+setBack {
		v.at, v.healed = now, true
	}
	return v
}

// firstLive is the index of the oldest entry later than the given time.
func (l *spendLog) firstLive(after int64) int {
	live := l.entries[l.head:]
	if len(live) == 0 || live[0].at > after {
		return l.head
	}
	return l.head + sort.Search(len(live), func(i int) bool { return live[i].at > after })
}

// spendLog trims v's log to the window and enters n units at now, or at its newest time if that lies ahead.
func (m *Machine) spendLog(v *view, now, n int64) {
	at := max(v.at, now)
	switch {
	case v.healed:
		v.log, v.part = nil, 0
		v.units += n
		return
	case v.log != nil:
		v.log.drop(int(v.part))
		v.part = int64(v.log.head)
	case n > 0 && v.units > 0 && v.at < at:
		v.log = &spendLog{entries: append(make([]logEntry, 0, 2), logEntry{at: v.at, total: v.units})}
	}
	if n == 0 {
		return
	}
	v.units += n
	v.at = at
	l := v.log
	if l == nil {
		return
	}
	last := len(l.entries) - 1
	if last >= l.head && l.entries[last].at == v.at {
		l.entries[last].total += n
		return
	}
	l.entries = append(l.entries, logEntry{at: v.at, total: l.before(len(l.entries)) + n})
}

// giveBackLog takes up to n of the oldest units out of the window.
func (m *Machine) giveBackLog(v *view, now, n int64) int64 {
	n = min(n, v.units)
	if n == 0 && !v.healed {
		return 0
	}
	m.spendLog(v, now, 0)
	v.units -= n
	l := v.log
	if l == nil {
		return n
	}
	base := l.base + n
	l.drop(l.head + sort.Search(len(l.entries)-l.head, func(i int) bool { return l.entries[l.head+i].total > base }))
	l.base = base
	v.part = int64(l.head)
	return n
}

// logWait is the time until the entries whose units are in the way have left the window.
func (m *Machine) logWait(v *view, now, cost int64) int64 {
	if v.healed {
		return m.period
	}
	l := v.log
	if l == nil {
		return v.at + m.period - now
	}
	first := int(v.part)
	needed := l.before(first) + v.units + cost - m.capacity
	i := first + sort.Search(len(l.entries)-first, func(i int) bool { return l.entries[first+i].total >= needed })
	return l.entries[i].at + m.period - now
}

func (m *Machine) logUnused(s *State) int64 {
	if s.units == 0 {
		return 0
	}
	return s.at + m.period
}

// History returns the entries of a sliding log that still count at now, in microseconds since the epoch, oldest first.
// The machine of another Algorithm has none to give, which is ErrInvalidLimit.
func (m *Machine) History(s *State, now int64) ([]Entry, error) {
	if m.limit.Algorithm != SlidingLog {
		return nil, fmt.Errorf("%w: only a %v has a history", ErrInvalidLimit, SlidingLog)
	}
	v := m.lookLog(s, clampTime(now))
	l := s.log
	switch {
	case l == nil && v.units > 0:
		return []Entry{{Time: time.UnixMicro(s.at), Cost: v.units}}, nil
	case l == nil:
		return nil, nil
	}
	entries := make([]Entry, 0, len(l.entries)-int(v.part))
	for i := int(v.part); i < len(l.entries); i++ {
		entries = append(entries, Entry{Time: time.UnixMicro(l.entries[i].at), Cost: l.entries[i].total - l.before(i)})
	}
	return entries, nil
}

// Entries is how many calls of a sliding log s remembers, if they are several, which takes memory. Else, and for the
// other algorithms, it is 0.
func (s *State) Entries() int {
	if s.log == nil || len(s.log.entries)-s.log.head == 1 {
		return 0
	}
	return len(s.log.entries) - s.log.head
}

func (s *State) appendLog(b []byte) []byte {
	l := s.log
	if l == nil {
		l = &spendLog{}
		if s.units > 0 {
			l.entries = []logEntry{{at: s.at, total: s.units}}
		}
	}
	b = binary.AppendUvarint(b, uint64(len(l.entries)-l.head))
	before := logEntry{total: l.base}
	for _, e := range l.entries[l.head:] {
		b = binary.AppendUvarint(b, uint64(e.at-before.at))
		b = binary.AppendUvarint(b, uint64(e.total-before.total))
		before = e
	}
	return b
}

func readLog(r *reader) *spendLog {
	count := r.next()
	if count > int64(len(r.data)/2) { // an entry takes two bytes at the least
		r.failed = true
		return nil
	}
	l := &spendLog{entries: make([]logEntry, 0, count)}
	var last logEntry
	for range count {
		last.at += r.next()
		last.total += r.next()
		if last.at > maxTime || last.total > maxTime {
			r.failed = true
			return nil
		}
		l.entries = append(l.entries, last)
	}
	return l
}

// The sliding counter: windows of one Period, aligned to the Unix epoch, and of them two counts. The window before is
// taken to have been spent evenly, so at a time elapsed into the current window
//
//	used = previous * (1 - elapsed/Period) + current
//
// and a cost fits while used + cost <= Rate. As Cloudflare describes it ("How we built rate limiting capable of scaling
// to millions of domains", 2017), in whole numbers. A count that two windows run together into stops at the largest
// Rate there is.

func (m *Machine) lookCounter(s *State, now int64) (v view) {
	start := now - now%m.period
	if s.machine == nil {
		v.machine, v.at = m, start
		return v
	}
	if s.machine != m && s.machine.period != m.period {
		old := s.machine.lookCounter(s, now)
		v.at, v.units = start, min(old.units+s.machine.previousShare(&old, now), maxRate)
		v.healed = old.healed
		return v
	}
	v.State = *s
	switch behind := s.at - now; {
	case start == s.at:
	case start == s.at+m.period:
		v.at, v.part, v.units = start, s.units, 0
	case start > s.at:
		v.at, v.part, v.units = start, 0, 0
	case behind > m.period+setBack:
		v.at, v.part, v.units, v.healed = start, 0, min(s.units+s.part, maxRate), true
	}
	return v
}

// previousShare is what the window before still counts for, rounded up.
func (m *Machine) previousShare(v *view, now int64) int64 {
	elapsed := max(0, now-v.at)
	q, rem := mulDiv(v.part, m.period-elapsed, m.period)
	if rem > 0 {
		q++
	}
	return q
}

func (m *Machine) counterRoom(v *view, now int64) int64 {
	room := m.capacity - v.units
	if v.part > 0 {
		room -= m.previousShare(v, now)
	}
	return max(0, room)
}

func giveBackCounter(v *view, n int64) int64 {
	previous := min(n, v.part)
	current := min(n-previous, v.units)
	v.part -= previous
	v.units -= current
	return previous + current
}

// counterWait solves used + cost = Rate for the time, in this window or in the next, where the current count is the one
// that wanes.
func (m *Machine) counterWait(v *view, now, cost int64) int64 {
	room := m.capacity - v.units - cost
	if room >= 0 { // then the previous count is in the way, and is the larger
		return v.at + m.wanes(v.part, room) - now
	}
	return v.at + m.period + m.wanes(v.units, m.capacity-cost) - now
}

// wanes is how far into a window a count of the window before it has waned to what there is room for.
func (m *Machine) wanes(count, room int64) int64 {
	if count <= room {
		return 0
	}
	q, _ := mulDiv(room, m.period, count)
	return m.period - q
}

func (m *Machine) counterUnused(s *State) int64 {
	switch {
	case s.units > 0:
		return s.at + 2*m.period
	case s.part > 0:
		return s.at + m.period
	default:
		return 0
	}
}
