package goredisstore

import (
	"runtime"
	"time"
)

// Workers are the goroutines that send the batches of a queue, one each. One that has nothing to do is kept for a moment,
// for its stack has grown to what the client needs: a new one for every decision would take longer to get there than all
// the rest of it.
type workers struct {
	// Guarded by queue.mu.
	parked   int
	needless int // the fewest that were parked since the last sweep
	sweeping bool
	sweeper  *time.Timer

	batches chan *batch // for those who are parked, each of whom takes one; nil sends him home. Its capacity is how many may be
}

const mostParked = 64

// linger is how long a worker may be needless, once to twice over, before it ends.
const linger = 20 * time.Millisecond

// start has b sent. It is called with mu held.
func (q *queue) start(b *batch) {
	if q.parked == 0 {
		go q.run(b)
		return
	}
	q.parked--
	q.needless = min(q.needless, q.parked)
	q.batches <- b // which has room for all who are parked
}

// run sends b, then what has come together meanwhile, and so on.
func (q *queue) run(b *batch) {
	defer func() {
		if b != nil { // a hook of the client's ended this goroutine
			go q.run(b)
		}
	}()
	for b != nil {
		q.fly(&b, true)
		if b == nil && q.park() {
			b = <-q.batches
		}
	}
}

// lead sends b on the caller's own goroutine, which is right for one who waits as long as it takes.
func (q *queue) lead(b *batch) {
	defer func() {
		if b != nil {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.start(b)
		}
	}()
	q.fly(&b, false)
}

// fly sends a batch and puts the next one in its place, or nil.
func (q *queue) fly(b **batch, yield bool) {
	defer func() { *b = q.end(*b) }()
	q.carry(*b)
	if yield && len((*b).calls) > 1 {
		// Those who just got their answers often come back with the next question. Let them, and send it together.
		runtime.Gosched()
	}
}

// park tells whether a worker is to wait for a batch. With those who are parked there are never more than limit.
func (q *queue) park() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.parked == cap(q.batches) || q.parked+len(q.flying) >= q.limit {
		return false
	}
	q.parked++
	q.watch()
	return true
}

// watch sees to it that nobody is parked for long.
func (q *queue) watch() {
	if q.sweeping || q.parked == 0 {
		return
	}
	q.sweeping = true
	if q.sweeper == nil {
		q.sweeper = time.AfterFunc(linger, q.sweep)
	} else {
		q.sweeper.Reset(linger)
	}
}

// sweep sends home whom nobody needed since the last time.
func (q *queue) sweep() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sweeping = false
	for range q.needless {
		q.parked--
		q.batches <- nil
	}
	q.needless = q.parked
	q.watch()
}
