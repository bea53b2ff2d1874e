package memstore

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
)

// has tells whether s keeps a state for key.
func has(s *Store, key string, l ratelimit.Limit) bool {
	return unused(s, key, l) != never
}

// unused is when the state of key will equal an unused key, never if there is none.
func unused(s *Store, key string, l ratelimit.Limit) int64 {
	hash := s.hash(key, &l)
	e, _ := s.shard(hash).table.Load().find(hash, key, &l)
	if e == nil {
		return never
	}
	defer e.mu.Unlock()
	return e.state.Unused()
}

func TestLeastRecentlyUsedGoesFirst(t *testing.T) {
	t.Parallel()
	s, _ := newStore(3)
	l := ratelimit.PerHour(5)
	for _, key := range []string{"a", "b", "c"} {
		take(t, s, key, l, 1)
	}
	take(t, s, "a", l, 1)
	take(t, s, "b", l, 0) // to look is to use
	take(t, s, "d", l, 1)
	if !has(s, "a", l) || !has(s, "b", l) || has(s, "c", l) {
		t.Errorf("a %v, b %v, c %v, want only c gone", has(s, "a", l), has(s, "b", l), has(s, "c", l))
	}
	if got, want := s.Stats(), (Stats{Keys: 3, Evicted: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if res := take(t, s, "a", l, 0); res.Remaining != 3 {
		t.Errorf("a has %d left, want 3", res.Remaining)
	}
}

// R88: a flood does not reset a key that is in use, denied or not.
func TestR88DeniedKeyInUseStays(t *testing.T) {
	t.Parallel()
	s, _ := newStore(100)
	l := ratelimit.PerHour(1)
	take(t, s, "victim", l, 1)
	for i := range 10_000 {
		take(t, s, strconv.Itoa(i), l, 1)
		if i%50 == 0 && take(t, s, "victim", l, 1).Allowed {
			t.Fatalf("admitted again after %d other keys", i)
		}
	}
	s.check(t)
}

func TestUnusedGoesFirst(t *testing.T) {
	t.Parallel()
	s, c := newStore(3)
	slow, fast := ratelimit.PerHour(5), ratelimit.PerSecond(5)
	take(t, s, "old", slow, 1)
	take(t, s, "full", fast, 1)
	take(t, s, "new", slow, 1)
	c.advance(199_999 * time.Microsecond)
	take(t, s, "full", fast, 0)
	c.advance(time.Microsecond) // full is full again, though it was used last
	take(t, s, "other", slow, 1)
	if !has(s, "old", slow) || has(s, "full", fast) {
		t.Errorf("old %v, full %v, want only full gone", has(s, "old", slow), has(s, "full", fast))
	}
	take(t, s, "new", slow, -1) // all given back
	take(t, s, "last", slow, 1)
	if !has(s, "old", slow) || has(s, "new", slow) {
		t.Errorf("old %v, new %v, want only new gone", has(s, "old", slow), has(s, "new", slow))
	}
	if got, want := s.Stats(), (Stats{Keys: 3, Expired: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// What goes is, at every step, what a plain search finds.
func TestEvictionOrder(t *testing.T) {
	t.Parallel()
	const most = 50
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	s, c := newStore(most)
	s.sweeper.mu.Lock() // the sweep would come in between
	limits := []ratelimit.Limit{ratelimit.PerSecond(10), ratelimit.PerMinute(10), ratelimit.PerHour(10)}
	type known struct {
		limit  ratelimit.Limit
		unused int64
		used   int
	}
	model := make(map[string]known)
	for step := range 15_000 {
		now, _ := s.moment()
		key := strconv.Itoa(r.IntN(3 * most))
		k, ok := model[key]
		if !ok || r.IntN(20) == 0 {
			k.limit = limits[r.IntN(len(limits))]
		}
		cost := r.Int64N(4) - 1
		if !ok && cost > 0 && len(model) == most {
			first, idle := "", false
			for name, o := range model {
				f := model[first]
				oIdle := o.unused <= now
				if first == "" || oIdle && !idle || oIdle == idle && !idle && o.used < f.used {
					first, idle = name, oIdle
				}
			}
			if idle {
				first = "" // any that is
			}
			take(t, s, key, k.limit, cost)
			gone := ""
			for name, o := range model {
				if !has(s, name, o.limit) {
					gone = name
				}
			}
			if idle && model[gone].unused > now || !idle && gone != first {
				t.Fatalf("seed %d, step %d: %q is gone, want %q (one that equals an unused key: %v)", seed, step, gone, first, idle)
			}
			delete(model, gone)
		} else {
			take(t, s, key, k.limit, cost)
		}
		if has(s, key, k.limit) {
			k.unused, k.used = unused(s, key, k.limit), step
			model[key] = k
		}
		c.advance(time.Duration(r.IntN(20)) * time.Millisecond)
	}
	s.check(t)
}

func TestLogEntriesCount(t *testing.T) {
	t.Parallel()
	s, c := newStore(10)
	log := ratelimit.Limit{Algorithm: ratelimit.SlidingLog, Rate: 100, Period: time.Hour}
	for i := range 5 {
		take(t, s, strconv.Itoa(i), log, 1)
	}
	for range 6 {
		c.advance(time.Millisecond)
		take(t, s, "4", log, 1)
	}
	if got, want := s.Stats(), (Stats{Keys: 4, Evicted: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	s.check(t)
	// Alone a log may outgrow MaxKeys, and then makes room for others.
	for i := range 100 {
		c.advance(time.Millisecond)
		if res := take(t, s, "big", log, 1); !res.Allowed || res.Remaining != int64(99-i) {
			t.Fatalf("call %d: %+v", i, res)
		}
	}
	if s.Len() != 1 {
		t.Errorf("Len %d, want 1", s.Len())
	}
	take(t, s, "small", log, 1)
	if has(s, "big", log) || s.charged.Load() != 1 {
		t.Errorf("big stays %v, %d charged", has(s, "big", log), s.charged.Load())
	}
	s.check(t)
}

func TestTakeAllAtTheBound(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 2, 3, 5} {
		s, c := newStore(most)
		for i := range 200 {
			var reqs []ratelimit.Request
			for j := range 1 + i%4 {
				l := algorithms(10, time.Hour)[(i+j)%3]
				reqs = append(reqs, ratelimit.Request{Key: strconv.Itoa((i * j) % 7), Limit: &l, Cost: 1})
			}
			reqs[0].Key = "denied"
			reqs[0].Cost = int64(i % 2 * 11)
			before := s.Stats()
			results, err := s.TakeAll(t.Context(), reqs)
			if err != nil {
				t.Fatal(err)
			}
			if results[0].Allowed != (i%2 == 0) {
				t.Fatalf("step %d: %+v", i, results[0])
			}
			if after := s.Stats(); !results[0].Allowed && after != before {
				t.Fatalf("a denial changed %+v to %+v", before, after)
			}
			c.advance(time.Second)
		}
		s.check(t)
		if n := s.Len(); n > max(most, 4) {
			t.Errorf("MaxKeys %d: Len %d", most, n)
		}
	}
}

// R88: memory does not grow with every key that comes once.
func TestR88Flood(t *testing.T) {
	t.Parallel()
	const most = 10_000
	s, c := newStore(most)
	l := ratelimit.PerMinute(10)
	for i := range 6 * most {
		take(t, s, fmt.Sprint("key-", i), l, 1)
		if s.Len() > most {
			t.Fatalf("Len %d after %d keys, above %d", s.Len(), i, most)
		}
		c.advance(time.Microsecond)
	}
	s.check(t)
	if got := s.Stats(); got.Keys != most || got.Evicted != 5*most {
		t.Errorf("%+v, want %d evicted", got, 5*most)
	}
	c.advance(time.Minute)
	for range most {
		take(t, s, "one", l, 1)
	}
	if n := s.Len(); n != 1 {
		t.Errorf("Len %d after a minute, want 1", n)
	}
	for i := range s.shards {
		if n := s.shards[i].table.Load().len(); n > 64 {
			t.Errorf("shard %d still has room for %d", i, n)
		}
	}
	s.check(t)
}

func TestKeysOfAllKinds(t *testing.T) {
	t.Parallel()
	s, _ := newStore(0)
	l := ratelimit.PerHour(10)
	keys := []string{"\x00", " ", "{", "}", "{a}b", "\xff\xfe", strings.Repeat("x", 39), strings.Repeat("x", 40), strings.Repeat("y", 1<<16)}
	for i, key := range keys {
		count(t, s, key, l, i+1)
	}
	for i, key := range keys {
		if res := take(t, s, key, l, 0); res.Remaining != int64(9-i) {
			t.Errorf("key %d has %d left, want %d", i, res.Remaining, 9-i)
		}
		if err := s.Reset(t.Context(), key, &l); err != nil {
			t.Error(err)
		}
	}
	s.check(t)
	if n := s.Len(); n != 0 {
		t.Errorf("Len %d after all were reset", n)
	}
}
