package rueidisstore

import (
	"context"
	"fmt"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/lua"
)

// History returns what key has spent under a SlidingLog limit and is still in the window, oldest first; a limit of
// another Algorithm is ErrInvalidLimit. It reads 500 entries a call, so that no call is long; what is spent meanwhile
// may or may not be among them.
func (s *Store) History(ctx context.Context, key string, limit *ratelimit.Limit) ([]ratelimit.Entry, error) {
	if err := (&ratelimit.Request{Key: key, Limit: limit}).Validate(); err != nil {
		return nil, err
	}
	if limit.Algorithm != ratelimit.SlidingLog {
		return nil, fmt.Errorf("%w: only a sliding log has a history", ratelimit.ErrInvalidLimit)
	}
	plan, err := s.codec.Plan(limit)
	if err != nil {
		return nil, err
	}
	var entries []ratelimit.Entry
	for after, more := int64(0), true; more; {
		c := newCall(lua.History)
		c.keys = append(c.keys, plan.Key(key))
		c.args = plan.HistoryArgs(after, s.codec.Now())
		msg, err := s.run(ctx, c)
		if err != nil {
			return nil, err
		}
		page, err := msg.AsStrSlice()
		if err != nil {
			return nil, lua.Refused(err)
		}
		entries, after, more = lua.AppendHistory(entries, page)
	}
	return entries, nil
}
