package ratelimit

import "time"

// The token bucket: a bucket holds capacity tokens, starts full, and gains Rate tokens each Period until it is full
// again. Described as "leaky bucket as a meter" in ITU-T I.371; the refill is lazy, worked out when a call comes.
//
// A token is cut into parts so that a whole number of them comes back each microsecond: Period/Rate in lowest terms is
// parts/refill. What is left is whole tokens and parts of one more, which is exact for every limit.

func (m *Machine) bucketNumbers() {
	d := gcd(m.period, m.limit.Rate)
	m.parts, m.refill = m.period/d, m.limit.Rate/d
	m.full = min(m.partsTime(m.capacity, 0), maxTime)
	whole, _ := mulDiv(m.capacity, m.parts, 1)
	m.narrow = whole < narrowParts-m.refill
}

// narrowParts is the bound below which a full bucket, and what comes back to it in a microsecond, is counted in parts by
// one number.
const narrowParts = 1 << 52

// Parts returns in how many parts m cuts a token, and how many of them come back each microsecond: Period/Rate in
// lowest terms. It is 0, 0 for a machine that is no token bucket.
func (m *Machine) Parts() (perToken, perMicrosecond int64) { return m.parts, m.refill }

// farAway stands for any time too long to tell from another.
const farAway = 1 << 62

// partsTime is how many microseconds bring back the given tokens less the given parts.
func (m *Machine) partsTime(tokens, less int64) int64 {
	if m.narrow {
		missing := tokens*m.parts - less
		if m.refill == 1 { // as with most limits; a division is felt
			return missing
		}
		return (missing + m.refill - 1) / m.refill
	}
	q, rem := mulDiv(tokens, m.parts, m.refill)
	rem -= less // q*refill + rem parts are missing
	if rem > 0 {
		q++
	} else {
		q -= -rem / m.refill
	}
	return min(q, farAway)
}

func (m *Machine) lookBucket(s *State, now int64) (v view) {
	if s.machine == nil {
		v.machine, v.at, v.units = m, now, m.capacity
		return v
	}
	v.State = *s
	if s.machine != m && (s.machine.parts != m.parts || s.machine.refill != m.refill || s.machine.capacity != m.capacity) {
		v.part = 0
		v.units = min(v.units, m.capacity)
	}
	elapsed := now - s.at
	switch {
	case elapsed > 0:
		v.at = now
		m.fill(&v, elapsed)
	case -elapsed > m.full+setBack:
		v.at, v.healed = now, true
	}
	return v
}

// fill adds what comes back in so many microseconds.
func (m *Machine) fill(v *view, elapsed int64) {
	if elapsed >= m.full {
		v.units, v.part = m.capacity, 0
		return
	}
	if m.narrow {
		gained := v.part + elapsed*m.refill
		tokens := gained / m.parts
		v.units += tokens
		v.part = gained - tokens*m.parts
	} else {
		tokens, part := mulDiv(elapsed, m.refill, m.parts)
		v.part += part
		if v.part >= m.parts {
			v.part -= m.parts
			tokens++
		}
		v.units += tokens
	}
	if v.units >= m.capacity {
		v.units, v.part = m.capacity, 0
	}
}

// takeNarrow is take for what nearly every call is: a positive cost, no extra, a narrow bucket last written under m, a
// clock that does not stand behind. It copies no State.
func (m *Machine) takeNarrow(res *Result, s *State, elapsed, cost int64) (changed bool) {
	units, part := s.units, s.part
	switch {
	case elapsed >= m.full:
		units, part = m.capacity, 0
	case elapsed > 0:
		part += elapsed * m.refill
		if part >= m.parts {
			tokens := part / m.parts
			units += tokens
			part -= tokens * m.parts
		}
		if units >= m.capacity {
			units, part = m.capacity, 0
		}
	}
	taken, wait := cost, int64(0)
	if cost > units {
		taken, wait = 0, m.partsTime(cost-units, part)
	} else {
		units -= cost
		s.at, s.units, s.part = s.at+elapsed, units, part
	}
	res.Allowed = taken > 0
	res.Limit = m.capacity
	res.Remaining = units
	res.RetryAfter = time.Duration(wait) * time.Microsecond
	res.ResetAfter = time.Duration(m.partsTime(m.capacity-units, part)) * time.Microsecond
	res.Taken = taken
	res.Name = m.limit.Name
	res.Source = SourceStore
	return taken > 0
}

func (m *Machine) giveBackBucket(v *view, n int64) int64 {
	n = min(n, m.capacity-v.units)
	v.units += n
	if v.units == m.capacity {
		v.part = 0
	}
	return n
}

func (m *Machine) bucketWait(v *view, now, cost int64) int64 {
	return v.at - now + m.partsTime(cost-v.units, v.part)
}

func (m *Machine) bucketUnused(s *State) int64 {
	if s.units >= m.capacity {
		return 0
	}
	return s.at + m.partsTime(m.capacity-s.units, s.part)
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
