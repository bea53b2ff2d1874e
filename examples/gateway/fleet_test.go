package main

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicego/ratelimit/rules"
	"github.com/sluicego/ratelimit/store/storetest/pgserver"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

const (
	perSecond = 400
	insert    = "INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('shop-a', 'create-order', 200, 100)"
	lower     = "UPDATE rate_limit_rule SET capacity = 50, refill_per_second = 10"
	raise     = "UPDATE rate_limit_rule SET capacity = 200, refill_per_second = 100"
	hold      = 3 * time.Second
)

// A fleet is three gateways under load, and what they stand on.
type fleet struct {
	testing.TB
	redis    *redisserver.Server
	postgres *pgserver.Server
	origin   *origin
	gateways []*process
	load     *load
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{TB: t, redis: redisserver.Single(t), postgres: pgserver.Start(t), origin: newOrigin(t)}
	f.postgres.Psql("postgres", rules.Schema)
	for range 3 {
		f.gateways = append(f.gateways, start(t, "-redis", f.redis.Addr, "-postgres", f.postgres.URL("postgres"),
			"-instances", "3", "-upstream", f.origin.URL))
	}
	return f
}

// all waits until something is true of each gateway.
func (f *fleet) all(d time.Duration, what string, is func(state) bool) {
	f.Helper()
	within(f.TB, d, what, func() bool {
		return !slices.ContainsFunc(f.gateways, func(p *process) bool { return !is(p.state()) })
	})
}

// obeys waits until each gateway has told clients of a capacity, and of no other since, and returns when that was.
func (f *fleet) obeys(since time.Time, capacity int64) time.Time {
	f.Helper()
	last := since
	for _, c := range f.load.between(since, since.Add(time.Second+hold/10)) {
		if c.capacity != capacity && c.sent.After(last) {
			last = c.sent
		}
	}
	if d := last.Sub(since); d > time.Second {
		f.Errorf("a capacity of %d is obeyed by all after %v; want at most 1s", capacity, d)
	} else {
		f.Logf("a capacity of %d is obeyed by all after %v", capacity, d)
	}
	return last
}

// admitted holds the load for d, and returns how much was admitted, and for how many decisions Redis was late. Where a
// machine stalls each of these may be one too few, for a call that was given up may have been carried out, or too many.
func (f *fleet) admitted(d time.Duration) (n int, late int64) {
	f.Helper()
	local := func() (n int64) {
		for _, p := range f.gateways {
			n += p.state().Decisions.Fallback
		}
		return n
	}
	before, now := local(), time.Now()
	n = admitted(f.load.between(now, now.Add(d)))
	return n, local() - before
}

// exact holds the load to so many requests a second for d, in which Redis was hardly ever late: of three tries, one on a
// machine that does other things as well.
func (f *fleet) exact(what string, d time.Duration, rate float64) {
	f.Helper()
	for try := 1; ; try++ {
		n, late := f.admitted(d)
		if few := int64(0.02 * perSecond * d.Seconds()); late <= few || try == 3 {
			near(f.TB, what, n, rate*d.Seconds(), late)
			return
		}
		f.Logf("%s: Redis was late for %d decisions; once more", what, late)
	}
}

