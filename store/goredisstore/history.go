package goredisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/lua"
)

// pageSize is how many entries a call of lua.History returns at most.
const pageSize = 500

// History returns what is still in the window of a SlidingLog limit, oldest first, in one round trip for every 500
// entries.
func (s *Store) History(ctx context.Context, key string, limit *ratelimit.Limit) ([]ratelimit.Entry, error) {
	if err := ended(ctx); err != nil {
		return nil, err
	}
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
	key = plan.Key(key)
	period := strconv.FormatInt(limit.Period.Microseconds(), 10)
	var entries []ratelimit.Entry
	for after := int64(0); ; {
		c := newCall(lua.History, []string{key}, []string{period, strconv.FormatInt(after, 10), s.codec.Now()})
		if err := s.do(ctx, c); err != nil {
			return nil, err
		}
		page, err := readPage(c.cmd.Val())
		if err != nil {
			return nil, err
		}
		entries = append(entries, page...)
		if len(page) < pageSize {
			return entries, nil
		}
		after = page[len(page)-1].Time.UnixMicro()
	}
}

// totals wrap around at this number, as sliding_log.lua says.
const totals = 1 << 23

var errPage = fmt.Errorf("%w: a reply that is no history", ratelimit.ErrMisconfigured)

// readPage decodes a reply of lua.History: pairs of time and running total, the first of which only counts as what had
// been spent before.
func readPage(reply any) ([]ratelimit.Entry, error) {
	list, ok := reply.([]any)
	if !ok || len(list)%2 != 0 {
		return nil, errPage
	}
	var entries []ratelimit.Entry
	before := int64(0)
	for i := 0; i < len(list); i += 2 {
		at, ok1 := number(list[i])
		total, ok2 := number(list[i+1])
		if !ok1 || !ok2 {
			return nil, errPage
		}
		if i > 0 {
			cost := ((total-before)%totals + totals) % totals
			entries = append(entries, ratelimit.Entry{Time: time.UnixMicro(at), Cost: cost})
		}
		before = total
	}
	return entries, nil
}

func number(v any) (int64, bool) {
	text, ok := v.(string)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}
