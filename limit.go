package ratelimit

import (
	"fmt"
	"time"
)

// Algorithm is how a Limit counts what was spent.
type Algorithm uint8

const (
	// TokenBucket refills steadily and admits bursts up to its capacity. It is the zero value and the usual choice.
	TokenBucket Algorithm = iota
	// SlidingLog remembers every admitted call of the last Period: exact, at the price of memory per call.
	SlidingLog
	// SlidingCounter weighs the previous window against the current one: three numbers a key, never more than Rate
	// by its own estimate.
	SlidingCounter
)

var algorithmNames = [...]string{TokenBucket: "token-bucket", SlidingLog: "sliding-log", SlidingCounter: "sliding-counter"}

// String returns "token-bucket", "sliding-log" or "sliding-counter".
func (a Algorithm) String() string { return nameOf("Algorithm", algorithmNames[:], a) }

// MarshalText returns what String does, and an error for a value that is no Algorithm.
func (a Algorithm) MarshalText() ([]byte, error) {
	return marshalName(ErrInvalidLimit, "Algorithm", algorithmNames[:], a)
}

// UnmarshalText accepts exactly the texts that String returns.
func (a *Algorithm) UnmarshalText(text []byte) error {
	return unmarshalName(ErrInvalidLimit, "Algorithm", algorithmNames[:], a, text)
}

// FailureMode is what becomes of a decision while the store is away. Only a Fallback reads it.
type FailureMode uint8

const (
	// FailDefault leaves the choice to FallbackOptions.Mode.
	FailDefault FailureMode = iota
	// FailLocal decides in this process with its share of the limit.
	FailLocal
	// FailOpen admits.
	FailOpen
	// FailClosed denies.
	FailClosed
)

var failureModeNames = [...]string{FailDefault: "default", FailLocal: "local", FailOpen: "open", FailClosed: "closed"}

// String returns "default", "local", "open" or "closed".
func (m FailureMode) String() string { return nameOf("FailureMode", failureModeNames[:], m) }

// MarshalText returns what String does, and an error for a value that is no FailureMode.
func (m FailureMode) MarshalText() ([]byte, error) {
	return marshalName(ErrInvalidLimit, "FailureMode", failureModeNames[:], m)
}

// UnmarshalText accepts the texts that String returns, and the empty text for FailDefault.
func (m *FailureMode) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*m = FailDefault
		return nil
	}
	return unmarshalName(ErrInvalidLimit, "FailureMode", failureModeNames[:], m, text)
}

// A Limit says how much a key may spend: Rate units per Period. It is plain data: comparable, printable, loadable from
// a database row.
type Limit struct {
	// Name tells apart limits that apply to one key: [A-Za-z0-9_.-]*, may be empty. A key has one state for each
	// Algorithm and Name, so the numbers of a limit may change and what was spent stays spent.
	Name string
	// Algorithm is TokenBucket unless set.
	Algorithm Algorithm
	// Rate is units per Period, 1 to 1e9; for a SlidingLog, which keeps every admitted call, 1 to 100,000.
	Rate int64
	// Period is 1 ms to 366 days, in whole microseconds.
	Period time.Duration
	// Burst is the capacity of a TokenBucket, up to 1e9; 0 means Rate. It must be 0 for the sliding windows.
	Burst int64
	// OnFailure is what a Fallback does for this limit while the store is away; the zero value is what
	// FallbackOptions.Mode says. Stores themselves do not read it: they return ErrStoreUnavailable.
	OnFailure FailureMode

	long bool // a Share, whose Period may pass 366 days
}

// PerSecond returns a token bucket of n units a second that holds n.
func PerSecond(n int64) Limit { return Limit{Rate: n, Period: time.Second} }

// PerMinute returns a token bucket of n units a minute that holds n.
func PerMinute(n int64) Limit { return Limit{Rate: n, Period: time.Minute} }

// PerHour returns a token bucket of n units an hour that holds n.
func PerHour(n int64) Limit { return Limit{Rate: n, Period: time.Hour} }

// PerDay returns a token bucket of n units per 24 hours that holds n. It is full at first, so the first day may see twice n:
// a quota is a sliding window.
func PerDay(n int64) Limit { return Limit{Rate: n, Period: 24 * time.Hour} }

// Named returns l with that Name.
func (l Limit) Named(name string) Limit {
	l.Name = name
	return l
}

// Capacity is the most that can be spent at once from rest: Burst, or Rate where Burst is 0.
func (l Limit) Capacity() int64 {
	if l.Burst > 0 {
		return l.Burst
	}
	return l.Rate
}

// String returns the limit for people, such as "login: token-bucket 10 per 1m0s, burst 20".
func (l Limit) String() string {
	s := fmt.Sprintf("%v %d per %v", l.Algorithm, l.Rate, l.Period)
	if l.Name != "" {
		s = l.Name + ": " + s
	}
	if l.Burst != 0 {
		s += fmt.Sprintf(", burst %d", l.Burst)
	}
	if l.OnFailure != FailDefault {
		s += fmt.Sprintf(", on failure %v", l.OnFailure)
	}
	return s
}

const (
	maxRate    = 1_000_000_000
	maxLogRate = 100_000
	minPeriod  = time.Millisecond
	maxPeriod  = 366 * 24 * time.Hour
)

// Validate returns nil, or an error that is ErrInvalidLimit and names the field and the bound.
func (l Limit) Validate() error {
	top := int64(maxRate)
	switch l.Algorithm {
	case TokenBucket:
		if l.Burst < 0 || l.Burst > maxRate {
			return fmt.Errorf("%w: Burst %d is outside 0 to %d", ErrInvalidLimit, l.Burst, maxRate)
		}
	case SlidingLog, SlidingCounter:
		if l.Burst != 0 {
			return fmt.Errorf("%w: Burst %d must be 0 for a %v", ErrInvalidLimit, l.Burst, l.Algorithm)
		}
		if l.Algorithm == SlidingLog {
			top = maxLogRate
		}
	default:
		return fmt.Errorf("%w: unknown Algorithm %d", ErrInvalidLimit, uint8(l.Algorithm))
	}
	if l.Rate < 1 || l.Rate > top {
		return fmt.Errorf("%w: Rate %d is outside 1 to %d for a %v", ErrInvalidLimit, l.Rate, top, l.Algorithm)
	}
	if l.Period < minPeriod || l.Period > maxPeriod && !(l.long && l.Period <= maxSharePeriod) {
		return fmt.Errorf("%w: Period %v is outside %v to 366 days", ErrInvalidLimit, l.Period, minPeriod)
	}
	if l.Period%time.Microsecond != 0 {
		return fmt.Errorf("%w: Period %v is not in whole microseconds", ErrInvalidLimit, l.Period)
	}
	if int(l.OnFailure) >= len(failureModeNames) {
		return fmt.Errorf("%w: unknown OnFailure %d", ErrInvalidLimit, uint8(l.OnFailure))
	}
	for i := range len(l.Name) {
		if !nameByte(l.Name[i]) {
			return fmt.Errorf("%w: Name has a byte outside [A-Za-z0-9_.-] at %d", ErrInvalidLimit, i)
		}
	}
	return nil
}

func nameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
}
