package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The errors of this package. Their texts, and those of the errors that wrap them, never carry a key: keys may be
// secrets or personal data.
var (
	// ErrInvalidLimit is a Limit that Validate refuses, or a call without any.
	ErrInvalidLimit = errors.New("ratelimit: invalid limit")
	// ErrInvalidCost is a cost below zero, or a number of units to give back or take below one.
	ErrInvalidCost = errors.New("ratelimit: invalid cost")
	// ErrInvalidKey is the empty key.
	ErrInvalidKey = errors.New("ratelimit: invalid key: it is empty")
	// ErrStoreUnavailable is an outage of the store, and nothing else is: not the caller's own cancellation, not a
	// mistake in the call or in the set-up. The driver's error is wrapped beside it.
	ErrStoreUnavailable = errors.New("ratelimit: store unavailable")
	// ErrMisconfigured is a store that answers but refuses: a wrong password, a missing right, a command or script
	// it will not run. Waiting does not help. The driver's error is wrapped beside it.
	ErrMisconfigured = errors.New("ratelimit: store misconfigured")
	// ErrCrossSlot is a TakeAll over keys of different hash tags on Redis. Keys made by Key with the same first
	// part share a tag.
	ErrCrossSlot = errors.New("ratelimit: keys have different hash tags")
	// ErrNever is a Wait for more than the limit can ever hold.
	ErrNever = errors.New("ratelimit: cost is above the limit's capacity")
	// ErrDeadline is a Wait whose room would come after the context's deadline; it is also
	// context.DeadlineExceeded.
	ErrDeadline = fmt.Errorf("ratelimit: room would come after the deadline: %w", context.DeadlineExceeded)
)

// MaxTakeAll is how many requests one TakeAll takes.
const MaxTakeAll = 16

// A Store keeps the state of limits and decides, atomically per key. It is safe for concurrent use.
//
// To write one:
//
//  1. Keep one State for each (BareKey(Request.Key), Limit.Algorithm, Limit.Name), and let nothing else of the Limit
//     enter the identity: limits change and keep what was spent. Where keys need a hash tag, AppendKey is the key.
//  2. Begin Take and TakeAll with Request.Validate and Merge; they hold the rules that are the same everywhere.
//  3. Make each decision one step of the Limit's Machine on that State, between load and save, in one transaction or
//     under one lock. A denial need not be saved; the Machine says what must be.
//  4. Read the clock once a decision, in a place that all who share the State agree on.
//  5. Return within a millisecond of ctx being done, from Reset too, and at once if it already is. Wrap outages in
//     ErrStoreUnavailable, return ctx's error when the caller went away, and do not retry what may already have been
//     spent.
//  6. Treat a state that cannot be read as the zero State, and let the next admitted call replace it.
//  7. Keep no Request and no *Limit whose value the caller may change; compare a Limit by value.
//  8. Expire a State no earlier than State.Unused says, plus a margin for clocks that disagree.
//  9. Name no key in an error or a log line.
//  10. Run store/storetest against it.
type Store interface {
	// Take decides req. It returns within a millisecond of ctx being done, whatever the server does.
	Take(ctx context.Context, req Request) (Result, error)
	// TakeAll decides up to MaxTakeAll requests together: all are spent or none. The same key and limit may stand
	// twice and add up. Results are in the order of reqs; if one is denied all are, and each RetryAfter is that
	// request's own wait, 0 if it had room. No requests have no results and no error.
	TakeAll(ctx context.Context, reqs []Request) ([]Result, error)
	// Reset forgets what key has spent under these limits. No limits is ErrInvalidLimit.
	Reset(ctx context.Context, key string, limits ...*Limit) error
}

// A Historian is a Store that can read a sliding log back.
type Historian interface {
	// History returns what is still in the window of a SlidingLog limit, oldest first. A limit of another Algorithm
	// is ErrInvalidLimit.
	History(ctx context.Context, key string, limit *Limit) ([]Entry, error)
}

// An Entry is one admitted call of a sliding log; calls of the same microsecond share one.
type Entry struct {
	Time time.Time
	Cost int64
}

// A Request asks a Store for units. Key and Limit are required. New fields may come, whose zero value keeps today's
// meaning.
type Request struct {
	// Key is whose units are spent: any bytes but none, kept whole by every Store. Who takes keys from strangers bounds
	// their length.
	Key string
	// Limit is what holds for Key. The caller does not change it after first use; a Store compares it by value.
	Limit *Limit
	// Cost is how many units to spend. 0 looks without writing; a negative cost gives back, never past a full bucket.
	Cost int64
	// Extra spends up to this many more units, as many as there are (for leases). It does not go with a negative
	// Cost.
	Extra int64
}

// Validate returns nil, or an error that is ErrInvalidKey, ErrInvalidLimit or ErrInvalidCost.
func (r *Request) Validate() error {
	if r.Key == "" {
		return ErrInvalidKey
	}
	if r.Limit == nil {
		return fmt.Errorf("%w: Limit is nil", ErrInvalidLimit)
	}
	if r.Extra < 0 {
		return fmt.Errorf("%w: Extra %d is below 0", ErrInvalidCost, r.Extra)
	}
	if r.Extra > 0 && r.Cost < 0 {
		return fmt.Errorf("%w: Extra %d with a negative Cost %d", ErrInvalidCost, r.Extra, r.Cost)
	}
	return r.Limit.Validate()
}

// Source is who made a decision.
type Source uint8

const (
	// SourceStore is the store itself, the zero value.
	SourceStore Source = iota
	// SourceFallback is a local share of the limit while the store is away.
	SourceFallback
	// SourceLease is units that were debited in the store ahead of need.
	SourceLease
	// SourceDenyCache is a denial remembered from the store.
	SourceDenyCache
	// SourceFailOpen is an admission without any count while the store is away.
	SourceFailOpen
	// SourceFailClosed is a denial without any count while the store is away.
	SourceFailClosed
)

var sourceNames = [...]string{
	SourceStore: "store", SourceFallback: "fallback", SourceLease: "lease", SourceDenyCache: "deny-cache",
	SourceFailOpen: "fail-open", SourceFailClosed: "fail-closed",
}

// String returns "store", "fallback", "lease", "deny-cache", "fail-open" or "fail-closed".
func (s Source) String() string { return nameOf("Source", sourceNames[:], s) }

// MarshalText returns what String does, and an error for a value that is no Source.
func (s Source) MarshalText() ([]byte, error) {
	return marshalName(errName, "Source", sourceNames[:], s)
}

// UnmarshalText accepts the texts that String returns.
func (s *Source) UnmarshalText(text []byte) error {
	return unmarshalName(errName, "Source", sourceNames[:], s, text)
}
