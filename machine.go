package ratelimit

import (
	"math"
	"math/bits"
	"time"
)

// A Machine is a Limit ready to run: validated, its numbers worked out once. It is a pure state machine: time and cost
// go in, a Result comes out, and what a key has spent is in the State the caller brings. It has no clock and no
// memory, never changes, and is safe for concurrent use.
//
// Times are whole microseconds since the Unix epoch; whatever lies outside 1970 to 2255 counts as the nearer end.
// The resolution is one microsecond for every limit, and the arithmetic is exact: no rounding ever accumulates.
type Machine struct {
	limit    Limit
	capacity int64
	period   int64 // microseconds
	parts    int64 // token bucket: one token is this many parts,
	refill   int64 // and this many come back each microsecond; in lowest terms
	full     int64 // microseconds until the most that can be spent is forgotten, at most maxTime
	narrow   bool  // token bucket: a full bucket's parts fit one number
}

// maxTime is the end of time: the largest whole number that Lua, and so Redis, can count to.
const maxTime = 1<<53 - 1

// setBack is how far beyond the full-refill time a stored time must lie ahead for the clock to count as set back.
const setBack = int64(time.Minute / time.Microsecond)

// NewMachine returns the machine of limit, or an error that is ErrInvalidLimit.
func NewMachine(limit Limit) (*Machine, error) {
	if err := limit.Validate(); err != nil {
		return nil, err
	}
	m := &Machine{limit: limit, capacity: limit.Capacity(), period: limit.Period.Microseconds()}
	m.full = m.period
	switch limit.Algorithm {
	case TokenBucket:
		m.bucketNumbers()
	case SlidingCounter:
		m.full = 2 * m.period
	}
	return m, nil
}

// Limit returns the limit that m runs.
func (m *Machine) Limit() Limit { return m.limit }

// Runs tells whether m is the machine of l, by value.
func (m *Machine) Runs(l *Limit) bool {
	return m.limit.Rate == l.Rate && m.limit.Period == l.Period && m.limit.Burst == l.Burst &&
		m.limit.OnFailure == l.OnFailure && m.Shares(l)
}

// Shares tells whether m and the machine of l have one state between them for each key: the same Algorithm and Name.
func (m *Machine) Shares(l *Limit) bool {
	return m.limit.Algorithm == l.Algorithm && m.limit.Name == l.Name
}

// FullAfter is how many microseconds it takes until the most that can be spent is as if never spent, at most 2^53 - 1.
func (m *Machine) FullAfter() int64 { return m.full }

// A view is a State as it stands at the time of a decision, under the decision's limit. Making one changes nothing.
type view struct {
	State
	healed bool // the clock was set back, and what was spent counts as spent now
}

// Take spends cost at now, in microseconds since the epoch, if there is room, then up to extra more; a negative cost
// gives back. It reports the decision, and whether s changed and has to be saved. Cost and extra are as in a valid
// Request.
func (m *Machine) Take(s *State, now, cost, extra int64) (res Result, changed bool) {
	changed = m.TakeInto(&res, s, now, cost, extra)
	return res, changed
}

// TakeInto is Take for callers to whom a copy of the Result matters: all of res is written.
func (m *Machine) TakeInto(res *Result, s *State, now, cost, extra int64) (changed bool) {
	now = clampTime(now)
	if elapsed := now - s.at; m.narrow && s.machine == m && elapsed >= 0 && 0 < cost && cost <= m.capacity && extra == 0 {
		return m.takeNarrow(res, s, elapsed, cost)
	}
	*res, changed = m.take(s, now, cost, extra)
	return changed
}

func (m *Machine) take(s *State, now, cost, extra int64) (res Result, changed bool) {
	if cost > m.capacity {
		return m.never(), false
	}
	v := m.look(s, now)
	room := m.room(&v, now)
	if cost > room {
		if v.healed {
			m.spend(&v, now, 0)
			*s = v.State
		}
		res = m.result(&v, now, room)
		res.RetryAfter = m.wait(&v, now, cost)
		return res, v.healed
	}
	taken := m.settle(&v, now, cost, extra, &room)
	changed = taken != 0 || v.healed
	if changed {
		*s = v.State
	}
	res = m.result(&v, now, room)
	res.Allowed, res.Taken = true, taken
	return res, changed
}

// A Step is one State to be decided together with others by StepAll.
type Step struct {
	Machine     *Machine
	State       *State
	Cost, Extra int64 // as in a Request
}

