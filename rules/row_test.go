package rules

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
)

// rowOf makes a row of "column=text" cells, over one that is good.
func rowOf(cells ...string) *row {
	r := &row{cells: make([]sql.RawBytes, len(columns))}
	for _, cell := range append([]string{"id=7", "tenant_id=a", "route_id=r", "capacity=200", "refill_per_second=100"}, cells...) {
		name, text, _ := strings.Cut(cell, "=")
		for i, c := range columns {
			if c == name {
				r.cells[i] = sql.RawBytes(text)
				if text == "NULL" {
					r.cells[i] = nil
				}
			}
		}
	}
	return r
}

// TestRow: what columns come to, exactly.
func TestRow(t *testing.T) {
	t.Parallel()
	for cells, want := range map[string]string{
		"":                                                         "[token-bucket 100 per 1s, burst 200]",
		"refill_per_second=0.5":                                    "[token-bucket 1 per 2s, burst 200]",
		"refill_per_second=1.5":                                    "[token-bucket 3 per 2s, burst 200]",
		"refill_per_second=0.1":                                    "[token-bucket 1 per 10s, burst 200]",
		"refill_per_second=100.000000":                             "[token-bucket 100 per 1s, burst 200]",
		"refill_per_second=1e+03":                                  "[token-bucket 1000 per 1s, burst 200]",
		"refill_per_second=1e-06":                                  "[token-bucket 1 per 277h46m40s, burst 200]",
		"refill_per_second=0.000001":                               "[token-bucket 1 per 277h46m40s, burst 200]",
		"refill_per_second=1000000000":                             "[token-bucket 1000000000 per 1s, burst 200]",
		"refill_per_second=2000000000":                             "[token-bucket 2000000 per 1ms, burst 200]",
		"refill_per_second=123456.789":                             "[token-bucket 123456789 per 16m40s, burst 200]",
		"refill_per_second=1000000000.5":                           "", // 2,000,000,001 per 2 s
		"refill_per_second=0.016666666666666666":                   "",
		"capacity=200.0":                                           "[token-bucket 100 per 1s, burst 200]",
		"capacity=10|period_seconds=60":                            "[token-bucket 10 per 1m0s, burst 10]",
		"period_seconds=0.5|refill_per_second=NULL":                "[token-bucket 200 per 500ms, burst 200]",
		"algorithm=sliding-log":                                    "[sliding-log 200 per 2s]",
		"algorithm=sliding-counter":                                "[sliding-counter 200 per 2s]",
		"algorithm=sliding-log|period_seconds=60":                  "[sliding-log 200 per 1m0s]",
		"algorithm=sliding-log|refill_per_second=3":                "",
		"name=burst|on_failure=closed":                             "[burst: token-bucket 100 per 1s, burst 200, on failure closed]",
		`more_limits=[{"name":"day","rate":10000,"period":"24h"}]`: "[token-bucket 100 per 1s, burst 200 day: token-bucket 10000 per 24h0m0s]",
		"more_limits= [] ":                                         "[token-bucket 100 per 1s, burst 200]",
	} {
		r := rowOf(strings.Split(cells, "|")...).rule()
		if err := r.check(); (err == nil) != (want != "") || err == nil && fmt.Sprint(r.Limits) != want {
			t.Errorf("%s: %v, %v; want %s", cells, r.Limits, err, want)
		}
	}
	r := rowOf("shared=true", "name=all", "cost=3", "mode=shadow", "enforce_percent=20", "expires_at=2027-01-01T00:00:00.5+02:00",
		`more_limits=[{"rate":5,"period":"1s"},{"name":"x","rate":5,"period":"1s","shared":true}]`).rule()
	want := "{a r [token-bucket 5 per 1s] 3 shadow  [all: token-bucket 100 per 1s, burst 200 x: token-bucket 5 per 1s] 20 2026-12-31 22:00:00.5 +0000 UTC 7 <nil>}"
	if r.Expires = r.Expires.UTC(); fmt.Sprint(r) != want {
		t.Errorf("%v\nwant %s", r, want)
	}
	if r := rowOf("tenant_id=NULL", "tier=gold").rule(); r.check() != nil || r.Tenant != Any || r.Tier != "gold" {
		t.Errorf("a tier's: %+v", r)
	}
	if r := rowOf("expires_at=infinity").rule(); r.check() != nil || !r.Expires.IsZero() {
		t.Errorf("until the end of time: %+v", r)
	}
	if r := rowOf("expires_at=-infinity").rule(); r.check() != nil || r.Expires.IsZero() || r.Expires.After(time.Unix(1, 0)) {
		t.Errorf("from the beginning of time: %+v", r)
	}
	if r := rowOf("enforce_percent=0").rule(); r.Mode != Shadow || r.check() != nil {
		t.Errorf("for nobody: %+v", r)
	}
}