// TestFleet: three gateways hold one limit between them to what PostgreSQL says, while that changes, breaks and comes back,
// and while Redis does.
func TestFleet(t *testing.T) {
	long := 5 * time.Second
	if s := os.Getenv("GATEWAY_TEST_WINDOW"); s != "" {
		var err error
		if long, err = time.ParseDuration(s); err != nil || long < hold {
			t.Fatalf("GATEWAY_TEST_WINDOW: %v, %v", long, err)
		}
	}
	f := newFleet(t)
	f.all(patience, "listening to PostgreSQL", func(s state) bool { return s.Listening })
	f.postgres.Psql("postgres", insert)
	f.all(time.Second, "the rule", func(s state) bool { return s.Rules.Rules == 1 })
	for _, p := range f.gateways { // connections are there, of another tenant's making
		for range 5 {
			if res, err := order(p, "demo-b", "warm"); err != nil || res.StatusCode != http.StatusOK {
				t.Fatalf("%v, %v", res, err)
			}
		}
	}

	f.load = send(f.gateways, perSecond)
	n, late := f.admitted(2 * time.Second)
	near(t, "burst", n, 200+100*2, late)
	began := f.load.between(time.Time{}, time.Now())
	if first := slices.IndexFunc(began, func(c call) bool { return c.status != http.StatusOK }); first < 200 {
		t.Errorf("the first %d were admitted; want 200 and what came back meanwhile", first)
	}

	f.exact("rule", long, 100)

	f.postgres.Psql("postgres", lower)
	changed := time.Now()
	obeyed := f.obeys(changed, 50)
	if n, most := admitted(f.load.between(changed, obeyed)), 100*obeyed.Sub(changed).Seconds(); float64(n) > most+6 {
		t.Errorf("%d were admitted in the %v of the change; want at most %.1f", n, obeyed.Sub(changed), most)
	}
	f.exact("changed", hold, 10)

	const zero = "UPDATE rate_limit_rule SET capacity = 0"
	if out, err := f.postgres.TryPsql("postgres", zero); err == nil || !strings.Contains(out, "rate_limit_rule_capacity_check") {
		t.Errorf("a capacity of 0: %s, %v", out, err)
	}
	f.postgres.Psql("postgres", "ALTER TABLE rate_limit_rule DROP CONSTRAINT rate_limit_rule_capacity_check")
	f.postgres.Psql("postgres", zero)
	f.all(patience, "the bad rule is skipped", func(s state) bool { return s.Rules.Skipped == 1 && s.Rules.Rules == 1 })
	f.obeys(time.Now(), 50)
	for _, p := range f.gateways {
		if log := p.logged(); !strings.Contains(log, "rule 1: capacity") {
			t.Errorf("the bad rule is not reported:\n%s", log)
		}
	}
	f.postgres.Psql("postgres", raise)
	f.obeys(time.Now(), 200)

	f.postgres.Kill()
	f.exact("without PostgreSQL", long, 100)

	f.redis.Kill()
	f.all(patience, "without Redis", func(s state) bool { return s.Store != "closed" })
	now := time.Now()
	calls := f.load.between(now, now.Add(hold))
	for i := range f.gateways {
		near(t, "a third, without Redis", admitted(of(i, calls)), 100*hold.Seconds()/3, 0)
	}

	f.redis.Restart()
	f.postgres.Restart()
	f.all(patience, "both are back", func(s state) bool { return s.Store == "closed" && s.Listening })
	now = time.Now()
	f.load.between(now, now.Add(2*time.Second)) // Redis has forgotten, so the bucket was full
	f.exact("both back", long, 100)
	f.postgres.Psql("postgres", lower)
	f.obeys(time.Now(), 50)

	f.settle(f.load.stop())
	for _, p := range f.gateways {
		p.stop()
	}
}

// settle looks whether each request was answered, soon, and each that was admitted reached the upstream, once.
func (f *fleet) settle(calls []call) {
	f.Helper()
	took := make([]time.Duration, 0, len(calls))
	for _, c := range calls {
		took = append(took, c.took)
		seen := f.origin.times(c.id)
		switch {
		case c.err == nil && c.status == http.StatusOK && seen == 1:
		case c.err == nil && c.status == http.StatusTooManyRequests && seen == 0:
		default:
			f.Errorf("request %s: %d, %v, seen by the upstream %d times", c.id, c.status, c.err, seen)
		}
	}
	slices.Sort(took)
	at := func(percent int) time.Duration { return took[(len(took)-1)*percent/100] }
	f.Logf("%d requests took %v (half), %v (99 of 100), %v (all)", len(calls), at(50), at(99), at(100))
	if at(100) > 3*time.Second {
		f.Errorf("a request took %v", at(100))
	}
}
