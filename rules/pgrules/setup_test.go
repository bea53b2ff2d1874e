package pgrules

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/rules"
	"github.com/sluicego/ratelimit/store/storetest/pgserver"
)

// A bed is a database of a server, and what the tests do with it.
type bed struct {
	testing.TB
	server *pgserver.Server
	url    string
	db     *sql.DB
}

// fresh starts a server with an empty database.
func fresh(tb testing.TB) *bed {
	tb.Helper()
	b := &bed{TB: tb, server: pgserver.Start(tb)}
	b.url = b.server.URL("postgres")
	b.db = b.open()
	return b
}

// withSchema is fresh, with the tables.
func withSchema(tb testing.TB) *bed {
	tb.Helper()
	b := fresh(tb)
	b.exec(rules.Schema)
	return b
}

func (b *bed) open() *sql.DB {
	b.Helper()
	db, err := sql.Open("pgx", b.url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	return db
}

func (b *bed) exec(statements string) {
	b.Helper()
	if _, err := b.db.Exec(statements); err != nil {
		b.Fatalf("%.100s: %v", statements, err)
	}
}

// errs collects what OnError is told.
type errs struct {
	mu  sync.Mutex
	all []error
}

func (e *errs) add(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, err)
}

func (e *errs) take() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.all
	e.all = nil
	return fmt.Sprint(all)
}

// set is a set over the database that polls every hour, that is never.
func (b *bed) set(o rules.Options) *rules.Set {
	b.Helper()
	return newSet(b, rules.SQL(b.db), o)
}

func newSet(tb testing.TB, source rules.Source, o rules.Options) *rules.Set {
	tb.Helper()
	o.Default = rules.Rule{Limits: []ratelimit.Limit{ratelimit.PerSecond(7)}}
	if o.Interval == 0 {
		o.Interval = time.Hour
	}
	s, err := rules.New(context.Background(), source, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

func refresh(tb testing.TB, s *rules.Set) {
	tb.Helper()
	if err := s.Refresh(context.Background()); err != nil {
		tb.Fatal(err)
	}
}

// burst is the capacity of the rule that holds, 7 by default.
func burst(s *rules.Set, tenant, route string) int64 {
	r, _ := s.Find(tenant, route)
	if len(r.Limits) == 0 {
		return 0
	}
	return r.Limits[0].Capacity()
}

// within waits until f is true, and fails the test after d.
func within(tb testing.TB, d time.Duration, what string, f func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(d); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("%s: not within %v", what, d)
		}
	}
}