// TestBadRow covers R19 and R127 for tables: the column is named, and nothing is ever silently unlimited.
func TestBadRow(t *testing.T) {
	t.Parallel()
	for _, cell := range []string{
		"capacity=0", "capacity=-1", "capacity=NULL", "capacity=98765432198765432198765", "capacity=1.5", "capacity=NaN", "capacity=1e999999999",
		"capacity=1/2", "capacity=0x10", "capacity=1_000", "capacity=1000000001",
		"refill_per_second=0", "refill_per_second=-1", "refill_per_second=NULL", "refill_per_second=NaN", "refill_per_second=Infinity",
		"refill_per_second=1e-99", "refill_per_second=1e99", "refill_per_second=", "refill_per_second=x",
		"algorithm=gcra", "algorithm=TOKEN-BUCKET", "period_seconds=0", "period_seconds=-1", "period_seconds=0.0000001", "period_seconds=31622401",
		"period_seconds=0.0001", "name=a b", "name=é", "on_failure=explode", "shared=perhaps", "more_limits={}", "more_limits=[1]",
		`more_limits=[{"name":"x","rate":1,"period":"1s","rate":2}]`,
		`more_limits=[{"rate":0,"period":"1s"}]`, `more_limits=[{"rate":1}]`, `more_limits=[{"rates":1}]`, `more_limits=[`,
		"cost=0", "cost=-1", "cost=x", "mode=on", "enforce_percent=101", "enforce_percent=-1", "expires_at=soon",
		"route_id=", "tenant_id=", "tenant_id=NULL",
	} {
		name, _, _ := strings.Cut(cell, "=")
		r := rowOf(cell).rule()
		err := r.check()
		if err == nil || err.ID != "7" || !strings.HasPrefix(err.Field, name) {
			t.Errorf("%s: %v", cell, err)
		}
	}
	for _, cells := range []string{"algorithm=sliding-log|capacity=100001", "cost=201", "tier=gold", `more_limits=[{"rate":1,"period":"1s"}]`} {
		r := rowOf(strings.Split(cells, "|")...).rule()
		if err := r.check(); err == nil {
			t.Errorf("%s: %+v", cells, r)
		}
	}
}

// TestCompiler: rows that say the same share one policy, whatever lies between the cells, and each row is kept.
func TestCompiler(t *testing.T) {
	t.Parallel()
	b := newBuilder(newSnapshot())
	b.all()
	c := newCompiler(b)
	for i := range 10 {
		c.row(rowOf(fmt.Sprint("tenant_id=t", i), fmt.Sprint("id=", i)))
	}
	c.row(rowOf("tenant_id=x", "name=1", "cost=11"))
	c.row(rowOf("tenant_id=y", "name=11", "cost=1"))
	c.row(rowOf("tenant_id=z", "expires_at=2027-01-01 00:00:00"))
	c.row(rowOf("tenant_id=z1"))
	c.row(rowOf("tenant_id=NULL", "tier=gold"))
	c.row(rowOf("tenant_id=z2", "capacity=0"))
	c.row(rowOf("tenant_id=z3", "expires_at=")) // is not NULL
	s, skipped := b.finish()
	if s.rules != 15 || len(skipped) != 2 || len(c.policies) != 4 {
		t.Errorf("%d rules, %v, %d policies", s.rules, skipped, len(c.policies))
	}
	if a, b := s.own.find("t0", "r"), s.own.find("t9", "r"); a.policy != b.policy || *a.id != "0" || *b.id != "9" {
		t.Errorf("%+v, %+v", a, b)
	}
	if e := s.own.find("z", "r"); e.policy.expires != time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano() {
		t.Errorf("%+v", e)
	}
	if e := s.own.find("z1", "r"); e.policy.expires != 0 {
		t.Errorf("a rule without an end has that of the one before: %+v", e.policy)
	}
	if p := s.own.find("x", "r").policy; p.cost != 11 || p.limits[0].Name != "1" {
		t.Errorf("%+v", p)
	}
}

func TestNoTable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"SQL logic error: no such table: rate_limit_tenant (1)": true, "Error 1146: Table 'x.rate_limit_tenant' doesn't exist": true,
		"connection refused": false,
	} {
		if noTable(errors.New(text)) != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
	if _, err := New(t.Context(), SQL(nil), Options{Default: Rule{Limits: []ratelimit.Limit{ratelimit.PerSecond(1)}}}); err != nil {
		t.Error(err)
	}
}
