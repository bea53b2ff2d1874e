package rueidisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/lua"
)

// History returns what key has spent under a SlidingLog limit and is still in the window, oldest first. It reads
// 500 entries a call, so that no call is long; what is spent meanwhile may or may not be among them. Other
// algorithms are ErrInvalidLimit.
func (s *Store) History(ctx context.Context, key string, limit *ratelimit.Limit) ([]ratelimit.Entry, error) {
	plan, err := s.plan(key, limit)
	if err != nil {
		return nil, err
	}
	if limit.Algorithm != ratelimit.SlidingLog {
		return nil, fmt.Errorf("%w: Algorithm %v keeps no history", ratelimit.ErrInvalidLimit, limit.Algorithm)
	}
	const page = 500
	var entries []ratelimit.Entry
	for after := int64(0); ; {
		c := newCall(lua.History)
		c.keys = append(c.keys, plan.Key(key))
		c.args = append(c.args, strconv.FormatInt(limit.Period.Microseconds(), 10), strconv.FormatInt(after, 10), s.codec.Now())
		msg, err := s.run(ctx, c)
		if err != nil {
			return nil, err
		}
		pairs, err := msg.AsIntSlice()
		if err != nil {
			return nil, lua.Refused(err)
		}
		// Each pair is a time and the running total up to it, modulo 2^23; the first is there for its total alone.
		for i := 2; i+1 < len(pairs); i += 2 {
			after = pairs[i]
			entries = append(entries, ratelimit.Entry{Time: time.UnixMicro(after), Cost: (pairs[i+1] - pairs[i-1]) & (1<<23 - 1)})
		}
		if len(pairs) < 2+2*page {
			return entries, nil
		}
	}
}
