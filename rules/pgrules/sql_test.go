package pgrules

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/rules"
)

const insert = "INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES "

// TestSix: the table of six columns works as it stands, and each refresh sees what was inserted, updated and deleted.
func TestSix(t *testing.T) {
	t.Parallel()
	b := fresh(t)
	b.exec(`CREATE TABLE rate_limit_rule (id bigserial PRIMARY KEY, tenant_id text NOT NULL, route_id text NOT NULL, capacity bigint NOT NULL,
		refill_per_second double precision NOT NULL, updated_at timestamptz NOT NULL DEFAULT now(), UNIQUE (tenant_id, route_id))`)
	b.exec(insert + "('shop-a', 'create-order', 200, 100), ('shop-b', '*', 5, 0.5), ('*', 'slow', 3, 0.1)")
	var told errs
	set := b.set(rules.Options{OnError: told.add})
	r, ok := set.Find("shop-a", "create-order")
	if !ok || r.ID != "1" || r.Limits[0] != (ratelimit.Limit{Rate: 100, Period: time.Second, Burst: 200}) {
		t.Errorf("%+v", r)
	}
	if burst(set, "shop-b", "any") != 5 || burst(set, "shop-c", "slow") != 3 || burst(set, "shop-c", "x") != 7 {
		t.Errorf("%+v: %s", set.Stats(), told.take())
	}
	b.exec("UPDATE rate_limit_rule SET capacity = 50 WHERE tenant_id = 'shop-a'; DELETE FROM rate_limit_rule WHERE tenant_id = 'shop-b'; " + insert + "('shop-d', 'x', 9, 1)")
	refresh(t, set)
	if burst(set, "shop-a", "create-order") != 50 || burst(set, "shop-b", "any") != 7 || burst(set, "shop-d", "x") != 9 {
		t.Errorf("after the changes: %+v", set.Stats())
	}
	if got := told.take(); got != "[]" {
		t.Error(got)
	}

	// The schema goes over it, and the rules stay.
	for range 2 {
		b.exec(rules.Schema)
	}
	b.exec(insert[:len("INSERT INTO rate_limit_rule (")] + "tier, route_id, capacity, refill_per_second) VALUES ('gold', '*', 77, 1); INSERT INTO rate_limit_tenant VALUES ('shop-g', 'gold')")
	refresh(t, set)
	if burst(set, "shop-a", "create-order") != 50 || burst(set, "shop-g", "x") != 77 {
		t.Errorf("after the schema: %+v, %s", set.Stats(), told.take())
	}
}

