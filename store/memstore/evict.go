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
	v := sh.inOrder()
	if v.idle == nil {
		v.idle = sh.rank(func(e *entry) int64 { return e.state.Unused() })
	}
	for len(v.idle) > 0 && v.idle[0].rank <= now {
		e := v.idle.pop().entry
		if e.isFree() {
			continue
		}
		if unused := e.state.Unused(); unused > now {
			v.idle.push(ranked{rank: unused, entry: e}) // it was used after it came in
			continue
		}
		s.forget(sh, e)
		s.expired.Add(1)
		return true
	}
	if len(v.idle) > 0 {
		sh.due.Store(v.idle[0].rank)
	} else {
		sh.due.Store(never)
	}
	return false
}

// forgetOldest forgets the least recently used state of sh, if there is one that was not used since used.
func (s *Store) forgetOldest(sh *shard, used uint64, now int64) bool {
	v := sh.inOrder()
	for range 2 {
		// What was used after the queue was made is in it no more, and is newer than all that is.
		for len(v.old) > 0 {
			r := v.old.pop()
			e := r.entry
			if e.isFree() || e.used != uint64(r.rank) || e.used >= used {
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
		v.old = sh.rank(func(e *entry) int64 { return int64(e.used) })
	}
	return false
}

func (sh *shard) inOrder() *victims {
	if sh.victims == nil {
		sh.victims = &victims{}
	}
	return sh.victims
}

// rank returns the entries of sh in a queue.
func (sh *shard) rank(by func(*entry) int64) queue {
	q := make(queue, 0, sh.live+1)
	for i := range sh.table.entries {
		if e := &sh.table.entries[i]; !e.isFree() {
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
	v := sh.victims
	if v == nil || v.idle == nil {
		return
	}
	if len(v.idle) > sh.live+sh.live/4 { // then entries stand in it more than once
		v.idle = nil
		return
	}
	v.idle.push(ranked{rank: at, entry: e})
}
