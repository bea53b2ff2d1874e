package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
)

// t0 is where the clock of every case starts: T0 of the case list, a whole multiple of every period used with it.
var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A reporter is what a case says its findings to: a *testing.T, or a recorder where the suite itself is tested.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// A kit is what one case works with: a fresh store whose clock it holds.
type kit struct {
	reporter
	t     *testing.T // for the functions of Config
	c     *Config
	suite string // the test that called Run
	clock *fakeClock
	store ratelimit.Store
	keys  int

	patience time.Duration
}

func newKit(r reporter, t *testing.T, c *Config, suite string) *kit {
	k := &kit{reporter: r, t: t, c: c, suite: suite, patience: c.patience}
	if k.patience == 0 {
		k.patience = m / 2
	}
	k.renew()
	return k
}

// renew gives the case another fresh store, at t0.
func (k *kit) renew() {
	k.clock = &fakeClock{at: t0.UnixMicro()}
	k.store = k.c.New(k.t, k.clock.now)
}

// key returns a key that the case has not used.
func (k *kit) key() string {
	k.keys++
	return fmt.Sprintf("key-%d", k.keys)
}

// at sets the clock to t0 and d.
func (k *kit) at(d time.Duration) { k.clock.set(t0.Add(d)) }

// ask makes a decision that has to succeed.
func (k *kit) ask(req ratelimit.Request) ratelimit.Result {
	k.Helper()
	res, err := k.store.Take(context.Background(), req)
	if err != nil {
		k.Fatalf("Take(cost %d, extra %d) under %v: %v", req.Cost, req.Extra, req.Limit, err)
	}
	return res
}

// take makes a decision of cost. It hands the store a limit of its own, since limits are compared by value.
func (k *kit) take(key string, l ratelimit.Limit, cost int64) ratelimit.Result {
	k.Helper()
	return k.ask(ratelimit.Request{Key: key, Limit: &l, Cost: cost})
}

// takeAll makes a decision over several requests that has to succeed.
func (k *kit) takeAll(reqs ...ratelimit.Request) []ratelimit.Result {
	k.Helper()
	results, err := k.store.TakeAll(context.Background(), reqs)
	if err != nil {
		k.Fatalf("TakeAll of %d: %v", len(reqs), err)
	}
	if len(results) != len(reqs) {
		k.Fatalf("TakeAll of %d gave %d results", len(reqs), len(results))
	}
	return results
}

// admit spends cost n times; each must be admitted.
func (k *kit) admit(key string, l ratelimit.Limit, cost int64, n int) (res ratelimit.Result) {
	k.Helper()
	for i := range n {
		if res = k.take(key, l, cost); !res.Allowed {
			k.Fatalf("call %d of %d of cost %d under %v was denied: %+v", i+1, n, cost, l, res)
		}
	}
	return res
}

// count is how many of n calls of cost 1 are admitted.
func (k *kit) count(key string, l ratelimit.Limit, n int) (admitted int) {
	k.Helper()
	for range n {
		if k.take(key, l, 1).Allowed {
			admitted++
		}
	}
	return admitted
}

// want reports a decision that is not the one expected, every field of it.
func (k *kit) want(what string, got, want ratelimit.Result) {
	k.Helper()
	if got != want {
		k.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// yes is an admission.
func yes(l ratelimit.Limit, taken, remaining int64, reset time.Duration) ratelimit.Result {
	return ratelimit.Result{Allowed: true, Limit: l.Capacity(), Remaining: remaining, ResetAfter: reset, Taken: taken, Name: l.Name}
}

// no is a denial.
func no(l ratelimit.Limit, remaining int64, retry, reset time.Duration) ratelimit.Result {
	return ratelimit.Result{Limit: l.Capacity(), Remaining: remaining, RetryAfter: retry, ResetAfter: reset, Name: l.Name}
}

// never is the denial of a cost above the capacity.
func never(l ratelimit.Limit) ratelimit.Result { return no(l, 0, ratelimit.Never, 0) }

// A call is one line of a story: at this time after t0 this cost is admitted, if wait is 0, or else denied with that
// wait; and this remains.
type call struct {
	at        time.Duration
	cost      int64
	wait      time.Duration
	remaining int64
}

// story makes the calls on one new key.
func (k *kit) story(l ratelimit.Limit, calls ...call) {
	k.Helper()
	key := k.key()
	for i, c := range calls {
		k.at(c.at)
		res := k.take(key, l, c.cost)
		if res.Allowed != (c.wait == 0) || res.RetryAfter != c.wait || res.Remaining != c.remaining {
			k.Errorf("%v, call %d at T+%v of cost %d: allowed %v, remaining %d, retry after %v; want %v, %d, %v", l, i+1, c.at, c.cost,
				res.Allowed, res.Remaining, res.RetryAfter, c.wait == 0, c.remaining, c.wait)
		}
	}
}

// bucket returns a token bucket of that capacity.
func bucket(capacity, rate int64, per time.Duration) ratelimit.Limit {
	return ratelimit.Limit{Rate: rate, Period: per, Burst: capacity}
}

// logOf returns a sliding log.
func logOf(rate int64, per time.Duration) ratelimit.Limit {
	return ratelimit.Limit{Algorithm: ratelimit.SlidingLog, Rate: rate, Period: per}
}

// counter returns a sliding counter.
func counter(rate int64, per time.Duration) ratelimit.Limit {
	return ratelimit.Limit{Algorithm: ratelimit.SlidingCounter, Rate: rate, Period: per}
}

// A fakeClock stands still until it is set.
type fakeClock struct {
	mu    sync.Mutex
	at    int64 // microseconds
	step  int64 // what every reading adds
	reads int
}

func (c *fakeClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.at
	c.at += c.step
	c.reads++
	return time.UnixMicro(now)
}

func (c *fakeClock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = t.UnixMicro()
}

func (c *fakeClock) micros() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *fakeClock) readings() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}
