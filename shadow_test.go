package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// perHour is a limiter of n per hour, over a store of its own.
func perHour(t *testing.T, n int64, name string) *ratelimit.StoreLimiter {
	t.Helper()
	l, err := ratelimit.New(memstore.New(memstore.Options{}), ratelimit.PerHour(n).Named(name))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestShadow: the caller gets what the enforced limiter says, and the reports tell where the candidate differs.
func TestShadow(t *testing.T) {
	t.Parallel()
	enforced, candidate := perHour(t, 3, "old"), perHour(t, 5, "new")
	var tally ratelimit.Tally
	var last ratelimit.ShadowReport
	l := ratelimit.Shadow(enforced, candidate, func(r ratelimit.ShadowReport) { last = r; tally.Report(r) })
	var verdicts string
	for i := range 7 {
		res, err := l.Allow(t.Context(), "k", 1)
		if err != nil || res.Allowed != (i < 3) || res.Name != "old" || last.Enforced != res || last.Key != "k" || last.Cost != 1 || last.Err != nil {
			t.Fatalf("call %d: %+v, %v, reported %+v", i, res, err, last)
		}
		verdicts += last.Verdict.String() + " "
	}
	if want := "agrees agrees agrees would-allow would-allow agrees agrees "; verdicts != want {
		t.Errorf("%s; want %s", verdicts, want)
	}
	stricter := ratelimit.Shadow(perHour(t, 5, "old"), perHour(t, 1, "strict"), tally.Report)
	for range 3 {
		if res, _ := stricter.Allow(t.Context(), "k", 1); !res.Allowed {
			t.Error("a candidate denied")
		}
	}
	if got, want := tally.Counts(), map[string]ratelimit.ShadowCounts{"new": {Agrees: 5, WouldAllow: 2}, "strict": {Agrees: 1, WouldDeny: 2}}; !maps.Equal(got, want) {
		t.Errorf("%+v; want %+v", got, want)
	}

	// A refund goes to both.
	if res, err := l.(ratelimit.Refunder).Refund(t.Context(), "k", 2); err != nil || res.Remaining != 2 {
		t.Errorf("Refund: %+v, %v", res, err)
	}
	if res, _ := candidate.Peek(t.Context(), "k"); res.Remaining != 2 {
		t.Errorf("the candidate has %d left after the refund", res.Remaining)
	}
	if got := l.(ratelimit.Describer).LimitsFor("k"); len(got) != 1 || got[0].Name != "old" {
		t.Errorf("LimitsFor: %v", got)
	}
}

// TestShadowFails: nothing that the candidate does reaches the caller.
func TestShadowFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, f := range map[string]ratelimit.LimiterFunc{
		"error": func(context.Context, string, int64) (ratelimit.Result, error) {
			return ratelimit.Result{Allowed: true}, broken
		},
		"panic": func(context.Context, string, int64) (ratelimit.Result, error) { panic("boom") },
	} {
		var tally ratelimit.Tally
		var err error
		l := ratelimit.Shadow(perHour(t, 1, "old"), f, func(r ratelimit.ShadowReport) {
			tally.Report(r)
			err = r.Err
			panic("report")
		})
		for i := range 2 {
			if res, err := l.Allow(t.Context(), "k", 1); err != nil || res.Allowed != (i == 0) {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
		}
		if got := tally.Counts()["old"]; got.Failed != 2 || err == nil || name == "error" && !errors.Is(err, broken) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	asked := false
	failing := ratelimit.LimiterFunc(func(context.Context, string, int64) (ratelimit.Result, error) { return ratelimit.Result{}, broken })
	l := ratelimit.Shadow(failing, ratelimit.LimiterFunc(func(context.Context, string, int64) (ratelimit.Result, error) {
		asked = true
		return ratelimit.Result{}, nil
	}), func(ratelimit.ShadowReport) {})
	if _, err := l.Allow(t.Context(), "k", 1); !errors.Is(err, broken) || asked {
		t.Errorf("%v, candidate asked: %v", err, asked)
	}
}

// TestShadowForwards what the enforced limiter is, and no more.
func TestShadowForwards(t *testing.T) {
	t.Parallel()
	full := perHour(t, 1, "")
	bare := ratelimit.LimiterFunc(full.Allow)
	for _, c := range []struct {
		enforced           ratelimit.Limiter
		refunds, describes bool
	}{
		{full, true, true},
		{bare, false, false},
		{struct {
			ratelimit.Limiter
			ratelimit.Refunder
		}{bare, full}, true, false},
		{struct {
			ratelimit.Limiter
			ratelimit.Describer
		}{bare, full}, false, true},
	} {
		l := ratelimit.Shadow(c.enforced, bare, func(ratelimit.ShadowReport) {})
		_, refunds := l.(ratelimit.Refunder)
		_, describes := l.(ratelimit.Describer)
		if refunds != c.refunds || describes != c.describes {
			t.Errorf("%T: a Refunder %v, a Describer %v", c.enforced, refunds, describes)
		}
		if refunds {
			if _, err := l.(ratelimit.Refunder).Refund(t.Context(), "k", 1); err != nil {
				t.Error(err)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a nil limiter is accepted")
		}
	}()
	ratelimit.Shadow(full, nil, func(ratelimit.ShadowReport) {})
}

// TestTally is bounded.
func TestTally(t *testing.T) {
	t.Parallel()
	var tally ratelimit.Tally
	for i := range 2000 {
		tally.Report(ratelimit.ShadowReport{Candidate: ratelimit.Result{Name: fmt.Sprint(i)}})
	}
	if got := tally.Counts(); len(got) != 1001 || got[""].Agrees != 1000 || got["7"].Agrees != 1 {
		t.Errorf("%d names, %+v together", len(got), got[""])
	}
	if s := ratelimit.Verdict(9).String(); s != "Verdict(9)" || ratelimit.ShadowFailed.String() != "failed" {
		t.Error(s)
	}
}
