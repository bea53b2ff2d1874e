package goredisstore

import (
	"context"
	"fmt"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/lua"
)

// errNoHistory is a reply that lua.History does not give.
var errNoHistory = fmt.Errorf("%w: a reply that is no history", ratelimit.ErrMisconfigured)

// History returns what key has spent under a SlidingLog limit and is still in the window, oldest first. It reads 500
// entries a call, so that no call is long; what is spent meanwhile may or may not be among them. Other algorithms are
// ErrInvalidLimit.
func (s *Store) History(ctx context.Context, key string, limit *ratelimit.Limit) ([]ratelimit.Entry, error) {
	if err := ended(ctx); err != nil {
		return nil, err
	}
	if err := (&ratelimit.Request{Key: key, Limit: limit}).Validate(); err != nil {
		return nil, err
	}
	if limit.Algorithm != ratelimit.SlidingLog {
		return nil, fmt.Errorf("%w: Algorithm %v keeps no history", ratelimit.ErrInvalidLimit, limit.Algorithm)
	}
	plan, err := s.codec.Plan(limit)
	if err != nil {
		return nil, err
	}
	keys := []string{plan.Key(key)}
	var entries []ratelimit.Entry
	for after, more := int64(0), true; more; {
		c := newCall(lua.History, keys, plan.HistoryArgs(after, s.codec.Now()))
		if err := s.do(ctx, c); err != nil {
			return nil, err
		}
		page, ok := texts(c.cmd.Val())
		if !ok {
			return nil, errNoHistory
		}
		entries, after, more = lua.AppendHistory(entries, page)
	}
	return entries, nil
}

// texts is a reply that is a list of texts.
func texts(reply any) (list []string, ok bool) {
	elements, ok := reply.([]any)
	list = make([]string, len(elements))
	for i := 0; ok && i < len(elements); i++ {
		list[i], ok = elements[i].(string)
	}
	return list, ok
}
