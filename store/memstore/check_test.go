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
		for j := range sh.table.entries {
			e := &sh.table.entries[j]
			if e.isFree() {
				continue
			}
			live++
			charged += weight(&e.state)
			if e.state.Unused() < sh.due.Load() {
				t.Errorf("shard %d: a state is unused at %d, before %d", i, e.state.Unused(), sh.due.Load())
			}
			l := e.state.Machine().Limit()
			key := string(e.text[:min(int(e.size), len(e.text))])
			if e.long != nil {
				key = *e.long
			}
			if sh.table.find(s.hash(key, &l), key, &l) != e {
				t.Errorf("shard %d: entry %d is not found", i, j)
			}
		}
		empties := 0
		for _, g := range sh.table.groups {
			for m := g.empties(); m != 0; m &= m - 1 {
				empties++
			}
		}
		if live != sh.live || sh.room > empties-len(sh.table.groups) {
			t.Errorf("shard %d: live %d, counted %d; room %d with %d empty in %d groups", i, sh.live, live, sh.room, empties, len(sh.table.groups))
		}
		keys += live
	}
	if keys != s.Len() || charged != s.charged.Load() {
		t.Errorf("Len %d and %d charged, counted %d and %d", s.Len(), s.charged.Load(), keys, charged)
	}
}
