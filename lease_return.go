package ratelimit

import (
	"context"
	"sync"
	"time"
)

// An unspent is units that go back to the store.
type unspent struct {
	key   string
	limit Limit
	units int64
}

const (
	leaseCallTime  = time.Second     // for a call of the store that nobody waits for
	leaseCloseTime = 5 * time.Second // for all of Close
	leaseReturns   = 8               // give-backs at a time
	leaseFlights   = 64              // calls in the background at a time
)

func (l *Lease) give(ctx context.Context, g unspent) (err error) {
	defer func() {
		if p := recover(); p != nil { // what gives back may be a goroutine of ours
			err = panicked(p)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, leaseCallTime)
	defer cancel()
	_, err = l.store.Take(ctx, Request{Key: g.key, Limit: &g.limit, Cost: -g.units})
	return err
}

// giveLater gives back in the background, or at once if that is busy or closed. What fails is lost.
func (l *Lease) giveLater(ctx context.Context, g unspent) {
	if g.units == 0 {
		return
	}
	if !l.background.start(func(ctx context.Context) { _ = l.give(ctx, g) }) {
		_ = l.give(ctx, g)
	}
}

// giveAll gives back, some at a time, until one fails: the others would, too, and are lost.
func (l *Lease) giveAll(ctx context.Context, all []unspent) error {
	var mu sync.Mutex
	var failed error
	next := 0
	var wg sync.WaitGroup
	for range min(leaseReturns, len(all)) {
		wg.Go(func() {
			for {
				mu.Lock()
				if failed != nil || next == len(all) {
					mu.Unlock()
					return
				}
				g := all[next]
				next++
				mu.Unlock()
				if err := l.give(ctx, g); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return failed
}

// evicted gives back what had to make room. The shard is locked, so if the background is busy it is lost.
func (l *Lease) evicted(id stateID, h *holding) {
	if g := (unspent{id.key, h.limit, h.takeAll()}); g.units > 0 {
		l.background.start(func(ctx context.Context) { _ = l.give(ctx, g) })
	}
}

// sweep gives back what was held too long.
func (l *Lease) sweep(ctx context.Context) {
	now := l.clock.now()
	var dead []unspent
	more := false
	l.held.each(func(id stateID, h *holding) bool {
		if n := h.takeDead(now, l.maxAge); n > 0 {
			dead = append(dead, unspent{id.key, h.limit, n})
		}
		more = more || h.units() > 0
		return true
	})
	_ = l.giveAll(ctx, dead)
	if more {
		l.background.arm(l.maxAge/4, l.sweep)
	}
}

// Close gives back what is held, within 5 s, and returns an error if some was lost. From then on every call goes straight
// to the store, which stays open.
func (l *Lease) Close() error {
	l.closed.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), leaseCloseTime)
	defer cancel()
	l.background.close(ctx)
	var all []unspent
	l.held.each(func(id stateID, h *holding) bool {
		if n := h.takeAll(); n > 0 {
			all = append(all, unspent{id.key, h.limit, n})
		}
		return false
	})
	return l.giveAll(ctx, all)
}

// A leaseBackground runs what no caller waits for, until it is closed.
type leaseBackground struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	running int
	closed  bool
	timer   *time.Timer // nil if none is set
}

func (b *leaseBackground) init() { b.ctx, b.cancel = context.WithCancel(context.Background()) }

// start runs f, unless too many are running or b is closed.
func (b *leaseBackground) start(f func(ctx context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.running == leaseFlights {
		return false
	}
	b.running++
	b.wg.Go(func() {
		ctx, cancel := context.WithTimeout(b.ctx, leaseCallTime)
		guard(func() { f(ctx) }) // a store that panics is told of to those who call it themselves
		cancel()
		b.mu.Lock()
		b.running--
		b.mu.Unlock()
	})
	return true
}

// arm has f run after d, unless one is to run already.
func (b *leaseBackground) arm(d time.Duration, f func(ctx context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.timer != nil {
		return
	}
	b.timer = time.AfterFunc(d, func() {
		b.mu.Lock()
		b.timer = nil
		if b.closed {
			b.mu.Unlock()
			return
		}
		b.wg.Add(1)
		b.mu.Unlock()
		defer b.wg.Done()
		f(b.ctx)
	})
}

// close waits for what is running, which is cancelled when ctx is done.
func (b *leaseBackground) close(ctx context.Context) {
	b.mu.Lock()
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mu.Unlock()
	defer b.cancel()
	defer context.AfterFunc(ctx, b.cancel)()
	b.wg.Wait()
}
