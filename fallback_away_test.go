package ratelimit_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// outage returns a rig of n instances without a primary.
func outage(t testing.TB, n int, o ratelimit.FallbackOptions) *rig {
	t.Helper()
	o.Instances, o.OpenFor = func() int { return n }, time.Hour
	r := newRig(t, o)
	r.open(t)
	return r
}

// R140: ten instances of 5 per minute give 1 per 2 minutes each, at first one unit each; below one unit a day it takes days.
// The limit that is told is the rule's.
func TestR140ShareBelowOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := outage(t, 10, ratelimit.FallbackOptions{})
		l := ratelimit.PerMinute(5)
		if res := r.take(t, "k", l, 1); !res.Allowed || res.Limit != 5 || res.Remaining != 0 {
			t.Errorf("at once: %+v", res)
		}
		time.Sleep(time.Minute)
		if res := r.take(t, "k", l, 1); res.Allowed || res.RetryAfter != time.Minute {
			t.Errorf("after one minute: %+v", res)
		}
		time.Sleep(time.Minute)
		if res := r.take(t, "k", l, 1); !res.Allowed {
			t.Errorf("after two: %+v", res)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := outage(t, 50, ratelimit.FallbackOptions{})
		l := ratelimit.PerDay(1)
		r.take(t, "k", l, 1)
		if res := r.take(t, "k", l, 1); res.Allowed || res.RetryAfter != 50*24*time.Hour {
			t.Errorf("1 per day of 50: %+v", res)
		}
		window := l
		window.Algorithm = ratelimit.SlidingLog
		r.take(t, "k", window, 1)
		if res := r.take(t, "k", window, 1); res.Allowed || res.RetryAfter != 50*24*time.Hour {
			t.Errorf("1 per day of 50, a log: %+v", res)
		}
	})
}

// R140: when the count of instances changes, what was spent stays spent. No count, none below one, and none from a
// function that panics.
func TestR140InstancesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		n.Store(3)
		r := newRig(t, ratelimit.FallbackOptions{OpenFor: time.Hour, Instances: func() int {
			if n.Load() == 99 {
				panic("the hook's own")
			}
			return int(n.Load())
		}})
		r.open(t)
		l := ratelimit.PerHour(12)
		for _, c := range []struct {
			n, cost, want int64
			allowed       bool
		}{
			{3, 3, 1, true},
			{4, 0, 1, true}, // of 3
			{4, 2, 1, false},
			{4, 1, 0, true},
			{3, 1, 0, false},
			{99, 1, 0, false},
			{0, 1, 0, false},
			{-5, 0, 0, true},
		} {
			n.Store(c.n)
			if res := r.take(t, "k", l, c.cost); res.Allowed != c.allowed || res.Remaining != c.want || res.Limit != 12 {
				t.Errorf("%+v: %+v", c, res)
			}
		}
		n.Store(0)
		if res := r.take(t, "another", l, 12); !res.Allowed {
			t.Errorf("no instances: %+v", res)
		}
		n.Store(3)
		r.take(t, "third", l, 0)
		n.Store(99) // counts as the 3 that were
		if res := r.take(t, "third", l, 4); !res.Allowed || res.Remaining != 0 {
			t.Errorf("with a panic: %+v", res)
		}
	})
}

// TestAboveTheShare: a cost that no share holds is denied until the primary is back, one that no limit holds is Never, and
// nobody is asked about that.
func TestAboveTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := outage(t, 3, ratelimit.FallbackOptions{})
		l := ratelimit.PerMinute(10)
		r.take(t, "k", l, 1)
		res := r.take(t, "k", l, 4)
		if res.RetryAfter < 44*time.Minute || res.RetryAfter > 76*time.Minute {
			t.Errorf("it may fit after %v", res.RetryAfter)
		}
		res.RetryAfter = 0
		if want := (ratelimit.Result{Limit: 10, Remaining: 2, ResetAfter: 18 * time.Second, Source: ratelimit.SourceFallback}); res != want {
			t.Errorf("%+v, want %+v", res, want)
		}
		never := ratelimit.Result{Limit: 10, RetryAfter: ratelimit.Never}
		if res := r.take(t, "k", l, 11); res != never {
			t.Errorf("%+v, want %+v", res, never)
		}
		healthy := newRig(t, ratelimit.FallbackOptions{Mode: ratelimit.FailOpen})
		if res := healthy.take(t, "k", l, 11); res != never || healthy.primary.calls.Load() != 0 {
			t.Errorf("%+v after %d calls, want %+v", res, healthy.primary.calls.Load(), never)
		}
	})
}

