package rules

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Schema makes the tables, indexes and triggers in PostgreSQL, 14 or later. It may be run again and again.
//
//go:embed schema.sql
var Schema string

// A SQLSource is rules in the table rate_limit_rule of a database; Schema says what its columns mean. Of these the
// first five must be there, the rest are optional, as is the table rate_limit_tenant.
//
// With Schema's triggers, and only then, it reads after the first time what was changed or deleted since; else all. Rows
// are read one by one and are not kept. Its fields are set before it is used.
type SQLSource struct {
	// Overlap is how far back a load looks behind the one before it, and must be longer than it takes from a change to its
	// commit, and to a replica if that is what is read. 0 means 1 min.
	Overlap time.Duration
	// FullEvery is how often all is read even so, which finds what took longer than Overlap; 0 means 15 min. It is below a
	// day: after two, the triggers forget what was deleted.
	FullEvery time.Duration

	db *sql.DB
}

var _ TierSource = (*SQLSource)(nil)

// SQL returns the Source of the rules in a database. The driver is the caller's; a load has one connection at a time.
func SQL(db *sql.DB) *SQLSource { return &SQLSource{db: db} }

// Rules reads all rules.
func (s *SQLSource) Rules(ctx context.Context) (rules []Rule, err error) {
	l, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer l.close()
	err = l.rules(ctx, "", nil, func(row *row) { rules = append(rules, row.rule()) })
	return rules, err
}

// Tiers reads the tiers of all tenants.
func (s *SQLSource) Tiers(ctx context.Context) (map[string]string, error) {
	l, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer l.close()
	tiers := map[string]string{}
	err = l.tiers(ctx, "", nil, func(tenant, tier []byte) { tiers[string(tenant)] = string(tier) })
	return tiers, err
}

const (
	defaultOverlap   = time.Minute
	defaultFullEvery = 15 * time.Minute
	maxFullEvery     = 24 * time.Hour
)

// A sqlMark is where a load left off.
type sqlMark struct {
	at      time.Time // by the server's clock
	full    time.Time // when all was read, likewise
	probe   string    // the triggers as they were
	columns string
}

// feed reads what changed, or all: the first time, every FullEvery, and wherever it cannot be sure to see each change.
func (s *SQLSource) feed(ctx context.Context, since any, b *builder) (any, error) {
	overlap, fullEvery := s.Overlap, s.FullEvery
	if overlap == 0 {
		overlap = defaultOverlap
	}
	if fullEvery == 0 {
		fullEvery = defaultFullEvery
	}
	if overlap < 0 || fullEvery < 0 || fullEvery > maxFullEvery {
		return nil, fmt.Errorf("overlap %v is below 0, or FullEvery %v is outside 0 to %v", overlap, fullEvery, maxFullEvery)
	}
	l, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer l.close()
	mark := sqlMark{columns: l.columns}
	mark.at, mark.probe = l.probe(ctx) // before the rows, so that the next load begins before they were read
	mark.full = mark.at
	last, _ := since.(sqlMark)
	if last.probe != "" && last.probe == mark.probe && last.columns == mark.columns &&
		!mark.at.Before(last.at) && mark.at.Sub(last.full) < fullEvery {
		all, err := l.changes(ctx, last.at.Add(-overlap), overlap, b)
		if err != nil {
			return nil, err
		}
		if !all {
			mark.full = last.full
			return mark, nil
		}
	}
	b.all()
	return mark, l.read(ctx, "", nil, b)
}

// A load is one connection, on which a source reads.
type load struct {
	conn      *sql.Conn
	columns   string // to select
	hasTenant bool
}

// columns are those of rate_limit_rule that are read, in the order of row's fields.
var columns = [...]string{
	colID: "id", colTenant: "tenant_id", colRoute: "route_id", colCapacity: "capacity", colRefill: "refill_per_second",
	colAlgorithm: "algorithm", colPeriod: "period_seconds", colName: "name", colOnFailure: "on_failure", colShared: "shared",
	colMore: "more_limits", colCost: "cost", colMode: "mode", colPercent: "enforce_percent", colTier: "tier", colExpires: "expires_at",
}

const requiredColumns = 5

