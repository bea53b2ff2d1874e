package ratelimit

import (
	"context"
	"math"
	"testing"
	"time"
)

// The older units are spent first, and none is held longer than its batch may be.
func TestHoldingBatches(t *testing.T) {
	t.Parallel()
	const maxAge = time.Second
	at := func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }
	var h holding
	h.put(5, at(1000))
	h.put(7, at(1500))
	h.spend(4)
	if h.old != 1 || h.fresh != 7 {
		t.Fatalf("%d, %d", h.old, h.fresh)
	}
	h.put(3, at(1800)) // a third batch
	if h.old != 8 || h.oldUntil != at(1000) || h.fresh != 3 {
		t.Fatalf("%+v", h)
	}
	if n, until := h.claim(2); n != 2 || until != at(1000) || h.claimed != 2 {
		t.Fatalf("claimed %d until %v: %+v", n, until, h)
	}
	if n := h.takeDead(at(1000)-1, maxAge); n != 0 {
		t.Errorf("%d died too early", n)
	}
	if n := h.takeDead(at(1000), maxAge); n != 6 || h.units() != 3 {
		t.Errorf("%d died, %d are left", n, h.units())
	}
	h.put(2, at(1100)) // put back, the older ones
	if h.old != 2 || h.oldUntil != at(1100) || h.fresh != 3 || h.freshUntil != at(1800) {
		t.Errorf("%+v", h)
	}
	if n := h.takeDead(at(-201), maxAge); n != 3 {
		t.Errorf("a clock that was set back kills %d", n)
	}
	if n := h.takeAll(); n != 2 || h.units() != 0 {
		t.Errorf("%d, and %d are left", n, h.units())
	}
}

// A lease grows twofold with the calls in half of MaxAge, and is nothing below 8 of them.
func TestHoldingResize(t *testing.T) {
	t.Parallel()
	h := holding{}
	now := time.Duration(0)
	for i, c := range []struct {
		after        time.Duration
		calls, asked int64
		want         int64
	}{
		{0, 7, 7, 0},
		{time.Millisecond, 1, 1, 8}, // the eighth
		{time.Millisecond, 9, 9, 16},
		{time.Millisecond, 17, 17, 32},
		{time.Millisecond, 3, 3, 32}, // too few to tell
		{time.Millisecond, 30, 30, 49},
		{500 * time.Millisecond, 20, 20, 20}, // 20 in half a second
		{time.Second, 8, 8, 4},
		{time.Second, 7, 7, 0},
		{time.Second, 8, 800, 8},
		{-time.Second, 100, 100, 0},
	} {
		now += c.after
		h.calls += c.calls
		h.asked += c.asked
		if h.resize(now, 49, time.Second); h.size != c.want {
			t.Errorf("step %d: size %d, want %d", i, h.size, c.want)
		}
	}
}

// What calls ask for adds up to no less than nothing, however much it is.
func TestHoldingAsked(t *testing.T) {
	t.Parallel()
	l, err := NewLease(generous{}, LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	limit := PerHour(10)
	for range 2 {
		if _, err := l.Take(t.Context(), Request{Key: "k", Limit: &limit, Extra: math.MaxInt64}); err != nil {
			t.Fatal(err)
		}
	}
	id := idOf("k", &limit)
	s := l.held.lock(&id)
	defer s.Unlock()
	if h := s.find(&id); h.asked != math.MaxInt64 {
		t.Errorf("%d were asked for", h.asked)
	}
}

// A generous Store admits, and has nothing.
type generous struct{ Store }

func (generous) Take(context.Context, Request) (Result, error) { return Result{Allowed: true}, nil }