// TestTakeUpToInAnOutage gives as much as there is: of the share, or of a full limit.
func TestTakeUpToInAnOutage(t *testing.T) {
	t.Parallel()
	r := outage(t, 2, ratelimit.FallbackOptions{})
	l := ratelimit.PerHour(10)
	for _, c := range []struct {
		mode               ratelimit.FailureMode
		cost, extra, taken int64
	}{
		{ratelimit.FailLocal, 0, 7, 5},
		{ratelimit.FailOpen, 0, 7, 7},
		{ratelimit.FailOpen, 2, 100, 10},
		{ratelimit.FailClosed, 0, 7, 0},
	} {
		l := l
		l.OnFailure = c.mode
		res, err := r.Take(t.Context(), ratelimit.Request{Key: "k", Limit: &l, Cost: c.cost, Extra: c.extra})
		if err != nil || res.Taken != c.taken {
			t.Errorf("%+v: %+v, %v", c, res, err)
		}
	}
}

// TestTakeAllInAnOutage: one that fails closed denies all, one that fails open is left out, the others are local; what is
// denied is denied whole.
func TestTakeAllInAnOutage(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	local := ratelimit.PerHour(4).Named("local")
	other := ratelimit.PerHour(8).Named("other")
	free := ratelimit.PerHour(4).Named("free")
	free.OnFailure = ratelimit.FailOpen
	login := ratelimit.PerHour(4).Named("login")
	login.OnFailure = ratelimit.FailClosed
	type want struct {
		allowed   bool
		taken     int64
		remaining int64
		wait      bool
		source    ratelimit.Source
	}
	for name, c := range map[string]struct {
		spent int64 // of local before
		reqs  []ratelimit.Request
		want  []want
	}{
		"all have room": {0, []ratelimit.Request{
			{Limit: &local, Cost: 1},
			{Limit: &free, Cost: 3},
			{Limit: &other, Cost: 2},
			{Limit: &local, Cost: 1},
		}, []want{
			{true, 1, 0, false, ratelimit.SourceFallback},
			{true, 3, 4, false, ratelimit.SourceFailOpen},
			{true, 2, 2, false, ratelimit.SourceFallback},
			{true, 1, 0, false, ratelimit.SourceFallback},
		}},
		"a share has not": {2, []ratelimit.Request{{Limit: &free, Cost: 3}, {Limit: &other, Cost: 2}, {Limit: &local, Cost: 1}}, []want{
			{false, 0, 4, false, ratelimit.SourceFailOpen},
			{false, 0, 4, false, ratelimit.SourceFallback},
			{false, 0, 0, true, ratelimit.SourceFallback},
		}},
		"none can": {0, []ratelimit.Request{{Limit: &other, Cost: 2}, {Limit: &local, Cost: 3}}, []want{
			{false, 0, 4, false, ratelimit.SourceFallback},
			{false, 0, 2, true, ratelimit.SourceFallback},
		}},
		"closed": {0, []ratelimit.Request{{Limit: &local, Cost: 1}, {Limit: &login, Cost: 1}, {Limit: &free, Cost: 1}}, []want{
			{false, 0, 2, false, ratelimit.SourceFallback},
			{false, 0, 0, true, ratelimit.SourceFailClosed},
			{false, 0, 4, false, ratelimit.SourceFailOpen},
		}},
		"closed, and a share has not": {2, []ratelimit.Request{{Limit: &local, Cost: 1}, {Limit: &login, Cost: 1}, {Limit: &other, Cost: -1}}, []want{
			{false, 0, 0, true, ratelimit.SourceFallback},
			{false, 0, 0, true, ratelimit.SourceFailClosed},
			{false, 0, 4, false, ratelimit.SourceFallback},
		}},
		"open alone": {0, []ratelimit.Request{{Limit: &free, Cost: 1}}, []want{{true, 1, 4, false, ratelimit.SourceFailOpen}}},
		"never": {0, []ratelimit.Request{{Limit: &free, Cost: 5}, {Limit: &login, Cost: 1}, {Limit: &local, Cost: 1}}, []want{
			{false, 0, 0, true, ratelimit.SourceFallback},
			{false, 0, 0, true, ratelimit.SourceFailClosed},
			{false, 0, 2, false, ratelimit.SourceFallback},
		}},
	} {
		r := outage(t, 2, ratelimit.FallbackOptions{})
		r.take(t, "k", local, c.spent)
		for i := range c.reqs {
			c.reqs[i].Key = "k"
		}
		results, err := r.TakeAll(t.Context(), c.reqs)
		if err != nil {
			t.Fatal(err)
		}
		taken := int64(0)
		for i, res := range results {
			l := c.reqs[i].Limit
			got := want{res.Allowed, res.Taken, res.Remaining, res.RetryAfter > 0, res.Source}
			if got != c.want[i] || res.Limit != l.Capacity() || res.Name != l.Name || res.ResetAfter > hour {
				t.Errorf("%s: result %d is %+v, want %+v", name, i, res, c.want[i])
			}
			if l.Name == "local" {
				taken += res.Taken
			}
		}
		if res := r.take(t, "k", local, 0); res.Remaining != 2-c.spent-taken {
			t.Errorf("%s: %d remain of local, want %d", name, res.Remaining, 2-c.spent-taken)
		}
	}
	r := outage(t, 2, ratelimit.FallbackOptions{})
	if results, err := r.TakeAll(t.Context(), nil); results != nil || err != nil {
		t.Errorf("of nothing: %v, %v", results, err)
	}
}

