package goredisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/lua"
)

// A queue sends calls to one server, in batches: what arrives while a batch is in flight waits and goes out together.
// Its goroutines live only while there is something to send, and a moment longer. The I/O is theirs, so a caller whose
// context ends leaves at once, whatever becomes of the call.
type queue struct {
	send func(ctx context.Context, calls []*call)
	// most is how many calls a batch holds. Of batches, eager are in flight at a time, or one more as free tells; one that
	// is slow to come back does not count, so that a bad connection holds nobody up, but there are never more than limit.
	most, eager, limit int

	refused atomic.Pointer[refusal] // what the server said last, if that was a refusal

	mu         sync.Mutex // guards what follows
	head, tail *call      // who waits
	waiting    int
	flying     []*batch
	slow       int // of flying
	timer      *time.Timer
	ticking    bool // while calls wait
	ticks      uint64

	workers
}

const (
	batchMost  = 256
	batchBytes = 1 << 18 // of keys, which may be long
	batchEager = 1
	batchLimit = 4
	// crowd is how many waiting calls are worth a batch of their own while the server is busy with another.
	crowd = 24
	// patience is how long a batch may be in flight, once to twice over, before it counts as slow.
	patience = time.Millisecond
	// maxWaiting bounds the memory of a queue. Callers beyond are turned away at once.
	maxWaiting = 1 << 14
)

var errFull = errors.New("goredisstore: too many decisions wait for this server")

// do carries out c and returns its error, or that of ctx as soon as it ends.
func (q *queue) do(ctx context.Context, c *call) error {
	c.ctx = ctx
	q.mu.Lock()
	switch {
	case q.waiting == 0 && q.free():
		b := q.begin(c)
		if ctx.Done() == nil {
			q.mu.Unlock()
			q.lead(b)
			<-c.done
			return c.err
		}
		q.start(b)
		q.mu.Unlock()
	case q.waiting >= maxWaiting:
		q.mu.Unlock()
		return lua.Unavailable(errFull)
	default:
		q.push(c)
		if q.free() {
			q.start(q.take())
		} else {
			q.arm()
		}
		q.mu.Unlock()
	}
	if !c.wait(ctx) && !q.leave(c) {
		return q.gone(ctx)
	}
	if c.err != nil && ctx.Err() != nil { // which may be what failed it
		return q.gone(ctx)
	}
	return c.err
}

// gone is the error of a caller whose context has ended. Where a refusal takes longer to arrive than callers wait, as that
// of a password does on a new connection, they are told of the last one.
func (q *queue) gone(ctx context.Context) error {
	err := ended(ctx)
	if r := q.refused.Load(); r != nil && time.Since(r.at) < refusalAge && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", err, r.err)
	}
	return err
}

// A refusal is ErrMisconfigured, and when it came.
type refusal struct {
	err error
	at  time.Time
}

// refusalAge is how long a refusal is told. Somebody has to ask meanwhile, which a breaker may keep everybody from for a
// while.
const refusalAge = time.Minute

// note keeps what b was refused with, until the server answers or is found to be away.
func (q *queue) note(b *batch) {
	switch err := b.calls[0].err; {
	case errors.Is(err, ratelimit.ErrMisconfigured):
		q.refused.Store(&refusal{err, time.Now()})
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded): // the callers left
	case q.refused.Load() != nil:
		q.refused.Store(nil)
	}
}

// free tells whether a batch may begin. Beside the eager ones it may be one more: where so many wait that the server and
// this process can be kept busy at the same time, and where there is a second caller and no third.
func (q *queue) free() bool {
	running := len(q.flying) - q.slow
	switch {
	case len(q.flying) >= q.limit || running > q.eager:
		return false
	case running < q.eager:
		return true
	default:
		return q.waiting >= crowd || q.waiting == 0 && q.lone()
	}
}

// lone tells whether nothing but single calls is in flight.
func (q *queue) lone() bool {
	for _, b := range q.flying {
		if !b.slow && len(b.calls) > 1 {
			return false
		}
	}
	return true
}

// begin makes a batch of c alone.
func (q *queue) begin(c *call) *batch {
	b := &batch{ctx: c.ctx}
	b.one[0] = c
	b.calls = b.one[:]
	if _, ok := c.ctx.Deadline(); ok {
		b.whole = undated{c.ctx}
		b.ctx = &b.whole
	}
	q.join(b)
	return b
}

// take makes a batch of those who have waited longest.
func (q *queue) take() *batch {
	first := q.head
	q.remove(first)
	if q.most == 1 || q.head == nil {
		return q.begin(first)
	}
	b := &batch{calls: make([]*call, 1, min(q.most, q.waiting+1))}
	b.calls[0] = first
	for bytes := len(first.key); q.head != nil && len(b.calls) < q.most; {
		c := q.head
		if bytes += len(c.key); bytes > batchBytes {
			break
		}
		q.remove(c)
		b.calls = append(b.calls, c)
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	q.join(b)
	return b
}

func (q *queue) join(b *batch) {
	for _, c := range b.calls {
		c.batch = b
	}
	b.here, b.since = len(b.calls), q.ticks
	q.flying = append(q.flying, b)
}

// end takes b out of flight and returns the batch that is to follow it, or nil.
func (q *queue) end(b *batch) (next *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.flying, b)
	q.flying = slices.Delete(q.flying, i, i+1)
	if b.slow {
		q.slow--
	}
	if q.waiting > 0 && q.free() {
		next = q.take()
	}
	q.arm()
	return next
}

// leave takes out a caller who does not wait any more, unless c is done.
func (q *queue) leave(c *call) (done bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.batch == nil {
		q.remove(c)
		return false
	}
	select {
	case <-c.done:
		return true
	default:
	}
	c.left.Store(true)
	c.batch.here--
	if c.batch.here == 0 && c.batch.cancel != nil {
		c.batch.cancel()
	}
	return false
}

// arm sees to it that slow batches are noticed while others wait for them.
func (q *queue) arm() {
	if q.ticking || q.waiting == 0 || q.eager >= q.limit || len(q.flying) >= q.limit {
		return
	}
	q.ticking = true
	if q.timer == nil {
		q.timer = time.AfterFunc(patience, q.tick)
	} else {
		q.timer.Reset(patience)
	}
}

func (q *queue) tick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ticking = false
	q.ticks++
	for _, b := range q.flying {
		if !b.slow && q.ticks-b.since > 1 {
			b.slow = true
			q.slow++
		}
	}
	for q.waiting > 0 && q.free() {
		q.start(q.take())
	}
	q.arm()
}

// idle tells whether there is nothing to do.
func (q *queue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting == 0 && len(q.flying) == 0
}

func (q *queue) push(c *call) {
	if c.prev = q.tail; c.prev != nil {
		c.prev.next = c
	} else {
		q.head = c
	}
	q.tail = c
	q.waiting++
}

func (q *queue) remove(c *call) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		q.head = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		q.tail = c.prev
	}
	c.prev, c.next = nil, nil
	q.waiting--
}
