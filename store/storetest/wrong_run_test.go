package storetest_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/storetest"
)

// A wrongFile is a fault of a store with state outside the process.
type wrongFile struct {
	name  string
	spoil func(*fileStore)
	cases []string
}

func wrongFiles() []wrongFile {
	return []wrongFile{
		{"load and save without a lock", func(f *fileStore) { f.unlocked = true }, []string{"R82 ten"}},
		{"looks are written", func(f *fileStore) { f.saveLooks = true }, []string{"cost 0 writes", "leave no key"}},
		{"unreadable state is an error", func(f *fileStore) { f.strict = true }, []string{"R02"}},
		{"no expiry", func(f *fileStore) {
			f.ttl = func(_, _ time.Duration, _ bool) int64 { return -1 }
		}, []string{"R17", "R61 what", "R124 the TTL"}},
		{"half the time to live", func(f *fileStore) {
			f.ttl = func(until, _ time.Duration, _ bool) int64 { return (until / 2).Microseconds() }
		}, []string{"R17"}},
		{"milliseconds for seconds", func(f *fileStore) {
			f.ttl = func(until, _ time.Duration, _ bool) int64 { return 1000 * min(until.Microseconds()+1_000_000, 1<<50) }
		}, []string{"R17"}},
		{"the time to live of the first write", func(f *fileStore) {
			right := f.ttl
			f.ttl = func(until, full time.Duration, isNew bool) int64 {
				if !isNew {
					return -1
				}
				return right(until, full, isNew)
			}
		}, []string{"R68", "R124 the TTL"}},
		{"a lost time to live stays lost", func(f *fileStore) { f.stubborn = true }, []string{"lost its TTL"}},
	}
}

// found notes which cases have been failed by a wrong store.
type found struct {
	mu    sync.Mutex
	names map[string]bool
}

// expect runs the cases that have to find the fault, and reports those that do not.
func (f *found) expect(t *testing.T, c storetest.Config, cases []string) {
	t.Helper()
	all := storetest.CaseNames(c)
	for _, part := range cases {
		i := slices.IndexFunc(all, func(name string) bool { return strings.Contains(name, part) })
		if i < 0 {
			t.Errorf("no case is called %q", part)
			continue
		}
		if failure := storetest.Failure(t, c, all[i]); failure == "" {
			t.Errorf("the case %q does not find it", all[i])
			continue
		}
		f.mu.Lock()
		f.names[all[i]] = true
		f.mu.Unlock()
	}
}

// TestWrong shows that the suite fails wrong stores, and that every case of it can fail.
func TestWrong(t *testing.T) {
	f := &found{names: map[string]bool{}}
	t.Run("stores", func(t *testing.T) {
		for _, w := range slices.Concat(wrongArithmetic(), wrongWindows(), wrongCosts(), wrongClocks(), wrongChanges(),
			wrongKeys(), wrongCalls(), wrongTakeAll(), wrongRaces()) {
			t.Run(w.name, func(t *testing.T) {
				t.Parallel()
				c := storetest.Config{Traces: 30, New: func(_ *testing.T, clock func() time.Time) ratelimit.Store { return w.make(clock) }}
				f.expect(t, storetest.Impatient(c, time.Second), w.cases)
			})
		}
		for _, w := range wrongFiles() {
			t.Run(w.name, func(t *testing.T) {
				t.Parallel()
				f.expect(t, storetest.Impatient(fileConfig(w.spoil), 2*time.Second), w.cases)
			})
		}
		t.Run("no hash tags where they should be", func(t *testing.T) {
			t.Parallel()
			f.expect(t, storetest.Config{
				HashTags: true,
				New:      func(_ *testing.T, clock func() time.Time) ratelimit.Store { return newReference(clock) },
			}, []string{"R53"})
		})
		t.Run("the other store is elsewhere", func(t *testing.T) {
			t.Parallel()
			c := fileConfig(func(*fileStore) {})
			c.Join = func(t *testing.T, _ string, clock func() time.Time) ratelimit.Store {
				return newFileStore(t.TempDir(), clock)
			}
			f.expect(t, c, []string{"R08"})
		})
	})
	if t.Failed() {
		return
	}
	for _, name := range storetest.CaseNames(fileConfig(func(*fileStore) {})) {
		if !f.names[name] {
			t.Errorf("no wrong store fails the case %q", name)
		}
	}
}

// TestWrongTraces shows that the random traces alone find most faults of arithmetic.
func TestWrongTraces(t *testing.T) {
	f := &found{names: map[string]bool{}}
	for _, w := range slices.Concat(wrongArithmetic(), wrongCosts()) {
		switch w.name {
		case "a time of 32 bits of seconds", "a minimum period of a second":
			continue // found where the trace happens to go
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			f.expect(t, storetest.Config{
				Seed: 1,
				New:  func(_ *testing.T, clock func() time.Time) ratelimit.Store { return w.make(clock) },
			}, []string{"random traces"})
		})
	}
}

// TestProcesses shows that two processes race: without a lock between them they get too much.
func TestProcesses(t *testing.T) {
	c := fileConfig(func(f *fileStore) { f.unlocked = true })
	if storetest.Joined() {
		storetest.Run(t, c)
		return
	}
	f := &found{names: map[string]bool{}}
	f.expect(t, c, []string{"R82 two"})
}
