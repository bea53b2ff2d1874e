package memstore

import "testing"

// check looks whether what the store counts is so. Nobody uses it meanwhile.
func (s *Store) check(t testing.TB) {
	t.Helper()
	var keys int
	var charged int64
	for i := range s.shards {
		sh := &s.shards[i]
		live := 0
		table := sh.table.Load()
		for j := range table.len() {
			e := table.lock(j)
			if e == nil {
				continue
			}
			e.mu.Unlock()
			live++
			charged += weight(&e.state)
			if e.state.Unused() < sh.due.Load() {
				t.Errorf("shard %d: a state is unused at %d, before %d", i, e.state.Unused(), sh.due.Load())
			}
			l := e.state.Machine().Limit()
			key := table.key(j)
			found, _ := table.find(s.hash(key, &l), key, &l)
			if found != e {
				t.Fatalf("shard %d: entry %d is not found", i, j)
			}
			found.mu.Unlock()
		}
		empties := 0
		for g := range table.groups {
			for m := table.group(g).empties(); m != 0; m &= m - 1 {
				empties++
			}
		}
		if live != sh.live || sh.room > empties-len(table.groups) {
			t.Errorf("shard %d: live %d, counted %d; room %d with %d empty in %d groups", i, sh.live, live, sh.room, empties, len(table.groups))
		}
		keys += live
	}
	if keys != s.Len() || charged != s.charged.Load() {
		t.Errorf("Len %d and %d charged, counted %d and %d", s.Len(), s.charged.Load(), keys, charged)
	}
}
