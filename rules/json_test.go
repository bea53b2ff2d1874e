package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
)

func write(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// TestFile loads the example of FileSource's comment, sees each change, and keeps what it had when the file breaks.
func TestFile(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("json.go")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(source), "have changed:\n//\n")
	example, _, _ = strings.Cut(example, "//\n// tenant")
	path := filepath.Join(t.TempDir(), "rules.json")
	write(t, path, strings.ReplaceAll(example, "//\t", ""))
	var told errs
	o := byDefault()
	o.OnError, o.Clock = told.add, newClock().now
	set := newSet(t, File(path), o)
	if got := told.take(); len(got) > 0 {
		t.Fatal(got)
	}
	if r, _ := set.Find("shop-a", "create-order"); r.ID != "1" || r.Limits[0] != (ratelimit.Limit{Rate: 100, Period: time.Second, Burst: 200}) {
		t.Errorf("%+v", r)
	}
	want := "{* * [day: sliding-counter 10000 per 24h0m0s, on failure closed] 2 shadow gold [all: token-bucket 500 per 1s] 10 2027-01-01 00:00:00 +0000 UTC rules[1] <nil>}"
	if r, _ := set.Find("shop-a", "search"); fmt.Sprint(r) != want {
		t.Errorf("%v\nwant %s", r, want)
	}
	before := set.snapshot.Load().own.find("shop-a", "create-order")
	refresh(t, set)
	if set.snapshot.Load().own.find("shop-a", "create-order") != before {
		t.Error("a file that did not change was loaded again")
	}
	for _, broken := range []string{
		"", "{", `{"rules": 1}`, `{"rulez": []}`, `{"rules": []} {}`, `{"rules": []} }`, "\x00",
		`{"rules": [{"tenant": "shop-a", "mode": "off"}], "rules": []}`, `{"rules": [{"tenant": "caf` + "\xe9" + `", "mode": "off"}]}`,
	} {
		write(t, path, broken)
		if err := set.Refresh(t.Context()); err == nil {
			t.Errorf("%q is no error", broken)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := set.Refresh(t.Context()); err == nil {
		t.Error("no file is no error")
	}
	if r, _ := set.Find("shop-a", "create-order"); r.ID != "1" {
		t.Errorf("%+v holds", r)
	}
	write(t, path, `{"rules": [{"tenant": "shop-a", "mode": "off"}]}`)
	refresh(t, set)
	if r, _ := set.Find("shop-a", "create-order"); r.Mode != Off {
		t.Errorf("%+v holds", r)
	}
}

// TestR126 and R19: what a rule in a file has wrong is named by id and field, its last good version stays, and all others load.
func TestR126(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.json")
	file := func(rule string) string {
		return fmt.Sprintf(`{"rules": [%s, {"tenant": "b", "limits": [{"rate": 5, "period": "1s"}]}]}`, rule)
	}
	for rule, want := range map[string]string{
		`{"id": "7", "tenant": "a", "limits": [{"rate": 98765432198765432198765, "period": "1h"}]}`:                                "rule 7: limits.rate",
		`{"id": "7", "tenant": "a", "limits": [{"rate": "5", "period": "1h"}]}`:                                                    "rule 7: limits.rate",
		`{"id": "7", "tenant": "a", "limits": [{"rate": 1.5, "period": "1h"}]}`:                                                    "rule 7: limits.rate",
		`{"id": "7", "tenant": "a", "limits": [{"rate": 0, "period": "1h"}]}`:                                                      "rule 7: limits[0]: ratelimit: invalid limit: Rate 0",
		`{"id": "7", "tenant": "a", "limits": [{"rate": 5}]}`:                                                                      "rule 7: limits[0].period",
		`{"id": "7", "tenant": "a", "limits": [{"rate": 5, "period": "1 h"}]}`:                                                     "rule 7: limits[0].period",
		`{"id": "7", "tenant": "a", "limits": [{"rate": 5, "period": "1h", "algorithm": "gcra"}]}`:                                 "unknown",
		`{"id": "7", "tenant": "a", "limits": [{"rate": 5, "per": "1h"}]}`:                                                         "rule 7: per: unknown field",
		`{"tenant": "a", "limits": [{"rate": 5, "period": "1h", "name": "a b"}]}`:                                                  "rule rules[0]: limits[0]",
		`{"id": "7", "tenant": "a", "mode": "on"}`:                                                                                 "rule 7: ",
		`{"id": "7", "tenant": "a", "limits": [{"rate": 5, "period": "1h"}], "enforce_percent": 101}`:                              "rule 7: EnforcePercent",
		`{"id": "7", "tenant": "a", "limits": [{"rate": 5, "period": "1h", "burst": 9}], "limits": [{"rate": 5, "period": "1h"}]}`: "rule 7: limits: it stands twice",
		`{"id": "7", "tenant": "a", "limits": [{"rate": 5, "period": "1h", "rate": 6}]}`:                                           "rule 7: rate: it stands twice",
		`{"id": "7", "tenant": "a"}`: "rule 7: Limits",
		`{"id": "7", "tenant": "a", "limits": [{"rate": 5, "period": "1h"}], "expires": "soon"}`:                    "rule 7: ",
		`{"id": "7", "tenant": "a", "limits": [{"rate": 5, "period": "1h"}, {"rate": 6, "period": "1h"}]}`:          "rule 7: Limits[1]",
		`{"id": "7", "tenant": "a", "limits": [{"rate": 5, "period": "1h", "on_failure": "explode"}], "mode": "x"}`: "rule 7: ",
	} {
		write(t, path, file(`{"id": "7", "tenant": "a", "limits": [{"rate": 3, "period": "1s"}]}`))
		var told errs
		o := byDefault()
		o.OnError = told.add
		set := newSet(t, File(path), o)
		write(t, path, strings.Replace(file(rule), `"rate": 5, "period": "1s"`, `"rate": 6, "period": "1s"`, 1))
		refresh(t, set)
		got := told.take()
		if len(got) != 1 || want != "unknown" && !strings.HasPrefix(got[0].Error(), "rules: "+want) || !strings.Contains(got[0].Error(), "rule") {
			t.Errorf("%s: %v; want %s", rule, got, want)
		}
		if r, _ := set.Find("a", "x"); r.Limits[0].Rate != 3 {
			t.Errorf("%s: %+v holds", rule, r)
		}
		if r, _ := set.Find("b", "x"); r.Limits[0].Rate != 6 {
			t.Errorf("%s: the other rule is %+v", rule, r)
		}
	}
	if report, err := Validate(t.Context(), File(path)); err != nil || len(report.Bad) != 1 || len(report.Rules) != 1 {
		t.Errorf("Validate: %+v, %v", report, err)
	}
	write(t, path, `{"rules": [{"limits": [{"rate": 5, "period": "1h"}], "enforce_percent": 0}]}`)
	if report, _ := Validate(t.Context(), File(path)); report.Rules[0].Mode != Shadow {
		t.Errorf("a rule for nobody is of mode %v", report.Rules[0].Mode)
	}
}

func FuzzRule(f *testing.F) {
	f.Add([]byte(`{"rules": [{"id": "7", "tenant": "a", "limits": [{"rate": 5, "period": "1h", "algorithm": "sliding-log"}], "cost": 2}]}`))
	f.Add([]byte(`{"rules": [{"tier": "gold", "mode": "off", "expires": "2027-01-01T00:00:00Z", "enforce_percent": 0}], "tenants": {"a": "gold"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		rules, tiers, err := decode(data)
		if err != nil {
			return
		}
		b := newBuilder(newSnapshot())
		b.all()
		for _, r := range rules {
			b.put(r)
		}
		for tenant, tier := range tiers {
			b.tier(tenant, tier)
		}
		s, skipped := b.finish()
		if s.rules+len(skipped) < len(s.skipped) || s.rules > len(rules) {
			t.Fatalf("%d rules, %d skipped of %d", s.rules, len(skipped), len(rules))
		}
		for _, x := range []*index{&s.own, &s.wild} {
			for e := range x.each {
				if e.route == "" {
					continue
				}
				var r Rule
				if e.fill(&r); r.check() != nil {
					t.Fatalf("a bad rule holds: %+v", r)
				}
			}
		}
	})
}