// StepAll decides steps at now, in microseconds since the epoch, all or nothing, and writes the decisions to results,
// which is as long. Each State stands once: see Merge. It reports whether any State changed and has to be saved.
func StepAll(now int64, steps []Step, results []Result) (changed bool) {
	now = clampTime(now)
	var space [MaxTakeAll]view
	views := space[:0]
	all := true
	for i, st := range steps {
		m := st.Machine
		views = append(views, m.look(st.State, now))
		v := &views[i]
		room := m.room(v, now)
		results[i] = m.result(v, now, room)
		switch {
		case st.Cost > m.capacity:
			results[i], all, v.healed = m.never(), false, false // as Take: not a look at the state
		case st.Cost > room:
			results[i].RetryAfter, all = m.wait(v, now, st.Cost), false
		}
	}
	for i, st := range steps {
		m, v := st.Machine, &views[i]
		var taken int64
		if all {
			room := results[i].Remaining
			taken = m.settle(v, now, st.Cost, st.Extra, &room)
			results[i] = m.result(v, now, room)
			results[i].Allowed, results[i].Taken = true, taken
		} else if v.healed {
			m.spend(v, now, 0)
		}
		if taken != 0 || v.healed {
			*st.State = v.State
			changed = true
		}
	}
	return changed
}

// settle spends what was admitted, and leaves in room what could be spent after it.
func (m *Machine) settle(v *view, now, cost, extra int64, room *int64) (taken int64) {
	if cost < 0 {
		taken = -m.giveBack(v, now, -max(cost, -math.MaxInt64))
		*room = m.room(v, now)
		return taken
	}
	taken = cost + min(extra, *room-cost)
	if taken > 0 || v.healed {
		m.spend(v, now, taken)
		*room -= taken
	}
	return taken
}

func (m *Machine) look(s *State, now int64) view {
	switch m.limit.Algorithm {
	case SlidingLog:
		return m.lookLog(s, now)
	case SlidingCounter:
		return m.lookCounter(s, now)
	default:
		return m.lookBucket(s, now)
	}
}

// room is what could be spent at now.
func (m *Machine) room(v *view, now int64) int64 {
	switch m.limit.Algorithm {
	case SlidingLog:
		return max(0, m.capacity-v.units)
	case SlidingCounter:
		return m.counterRoom(v, now)
	default:
		return v.units
	}
}

// spend takes n units, for which there is room, and makes v's State one to save.
func (m *Machine) spend(v *view, now, n int64) {
	v.machine = m
	switch m.limit.Algorithm {
	case SlidingLog:
		m.spendLog(v, now, n)
	case SlidingCounter:
		v.units += n
	default:
		v.units -= n
	}
}

// giveBack returns up to n units and reports how many it were.
func (m *Machine) giveBack(v *view, now, n int64) int64 {
	v.machine = m
	switch m.limit.Algorithm {
	case SlidingLog:
		return m.giveBackLog(v, now, n)
	case SlidingCounter:
		return giveBackCounter(v, n)
	default:
		return m.giveBackBucket(v, n)
	}
}

// wait is how long until cost fits, if nobody else spends.
func (m *Machine) wait(v *view, now, cost int64) time.Duration {
	switch m.limit.Algorithm {
	case SlidingLog:
		return duration(m.logWait(v, now, cost))
	case SlidingCounter:
		return duration(m.counterWait(v, now, cost))
	default:
		return duration(m.bucketWait(v, now, cost))
	}
}

func (m *Machine) result(v *view, now, room int64) Result {
	unused := int64(0)
	switch m.limit.Algorithm {
	case SlidingLog:
		unused = m.logUnused(&v.State)
	case SlidingCounter:
		unused = m.counterUnused(&v.State)
	default:
		unused = m.bucketUnused(&v.State)
	}
	return Result{Limit: m.capacity, Remaining: room, ResetAfter: duration(max(0, unused-now)), Name: m.limit.Name}
}

func (m *Machine) never() Result {
	return Result{Limit: m.capacity, RetryAfter: Never, Name: m.limit.Name}
}

func clampTime(now int64) int64 { return min(max(now, 0), maxTime) }

// duration turns microseconds into a Duration, and what passes 292 years into the longest that is not Never.
func duration(us int64) time.Duration {
	const longest = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(us, longest)) * time.Microsecond
}

// mulDiv returns a*b/c and the remainder; a quotient above farAway comes back as that.
func mulDiv(a, b, c int64) (q, rem int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return farAway, 0
	}
	uq, ur := bits.Div64(hi, lo, uint64(c))
	return int64(min(uq, farAway)), int64(ur)
}
