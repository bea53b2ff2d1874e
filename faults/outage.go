package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
)

const (
	// timeout is the budget of a decision where a test does not measure it: wide enough that a healthy server on a busy
	// machine, with the race detector on, keeps it.
	timeout = 200 * time.Millisecond
	// openFor is how long breakers stay open in tests that do not measure the way back.
	openFor = 300 * time.Millisecond
	// window is over how long failures are counted where so few callers are, each of whom waits for the timeout.
	window = 250 * time.Millisecond
	// grace is how much later than its budget a caller may be answered, beside what the machine stood still meanwhile.
	grace = 5 * time.Millisecond
	// returnWithin is how soon the store decides again.
	returnWithin = 2 * time.Second
	// calm is for how long at most the machine stands still during a call that times out, if the store is to blame.
	calm = 100 * time.Millisecond
)

// An Away says who decides while an Outage lasts.
type Away uint8

const (
	// Wholly is an outage in which the store gives nothing. It may still deny: that needs no writing.
	Wholly Away = iota
	// Partly is one in which it gives some.
	Partly
	// Not is none: the store goes on to decide.
	Not
)

// An Outage is what happens to the server of a Fleet under load.
type Outage struct {
	Connect func() (store ratelimit.Store, end func())
	Options ratelimit.FallbackOptions
	Away    Away
	// Lost is how many times the server forgets what was spent.
	Lost int64
	// Break begins the outage, which lasts for Lasts, and Mend ends it. Each may be nil.
	Break func()
	Lasts time.Duration
	Mend  func()
}

// Run has a fleet live through the outage, and checks all that its callers are promised.
func (o Outage) Run(t *testing.T) *Fleet {
	t.Helper()
	if o.Options.Timeout == 0 {
		o.Options.Timeout = timeout
	}
	if o.Options.OpenFor == 0 {
		o.Options.OpenFor = openFor
	}
	if o.Options.MinCalls == 0 {
		o.Options.MinCalls, o.Options.Window = callers, window
	}
	f := NewFleet(t, o.Connect, o.Options)
	f.Load()
	began := f.AwaitStore(t, time.Now())
	f.goOn(t, 200*time.Millisecond)

	broken := time.Now()
	if o.Break != nil {
		o.Break()
	}
	away := time.Now()
	f.goOn(t, o.Lasts)
	mended := time.Now()
	if o.Mend != nil {
		o.Mend()
	}
	returned := time.Now()
	back := f.AwaitStore(t, mended)
	f.goOn(t, 300*time.Millisecond)
	f.Stop()

	all := f.All()
	during := all.Between(away.Add(o.Lasts/2), mended)
	store, local := during.By(ratelimit.SourceStore), during.By(ratelimit.SourceFallback)
	given := len(during.where(func(d *Decision) bool {
		return d.Result.Source == ratelimit.SourceStore && d.Result.Taken > 0 && d.took() <= f.timeout
	}))
	t.Logf("p99 before %v, at first %v, later %v (%d by the store, %d local), on return %v, after %v; back after %v; long stalls of %v",
		all.Between(began, broken).P99(), all.Between(broken, away.Add(o.Lasts/2)).P99(), during.P99(), store, local, all.Between(mended, back).P99(), all.Since(back).P99(),
		back.Sub(returned), machine.Long(began, back))
	switch {
	case o.Away == Wholly && given > 0:
		t.Errorf("during the outage the store gave %d times", given)
	case o.Away != Not && o.Lasts > 0 && local == 0 && machine.Long(away, mended) <= calm:
		t.Error("during the outage nothing was decided locally")
	case o.Away == Not && local > store/10 && f.spoiled(began, mended).IsZero():
		t.Errorf("the store made %d decisions, and %d were local", store, local)
	}
	f.Returned(t, returned, back)
	if n := during.By(ratelimit.SourceFailOpen); n > 0 {
		t.Errorf("%d decisions were not counted", n)
	}
	f.Check(t)
	// Where the mode is FailOpen, connections that break are an outage until it is known what is behind it.
	all = all.where(func(d *Decision) bool { return d.Result.Source != ratelimit.SourceFailOpen })
	// On a machine with much else to do, some may have been decided locally at other times too.
	gone := broken              // since when the store gave nothing
	exact := began              // since when all did, before
	first, last := broken, back // from when to when some did not
	for _, d := range all.Since(began) {
		switch {
		case d.Result.Source == ratelimit.SourceStore && d.Result.Taken > 0 && d.End.Before(mended):
			gone = later(gone, d.End)
		case d.Result.Source == ratelimit.SourceFallback && d.Start.Before(broken):
			exact = later(exact, d.End)
			if d.Start.Before(first) {
				first = d.Start
			}
		case d.Result.Source == ratelimit.SourceFallback:
			last = later(last, d.End)
		}
	}
	gifts := []Gift{
		{From: first, To: last, Units: Instances}, // of shares below one unit
		{From: first, To: gone, Twice: true},
		{From: mended, To: last, Twice: true},
		{From: broken, To: last, Capacities: o.Lost},
	}
	for name, err := range map[string]error{
		"too few": all.Denied(broken),
		"before":  all.Between(exact, broken).Admitted(),
		"during":  all.Between(gone, mended).Admitted(gifts[0]),
		"through": all.Since(began).Admitted(gifts...),
		"after":   all.Since(last).Admitted(),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	return f
}

// Check checks what holds at any time.
func (f *Fleet) Check(t *testing.T) {
	t.Helper()
	all := f.All()
	if err := all.Answered(f.timeout+grace, &machine); err != nil {
		t.Error(err)
	}
	if err := all.Sane(); err != nil {
		t.Error(err)
	}
}

// Returned checks how long after the server's return the store decided again. A call that the machine spoiled may have
// opened a breaker anew, so the time counts from there.
func (f *Fleet) Returned(t *testing.T, returned, back time.Time) {
	t.Helper()
	if after := back.Sub(later(returned, f.spoiled(returned, back))); after > returnWithin {
		t.Errorf("the store decides again after %v, more than %v", after, returnWithin)
	}
}

// spoiled returns when the last call of a stretch of time ended that got no answer in time since the machine stood still,
// or the zero time. What it does to a breaker may outlast it by as long as that is open.
func (f *Fleet) spoiled(from, to time.Time) (last time.Time) {
	for _, d := range f.All() {
		if d.End.Add(f.rest).After(from) && d.Start.Before(to) && d.took() >= f.timeout && machine.Long(d.Start, d.End) > calm {
			last = later(last, d.End)
		}
	}
	return last
}

// AwaitStore waits until the store decides for all instances, and returns since when.
func (f *Fleet) AwaitStore(t *testing.T, since time.Time) (at time.Time) {
	t.Helper()
	for {
		err := Poll(patience, func() (err error) {
			at, err = f.Since(since).Back(since, Instances)
			return err
		})
		now := time.Now()
		if err == nil {
			return at
		}
		if healthy := now.Sub(since) - machine.Long(since, now); healthy > patience/2 || now.Sub(since) > 5*patience {
			t.Fatal(err)
		}
	}
}

// goOn lets the load go on for a while, and until something was decided.
func (f *Fleet) goOn(t *testing.T, d time.Duration) {
	t.Helper()
	before := f.Len()
	<-time.After(d)
	if err := Poll(patience, func() error {
		if d > 0 && f.Len() == before {
			return errIdle
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

var errIdle = errors.New("nothing was decided")
