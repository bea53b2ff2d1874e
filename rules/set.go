package rules

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicego/ratelimit"
)

// Options are how a Set is built. Default is required, the zero value of all else is the default.
type Options struct {
	// Default is the rule where no other holds, and for everybody until the source could be asked for the first time.
	// It has Limits, or Mode Off or DenyAll: what is forgotten is never unlimited.
	Default Rule
	// Interval is how often the source is asked, give or take a tenth; 0 means 30 s. After a failure it is asked again
	// after a second, and twice as long with each further one, up to Interval.
	Interval time.Duration
	// Timeout bounds one load; 0 means 1 min.
	Timeout time.Duration
	// TierOf tells the tier of a tenant that has no rule of its own for a call, "" where it has none; then the source's
	// tier holds. It is called on the way to each such decision, by many goroutines: it must be quick. What it returns holds at once.
	TierOf func(tenant string) string
	// OnError is told of each load that failed and each rule that was skipped, a *RuleError, once until it changes.
	// Nil means that nobody is told. It is called by the set's goroutine alone, which waits for it: so it calls neither Refresh
	// nor Close. A panic of it is dropped.
	OnError func(error)
	// OnShadow is told of each decision of a rule in Shadow: what it came to, or the error. A denial tells no RetryAfter but
	// Never. It is called in the call, by many goroutines, and must be quick. key is the call's, and may be a secret or
	// personal data. Nil means that nobody is told, and a panic is dropped.
	OnShadow func(rule Rule, key string, would ratelimit.Result, err error)
	// Clock tells the time for Expires and Age; nil means time.Now.
	Clock func() time.Time
}

// ErrClosed is a Refresh of a Set that was closed.
var ErrClosed = errors.New("rules: the set is closed")

const (
	defaultInterval = 30 * time.Second
	defaultTimeout  = time.Minute
	firstPause      = time.Second
)

// A Set is the rules that hold now. It is safe for concurrent use. One goroutine loads them, until Close.
//
// Memory: at most 134 bytes a rule and as many for a tenant's tier, beside the texts of IDs, each rounded up to 16 bytes; 200 and
// 72 a limit for each different policy, which is all that a rule says of those it is for; and 100 KB. A rule of a tenant
// whose name is above 37 bytes has a policy of its own. 500,000 rules on five plans take 75 MB at most. A load of all rules
// needs as much again while it goes on.
type Set struct {
	options  Options
	fallback hit
	feed     feed
	snapshot atomic.Pointer[snapshot]
	disabled atomic.Bool

	mark any // what feed made of the last load; the loading goroutine's

	mu      sync.Mutex
	next    *pass // a load that somebody waits for and that has not begun
	closed  bool
	kick    chan struct{}
	cancel  context.CancelFunc
	stopped chan struct{}
}

// A pass is one load, which those who asked for it wait for.
type pass struct {
	done chan struct{}
	err  error
}

