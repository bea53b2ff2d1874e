package ratelimit

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// BreakerState is whether a Fallback asks its primary.
type BreakerState uint8

const (
	// BreakerClosed means that all is well: every decision asks the primary.
	BreakerClosed BreakerState = iota
	// BreakerHalfOpen means that a few decisions, the probes, ask the primary, to see whether it is back.
	BreakerHalfOpen
	// BreakerOpen means that no decision asks the primary.
	BreakerOpen
)

var breakerStateNames = [...]string{BreakerClosed: "closed", BreakerHalfOpen: "half-open", BreakerOpen: "open"}

// String returns "closed", "half-open" or "open".
func (s BreakerState) String() string { return nameOf("BreakerState", breakerStateNames[:], s) }

// MarshalText returns what String does, and an error for a value that is no BreakerState.
func (s BreakerState) MarshalText() ([]byte, error) {
	return marshalName(errName, "BreakerState", breakerStateNames[:], s)
}

// UnmarshalText accepts the texts that String returns.
func (s *BreakerState) UnmarshalText(text []byte) error {
	return unmarshalName(errName, "BreakerState", breakerStateNames[:], s, text)
}

// A breaker is gobreaker's, which numbers its generations: the result of a call that began in an earlier state changes
// nothing. Its time is the runtime's.
type breaker struct {
	two    *gobreaker.TwoStepCircuitBreaker[struct{}]
	onMove func(from, to BreakerState)
	rest   time.Duration // how long it stays open
	began  time.Time
	opens  atomic.Int64 // while it is open: when it lets a probe through, in time since began

	saying sync.Mutex // held by who tells onMove
	unsaid atomic.Bool
	mu     sync.Mutex
	moves  [][2]BreakerState // from and to, not told yet; unsaid if there are any
}

// What a call says of the store's health, in gobreaker's terms.
var (
	errSick    = errors.New("a failure")
	errNeutral = errors.New("neither a success nor a failure")
)

// breakerBuckets is into how many parts the window of a breaker is cut, which leave it one by one.
const breakerBuckets = 10

// newBreaker needs options whose defaults are set.
func newBreaker(o *FallbackOptions, onMove func(from, to BreakerState)) *breaker {
	b := &breaker{onMove: onMove, began: time.Now()}
	// gobreaker's time-out is one for all openings, so that it is instances, not openings, that differ.
	b.rest = o.OpenFor*3/4 + rand.N(o.OpenFor/2+1)
	b.two = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  uint32(o.Probes),
		Interval:     o.Window,
		BucketPeriod: o.Window / breakerBuckets,
		Timeout:      b.rest,
		ReadyToTrip: func(c gobreaker.Counts) bool { // of what has ended: Requests counts what is in flight too
			ended := float64(c.TotalSuccesses) + float64(c.TotalFailures)
			return ended >= float64(o.MinCalls) && float64(c.TotalFailures) >= o.FailureRatio*ended
		},
		IsExcluded:    func(err error) bool { return err == errNeutral },
		OnStateChange: func(_ string, from, to gobreaker.State) { b.moved(breakerState(from), breakerState(to)) },
	})
	return b
}

func breakerState(s gobreaker.State) BreakerState {
	switch s {
	case gobreaker.StateClosed:
		return BreakerClosed
	case gobreaker.StateHalfOpen:
		return BreakerHalfOpen
	default:
		return BreakerOpen
	}
}

// allow returns how to say the way a call went, which must be said: nil, errSick or errNeutral. It is nil itself where
// the primary is not to be asked; probed says that others are asking it.
func (b *breaker) allow() (done func(error), probed bool) {
	done, err := b.two.Allow()
	b.say()
	return done, err == gobreaker.ErrTooManyRequests
}

func (b *breaker) state() BreakerState {
	s := breakerState(b.two.State())
	b.say()
	return s
}

// untilProbe is how long an open breaker lets nothing through yet, else 0.
func (b *breaker) untilProbe() time.Duration {
	return max(0, time.Duration(b.opens.Load())-time.Since(b.began))
}

// moved is called with gobreaker's lock held.
func (b *breaker) moved(from, to BreakerState) {
	opens := time.Duration(0)
	if to == BreakerOpen {
		opens = time.Since(b.began) + b.rest
	}
	b.opens.Store(int64(opens))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.moves = append(b.moves, [2]BreakerState{from, to})
	b.unsaid.Store(true)
}

// say tells of moves in their order, with no lock held that a decision needs. Where another goroutine is at it, or the
// hook itself asks for the state, whoever is at it tells of ours too.
func (b *breaker) say() {
	for b.unsaid.Load() && b.saying.TryLock() {
		b.sayAll()
	}
}

func (b *breaker) sayAll() {
	defer b.saying.Unlock()
	b.mu.Lock()
	moves := b.moves
	b.moves = nil
	b.unsaid.Store(false)
	b.mu.Unlock()
	for _, m := range moves {
		guard(func() { b.onMove(m[0], m[1]) })
	}
}

// guard keeps a panic of the caller's hook out of a decision, and out of a goroutine of ours.
func guard(hook func()) {
	defer func() { _ = recover() }()
	hook()
}
