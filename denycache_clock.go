package ratelimit

import "time"

// A stopwatch tells how much time has passed since about when it was made, in whole microseconds that begin when those of
// the clock do.
type stopwatch struct {
	clock func() time.Time // nil: time.Now
	start time.Time
	into  time.Duration // how far into a microsecond start is
}

func newStopwatch(clock func() time.Time) stopwatch {
	s := stopwatch{clock: clock}
	if clock == nil {
		s.start = time.Now()
		s.into = time.Duration(s.start.Nanosecond()) % time.Microsecond
	} else {
		s.start = clock().Truncate(time.Microsecond)
	}
	return s
}

func (s *stopwatch) now() time.Duration {
	if s.clock == nil {
		return (s.into + time.Since(s.start)).Truncate(time.Microsecond)
	}
	d := s.clock().Sub(s.start)
	if into := d % time.Microsecond; into < 0 {
		d -= time.Microsecond // downwards before the start, too
	}
	return d.Truncate(time.Microsecond)
}