// New returns a set of source's rules and begins to load them. It waits for the first load until ctx is done or
// Options.Timeout has passed. If the load fails Options.OnError is told, the default holds, and the set goes on trying,
// so that a service starts without its database. Errors are of Options.
func New(ctx context.Context, source Source, o Options) (*Set, error) {
	if source == nil {
		return nil, errors.New("rules: source is nil")
	}
	fallback, err := o.validate()
	if err != nil {
		return nil, err
	}
	f, ok := source.(feed)
	if !ok {
		f = whole{source}
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Set{
		options: o, fallback: fallback, feed: f,
		kick: make(chan struct{}, 1), cancel: cancel, stopped: make(chan struct{}),
	}
	s.snapshot.Store(newSnapshot())
	go s.run(running)
	_ = s.Refresh(ctx) // OnError is told
	return s, nil
}

func (o *Options) validate() (hit, error) {
	if o.Interval < 0 || o.Timeout < 0 {
		return hit{}, fmt.Errorf("rules: Options.Interval %v and Timeout %v must be 0 or above", o.Interval, o.Timeout)
	}
	if o.Interval == 0 {
		o.Interval = defaultInterval
	}
	o.Interval = min(o.Interval, math.MaxInt64/2) // a tenth may come to it
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	r := o.Default
	if r.ID == "" {
		r.ID = "default"
	}
	if err := r.check(); err != nil {
		return hit{}, fmt.Errorf("rules: Options.Default: %w", err)
	}
	if r.Tenant != Any || r.Route != Any || r.Tier != "" || !r.Expires.IsZero() {
		return hit{}, errors.New("rules: Options.Default is for every tenant and route, and does not expire")
	}
	e := newEntry("", Any, newPolicy(&r))
	return hit{&e, &r.ID}, nil
}

// Refresh loads the rules now and returns when they hold, with the error of the load. Callers who come while a load
// goes on share the next one. When ctx is done it returns ctx's error, and the load goes on.
func (s *Set) Refresh(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	p := s.next
	if p == nil {
		p = &pass{done: make(chan struct{})}
		s.next = p
		select {
		case s.kick <- struct{}{}:
		default:
		}
	}
	s.mu.Unlock()
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends the loading and waits for it; a load under way is cut short. The rules go on to hold. Closing twice is fine.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	<-s.stopped
}

// SetEnabled switches all limits of the set off, in this process, and on again: a kill switch that needs neither store
// nor source. While it is off everything is admitted, as by a rule of Mode Off.
func (s *Set) SetEnabled(on bool) { s.disabled.Store(!on) }

// Enabled tells whether limits hold, which they do unless SetEnabled switched them off.
func (s *Set) Enabled() bool { return !s.disabled.Load() }

// Age is how long ago the source was asked for the rules that hold now: ratelimit.Never if that never worked.
func (s *Set) Age() time.Duration {
	at := s.snapshot.Load()
	if !at.loaded {
		return ratelimit.Never
	}
	return max(0, s.options.Clock().Sub(at.at))
}

// Stats are counts of what was loaded last.
type Stats struct {
	Rules   int // that hold, expired ones too
	Skipped int // rules that are bad now
}

// Stats returns counts of what was loaded last.
func (s *Set) Stats() Stats {
	at := s.snapshot.Load()
	stats := Stats{Rules: at.rules}
	for _, why := range at.skipped {
		stats.Skipped += len(why)
	}
	return stats
}

// Find returns the rule that holds for a tenant on a route, and whether the source has one: if not, it is
// Options.Default. What a rule left out is in its place. The caller does not change its limits.
func (s *Set) Find(tenant, route string) (r Rule, ok bool) {
	h, from, tier := s.find(tenant, route)
	h.fill(&r)
	r.Tenant, r.Tier = from.whose(tenant, tier)
	return r, from != fromDefault
}

// An origin is where in the precedence a rule was found.
type origin uint8

const (
	fromTenant origin = iota
	fromTier
	fromAll
	fromDefault
)

// whose returns the Tenant and Tier of a rule that was found for a tenant of a tier.
func (o origin) whose(tenant, tier string) (string, string) {
	switch o {
	case fromTenant:
		return tenant, ""
	case fromTier:
		return Any, tier
	default:
		return Any, ""
	}
}

// find returns the rule that holds, where it is from, and the tenant's tier if that mattered.
func (s *Set) find(tenant, route string) (h hit, from origin, tier string) {
	now := s.snapshot.Load()
	h, hash := now.own.rule(tenant, route, s.options.Clock)
	if h.entry != nil {
		return h, fromTenant, ""
	}
	if s.options.TierOf != nil {
		tier = s.options.TierOf(tenant)
	}
	if tier == "" {
		tier = now.tier(tenant, hash)
	}
	if tier != "" {
		if h, _ = now.wild.rule(tier, route, s.options.Clock); h.entry != nil {
			return h, fromTier, tier
		}
	}
	if h, _ = now.wild.rule("", route, s.options.Clock); h.entry != nil {
		return h, fromAll, tier
	}
	return s.fallback, fromDefault, tier
}

func (s *Set) run(ctx context.Context) {
	defer close(s.stopped)
	pause := firstPause
	timer := time.NewTimer(s.options.Interval) // until then New's own Refresh has come
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			s.answer(s.take(), ErrClosed)
			return
		case <-timer.C:
		case <-s.kick:
		}
		p := s.take()
		err := s.load(ctx)
		s.answer(p, err)
		wait := s.options.Interval
		if err == nil {
			pause = firstPause
		} else {
			wait = min(wait, pause)
			pause = min(2*pause, s.options.Interval)
		}
		timer.Reset(wait - wait/10 + rand.N(wait/5+1))
	}
}

// take returns the load that is waited for, or nil.
func (s *Set) take() *pass {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.next
	s.next = nil
	return p
}

func (s *Set) answer(p *pass, err error) {
	if p != nil {
		p.err = err
		close(p.done)
	}
}

// load asks the source and has what it says hold. A panic of the source or of the clock is an error of the load.
func (s *Set) load(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("rules: load: panic: %v", r)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	at := s.options.Clock()
	b := newBuilder(s.snapshot.Load())
	mark, err := ask(ctx, s.feed, s.mark, b)
	if err != nil {
		err = fmt.Errorf("rules: load: %w", err)
		s.tell(err)
		return err
	}
	next, skipped := b.finish()
	next.at, next.loaded = at, true
	s.snapshot.Store(next)
	s.mark = mark
	for _, e := range skipped {
		s.tell(e)
	}
	return nil
}

func (s *Set) tell(err error) {
	if s.options.OnError != nil {
		guard(func() { s.options.OnError(err) })
	}
}

// guard keeps a panic of the caller's hook out of loads and decisions.
func guard(hook func()) {
	defer func() { _ = recover() }()
	hook()
}
