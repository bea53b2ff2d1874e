// Package sqlstore is a ratelimit.Store over database/sql and SQLite. It shows how to write a store for any database
// that has transactions: load a state, step it, save it.
package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/sluicego/ratelimit"
	"modernc.org/sqlite"
)

const where = " WHERE key = ? AND algorithm = ? AND name = ?"

// A Store keeps states in a SQLite file, for all processes of one host. It is safe for concurrent use.
type Store struct {
	db    *sql.DB
	clock func() time.Time
}

// Open returns the Store in the file at path, which is made if there is none. The clock is time.Now, but in tests.
func Open(path string, clock func() time.Time) (*Store, error) {
	db, err := sql.Open("sqlite", path+"?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // there is one writer at a time; the others wait where their contexts are watched
	s := &Store{db: db, clock: clock}
	err = s.transact(context.Background(), func(tx *sql.Tx) error {
		_, err := tx.Exec(`CREATE TABLE IF NOT EXISTS ratelimit (key BLOB, algorithm TEXT, name TEXT, state BLOB,
			unused INTEGER, PRIMARY KEY (key, algorithm, name)) WITHOUT ROWID`)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// Take decides req.
func (s *Store) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	if err := req.Validate(); err != nil {
		return ratelimit.Result{}, err
	}
	if l := req.Limit; req.Cost > l.Capacity() { // no need to ask
		return ratelimit.Result{Limit: l.Capacity(), RetryAfter: ratelimit.Never, Name: l.Name}, nil
	}
	results, err := s.TakeAll(ctx, []ratelimit.Request{req})
	if err != nil {
		return ratelimit.Result{}, err
	}
	return results[0], nil
}

// TakeAll decides reqs, all or nothing.
func (s *Store) TakeAll(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
	batch, err := ratelimit.Merge(reqs)
	if err != nil {
		return nil, err
	}
	steps := make([]ratelimit.Step, len(batch.Requests))
	results := make([]ratelimit.Result, len(batch.Requests))
	err = s.transact(ctx, func(tx *sql.Tx) (err error) {
		for i := 0; i < len(steps) && err == nil; i++ {
			steps[i], err = load(ctx, tx, &batch.Requests[i])
		}
		if err != nil || !ratelimit.StepAll(s.clock().UnixMicro(), steps, results) {
			return err
		}
		for i := 0; i < len(steps) && err == nil; i++ {
			err = save(ctx, tx, &batch.Requests[i], steps[i].State)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return batch.Results(results), nil
}

// Reset forgets what key has spent under limits.
func (s *Store) Reset(ctx context.Context, key string, limits ...*ratelimit.Limit) error {
	if len(limits) == 0 {
		return ratelimit.ErrInvalidLimit
	}
	for _, l := range limits {
		if err := (&ratelimit.Request{Key: key, Limit: l}).Validate(); err != nil {
			return err
		}
	}
	return s.transact(ctx, func(tx *sql.Tx) (err error) {
		for i := 0; i < len(limits) && err == nil; i++ {
			_, err = tx.ExecContext(ctx, "DELETE FROM ratelimit"+where, id(key, limits[i])...)
		}
		return err
	})
}

// id is what tells states apart, and nothing else does: limits change and keep what was spent.
func id(key string, l *ratelimit.Limit) []any {
	return []any{[]byte(ratelimit.BareKey(key)), l.Algorithm.String(), l.Name}
}

func load(ctx context.Context, tx *sql.Tx, req *ratelimit.Request) (step ratelimit.Step, err error) {
	m, _ := ratelimit.NewMachine(*req.Limit) // which is valid
	step = ratelimit.Step{Machine: m, State: new(ratelimit.State), Cost: req.Cost, Extra: req.Extra}
	var data []byte
	row := tx.QueryRowContext(ctx, "SELECT state FROM ratelimit"+where, id(req.Key, req.Limit)...)
	if err = row.Scan(&data); errors.Is(err, sql.ErrNoRows) {
		return step, nil
	}
	_ = step.State.UnmarshalBinary(data) // what cannot be read counts as unused
	return step, err
}

func save(ctx context.Context, tx *sql.Tx, req *ratelimit.Request, state *ratelimit.State) error {
	data, err := state.AppendBinary(nil)
	if err == nil && state.Machine() != nil { // else nothing was ever spent
		row := append(id(req.Key, req.Limit), data, state.Unused())
		_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO ratelimit VALUES (?, ?, ?, ?, ?)", row...)
	}
	return err
}

// transact runs step in a transaction that overlaps no other. While another process has the file it asks again, since
// SQLite's own way of waiting does not watch ctx.
func (s *Store) transact(ctx context.Context, step func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	for busy := new(sqlite.Error); errors.As(err, &busy) && busy.Code()&0xff == 5; { // SQLITE_BUSY
		time.Sleep(time.Millisecond / 2)
		tx, err = s.db.BeginTx(ctx, nil)
	}
	if err == nil {
		defer tx.Rollback() // after Commit it does nothing
		if err = step(tx); err == nil {
			err = tx.Commit()
		}
	}
	if err != nil {
		return cmp.Or(ctx.Err(), fmt.Errorf("%w: %w", ratelimit.ErrStoreUnavailable, err))
	}
	return nil
}
