package memstore

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A sweeper forgets states that equal an unused key, a few on each call: it walks through all the shards that may
// hold any, and rests before it walks again. Decisions do not depend on it.
type sweeper struct {
	rested atomic.Int64 // since when it rests
	pause  atomic.Int64 // how long
	mu     sync.Mutex
	shard  int  // where it is,
	midway bool // and whether it has begun there
}

const (
	sweepSteps  = 128 // entries looked at on one call; one forgotten counts twice
	sweepPause  = int64(time.Millisecond / time.Microsecond)
	sweepPerKey = int64(10 * time.Microsecond / time.Microsecond)
	sweepBehind = int64(time.Minute / time.Microsecond) // a clock that is further behind was set back
	longAgo     = math.MinInt64 / 2
)

// awake tells whether there is work to do.
func (sw *sweeper) awake(now int64) bool {
	// As numbers without a sign, so that a clock that was set back wakes it too.
	return uint64(now-sw.rested.Load()+sweepBehind) >= uint64(sw.pause.Load()+sweepBehind)
}

func (sw *sweeper) work() { sw.rested.Store(longAgo) }

// sweep does a bounded part of the sweeper's work, unless somebody else does it just now.
func (s *Store) sweep(now int64) {
	sw := &s.sweeper
	if !sw.mu.TryLock() {
		return
	}
	defer sw.mu.Unlock()
	if now < sw.rested.Load()-sweepBehind {
		s.setBack()
	}
	// A state is left for a while in case its key comes back, and the sweeper rests as long: the more keys the longer,
	// so that walking takes a fixed and small part of the time.
	pause := max(sweepPause, sweepPerKey*s.keys.Load())
	steps := sweepSteps
	for range s.shards {
		if sh := &s.shards[sw.shard]; sw.midway || s.dues[sw.shard].Load() <= now-pause {
			sh.mu.Lock()
			sw.midway = !s.sweepShard(sh, now-pause, &steps)
			sh.mu.Unlock()
			if sw.midway {
				sw.work()
				return
			}
		}
		sw.shard = (sw.shard + 1) & (len(s.shards) - 1)
	}
	sw.pause.Store(pause)
	sw.rested.Store(now)
}

// setBack is for a clock that was: what the shards know of the times ahead may be too late by then.
func (s *Store) setBack() {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.due.Store(longAgo)
		sh.idle, sh.old = nil, nil
		sh.mu.Unlock()
	}
}

// sweepShard forgets states of sh, which is locked, that equalled an unused key at a time. It goes on where it stopped,
// takes its steps off steps, and reports whether it is through.
func (s *Store) sweepShard(sh *shard, at int64, steps *int) bool {
	if sh.hand == 0 {
		sh.soonest = never
	}
	for ; sh.hand < sh.table.Load().len(); sh.hand++ {
		if *steps <= 0 {
			return false
		}
		*steps--
		if unused, ok := s.forgetUnused(sh, sh.hand, at); ok {
			*steps--
		} else {
			sh.soonest = min(sh.soonest, unused)
		}
	}
	sh.hand = 0
	sh.due.Store(sh.soonest)
	if n := sh.table.Load().len(); n > 64 && sh.live < n/4 {
		s.resize(sh, s.grown(sh.live))
	}
	return true
}
