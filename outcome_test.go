package ratelimit_test

import (
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
)

// TestReport: the numbers that a script leaves become the Result that the Machine itself would give.
func TestReport(t *testing.T) {
	const s = int64(time.Second / time.Microsecond)
	bucket := ratelimit.Limit{Name: "b", Rate: 2, Period: time.Second, Burst: 10} // a token is 500,000 parts, one comes back each microsecond
	log := ratelimit.Limit{Name: "l", Algorithm: ratelimit.SlidingLog, Rate: 5, Period: time.Minute}
	counter := ratelimit.Limit{Name: "c", Algorithm: ratelimit.SlidingCounter, Rate: 100, Period: time.Minute}
	for name, c := range map[string]struct {
		limit   ratelimit.Limit
		outcome ratelimit.Outcome
		cost    int64
		want    ratelimit.Result
	}{
		"bucket, admitted": {
			bucket,
			ratelimit.Outcome{Allowed: true, Taken: 3, Units: 7},
			3,
			ratelimit.Result{Allowed: true, Remaining: 7, Taken: 3, ResetAfter: 1500 * time.Millisecond},
		},
		"bucket, admitted with a part of a token": {
			bucket,
			ratelimit.Outcome{Allowed: true, Taken: 3, Units: 7, Part: 100_000},
			3,
			ratelimit.Result{Allowed: true, Remaining: 7, Taken: 3, ResetAfter: 1400 * time.Millisecond},
		},
		"bucket, denied": {
			bucket,
			ratelimit.Outcome{Units: 1, Part: 250_000},
			3,
			ratelimit.Result{Remaining: 1, RetryAfter: 750 * time.Millisecond, ResetAfter: 4250 * time.Millisecond},
		},
		"bucket, denied by a clock that is behind": {
			bucket,
			ratelimit.Outcome{At: s / 10, Units: 1, Part: 250_000},
			3,
			ratelimit.Result{Remaining: 1, RetryAfter: 850 * time.Millisecond, ResetAfter: 4350 * time.Millisecond},
		},
		"bucket, given back until full": {
			bucket,
			ratelimit.Outcome{Allowed: true, Taken: -2, Units: 10},
			-3,
			ratelimit.Result{Allowed: true, Remaining: 10, Taken: -2},
		},
		"bucket, another limit denied": {
			bucket,
			ratelimit.Outcome{Units: 7},
			3,
			ratelimit.Result{Remaining: 7, ResetAfter: 1500 * time.Millisecond},
		},
		"bucket, all that is left": {
			bucket,
			ratelimit.Outcome{Units: 3},
			3,
			ratelimit.Result{Remaining: 3, ResetAfter: 3500 * time.Millisecond},
		},
		"bucket, never": {
			bucket,
			ratelimit.Outcome{Units: 7},
			11,
			ratelimit.Result{RetryAfter: ratelimit.Never},
		},
		"log, admitted": {
			log,
			ratelimit.Outcome{Allowed: true, Taken: 2, Units: 4},
			2,
			ratelimit.Result{Allowed: true, Remaining: 1, Taken: 2, ResetAfter: time.Minute},
		},
		"log, denied": {
			log,
			ratelimit.Outcome{At: -10 * s, Units: 4, Wait: 7},
			2,
			ratelimit.Result{Remaining: 1, RetryAfter: 7 * time.Microsecond, ResetAfter: 50 * time.Second},
		},
		"log, denied under a limit that was lowered": {
			log,
			ratelimit.Outcome{At: -10 * s, Units: 40, Wait: 20 * s},
			2,
			ratelimit.Result{RetryAfter: 20 * time.Second, ResetAfter: 50 * time.Second},
		},
		"log, another limit denied": {
			log,
			ratelimit.Outcome{At: -10 * s, Units: 1},
			2,
			ratelimit.Result{Remaining: 4, ResetAfter: 50 * time.Second},
		},
		"counter, admitted": {
			counter,
			ratelimit.Outcome{Allowed: true, Taken: 10, At: -18 * s, Units: 10, Part: 80},
			10,
			ratelimit.Result{Allowed: true, Remaining: 34, Taken: 10, ResetAfter: 102 * time.Second},
		},
		"counter, denied within the window": {
			counter,
			ratelimit.Outcome{At: -18 * s, Units: 10, Part: 80},
			35,
			ratelimit.Result{Remaining: 34, RetryAfter: 750 * time.Millisecond, ResetAfter: 102 * time.Second},
		},
		"counter, denied into the next window": {
			counter,
			ratelimit.Outcome{At: -30 * s, Units: 100},
			50,
			ratelimit.Result{RetryAfter: time.Minute, ResetAfter: 90 * time.Second},
		},
		"counter, only the window before": {
			counter,
			ratelimit.Outcome{At: -18 * s, Part: 80},
			45,
			ratelimit.Result{Remaining: 44, RetryAfter: 750 * time.Millisecond, ResetAfter: 42 * time.Second},
		},
	} {
		m, err := ratelimit.NewMachine(c.limit)
		if err != nil {
			t.Fatal(err)
		}
		c.want.Limit, c.want.Name = c.limit.Capacity(), c.limit.Name
		if got := m.Report(c.outcome, c.cost); got != c.want {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, c.want)
		}
	}
}
