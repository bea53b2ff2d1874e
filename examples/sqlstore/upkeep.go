package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/sluicego/ratelimit"
)

var (
	_ ratelimit.Store     = (*Store)(nil)
	_ ratelimit.Historian = (*Store)(nil)
)

// Close closes the file.
func (s *Store) Close() error { return s.db.Close() }

// History returns what key has spent under a SlidingLog limit and is still in the window, oldest first.
func (s *Store) History(ctx context.Context, key string, limit *ratelimit.Limit) ([]ratelimit.Entry, error) {
	req := ratelimit.Request{Key: key, Limit: limit}
	if err := req.Validate(); err != nil {
		return nil, err
	}
	var step ratelimit.Step
	err := s.transact(ctx, func(tx *sql.Tx) (err error) {
		step, err = load(ctx, tx, &req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return step.Machine.History(step.State, s.clock().UnixMicro())
}

// margin is how much longer than it has to a row stays, for clocks that are set back a little.
const margin = time.Minute

// DeleteUnused deletes the rows that are as good as none and reports how many it were. Call it now and then.
func (s *Store) DeleteUnused(ctx context.Context) (deleted int64, err error) {
	err = s.transact(ctx, func(tx *sql.Tx) error {
		done, err := tx.ExecContext(ctx, "DELETE FROM ratelimit WHERE unused < ?", s.clock().Add(-margin).UnixMicro())
		if err == nil {
			deleted, err = done.RowsAffected()
		}
		return err
	})
	return deleted, err
}
