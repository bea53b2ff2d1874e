package rules

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

func perSecond(n int64) []ratelimit.Limit { return []ratelimit.Limit{ratelimit.PerSecond(n)} }

// byDefault is Options with 7 a second where no rule holds.
func byDefault() Options { return Options{Default: Rule{Limits: perSecond(7)}} }

func newSet(tb testing.TB, source Source, o Options) *Set {
	tb.Helper()
	s, err := New(context.Background(), source, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// A changing source is what the test says.
type changing struct {
	mu    sync.Mutex
	rules []Rule
	tiers map[string]string
	err   error
	asked int
}

func (c *changing) set(err error, rules ...Rule) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.rules = err, rules
}

func (c *changing) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

func (c *changing) Rules(context.Context) ([]Rule, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	return c.rules, c.err
}

func (c *changing) Tiers(context.Context) (map[string]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tiers, c.err
}

// errs collects what OnError is told.
type errs struct {
	mu  sync.Mutex
	all []error
}

func (e *errs) add(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, err)
}

// take returns what was told since it was called last.
func (e *errs) take() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.all
	e.all = nil
	return all
}

func refresh(tb testing.TB, s *Set) {
	tb.Helper()
	if err := s.Refresh(context.Background()); err != nil {
		tb.Fatal(err)
	}
}

var errDown = errors.New("the database is down")

// A clock stands still until it is moved.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// A recorder is a store that writes down what it is asked.
type recorder struct {
	ratelimit.Store
	mu    sync.Mutex
	asked []ratelimit.Request
	calls int
	err   error
}

func recording(c *clock) *recorder {
	return &recorder{Store: memstore.New(memstore.Options{Clock: c.now})}
}

func (r *recorder) note(reqs ...ratelimit.Request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	r.asked = append(r.asked, reqs...)
	return r.err
}

func (r *recorder) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	if err := r.note(req); err != nil {
		return ratelimit.Result{}, err
	}
	return r.Store.Take(ctx, req)
}

func (r *recorder) TakeAll(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
	if err := r.note(reqs...); err != nil {
		return nil, err
	}
	return r.Store.TakeAll(ctx, reqs)
}

func allow(tb testing.TB, l ratelimit.Limiter, key string, cost int64) ratelimit.Result {
	tb.Helper()
	res, err := l.Allow(context.Background(), key, cost)
	if err != nil {
		tb.Fatal(err)
	}
	return res
}

// admitted is how many of n calls of cost 1 are.
func admitted(tb testing.TB, l ratelimit.Limiter, key string, n int) (in int) {
	tb.Helper()
	for range n {
		if allow(tb, l, key, 1).Allowed {
			in++
		}
	}
	return in
}
