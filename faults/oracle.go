package faults

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluicego/ratelimit"
)

// A Decision is a call of a Store as its caller saw it. What it spent was spent at some moment from Start to End.
type Decision struct {
	Start, End time.Time
	Instance   int
	Key        string
	Limit      ratelimit.Limit
	Cost       int64
	Together   int // how many limits were asked together, if several
	Result     ratelimit.Result
	Err        error
}

func (d *Decision) took() time.Duration { return d.End.Sub(d.Start) }

// A History is what happened in a test. It is safe for concurrent use.
type History struct {
	mu        sync.Mutex
	decisions Decisions // in the order of their ends, nearly
}

// Add records a decision.
func (h *History) Add(d Decision) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.decisions = append(h.decisions, &d)
}

// All returns what was recorded so far.
func (h *History) All() Decisions {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.decisions)
}

// Since returns what was recorded of decisions that began at a moment or later.
func (h *History) Since(from time.Time) Decisions {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.decisions.Since(from)
}

// Len is how many decisions were recorded so far.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.decisions)
}

// Decisions are a part of a History, in any order. They do not change.
type Decisions []*Decision

// Between returns the decisions that began and ended from one moment to another.
func (ds Decisions) Between(from, to time.Time) Decisions {
	return ds.where(func(d *Decision) bool { return !d.Start.Before(from) && !d.End.After(to) })
}

// Since returns the decisions that began at a moment or later.
func (ds Decisions) Since(from time.Time) Decisions {
	return ds.where(func(d *Decision) bool { return !d.Start.Before(from) })
}

// By counts the decisions by who made them.
func (ds Decisions) By(s ratelimit.Source) int {
	return len(ds.where(func(d *Decision) bool { return d.Err == nil && d.Result.Source == s }))
}

func (ds Decisions) where(f func(*Decision) bool) (some Decisions) {
	for _, d := range ds {
		if f(d) {
			some = append(some, d)
		}
	}
	return some
}

// P99 is what 99 of 100 decisions took at most.
func (ds Decisions) P99() time.Duration {
	if len(ds) == 0 {
		return 0
	}
	took := make([]time.Duration, len(ds))
	for i := range ds {
		took[i] = ds[i].took()
	}
	slices.Sort(took)
	return took[(len(took)-1)*99/100]
}

// A Gift is what may be admitted beyond the limit, once, in any stretch of time that touches From to To: so many units,
// so many capacities of the limit, and with Twice what the limit admits from From to To, for that is where some instances
// are with the store and some without.
type Gift struct {
	From, To   time.Time
	Units      int64
	Capacities int64
	Twice      bool
}

// in returns what of g falls into a stretch of time under l.
func (g *Gift) in(from, to time.Time, l *ratelimit.Limit) int64 {
	if g.From.After(to) || g.To.Before(from) {
		return 0
	}
	n := g.Units + g.Capacities*l.Capacity()
	if g.Twice {
		if g.From.After(from) {
			from = g.From
		}
		if g.To.Before(to) {
			to = g.To
		}
		n += Most(l, to.Sub(from))
	}
	return n
}

// Most is the most that a limit admits within d by itself, wherever d begins.
func Most(l *ratelimit.Limit, d time.Duration) int64 {
	periods := int64(d / l.Period)
	switch l.Algorithm {
	case ratelimit.SlidingLog:
		return l.Rate * (periods + 1)
	case ratelimit.SlidingCounter: // whose windows are fixed, so that d may touch one more
		return l.Rate * (periods + 2)
	default:
		return l.Capacity() + l.Rate*periods + l.Rate*int64(d%l.Period)/int64(l.Period)
	}
}

// Admitted checks every stretch of time against what each limit admits and the gifts that fall into it. What was admitted
// within a stretch is counted at its least: only decisions that both began and ended there.
func (ds Decisions) Admitted(gifts ...Gift) error {
	type state struct {
		key   string
		limit ratelimit.Limit
	}
	states := make(map[state]Decisions)
	for _, d := range ds {
		if d.Err == nil && d.Result.Taken > 0 {
			s := state{d.Key, d.Limit}
			states[s] = append(states[s], d)
		}
	}
	for s, admitted := range states {
		if err := admitted.within(&s.limit, gifts); err != nil {
			return fmt.Errorf("key %q: %w", s.key, err)
		}
	}
	return nil
}

