// Package storetest proves that a ratelimit.Store keeps its contract. A store's own test calls Run with a factory; every
// point of the contract is a subtest with the sentence it checks, and random traces are compared, field for field, with
// an exact model in math/big.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Config{
//			New: func(t *testing.T, clock func() time.Time) ratelimit.Store {
//				s := mystore.New(mystore.Options{Clock: clock})
//				t.Cleanup(s.Close)
//				return s
//			},
//		})
//	}
package storetest

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
)

// A Config tells Run how to reach a store. Only New is needed; each of the other functions may be nil, and then the
// cases that need it do not run.
type Config struct {
	// New returns an empty store, whose state no other store shares, and cleans up with t.Cleanup. Its time is clock,
	// which is safe for concurrent use and does not move by itself; nil means the store's own. New is called for
	// every case and every trace, so an empty namespace on one server does better than a new server.
	New func(t *testing.T, clock func() time.Time) ratelimit.Store

	// HashTags says that the store refuses a TakeAll over keys of different hash tags with ErrCrossSlot. A store
	// without it accepts any keys.
	HashTags bool

	// Address returns what another process needs to find the state of s, and Join, in this process or another,
	// returns a second store over that state. Run starts the test binary once more, narrowed to the test that called
	// it, to race two processes; there it calls nothing but Join.
	Address func(t *testing.T, s ratelimit.Store) string
	Join    func(t *testing.T, address string, clock func() time.Time) ratelimit.Store

	// Corruptions are ways to spoil a state. Each is made on a state that the store wrote just before.
	Corruptions []Corruption

	// TTL returns when the state of (key, limit) will expire: above 0; 0 if it never will; below 0 if there is none.
	// Where the store was given a clock, its keys may live a minute longer than its own time would need.
	TTL func(t *testing.T, s ratelimit.Store, key string, limit *ratelimit.Limit) time.Duration
	// Persist takes the expiry off the state of (key, limit).
	Persist func(t *testing.T, s ratelimit.Store, key string, limit *ratelimit.Limit)
	// Writes returns how many writing commands the server of s has carried out so far, for whomever.
	Writes func(t *testing.T, s ratelimit.Store) int64

	// Traces is how many random traces are compared with the model; 0 means 150, of 120 steps each.
	Traces int
	// Seed makes the traces those of an earlier run, which prints it when it fails; 0 means new ones.
	Seed uint64
	// Except names cases that the store cannot pass, each with the reason, which is printed. A name that is no case
	// fails the test.
	Except map[string]string

	patience time.Duration // how long to wait for what has to happen; 0 means half a minute
}

// A Corruption replaces the state of (key, limit) by something that the store did not write: another type, garbage, a
// field less.
type Corruption struct {
	Name string
	Make func(t *testing.T, s ratelimit.Store, key string, limit *ratelimit.Limit)
}

// A check is one case: a name that carries the number of the fault it guards against, where there is one, and the rule
// it proves.
type check struct {
	name  string
	rule  string
	run   func(k *kit)
	needs func(c *Config) bool // nil: nothing
}

// checks are all cases, in the order of the contract.
var checks = slices.Concat(
	articleChecks, arithmeticChecks, windowChecks, costChecks, clockChecks, changeChecks, keyChecks, callChecks,
	takeAllChecks, stateChecks, raceChecks, traceChecks,
)

// Run proves the store that c describes. It runs the cases one after the other, each in a subtest.
func Run(t *testing.T, c Config) {
	t.Helper()
	if address := os.Getenv(joinEnv); address != "" {
		joinRace(t, &c, address)
		return
	}
	if c.New == nil {
		t.Fatal("storetest: Config.New is nil")
	}
	left := make(map[string]string, len(c.Except))
	for name, reason := range c.Except {
		left[name] = reason
	}
	for _, ch := range checks {
		reason, except := left[ch.name]
		delete(left, ch.name)
		if except {
			t.Logf("case %q is left out: %s", ch.name, reason)
			continue
		}
		if ch.needs != nil && !ch.needs(&c) {
			continue
		}
		t.Run(ch.name, func(st *testing.T) {
			st.Cleanup(func() {
				if st.Failed() {
					st.Logf("the rule: %s", ch.rule)
				}
			})
			ch.run(newKit(st, st, &c, t.Name()))
		})
	}
	for name := range left {
		t.Errorf("Except names %q, which is no case", name)
	}
}
