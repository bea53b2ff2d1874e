package main

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluicego/ratelimit/rules"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// TestRun: a change in SQLite holds as soon as Redis tells of it, and after Redis was away, what was changed meanwhile.
func TestRun(t *testing.T) {
	t.Parallel()
	server := redisserver.Single(t)
	path := filepath.Join(t.TempDir(), "rules.db")
	ctx, cancel := context.WithCancel(t.Context())
	seen, ended := make(chan int64, 10), make(chan error, 1)
	go func() {
		ended <- run(ctx, server.Addr, path, func(r rules.Rule) { seen <- r.Limits[0].Capacity() })
	}()
	expect := func(want int64) {
		t.Helper()
		select {
		case got := <-seen:
			if got != want {
				t.Fatalf("shop-a may spend %d; want %d", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%d never came to hold", want)
		}
	}
	expect(20)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, step := range []struct {
		statement string
		want      int64
	}{
		{"INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('shop-a', '*', 200, 0.5)", 200},
		{"UPDATE rate_limit_rule SET capacity = 50", 50},
		{"DELETE FROM rate_limit_rule", 20},
	} {
		if _, err := db.Exec(step.statement); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Do("PUBLISH", channel, ""); err != nil {
			t.Fatal(err)
		}
		expect(step.want)
	}
	server.Kill()
	if _, err := db.Exec("INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('shop-a', '*', 9, 1)"); err != nil {
		t.Fatal(err)
	}
	server.Restart()
	expect(9)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestSQLite: every column is read from SQLite too, and a table that is not there is no tier.
func TestSQLite(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "rules.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range []string{
		table, "ALTER TABLE rate_limit_rule ADD COLUMN algorithm TEXT NOT NULL DEFAULT 'token-bucket'",
		"ALTER TABLE rate_limit_rule ADD COLUMN expires_at TEXT", "ALTER TABLE rate_limit_rule ADD COLUMN shared BOOLEAN NOT NULL DEFAULT 0",
		"ALTER TABLE rate_limit_rule ADD COLUMN more_limits TEXT",
		`INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second, algorithm, expires_at, shared, more_limits)
			VALUES ('a', 'r', 10, 2.5, 'sliding-log', '2100-01-01 00:00:00', 1, '[{"rate": 5, "period": "1m"}]')`,
	} {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	report, err := rules.Validate(t.Context(), rules.SQL(db))
	if err != nil || len(report.Rules) != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	r := report.Rules[0]
	if r.Shared[0].String() != "sliding-log 10 per 4s" || r.Limits[0].String() != "token-bucket 5 per 1m0s" || r.Expires.Year() != 2100 {
		t.Errorf("%+v", r)
	}
}
