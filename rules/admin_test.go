package rules

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
)

// TestExplain: whose rule it is, and how each of its limits stands, without spending.
func TestExplain(t *testing.T) {
	t.Parallel()
	b := newBench(t, Rule{ID: "3", Tenant: "shop", Limits: limits(bucket("s", 2, 1)), Shared: limits(bucket("all", 9, 1)), Cost: 2})
	allow(t, b.limiter, key, 1)
	for range 2 {
		e := Explain(t.Context(), b.set, b.store, "shop", "order")
		if e.Rule.ID != "3" || e.From != "(tenant, *)" || e.Mode != Enforce || !e.Enabled || !e.Blocked || e.Key != key || len(e.Limits) != 2 {
			t.Fatalf("%+v", e)
		}
		for i, want := range []LimitState{
			{Limit: bucket("s", 2, 1), Key: key, Units: 2, Result: ratelimit.Result{Allowed: true, Limit: 2, ResetAfter: 2 * time.Second, Name: "s"}},
			{Limit: bucket("all", 9, 1), Key: "{shop}", Shared: true, Units: 2, Result: ratelimit.Result{Allowed: true, Limit: 9, Remaining: 7, ResetAfter: 2 * time.Second, Name: "all"}},
		} {
			if e.Limits[i] != want {
				t.Errorf("%+v\nwant %+v", e.Limits[i], want)
			}
		}
		if _, err := json.Marshal(e); err != nil {
			t.Error(err)
		}
	}
	if e := Explain(t.Context(), b.set, b.store, "shop", "search"); e.Blocked {
		t.Errorf("another route: %+v", e)
	}
	b.store.err = ratelimit.ErrStoreUnavailable
	if e := Explain(t.Context(), b.set, b.store, "nobody", "x"); e.From != "default" || !strings.Contains(e.Limits[0].Error, "unavailable") {
		t.Errorf("%+v", e)
	}
	b.set.SetEnabled(false)
	if e := Explain(t.Context(), b.set, nil, "shop", "order"); e.Mode != Off || e.Enabled || e.Blocked || e.Rule.Mode != Enforce || len(e.Limits) != 2 {
		t.Errorf("switched off: %+v", e)
	}
	b.set.SetEnabled(true)
	b.rules(Rule{Tenant: "shop", Mode: DenyAll})
	if e := Explain(t.Context(), b.set, nil, "shop", "order"); !e.Blocked || e.Mode != DenyAll {
		t.Errorf("deny-all: %+v", e)
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	was := []Rule{
		{ID: "1", Tenant: "same", Limits: perSecond(1)},
		{ID: "2", Tenant: "changed", Route: "r", Limits: perSecond(1)},
		{ID: "3", Tenant: "gone", Limits: perSecond(1)},
		{ID: "4", Tier: "gold", Limits: perSecond(1)},
		{ID: "5", Tenant: "expires", Limits: perSecond(1)},
	}
	is := []Rule{
		{ID: "9", Tenant: "same", Route: Any, Limits: perSecond(1), Cost: 1, EnforcePercent: 100},
		{ID: "2", Tenant: "changed", Route: "r", Limits: perSecond(2)},
		{ID: "6", Tenant: "new", Limits: perSecond(1)},
		{ID: "4", Tier: "gold", Limits: perSecond(1), Mode: Shadow},
		{ID: "5", Tenant: "expires", Limits: perSecond(1), Expires: time.Now()},
		{ID: "7", Tenant: "bad", Limits: perSecond(0)},
	}
	var got []string
	for _, c := range Diff(was, is) {
		got = append(got, fmt.Sprintf("%s/%s/%s %v %v", c.Tier, c.Tenant, c.Route, c.Old != nil, c.New != nil))
	}
	want := "[/changed/r true true /expires/* true true /gone/* true false /new/* false true gold/*/* true true]"
	if fmt.Sprint(got) != want {
		t.Errorf("%v\nwant %s", got, want)
	}
	if c := Diff(is, is); len(c) > 0 {
		t.Errorf("of the same: %+v", c)
	}
	if c := Diff(was[:1], []Rule{was[0], {Tenant: "same", Limits: perSecond(9)}}); len(c) > 0 {
		t.Errorf("a second rule for the same place, which never holds: %+v", c)
	}
	if c := Diff(was[:1], []Rule{{Tenant: "same", Limits: perSecond(0)}}); len(c) > 0 {
		t.Errorf("a rule that became bad, whose last good version stays: %+v", c)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	report, err := Validate(t.Context(), Static(
		Rule{Tenant: "a", Limits: perSecond(1)}, Rule{Tenant: "a", Route: "*", Limits: perSecond(1)}, Rule{Tier: "gold", Mode: Off},
		Rule{ID: "x", Limits: perSecond(0)},
	).WithTiers(map[string]string{"a": "gold", "b": "silver"}))
	if err != nil || len(report.Rules) != 2 || fmt.Sprint(report.Adrift) != "[silver]" ||
		fmt.Sprint(report.Bad) != "[rules: rule #2: "+errTwice.Error()+" rules: rule x: Limits[0]: ratelimit: invalid limit: Rate 0 is outside 1 to 1000000000 for a token-bucket]" {
		t.Errorf("%+v, %v", report, err)
	}
	if _, err := Validate(t.Context(), &changing{err: errDown}); err == nil {
		t.Error("a source that is down is no error")
	}
}

func TestMode(t *testing.T) {
	t.Parallel()
	for m := Enforce; m <= DenyAll; m++ {
		text, err := m.MarshalText()
		var back Mode
		if err2 := back.UnmarshalText(text); err != nil || err2 != nil || back != m || m.String() != string(text) {
			t.Errorf("%v: %s, %v, %v", m, text, err, err2)
		}
	}
	if _, err := Mode(9).MarshalText(); err == nil || Mode(9).String() != "Mode(9)" {
		t.Error("Mode 9 is one")
	}
	var m Mode
	if err := m.UnmarshalText([]byte("Enforce")); err == nil {
		t.Error("Enforce is no text of a Mode")
	}
}