// TestColumns reads every column.
func TestColumns(t *testing.T) {
	t.Parallel()
	b := withSchema(t)
	b.exec(`INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, period_seconds, algorithm, name, on_failure, shared, more_limits, cost, mode, enforce_percent, expires_at)
		VALUES ('a', 'r', 10, 60, 'sliding-log', 'm', 'closed', true, '[{"name": "day", "algorithm": "sliding-counter", "rate": 10000, "period": "24h"}]', 3, 'shadow', 20, '2100-01-01')`)
	set := b.set(rules.Options{})
	r, _ := set.Find("a", "r")
	want := "{a r [day: sliding-counter 10000 per 24h0m0s] 3 shadow  [m: sliding-log 10 per 1m0s, on failure closed] 20 2100-01-01 00:00:00 +0000 UTC 1 <nil>}"
	if got := fmt.Sprint(r); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	report, err := rules.Validate(t.Context(), rules.SQL(b.db))
	if err != nil || len(report.Rules) != 1 || len(report.Bad) > 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestChecks: the table refuses what a set would skip.
func TestChecks(t *testing.T) {
	t.Parallel()
	b := withSchema(t)
	for _, values := range []string{
		"('a', 'r', 0, 1)", "('a', 'r', -1, 1)", "('a', 'r', 1000000001, 1)", "('a', 'r', 1, 0)", "('a', 'r', 1, NULL)", "('a', 'r', 1, 'NaN')",
		"('a', 'r', 1, 1.0/60)", "('a', 'r', 1, 1000000001)", "('a', 'r', 1, 123456.789012)", "('', 'r', 1, 1)", "('a', '', 1, 1)", "(NULL, 'r', 1, 1)",
	} {
		if _, err := b.db.Exec(insert + values); err == nil {
			t.Errorf("%s is accepted", values)
		}
	}
	for _, set := range []string{
		"algorithm = 'gcra'", "period_seconds = 0", "period_seconds = 0.0000001", "name = 'a b'", "on_failure = 'x'", "more_limits = '{}'", "cost = 0",
		"mode = 'on'", "enforce_percent = 101", "tier = 'gold'", "tenant_id = NULL",
	} {
		if _, err := b.db.Exec(insert + "('a', 'r', 1, 1); UPDATE rate_limit_rule SET " + set); err == nil {
			t.Errorf("%s is accepted", set)
		}
		b.exec("DELETE FROM rate_limit_rule")
	}
	b.exec(insert + "('a', 'r', 1, 0.000001), ('b', 'r', 1, 999.999999), ('c', 'r', 1, 999999.999), ('d', 'r', 1, 999999999)")
	if set := b.set(rules.Options{}); set.Stats() != (rules.Stats{Rules: 4}) {
		t.Errorf("of what is accepted %+v loads", set.Stats())
	}
}

// TestR126: with the CHECK dropped a row of capacity 0 is skipped and named, and the old rule stands; others change.
func TestR126(t *testing.T) {
	t.Parallel()
	b := withSchema(t)
	b.exec(insert + "('shop-a', 'create-order', 200, 100), ('shop-b', 'x', 1, 1)")
	var told errs
	set := b.set(rules.Options{OnError: told.add})
	b.exec("ALTER TABLE rate_limit_rule DROP CONSTRAINT rate_limit_rule_capacity_check; UPDATE rate_limit_rule SET capacity = CASE tenant_id WHEN 'shop-a' THEN 0 ELSE 2 END")
	for range 2 {
		refresh(t, set)
	}
	if got := told.take(); got != "[rules: rule 1: capacity: 0 is no whole number from 1 to 1000000000]" {
		t.Errorf("told %s", got)
	}
	if burst(set, "shop-a", "create-order") != 200 || burst(set, "shop-b", "x") != 2 || set.Stats().Skipped != 1 {
		t.Errorf("%d, %d hold, %+v", burst(set, "shop-a", "create-order"), burst(set, "shop-b", "x"), set.Stats())
	}
	full := rules.SQL(b.db)
	full.FullEvery = time.Nanosecond
	b.exec("UPDATE rate_limit_rule SET capacity = 9 WHERE tenant_id = 'shop-a'")
	every := newSet(t, full, rules.Options{OnError: told.add})
	b.exec("UPDATE rate_limit_rule SET capacity = 0 WHERE tenant_id = 'shop-a'")
	refresh(t, every)
	if burst(every, "shop-a", "create-order") != 9 {
		t.Errorf("after a full load %d holds", burst(every, "shop-a", "create-order"))
	}
}

// A counter of statements that read all rules, by the server's own count of rows.
func fullReads(b *bed) (n int) {
	b.Helper()
	b.exec("SELECT pg_stat_force_next_flush()")
	if err := b.db.QueryRow("SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'rate_limit_rule'").Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// TestIncremental: by polling alone, a refresh sees inserts, plain updates, deletions, moved and swapped rules, tiers and
// TRUNCATE, and what a transaction commits that began before the last refresh; and reads only what changed.
func TestIncremental(t *testing.T) {
	t.Parallel()
	b := withSchema(t)
	b.exec("INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) SELECT 't' || n, 'r', 1, 1 FROM generate_series(1, 5000) n")
	b.exec("ALTER TABLE rate_limit_rule DISABLE TRIGGER rate_limit_touch; UPDATE rate_limit_rule SET updated_at = now() - interval '1 hour'; ALTER TABLE rate_limit_rule ENABLE TRIGGER rate_limit_touch; ANALYZE rate_limit_rule")
	var told errs
	set := b.set(rules.Options{OnError: told.add})
	step := func(what, statements string, want map[string]int64) {
		t.Helper()
		if statements != "" {
			b.exec(statements)
		}
		refresh(t, set)
		for tenant, n := range want {
			if got := burst(set, tenant, "r"); got != n {
				t.Errorf("%s: %s has %d; want %d", what, tenant, got, n)
			}
		}
		if got := told.take(); got != "[]" {
			t.Errorf("%s: %s", what, got)
		}
	}
	step("insert", insert+"('new', 'r', 5, 1)", map[string]int64{"new": 5, "t1": 1})
	step("update", "UPDATE rate_limit_rule SET capacity = 6 WHERE tenant_id = 'new'", map[string]int64{"new": 6})
	step("update with a stale time", "UPDATE rate_limit_rule SET capacity = 8, updated_at = '2000-01-01' WHERE tenant_id = 'new'", map[string]int64{"new": 8})
	step("delete", "DELETE FROM rate_limit_rule WHERE tenant_id IN ('new', 't1')", map[string]int64{"new": 7, "t1": 7, "t2": 1})
	step("again", insert+"('new', 'r', 5, 1)", map[string]int64{"new": 5})
	step("by who does not see the tables", "BEGIN; SET LOCAL search_path = pg_catalog; UPDATE public.rate_limit_rule SET capacity = 6 WHERE tenant_id = 'new'; DELETE FROM public.rate_limit_rule WHERE tenant_id = 't3'; COMMIT",
		map[string]int64{"new": 6, "t3": 7})
	step("back", "UPDATE rate_limit_rule SET capacity = 5 WHERE tenant_id = 'new'", map[string]int64{"new": 5})
	step("move", "UPDATE rate_limit_rule SET tenant_id = 'moved' WHERE tenant_id = 'new'", map[string]int64{"new": 7, "moved": 5})
	step("tier", "INSERT INTO rate_limit_rule (tier, route_id, capacity, refill_per_second) VALUES ('gold', '*', 50, 1); INSERT INTO rate_limit_tenant VALUES ('g', 'gold'), ('h', 'gold')",
		map[string]int64{"g": 50, "h": 50})
	step("no tier", "DELETE FROM rate_limit_tenant WHERE tenant_id = 'h'; UPDATE rate_limit_rule SET capacity = 60 WHERE tier = 'gold'", map[string]int64{"g": 60, "h": 7})
	step("tier renamed", "UPDATE rate_limit_rule SET tier = 'silver' WHERE tier = 'gold'", map[string]int64{"g": 7})
	step("tenant moved", "UPDATE rate_limit_tenant SET tier = 'silver'", map[string]int64{"g": 60})

	tx, err := b.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("UPDATE rate_limit_rule SET capacity = 9 WHERE tenant_id = 't2'"); err != nil {
		t.Fatal(err)
	}
	step("not committed", insert+"('later', 'r', 3, 1)", map[string]int64{"t2": 1, "later": 3})
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	step("committed", "", map[string]int64{"t2": 9})

	before := fullReads(b)
	for range 5 {
		step("quiet", "", map[string]int64{"t2": 9})
	}
	if n := fullReads(b) - before; n >= 5000 {
		t.Errorf("five quiet refreshes read %d rows by scanning", n)
	}

	step("truncate", "TRUNCATE rate_limit_rule; "+insert+"('only', 'r', 2, 1)", map[string]int64{"t2": 7, "only": 2})
	if s := set.Stats(); s.Rules != 1 {
		t.Errorf("%+v after TRUNCATE", s)
	}
}

// TestTriggers: wherever one is missing, disabled, or came only after the load before, all is read, and nothing is missed.
func TestTriggers(t *testing.T) {
	t.Parallel()
	b := withSchema(t)
	b.exec(insert + "('a', 'r', 1, 1), ('b', 'r', 1, 1)")
	set := b.set(rules.Options{})
	stale := "UPDATE rate_limit_rule SET updated_at = '2000-01-01', capacity = %d WHERE tenant_id = 'a'"
	for i, around := range [][2]string{
		{"DROP TRIGGER rate_limit_touch ON rate_limit_rule", rules.Schema},
		{"ALTER TABLE rate_limit_rule DISABLE TRIGGER rate_limit_touch", "ALTER TABLE rate_limit_rule ENABLE TRIGGER rate_limit_touch"},
		{"ALTER TABLE rate_limit_rule DISABLE TRIGGER USER", "ALTER TABLE rate_limit_rule ENABLE TRIGGER USER"},
	} {
		b.exec(around[0])
		b.exec(fmt.Sprintf(stale, 10+i))
		if i == 1 {
			refresh(t, set) // while it is missing, and else only once it is back
			if got := burst(set, "a", "r"); got != 10+int64(i) {
				t.Errorf("%s: %d holds", around[0], got)
			}
		}
		b.exec(around[1])
		refresh(t, set)
		if got := burst(set, "a", "r"); got != 10+int64(i) {
			t.Errorf("%s: %d holds once it is back", around[0], got)
		}
	}
	b.exec("DROP TRIGGER rate_limit_gone ON rate_limit_rule; DELETE FROM rate_limit_rule WHERE tenant_id = 'b'")
	refresh(t, set)
	if got := burst(set, "b", "r"); got != 7 {
		t.Errorf("%d holds for a rule that is gone", got)
	}
	b.exec("ALTER TABLE rate_limit_rule DROP COLUMN mode")
	refresh(t, set)
	b.exec("ALTER TABLE rate_limit_rule DROP COLUMN capacity")
	if err := set.Refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "capacity") {
		t.Errorf("without a column: %v", err)
	}
	if got := burst(set, "a", "r"); got != 12 {
		t.Errorf("%d holds after a load that failed", got)
	}
}

// TestOneConnection: a pool of a single connection is enough.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	b := withSchema(t)
	b.exec(insert + "('a', 'r', 1, 1)")
	b.db.SetMaxOpenConns(1)
	set := b.set(rules.Options{Timeout: 10 * time.Second})
	refresh(t, set)
	if got := burst(set, "a", "r"); got != 1 {
		t.Errorf("%d holds", got)
	}
	if _, err := rules.SQL(b.db).Tiers(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestOutage: the rules hold while the server is away, and are fresh again when it is back.
func TestOutage(t *testing.T) {
	t.Parallel()
	b := withSchema(t)
	b.exec(insert + "('a', 'r', 1, 1)")
	set := b.set(rules.Options{Interval: 50 * time.Millisecond})
	b.server.Kill()
	if err := set.Refresh(t.Context()); err == nil {
		t.Error("a dead server is no error")
	}
	if got := burst(set, "a", "r"); got != 1 {
		t.Errorf("%d holds without the server", got)
	}
	late := b.set(rules.Options{Interval: 50 * time.Millisecond})
	if got := burst(late, "a", "r"); got != 7 {
		t.Errorf("%d holds in a set that never saw the server", got)
	}
	b.server.Restart()
	b.server.Psql("postgres", "UPDATE rate_limit_rule SET capacity = 2")
	for _, s := range []*rules.Set{set, late} {
		within(t, 10*time.Second, "back", func() bool { return burst(s, "a", "r") == 2 })
	}
}