// begin looks which tables and columns there are.
func (s *SQLSource) begin(ctx context.Context) (_ *load, err error) {
	if s.db == nil {
		return nil, errors.New("the *sql.DB is nil")
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	l := &load{conn: conn}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	there, err := l.columnsOf(ctx, "rate_limit_rule")
	if err != nil {
		return nil, err
	}
	var list []string
	for i, c := range columns {
		switch {
		case slices.Contains(there, c):
			list = append(list, c)
		case i < requiredColumns:
			return nil, fmt.Errorf("the table rate_limit_rule has no column %s", c)
		default:
			list = append(list, "NULL")
		}
	}
	l.columns = strings.Join(list, ", ")
	_, err = l.columnsOf(ctx, "rate_limit_tenant")
	if err != nil && !noTable(err) {
		return nil, err
	}
	l.hasTenant = err == nil
	return l, nil
}

func (l *load) close() { _ = l.conn.Close() }

// columnsOf asks twice: a driver may have prepared the query before the table was altered, and learns of it by an error.
func (l *load) columnsOf(ctx context.Context, table string) ([]string, error) {
	names, err := l.columnsNow(ctx, table)
	if err != nil && ctx.Err() == nil && !noTable(err) {
		names, err = l.columnsNow(ctx, table)
	}
	return names, err
}

func (l *load) columnsNow(ctx context.Context, table string) ([]string, error) {
	rows, err := l.conn.QueryContext(ctx, "SELECT * FROM "+table+" WHERE 1 = 0")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	for i, n := range names {
		names[i] = strings.ToLower(n)
	}
	return names, errors.Join(err, rows.Err())
}

// noTable tells whether err says that there is no such table: by SQLSTATE, or as SQLite and MySQL put it.
func noTable(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState() == "42P01"
	}
	text := err.Error()
	return strings.Contains(text, "no such table") || strings.Contains(text, "doesn't exist")
}

// probe returns the server's time and the state of Schema's triggers, in a text that changes whenever one is made,
// dropped, enabled or disabled; "" if one is missing, if what they note cannot be read or is not in absolute time, or if the
// server is no PostgreSQL and has no such catalogue.
func (l *load) probe(ctx context.Context) (at time.Time, triggers string) {
	const query = `SELECT CURRENT_TIMESTAMP, string_agg(oid || ':' || xmin, ' ' ORDER BY oid) FROM pg_trigger
WHERE tgrelid IN (to_regclass('rate_limit_rule'), to_regclass('rate_limit_tenant')) AND tgenabled IN ('O', 'A')
AND tgname IN ('rate_limit_touch', 'rate_limit_gone', 'rate_limit_all_gone')
HAVING count(*) = 6 AND has_table_privilege(to_regclass('rate_limit_gone'), 'SELECT') AND 2 = (SELECT count(*) FROM pg_attribute
WHERE attrelid IN (to_regclass('rate_limit_rule'), to_regclass('rate_limit_tenant')) AND attname = 'updated_at' AND atttypid = 'timestamptz'::regtype)`
	if err := l.conn.QueryRowContext(ctx, query).Scan(&at, &triggers); err != nil {
		return time.Time{}, ""
	}
	return at, triggers
}

// changes tells b what changed since a time, or says that all must be read: where a table was emptied, or where something was
// deleted later than now, by a clock that was set back since. A row may have been stamped a little before the deletion of
// the one whose place it took, so rows are read from further back.
func (l *load) changes(ctx context.Context, since time.Time, further time.Duration, b *builder) (all bool, err error) {
	dest := make([]sql.RawBytes, 3)
	const gone = `SELECT CASE WHEN past THEN tenant_id END, CASE WHEN past THEN route_id END, CASE WHEN past THEN tier END
FROM (SELECT *, gone_at <= clock_timestamp() AS past FROM rate_limit_gone WHERE gone_at > $1) g`
	err = l.query(ctx, gone, []any{since}, dest, func() {
		tenant, route, tier := string(dest[0]), string(dest[1]), string(dest[2])
		switch {
		case dest[1] != nil && dest[0] != nil:
			b.drop(place{tenant: tenant, route: route})
		case dest[1] != nil:
			b.drop(place{Any, tier, route})
		case dest[0] != nil:
			b.tier(tenant, "")
		default:
			all = true
		}
	})
	if err != nil || all {
		return all, err
	}
	return false, l.read(ctx, " WHERE updated_at > $1", []any{since.Add(-further)}, b)
}

// read tells b the rules and tiers of a condition.
func (l *load) read(ctx context.Context, where string, args []any, b *builder) error {
	c := newCompiler(b)
	if err := l.rules(ctx, where, args, c.row); err != nil {
		return err
	}
	return l.tiers(ctx, where, args, func(tenant, tier []byte) { b.tier(string(tenant), string(tier)) })
}

func (l *load) rules(ctx context.Context, where string, args []any, f func(*row)) error {
	r := row{cells: make([]sql.RawBytes, len(columns))}
	return l.query(ctx, "SELECT "+l.columns+" FROM rate_limit_rule"+where, args, r.cells, func() { f(&r) })
}

func (l *load) tiers(ctx context.Context, where string, args []any, f func(tenant, tier []byte)) error {
	if !l.hasTenant {
		return nil
	}
	dest := make([]sql.RawBytes, 2)
	return l.query(ctx, "SELECT tenant_id, tier FROM rate_limit_tenant"+where, args, dest, func() { f(dest[0], dest[1]) })
}

// query calls f for each row, with what it holds in dest until f returns.
func (l *load) query(ctx context.Context, query string, args []any, dest []sql.RawBytes, f func()) error {
	rows, err := l.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	into := make([]any, len(dest))
	for i := range dest {
		into[i] = &dest[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		f()
	}
	return rows.Err()
}
