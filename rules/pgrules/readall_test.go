package pgrules

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicego/ratelimit/rules"
)

// TestBadAfterReinsert: a deletion that is still looked back at costs no rule that came after it, bad as it may have become.
func TestBadAfterReinsert(t *testing.T) {
	t.Parallel()
	b := withSchema(t)
	b.exec("ALTER TABLE rate_limit_rule DROP CONSTRAINT rate_limit_rule_capacity_check; " + insert + "('a', 'r', 3, 1)")
	set := b.set(rules.Options{})
	b.exec("DELETE FROM rate_limit_rule; " + insert + "('a', 'r', 5, 1)")
	refresh(t, set)
	b.exec("UPDATE rate_limit_rule SET capacity = 0")
	for range 2 {
		refresh(t, set)
		if got := burst(set, "a", "r"); got != 5 {
			t.Errorf("%d holds; want the last good version", got)
		}
	}
}

// TestClockSetBack: a deletion in what is now the future says nothing of the rule that stands in its place.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	b := withSchema(t)
	b.exec("ALTER TABLE rate_limit_rule DISABLE TRIGGER USER; INSERT INTO rate_limit_gone VALUES ('a', 'r', NULL, now() + interval '10 minutes'); " +
		"INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second, updated_at) VALUES ('a', 'r', 5, 1, now() - interval '5 minutes'); " +
		"ALTER TABLE rate_limit_rule ENABLE TRIGGER USER")
	set := b.set(rules.Options{})
	refresh(t, set)
	if got := burst(set, "a", "r"); got != 5 {
		t.Errorf("%d holds", got)
	}
	b.exec("DELETE FROM rate_limit_rule")
	refresh(t, set)
	if got := burst(set, "a", "r"); got != 7 {
		t.Errorf("%d holds once it is deleted", got)
	}
}

// TestReader: who may read the rules alone reads all of them each time.
func TestReader(t *testing.T) {
	t.Parallel()
	b := withSchema(t)
	b.exec(insert + "('a', 'r', 3, 1); CREATE ROLE reader LOGIN; GRANT SELECT ON rate_limit_rule, rate_limit_tenant TO reader")
	b.url = strings.Replace(b.url, "postgres@", "reader@", 1)
	set := newSet(t, rules.SQL(b.open()), rules.Options{})
	b.exec("UPDATE rate_limit_rule SET capacity = 5")
	refresh(t, set)
	if got := burst(set, "a", "r"); got != 5 {
		t.Errorf("%d holds", got)
	}
}

// TestLocalTime: where updated_at is in the local time of whoever writes, a change is not sought by it.
func TestLocalTime(t *testing.T) {
	t.Parallel()
	b := fresh(t)
	b.exec(`CREATE TABLE rate_limit_rule (id bigserial PRIMARY KEY, tenant_id text NOT NULL, route_id text NOT NULL, capacity bigint NOT NULL,
		refill_per_second numeric NOT NULL, updated_at timestamp NOT NULL DEFAULT now(), UNIQUE (tenant_id, route_id))`)
	b.exec(rules.Schema)
	b.exec(insert + "('a', 'r', 3, 1)")
	set := b.set(rules.Options{})
	b.exec("SET timezone = 'America/New_York'; UPDATE rate_limit_rule SET capacity = 5; RESET timezone")
	refresh(t, set)
	if got := burst(set, "a", "r"); got != 5 {
		t.Errorf("%d holds", got)
	}
}

// TestSchemaTogether: several processes that start at once may all run it.
func TestSchemaTogether(t *testing.T) {
	t.Parallel()
	b := fresh(t)
	for range 3 {
		var running sync.WaitGroup
		for range 4 {
			db := b.open()
			running.Go(func() {
				if _, err := db.Exec(rules.Schema); err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
		b.exec("DROP TABLE rate_limit_rule, rate_limit_tenant, rate_limit_gone")
	}
}

// TestCutShort: a connection that is killed while all rules are read costs none of them.
func TestCutShort(t *testing.T) {
	t.Parallel()
	b := withSchema(t)
	b.exec("INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) SELECT 't' || n, 'r', 1, 1 FROM generate_series(1, 50000) n")
	source := rules.SQL(b.open())
	source.FullEvery = time.Nanosecond
	set := newSet(t, source, rules.Options{})
	failed := 0
	within(t, 30*time.Second, "a load that was cut short", func() bool {
		done := make(chan error, 1)
		go func() { done <- set.Refresh(t.Context()) }()
		for {
			select {
			case err := <-done:
				if err != nil {
					failed++
				}
				if s := set.Stats(); s != (rules.Stats{Rules: 50000}) {
					t.Fatalf("%+v after %v", s, err)
				}
				return failed > 2
			default:
				b.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT id,%FROM rate_limit_rule'")
			}
		}
	})
}

// TestLocked: a load that a lock keeps waiting ends in time, and says why.
func TestLocked(t *testing.T) {
	t.Parallel()
	b := withSchema(t)
	set := b.set(rules.Options{Timeout: time.Second})
	tx, err := b.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("LOCK TABLE rate_limit_rule"); err != nil {
		t.Fatal(err)
	}
	if err := set.Refresh(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v; want that it was out of time", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	refresh(t, set)
}

// TestStorm: after thousands of changes, and with its connection killed again and again, a listener has the last one hold
// within a second.
func TestStorm(t *testing.T) {
	t.Parallel()
	b := withSchema(t)
	b.exec(insert + "('a', 'r', 1, 1)")
	set := b.set(rules.Options{})
	l, err := Listen(b.url, set, Options{OnError: func(error) { panic("hook") }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	within(t, 10*time.Second, "listening", l.Listening)
	var writers sync.WaitGroup
	for range 2 {
		db := b.open()
		writers.Go(func() {
			for n := range 1000 {
				statement := "UPDATE rate_limit_rule SET capacity = capacity + 1"
				if n%250 == 0 {
					statement = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ILIKE 'listen%'; " + statement
				}
				if _, err := db.Exec(statement); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	within(t, time.Second, fmt.Sprint("the last change, listening: ", l.Listening()), func() bool { return burst(set, "a", "r") == 2001 })
	within(t, 10*time.Second, "listening", l.Listening)
}
