package ratelimit_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicego/ratelimit"
)

// TestChangeOverIsNoGift: the local share of a state starts from its part of what the primary last had left, and what
// came back since.
func TestChangeOverIsNoGift(t *testing.T) {
	minute := ratelimit.PerMinute(60)
	log, counter, drained, raised := minute, minute, ratelimit.PerHour(6), minute
	log.Algorithm = ratelimit.SlidingLog
	counter.Algorithm = ratelimit.SlidingCounter
	raised.Algorithm, raised.Rate = ratelimit.SlidingLog, 120
	for _, c := range []struct {
		name  string
		limit ratelimit.Limit
		spent int64
		after time.Duration
		then  ratelimit.Limit // in the outage
		n     int
		want  int64 // what is left of the share
	}{
		{"bucket", minute, 40, 0, minute, 1, 20},
		{"bucket, shared", minute, 40, 0, minute, 3, 6}, // of 20, a third
		{"bucket, refilled", minute, 40, 12 * time.Second, minute, 3, 10},
		{"bucket, full again", minute, 40, 40 * time.Second, minute, 3, 20},
		{"bucket, a fraction", minute, 40, 1999 * time.Millisecond, minute, 1, 21},
		{"bucket, empty", minute, 60, 0, minute, 3, 0},
		{"bucket, a lower limit", minute, 60, 0, drained, 1, 0},
		{"bucket, a lower limit, some left", minute, 40, 0, drained, 2, 3},
		{"log", log, 40, 0, log, 3, 6},
		{"log, later", log, 40, 59 * time.Second, log, 3, 6},
		{"log, passed", log, 40, time.Minute, log, 3, 20},
		{"log, a higher limit", log, 40, 0, raised, 3, 26}, // of 40, two thirds
		{"counter", counter, 40, 0, counter, 3, 6},
		{"counter, passed", counter, 40, 2 * time.Minute, counter, 3, 20},
		{"never seen", minute, 0, 0, minute, 3, 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, ratelimit.FallbackOptions{Instances: func() int { return c.n }, OpenFor: time.Hour})
			if c.spent > 0 {
				r.take(t, "k", c.limit, c.spent)
			}
			time.Sleep(c.after)
			r.open(t)
			if res := r.take(t, "k", c.then, 0); res.Remaining != c.want || res.Source != ratelimit.SourceFallback {
				t.Errorf("%s: %+v, want %d left", c.name, res, c.want)
			}
			// The second decision takes nothing away.
			if res := r.take(t, "k", c.then, min(1, c.want)); res.Remaining != max(0, c.want-1) {
				t.Errorf("%s: then %+v", c.name, res)
			}
		})
	}
}

// TestWindowIsRenewed: what a local log holds from an earlier outage leaves it before what the primary counts, and does not
// stand for that.
func TestWindowIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ratelimit.FallbackOptions{})
		l := ratelimit.PerMinute(10)
		l.Algorithm = ratelimit.SlidingLog
		r.open(t)
		r.take(t, "k", l, 10)
		time.Sleep(20 * time.Second)
		r.open(t)
		r.back(t)
		if res := r.take(t, "k", l, 0); res.Remaining != 0 || res.Source != ratelimit.SourceStore {
			t.Fatalf("%+v", res)
		}
		r.open(t)
		r.take(t, "k", l, 0)
		time.Sleep(45 * time.Second) // the 10 are gone here, and there count for a quarter of a minute yet
		r.open(t)
		if res := r.take(t, "k", l, 0); res.Remaining != 0 || res.Source != ratelimit.SourceFallback {
			t.Errorf("%+v", res)
		}
		time.Sleep(20 * time.Second)
		r.open(t)
		if res := r.take(t, "k", l, 0); res.Remaining != 10 {
			t.Errorf("%+v", res)
		}
	})
}

// TestKnownOfAll: what TakeAll learns of each state counts as what Take does, under whatever form of the key; a state that
// already has less locally is left alone.
func TestKnownOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ratelimit.FallbackOptions{OpenFor: time.Second})
		a, b := ratelimit.PerHour(10).Named("a"), ratelimit.PerHour(20).Named("b")
		reqs := []ratelimit.Request{{Key: "k", Limit: &a, Cost: 4}, {Key: ratelimit.Key("k"), Limit: &b, Cost: 4}}
		all := func() []ratelimit.Result {
			t.Helper()
			results, err := r.TakeAll(t.Context(), reqs)
			if err != nil {
				t.Fatal(err)
			}
			return results
		}
		all()
		r.open(t)
		if res := all(); res[0].Remaining != 2 || res[1].Remaining != 12 {
			t.Errorf("%+v", res)
		}
		// The primary, which is back, knows nothing of these 4 until it is told; one failure later less is left here.
		r.rest(t)
		r.primary.fail(nil)
		all0 := []ratelimit.Request{{Key: "k", Limit: &a}, {Key: "k", Limit: &b}}
		res, err := r.TakeAll(t.Context(), all0)
		if err != nil || res[0].Remaining != 6 || res[0].Source != ratelimit.SourceStore {
			t.Errorf("%+v, %v", res, err)
		}
		r.primary.fail(down)
		if res := r.take(t, "k", a, 0); res.Remaining != 2 {
			t.Errorf("%+v", res)
		}
	})
}

// R88: what is kept is bounded, however many keys come.
func TestR88Fallback(t *testing.T) {
	t.Parallel()
	r := newRig(t, ratelimit.FallbackOptions{Timeout: time.Minute, MaxKeys: 1000, OpenFor: time.Hour})
	l := ratelimit.PerHour(10)
	flood := func() {
		for i := range 5000 {
			r.take(t, fmt.Sprint(i), l, 1)
		}
	}
	flood()
	if known, owed := r.Kept(); known != 1000 || owed != 0 {
		t.Errorf("%d known, %d owed", known, owed)
	}
	r.open(t)
	flood()
	if known, owed := r.Kept(); known != 1000 || owed != 1000 {
		t.Errorf("%d known, %d owed", known, owed)
	}
}
