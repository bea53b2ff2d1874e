package ratelimit

import (
	"math"
	"time"
)

// A denial is what a store said of one state when it denied a call, because of this state or of another in the call.
type denial struct {
	machine     *Machine // of the limit it was said under
	sent, until time.Duration
	cost        int64         // the least that had no room; of a state that had room, more than anybody asks for
	wait        time.Duration // until that cost fits, since sent; 0 for a state that had room
	resetAfter  time.Duration
	remaining   int64
	part        int64 // of one more token
	exact       bool  // the state is that of a bucket, and known to the part
}

func leastDenied(req *Request, res *Result) int64 {
	if res.RetryAfter > 0 {
		return req.Cost
	}
	return math.MaxInt64
}

func (d *denial) set(req *Request, res *Result, sent, maxAge time.Duration) {
	if d.machine == nil || !d.machine.Runs(req.Limit) {
		m, err := NewMachine(*req.Limit)
		if err != nil {
			return // cannot be: the store has taken it
		}
		d.machine = m
	}
	d.sent, d.until = sent, sent+maxAge
	d.cost, d.wait = leastDenied(req, res), res.RetryAfter
	if d.wait > 0 {
		d.until = sent + min(d.wait, maxAge)
	}
	d.remaining, d.resetAfter = res.Remaining, res.ResetAfter
	d.part, d.exact = d.machine.partLeft(res, req.Cost)
}

// partLeft works out from a Result for cost what part of one more token a bucket held, if that can be told. Where
// several are possible it is the least. Products may wrap around: the difference of two is small all the same, and what is
// not is found out in the end.
func (m *Machine) partLeft(res *Result, cost int64) (part int64, ok bool) {
	if m.limit.Algorithm != TokenBucket || res.ResetAfter.Microseconds() > m.full {
		return 0, false
	}
	missing, wait := m.capacity-res.Remaining, res.RetryAfter.Microseconds()
	part = max(0, missing*m.parts-res.ResetAfter.Microseconds()*m.refill)
	if wait > 0 {
		part = max(part, (cost-res.Remaining)*m.parts-wait*m.refill)
	}
	ok = part < m.parts && m.partsTime(missing, part) == res.ResetAfter.Microseconds() &&
		(wait == 0 || m.partsTime(cost-res.Remaining, part) == wait)
	return part, ok
}

// holds tells whether d says something about calls under limit at now.
func (d *denial) holds(now time.Duration, limit *Limit) bool {
	return d.sent <= now && now < d.until && d.machine.Runs(limit)
}

// answer writes what the store would say at now of a cost, as part of a call that is denied. It is not known of a cost
// less than what was denied that may have no room.
func (d *denial) answer(res *Result, now time.Duration, cost int64) (known bool) {
	elapsed := now - d.sent
	m := d.machine
	if d.exact {
		state := State{machine: m, units: d.remaining, part: d.part}
		switch {
		case cost < d.cost:
			*res, _ = m.take(&state, elapsed.Microseconds(), 0, 0)
		case m.narrow:
			m.takeNarrow(res, &state, elapsed.Microseconds(), cost)
		default:
			*res, _ = m.take(&state, elapsed.Microseconds(), cost, 0)
		}
	} else {
		*res = Result{Limit: m.capacity, Remaining: d.remaining, ResetAfter: max(0, d.resetAfter-elapsed), Name: m.limit.Name}
		if cost >= d.cost {
			res.RetryAfter = d.wait - elapsed
		}
	}
	res.Allowed, res.Source = false, SourceDenyCache
	return d.cost <= cost && cost <= m.capacity || cost <= res.Remaining
}
