package memstore

import "github.com/sluicego/ratelimit"

// weight is how many keys a state counts as.
func weight(s *ratelimit.State) int64 { return int64(max(1, s.Entries())) }

// reserve counts n states more, if that does not pass the bound.
func (s *Store) reserve(n int64) bool {
	for {
		charged := s.charged.Load()
		if charged+n > s.max {
			return false
		}
		if s.charged.CompareAndSwap(charged, charged+n) {
			return true
		}
	}
}

// makeRoom is reserve for a caller who holds no lock: states are forgotten until there is room. It passes the bound
// only if there is nothing left to forget.
func (s *Store) makeRoom(near *shard, n, now int64) {
	for !s.reserve(n) {
		if !s.evict(near, never, now) {
			s.charged.Add(n)
			return
		}
	}
}

// trim forgets states while the bound is passed, but not what was used in the shard sh since used.
func (s *Store) trim(sh *shard, used uint64, now int64) {
	for s.charged.Load() > s.max && s.evict(sh, used, now) {
	}
}

// evict forgets one state, and reports whether there was any: first one that equals an unused key, in whatever shard,
// then the least recently used of the shard near, then of any other. What was used in near since used stays. The caller
// holds no lock.
func (s *Store) evict(near *shard, used uint64, now int64) bool {
	start := near.number
	mask := len(s.shards) - 1
	for i := range s.shards {
		n := (start + i) & mask
		if s.dues[n].Load() > now {
			continue
		}
		sh := &s.shards[n]
		sh.mu.Lock()
		ok := s.forgetIdle(sh, now)
		sh.mu.Unlock()
		if ok {
			return true
		}
	}
	for i := range s.shards {
		sh := &s.shards[(start+i)&mask]
		if i > 0 {
			used = never
		}
		sh.mu.Lock()
		ok := s.forgetOldest(sh, used, now)
		sh.mu.Unlock()
		if ok {
			return true
		}
	}
	return false
}

// forgetIdle forgets a state of sh that equals an unused key, if there is one.
func (s *Store) forgetIdle(sh *shard, now int64) bool {
	if sh.idle == nil {
		sh.idle = sh.rank(func(e *entry) int64 { return e.state.Unused() })
	}
	for len(sh.idle) > 0 && sh.idle[0].rank <= now {
		r := sh.idle.pop()
		e := r.entry
		if e.key == "" {
			continue
		}
		if unused := e.state.Unused(); unused > now {
			sh.idle.push(ranked{rank: unused, entry: e}) // it was used after it entered the queue
			continue
		}
		s.forget(sh, e)
		s.expired.Add(1)
		return true
	}
	if len(sh.idle) > 0 {
		sh.due.Store(sh.idle[0].rank)
	} else {
		sh.due.Store(never)
	}
	return false
}

// forgetOldest forgets the least recently used state of sh, if there is one that was not used since used.
func (s *Store) forgetOldest(sh *shard, used uint64, now int64) bool {
	for range 2 {
		// What was used after the queue was made is in it no more, and is newer than all that is.
		for len(sh.old) > 0 {
			r := sh.old.pop()
			e := r.entry
			if e.key == "" || e.used != uint64(r.rank) || e.used >= used {
				continue
			}
			if e.state.Unused() <= now {
				s.expired.Add(1)
			} else {
				s.evicted.Add(1)
			}
			s.forget(sh, e)
			return true
		}
		sh.old = sh.rank(func(e *entry) int64 { return int64(e.used) })
	}
	return false
}

// rank returns the entries of sh in a queue.
func (sh *shard) rank(by func(*entry) int64) queue {
	q := make(queue, 0, sh.live+1)
	for i := range sh.entries {
		if e := &sh.entries[i]; e.key != "" {
			q = append(q, ranked{rank: by(e), entry: e})
		}
	}
	q.order()
	return q
}

// unusedFrom notes when e, new or changed, will equal an unused key, which may be sooner than what is known of it.
func (sh *shard) unusedFrom(e *entry, at int64) {
	if at < sh.due.Load() {
		sh.due.Store(at)
	}
	sh.soonest = min(sh.soonest, at)
	if sh.idle == nil {
		return
	}
	if len(sh.idle) > 2*sh.live { // then entries stand in it more than once
		sh.idle = nil
		return
	}
	sh.idle.push(ranked{rank: at, entry: e})
}

// forget removes e from sh, which is locked.
func (s *Store) forget(sh *shard, e *entry) {
	l := e.state.Machine().Limit()
	n := weight(&e.state)
	sh.remove(s.hash(e.key, &l), e)
	s.keys.Add(-1)
	s.charged.Add(-n)
}
