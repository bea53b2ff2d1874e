package ratelimit

import (
	"fmt"
	"sync"
	"testing"
)

func TestTableIsBounded(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 2, 63, 64, 100, 1000, 100_000} {
		evicted := 0
		tab := newTable(most, func(stateID, *int) { evicted++ })
		for i := range 2*most + 3 {
			id := stateID{key: fmt.Sprint("key-", i)}
			s := tab.lock(&id)
			if s.find(&id) != nil {
				t.Fatalf("most %d: key %d is there before it was added", most, i)
			}
			*s.add(&id) = i
			if v := s.find(&id); v == nil || *v != i {
				t.Fatalf("most %d: key %d is not there after it was added", most, i)
			}
			s.Unlock()
		}
		if n := tab.len(); n > most || n+evicted != 2*most+3 {
			t.Errorf("most %d: %d are kept and %d made room, of %d", most, n, evicted, 2*most+3)
		}
	}
}

// A state that is asked for stays, however many others come once and never again.
func TestTableKeepsWhatIsUsed(t *testing.T) {
	t.Parallel()
	tab := newTable[int](1000, nil)
	hot := stateID{key: "hot", name: "n", algorithm: SlidingLog}
	s := tab.lock(&hot)
	*s.add(&hot) = 7
	s.Unlock()
	for i := range 100_000 {
		id := stateID{key: fmt.Sprint("cold-", i)}
		s := tab.lock(&id)
		s.add(&id)
		s.Unlock()
		s = tab.lock(&hot)
		if v := s.find(&hot); v == nil || *v != 7 {
			t.Fatalf("gone after %d others", i)
		}
		s.Unlock()
	}
}

func TestTableDropsAndWalks(t *testing.T) {
	t.Parallel()
	tab := newTable[int](10_000, nil)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 1000 {
				id := stateID{key: fmt.Sprint(i), name: fmt.Sprint(g)}
				s := tab.lock(&id)
				*s.add(&id) = i
				if i%5 == 0 {
					s.drop(&id)
					s.drop(&id)
				}
				s.Unlock()
			}
		})
	}
	wg.Wait()
	seen := 0
	tab.each(func(id stateID, v *int) bool {
		if id.key != fmt.Sprint(*v) || *v%5 == 0 {
			t.Errorf("%+v has %d", id, *v)
		}
		seen++
		return *v%2 == 0
	})
	if seen != 3200 {
		t.Errorf("%d seen, of 3200", seen)
	}
	if n := tab.len(); n != 1600 {
		t.Errorf("%d are left, of 1600", n)
	}
}

// Two limits that share a state in a store share a place here, and no others do.
func TestIDOf(t *testing.T) {
	t.Parallel()
	limit := PerSecond(1).Named("a")
	changed := PerHour(7).Named("a")
	if idOf("abc", &limit) != idOf(Key("abc"), &changed) {
		t.Error("a changed limit, or a raw key, has another place")
	}
	other, log := limit.Named("b"), limit
	log.Algorithm = SlidingLog
	for _, id := range []stateID{idOf("abd", &limit), idOf("abc", &other), idOf("abc", &log)} {
		if id == idOf("abc", &limit) {
			t.Errorf("%+v is one place with another state", id)
		}
	}
}

// Every state is popped once.
func TestTablePop(t *testing.T) {
	t.Parallel()
	tab := newTable[int](1000, nil)
	for i := range 500 {
		id := stateID{key: fmt.Sprint(i)}
		s := tab.lock(&id)
		*s.add(&id) = i
		s.Unlock()
	}
	seen := make(map[int]bool)
	for id, i, ok := tab.pop(); ok; id, i, ok = tab.pop() {
		if seen[i] || id.key != fmt.Sprint(i) {
			t.Fatalf("%q with %d, seen before: %v", id.key, i, seen[i])
		}
		seen[i] = true
	}
	if len(seen) != 500 || tab.len() != 0 {
		t.Errorf("%d popped, %d left", len(seen), tab.len())
	}
}
