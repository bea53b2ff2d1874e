package ratelimit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// A State is what one key has spent under one limit. It is opaque: a Machine reads and changes it, AppendBinary and
// UnmarshalBinary carry it through a database. The zero State is an unused key. It is not safe for concurrent use, and
// a copy of the State of a SlidingLog shares its log with the original.
type State struct {
	machine *Machine // under which it was last written; nil is an unused key
	at      int64    // bucket: when units and part were there; counter: start of its window; log: its newest entry
	units   int64    // bucket: whole tokens left; counter: count of the window; log: spent and still in the window
	part    int64    // bucket: parts of one more token; counter: count of the window before; log: index of the oldest entry that counts
	log     *spendLog
}

// Machine returns the machine that s was last written under, nil for an unused key.
func (s *State) Machine() *Machine { return s.machine }

// Unused is when s will be as if it had never been used, in microseconds since the epoch, under the limit it was last
// written under. A store may forget it then.
func (s *State) Unused() int64 {
	if s.machine == nil {
		return 0
	}
	switch s.machine.limit.Algorithm {
	case SlidingLog:
		return s.machine.logUnused(s)
	case SlidingCounter:
		return s.machine.counterUnused(s)
	default:
		return s.machine.bucketUnused(s)
	}
}

// errState is a State that UnmarshalBinary cannot read.
var errState = errors.New("ratelimit: unreadable state")

const stateVersion = 1

// AppendBinary appends s in a form that UnmarshalBinary reads, whatever the limit is by then. It never fails.
func (s *State) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, stateVersion)
	if s.machine == nil {
		return b, nil
	}
	l := &s.machine.limit
	b = append(b, byte(l.Algorithm))
	for _, n := range [...]int64{l.Rate, s.machine.period, l.Burst} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = binary.AppendUvarint(b, uint64(s.at))
	if l.Algorithm == SlidingLog {
		return s.appendLog(b), nil
	}
	b = binary.AppendUvarint(b, uint64(s.units))
	return binary.AppendUvarint(b, uint64(s.part)), nil
}

// UnmarshalBinary reads what AppendBinary wrote and replaces s. After an error s is unused, which is what the contract
// of Store asks for a state that cannot be read.
func (s *State) UnmarshalBinary(data []byte) error {
	*s = State{}
	if len(data) == 0 || data[0] != stateVersion {
		return fmt.Errorf("%w: no version that is known", errState)
	}
	if len(data) == 1 {
		return nil
	}
	r := reader{data: data[2:]}
	limit := Limit{Algorithm: Algorithm(data[1]), Rate: r.next()}
	period := r.next()
	limit.Burst = r.next()
	if period > maxSharePeriod.Microseconds() {
		return fmt.Errorf("%w: its limit is none", errState)
	}
	limit.Period = time.Duration(period) * time.Microsecond
	limit.long = limit.Period > maxPeriod
	m, err := NewMachine(limit)
	if err != nil {
		return fmt.Errorf("%w: its limit is none", errState)
	}
	read := State{machine: m, at: r.next()}
	if limit.Algorithm == SlidingLog {
		read.log = readLog(&r)
		read.units = read.log.spent()
		r.failed = r.failed || read.log.newest() > read.at
		if l := read.log; l != nil && (len(l.entries) == 0 || len(l.entries) == 1 && l.newest() == read.at) {
			read.log = nil // its units and time say as much
		}
	} else {
		read.units, read.part = r.next(), r.next()
	}
	switch {
	case r.failed || len(r.data) > 0:
		return fmt.Errorf("%w: it is cut short or too long", errState)
	case limit.Algorithm == TokenBucket && (read.units > m.capacity || read.part >= m.parts || read.units == m.capacity && read.part > 0):
		return fmt.Errorf("%w: a bucket holds more than fits", errState)
	case limit.Algorithm == SlidingCounter && max(read.units, read.part) > maxRate:
		return fmt.Errorf("%w: a window counts more than fits", errState)
	}
	*s = read
	return nil
}

// A reader takes numbers from 0 to maxTime off a State's binary form.
type reader struct {
	data   []byte
	failed bool
}

func (r *reader) next() int64 {
	n, size := binary.Uvarint(r.data)
	if size <= 0 || n > maxTime {
		r.failed, r.data = true, nil
		return 0
	}
	r.data = r.data[size:]
	return int64(n)
}
