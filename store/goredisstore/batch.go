package goredisstore

import (
	"context"
	"errors"
	"time"
)

// A batch is calls that are sent together.
type batch struct {
	calls  []*call
	ctx    context.Context
	cancel context.CancelFunc // nil where ctx is the caller's
	one    [1]*call
	whole  undated // ctx, where the caller's has a deadline

	// Guarded by queue.mu.
	here  int    // callers who still wait; ctx ends with the last of them
	since uint64 // the tick it began at
	slow  bool
}

// errGone is a hook of the client's that ended the goroutine it was called on.
var errGone = errors.New("goredisstore: a hook of the Redis client ended the goroutine")

// carry sends b and tells the callers, whatever happens meanwhile. Their calls are not b's any more then.
func (q *queue) carry(b *batch) {
	fail := errGone
	defer func() {
		if p := recover(); p != nil {
			fail = panicked(p)
		}
		for _, c := range b.calls {
			c.settle(fail)
		}
		q.note(b)
		for _, c := range b.calls {
			c.done <- struct{}{}
		}
		if b.cancel != nil {
			b.cancel()
		}
	}()
	q.send(b.ctx, b.calls)
	fail = errNothing
}

// An undated context ends with another but does not say when that will be. Where a client heeds deadlines it would tear
// down a connection over a caller's few milliseconds, again and again where it takes longer to set one up.
type undated struct{ context.Context }

func (*undated) Deadline() (time.Time, bool) { return time.Time{}, false }