// TestSecondaryFails: its error is the caller's, who is neither admitted nor told of an open door, and what was to be
// taken away is taken away by the next decision.
func TestSecondaryFails(t *testing.T) {
	t.Parallel()
	primary, secondary := &frail{store: memstore.New(memstore.Options{})}, &frail{store: memstore.New(memstore.Options{})}
	f, err := ratelimit.NewFallback(primary, secondary, ratelimit.FallbackOptions{Timeout: time.Minute, Instances: func() int { return 1 }, OpenFor: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Unwrap() != primary {
		t.Error("Unwrap is not the primary")
	}
	bucket, log := ratelimit.PerHour(10).Named("bucket"), ratelimit.PerHour(10).Named("log")
	log.Algorithm = ratelimit.SlidingLog
	for _, l := range []*ratelimit.Limit{&bucket, &log} {
		take := func(cost int64) (ratelimit.Result, error) {
			return f.Take(t.Context(), ratelimit.Request{Key: "k", Limit: l, Cost: cost})
		}
		primary.fail(nil)
		if res, err := take(4); err != nil || res.Source != ratelimit.SourceStore {
			t.Fatalf("%+v, %v", res, err)
		}
		primary.fail(down)
		boom := errors.New("the secondary's own")
		for n := range int64(3) { // the first call of it fails, the second, the third
			secondary.failAfter(n, fails(boom))
			if res, err := take(1); err == nil && res.Remaining != 5 || err != nil && !errors.Is(err, boom) {
				t.Errorf("%v, call %d fails: %+v, %v", l.Algorithm, n, res, err)
			}
			secondary.failAfter(n, fails(boom))
			if res, err := f.TakeAll(t.Context(), []ratelimit.Request{{Key: "k", Limit: l, Cost: 11}}); err == nil && res[0].Allowed || err != nil && !errors.Is(err, boom) {
				t.Errorf("%v, TakeAll, call %d fails: %+v, %v", l.Algorithm, n, res, err)
			}
		}
		secondary.fail(nil)
		if res, err := take(0); err != nil || res.Remaining > 6 {
			t.Errorf("%v: then %+v, %v", l.Algorithm, res, err)
		}
		secondary.fail(fails(boom))
		if err := f.Reset(t.Context(), "k", l); !errors.Is(err, boom) {
			t.Errorf("Reset: %v", err)
		}
		secondary.fail(nil)
	}
}

// TestFallbackClock: the age of what is known goes by the clock that was given.
func TestFallbackClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	o := memstore.Options{Clock: clock}
	primary := &frail{store: memstore.New(o)}
	f, err := ratelimit.NewFallback(primary, memstore.New(o), ratelimit.FallbackOptions{Timeout: time.Minute, Instances: func() int { return 2 }, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l := ratelimit.PerHour(60)
	for _, c := range []struct {
		after time.Duration
		want  int64
	}{{0, 0}, {30 * time.Minute, 15}, {-time.Hour, 0}} {
		key := c.after.String()
		primary.fail(nil)
		if _, err := f.Take(t.Context(), ratelimit.Request{Key: key, Limit: &l, Cost: 60}); err != nil {
			t.Fatal(err)
		}
		primary.fail(down)
		now = now.Add(c.after)
		res, err := f.Take(t.Context(), ratelimit.Request{Key: key, Limit: &l})
		if err != nil || res.Remaining != c.want {
			t.Errorf("after %v: %+v, %v", c.after, res, err)
		}
	}
}
