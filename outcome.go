package ratelimit

// An Outcome is a decision that was made elsewhere, in a script or a stored procedure that mirrors a Machine: the
// State as it was left, in numbers. Times are microseconds relative to the decision's own now.
type Outcome struct {
	Allowed bool
	Taken   int64
	At      int64 // bucket: when what is left was left; counter: start of its window; log: its newest entry
	Units   int64 // bucket: whole tokens left; counter: count of the window; log: spent in the window
	Part    int64 // bucket: parts of one more token; counter: count of the window before
	Wait    int64 // log: until the cost fits, if it does not
}

// Report returns the Result of an outcome of m, for the cost that was asked for.
func (m *Machine) Report(o Outcome, cost int64) Result {
	if cost > m.capacity {
		return m.never()
	}
	v := view{State: State{machine: m, at: o.At, units: o.Units, part: o.Part}}
	room := m.room(&v, 0)
	res := m.result(&v, 0, room)
	res.Allowed, res.Taken = o.Allowed, o.Taken
	switch {
	case o.Allowed || cost <= room: // not admitted, yet with room: another limit denied
	case m.limit.Algorithm == SlidingLog:
		res.RetryAfter = duration(o.Wait)
	default:
		res.RetryAfter = m.wait(&v, 0, cost)
	}
	return res
}
