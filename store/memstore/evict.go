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

// trim forgets states while the bound is passed, but not what was used since used.
func (s *Store) trim(sh *shard, used, now int64) {
	for s.charged.Load() > s.max && s.evict(sh, used, now) {
	}
}

// evict forgets one state, and reports whether there was any: first one that equals an unused key, in whatever shard,
// then the least recently used of the shard near, then of any other. What was used since used stays. The caller holds no
// lock.
func (s *Store) evict(near *shard, used, now int64) bool {
	mask := len(s.shards) - 1
	for i := range s.shards {
		n := (near.number + i) & mask
		if s.dues[n].Load() <= now && s.forgetIdle(&s.shards[n], now) {
			return true
		}
	}
	for i := range s.shards {
		if s.forgetOldest(&s.shards[(near.number+i)&mask], used, now) {
			return true
		}
	}
	return false
}

// forgetIdle forgets a state of sh that equals an unused key, if there is one.
func (s *Store) forgetIdle(sh *shard, now int64) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.idle == nil {
		sh.idle = sh.rank(func(e *entry) int64 { return e.state.Unused() })
	}
	for len(sh.idle) > 0 && sh.idle[0].rank <= now {
		i := sh.idle.pop().entry
		unused, ok := s.forgetUnused(sh, i, now)
		if ok {
			return true
		}
		if unused != never {
			sh.idle.push(ranked{rank: unused, entry: i}) // it was used after it came in
		}
	}
	if len(sh.idle) > 0 {
		sh.due.Store(sh.idle[0].rank)
	} else {
		sh.due.Store(never)
	}
	return false
}

// forgetUnused forgets entry i of sh, which is locked, if it equals an unused key at a time, and tells when it does:
// never if it is free.
func (s *Store) forgetUnused(sh *shard, i int, at int64) (unused int64, forgotten bool) {
	e := sh.table.Load().lock(i)
	if e == nil {
		return never, false
	}
	defer e.mu.Unlock()
	if unused = e.state.Unused(); unused > at {
		return unused, false
	}
	s.expired.Add(1)
	s.forget(sh, e, i)
	return unused, true
}

// forgetOldest forgets the least recently used state of sh, if there is one that was not used since used.
func (s *Store) forgetOldest(sh *shard, used, now int64) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for range 2 {
		// What was used after the queue was made is in it no more, and is newer than all that is.
		for len(sh.old) > 0 {
			r := sh.old.pop()
			e := sh.table.Load().lock(r.entry)
			if e == nil {
				continue
			}
			oldest := e.used == r.rank && e.used < used
			if oldest {
				if e.state.Unused() <= now {
					s.expired.Add(1)
				} else {
					s.evicted.Add(1)
				}
				s.forget(sh, e, r.entry)
			}
			e.mu.Unlock()
			if oldest {
				return true
			}
		}
		sh.old = sh.rank(func(e *entry) int64 { return e.used })
	}
	return false
}

// rank returns the entries of sh in a queue.
func (sh *shard) rank(by func(*entry) int64) queue {
	q, t := make(queue, 0, sh.live+1), sh.table.Load()
	for i := range t.len() {
		if e := t.lock(i); e != nil {
			q = append(q, ranked{rank: by(e), entry: i})
			e.mu.Unlock()
		}
	}
	q.order()
	return q
}

// unusedFrom notes when entry i of t, new or changed, will equal an unused key, which may be sooner than what is known of
// it. sh is locked.
func (sh *shard) unusedFrom(t *table, i int, at int64) {
	if at < sh.due.Load() {
		sh.due.Store(at)
	}
	sh.soonest = min(sh.soonest, at)
	if sh.idle == nil || t != sh.table.Load() { // what was made since knows it
		return
	}
	if len(sh.idle) > sh.live+sh.live/4 { // then entries stand in it more than once
		sh.idle = nil
		return
	}
	sh.idle.push(ranked{rank: at, entry: i})
}