// within checks the admissions of one state.
func (ds Decisions) within(l *ratelimit.Limit, gifts []Gift) error {
	byStart, byEnd := slices.Clone(ds), slices.Clone(ds)
	slices.SortFunc(byStart, func(a, b *Decision) int { return a.Start.Compare(b.Start) })
	slices.SortFunc(byEnd, func(a, b *Decision) int { return a.End.Compare(b.End) })
	for _, first := range byStart {
		sum := int64(0)
		for _, last := range byEnd {
			if last.Start.Before(first.Start) {
				continue
			}
			sum += last.Result.Taken
			// The server counts whole microseconds, so two moments are apart by up to one more than by its clock.
			most := Most(l, last.End.Sub(first.Start)+time.Microsecond)
			for i := range gifts {
				most += gifts[i].in(first.Start, last.End, l)
			}
			if sum > most {
				return fmt.Errorf("%v: %d admitted within %v, at most %d are right", l, sum, last.End.Sub(first.Start), most)
			}
		}
	}
	return nil
}

// Denied checks that until then no sliding log denied a call alone for which it had room, be it that all in flight came
// before. That holds for a key until a decision is not the store's: what became of that there, and when, nobody knows.
func (ds Decisions) Denied(until time.Time) error {
	for _, d := range ds {
		if d.End.After(until) || d.Err != nil || d.Result.Allowed || d.Result.Source != ratelimit.SourceStore || d.Together > 0 || d.Limit.Algorithm != ratelimit.SlidingLog {
			continue
		}
		spent, since := int64(0), d.Start.Add(-d.Limit.Period-time.Microsecond)
		known := true
		for _, o := range ds {
			if o == d || o.Key != d.Key || o.Limit != d.Limit || o.Start.After(d.End) {
				continue
			}
			if o.Err != nil || o.Result.Source != ratelimit.SourceStore {
				known = false
			} else if !o.End.Before(since) {
				spent += o.Result.Taken
			}
		}
		if known && spent+d.Cost <= d.Limit.Rate {
			return fmt.Errorf("%v: %d denied, and at most %d were spent", &d.Limit, d.Cost, spent)
		}
	}
	return nil
}

// Answered checks that every caller got a decision, and none waited longer than budget, but for what the machine stood
// still meanwhile.
func (ds Decisions) Answered(budget time.Duration, stalls *Stalls) error {
	for _, d := range ds {
		if d.Err != nil {
			return fmt.Errorf("a caller got an error: %w", d.Err)
		}
		took := d.took()
		if took <= budget {
			continue
		}
		if stalled := stalls.Within(d.Start, d.End); took > budget+stalled {
			return fmt.Errorf("a caller waited %v, more than %v and stalls of %v, for a decision of %v", took, budget, stalled, d.Result.Source)
		}
	}
	return nil
}

// Sane checks that results are possible: 0 <= Remaining <= Limit, the Limit is that of the rule, and what was taken
// is the cost or nothing.
func (ds Decisions) Sane() error {
	for _, d := range ds {
		r := d.Result
		taken := int64(0)
		if r.Allowed {
			taken = d.Cost
		}
		if d.Err == nil && (r.Remaining < 0 || r.Remaining > r.Limit || r.Limit != d.Limit.Capacity() || r.Taken != taken ||
			d.Together == 0 && r.Allowed != (r.RetryAfter == 0) || r.Allowed && r.RetryAfter > 0 || r.RetryAfter < 0 || r.ResetAfter < 0) {
			return fmt.Errorf("an impossible result for a cost of %d: %+v", d.Cost, r)
		}
	}
	return nil
}

var errAway = errors.New("the store does not decide yet")

// settled is how many decisions in a row the store has to make before an instance counts as back.
const settled = 10

// Back returns the moment since when the store decides for all instances again: for each, the start of a row of
// decisions, none of them by another, that began after the server's return.
func (ds Decisions) Back(since time.Time, instances int) (time.Time, error) {
	all := ds.Since(since)
	if len(all) < instances*settled {
		return time.Time{}, errAway
	}
	slices.SortFunc(all, func(a, b *Decision) int { return a.Start.Compare(b.Start) })
	rows := make([]struct {
		n     int
		start time.Time
	}, instances)
	for _, d := range all {
		switch row := &rows[d.Instance]; {
		case row.n == settled:
		case d.Err != nil || d.Result.Source != ratelimit.SourceStore:
			row.n = 0
		default:
			if row.n++; row.n == 1 {
				row.start = d.Start
			}
		}
	}
	var back time.Time
	for i, row := range rows {
		if row.n < settled {
			return time.Time{}, fmt.Errorf("instance %d: %w", i, errAway)
		}
		back = later(back, row.start)
	}
	return back, nil
}
