package ratelimit_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// TestTakeUpTo: as much as there is under the scarcest limit, and the others are charged for no more.
func TestTakeUpTo(t *testing.T) {
	clock := newHandClock()
	store := memstore.New(memstore.Options{Clock: clock.Now})
	limits := []ratelimit.Limit{
		ratelimit.PerHour(100).Named("roomy"),
		ratelimit.PerHour(10).Named("scarce"),
		{Name: "log", Algorithm: ratelimit.SlidingLog, Rate: 50, Period: time.Hour},
		{Name: "counter", Algorithm: ratelimit.SlidingCounter, Rate: 60, Period: time.Hour},
	}
	l := must(t, store, limits...)
	for i, c := range []struct{ n, taken, left int64 }{{4, 4, 6}, {0, 0, 6}, {7, 6, 0}, {5, 0, 0}, {math.MaxInt64, 0, 0}} {
		res, err := l.TakeUpTo(t.Context(), "k", c.n)
		if err != nil || !res.Allowed || res.Taken != c.taken || res.Remaining != c.left || res.Name != "scarce" || res.RetryAfter != 0 {
			t.Errorf("call %d, up to %d: %+v, %v, want %d", i+1, c.n, res, err, c.taken)
		}
	}
	for _, limit := range limits {
		if res, err := must(t, store, limit).Peek(t.Context(), "k"); err != nil || res.Remaining != limit.Capacity()-10 {
			t.Errorf("%v: %+v, %v", limit, res, err)
		}
	}
	one := must(t, store, limits[0])
	if res, err := one.TakeUpTo(t.Context(), "k", 1000); err != nil || res.Taken != 90 || res.Remaining != 0 || !res.Allowed {
		t.Errorf("under one limit: %+v, %v", res, err)
	}
	// A store that denies, as one that fails closed does, took nothing.
	denied := ratelimit.Result{RetryAfter: time.Second, Source: ratelimit.SourceFailClosed, Name: "a"}
	closed := &scripted{results: [][]ratelimit.Result{{denied, {Name: "b"}}}, err: errBoom}
	if res, err := must(t, closed, ratelimit.PerSecond(1).Named("a"), ratelimit.PerSecond(2).Named("b")).TakeUpTo(t.Context(), "k", 5); err != nil || res != denied {
		t.Errorf("denied: %+v, %v", res, err)
	}
}

// TestTakeUpToKeepsHistory: a log beside a scarcer limit keeps the times of what it had spent.
func TestTakeUpToKeepsHistory(t *testing.T) {
	clock := newHandClock()
	log := ratelimit.Limit{Algorithm: ratelimit.SlidingLog, Rate: 50, Period: time.Hour}
	store := memstore.New(memstore.Options{Clock: clock.Now})
	spend(t, must(t, store, log), "k", 20)
	first := clock.Now()
	clock.forward(time.Minute)
	l := must(t, store, ratelimit.PerDay(10), log)
	if res, err := l.TakeUpTo(t.Context(), "k", 40); err != nil || res.Taken != 10 {
		t.Fatalf("%+v, %v", res, err)
	}
	want := []ratelimit.Entry{{Time: first, Cost: 20}, {Time: clock.Now(), Cost: 10}}
	got, err := l.History(t.Context(), "k")
	if err != nil || !slices.EqualFunc(got, want, func(a, b ratelimit.Entry) bool { return a.Time.Equal(b.Time) && a.Cost == b.Cost }) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

// TestTakeUpToAfterAnother: who meets a quicker caller takes what that one left.
func TestTakeUpToAfterAnother(t *testing.T) {
	no := func(left int64) []ratelimit.Result {
		return []ratelimit.Result{{Name: "a", Remaining: left, RetryAfter: 1}, {Name: "b", Remaining: 40}}
	}
	store := &scripted{results: [][]ratelimit.Result{no(7), no(7), no(2), {{Name: "a", Allowed: true, Taken: 2}, {Name: "b", Allowed: true, Taken: 2, Remaining: 38}}}}
	res, err := must(t, store, ratelimit.PerHour(8).Named("a"), ratelimit.PerHour(50).Named("b")).TakeUpTo(t.Context(), "k", 100)
	if err != nil || !res.Allowed || res.Taken != 2 || res.Name != "a" {
		t.Errorf("%+v, %v", res, err)
	}
	var costs []int64
	for _, reqs := range store.asked {
		costs = append(costs, reqs[0].Cost, reqs[1].Cost)
	}
	if want := []int64{8, 8, 7, 7, 6, 6, 2, 2}; !slices.Equal(costs, want) {
		t.Errorf("asked for %v, want %v", costs, want)
	}
}
