package rules

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// TestR118: awkward characters are tenants and routes as any other, and none meets another.
func TestR118(t *testing.T) {
	t.Parallel()
	texts := []string{
		"", " ", "a b", "a\nb", "\x00", "\xff\xfe", "é", "e\u0301", "\U0001F600", "%s", "*", "]]", "a:b", "a", "b", "{a}", "{a}:b", "%0", "%3A",
		strings.Repeat("x", 1<<20),
	}
	var rules []Rule
	for i, tenant := range texts {
		if tenant != "" && tenant != Any {
			rules = append(rules, Rule{ID: fmt.Sprint(i), Tenant: tenant, Route: "r\x00:{}", Limits: perSecond(int64(100 + i))})
		}
	}
	b := newBench(t, rules...)
	for i, tenant := range texts {
		want := int64(100 + i)
		if tenant == "" || tenant == Any {
			want = 7 // nobody's rule
		}
		res := allow(t, b.limiter, ratelimit.Key(tenant, "r\x00:{}"), 1)
		if res.Limit != want || res.Remaining != want-1 {
			t.Errorf("%.20q: %+v; want a limit of %d of its own", tenant, res, want)
		}
		if res := allow(t, b.limiter, ratelimit.Key(tenant, "r"), 1); res.Limit != 7 || res.Remaining != 6 {
			t.Errorf("%.20q on another route: %+v", tenant, res)
		}
	}
	// A key that Key did not make is a tenant without a route.
	b.rules(Rule{Tenant: "raw key", Limits: limits(bucket("", 9, 1)), Shared: limits(bucket("all", 8, 1))})
	if res := allow(t, b.limiter, "raw key", 1); !res.Allowed || res.Limit != 8 {
		t.Errorf("a raw key: %+v", res)
	}
}

// TestR119: a decision has no side effect but the state's: two limiters decide one call one after the other.
func TestR119(t *testing.T) {
	t.Parallel()
	b := newBench(t, Rule{Tenant: "shop", Limits: limits(bucket("", 10, 1))})
	other, _ := ratelimit.New(b.store.Store, ratelimit.PerSecond(2).Named("payload"))
	first, second := allow(t, b.limiter, key, 1), allow(t, other, key, 2)
	if first.Remaining != 9 || second.Remaining != 0 {
		t.Errorf("%+v, then %+v", first, second)
	}
}

// TestR121: a higher rate admits at once, a lower one leaves no more than its capacity.
func TestR121(t *testing.T) {
	t.Parallel()
	l := ratelimit.Limit{Rate: 10, Period: 20 * time.Second, Burst: 16}
	b := newBench(t, Rule{Tenant: "shop", Limits: limits(l)})
	admitted(t, b.limiter, key, 3)
	l.Rate = 1000
	b.rules(Rule{Tenant: "shop", Limits: limits(l)})
	if res := allow(t, b.limiter, key, 1); !res.Allowed || res.Remaining != 12 {
		t.Errorf("raised: %+v", res)
	}
	l.Rate, l.Burst = 10, 5
	b.rules(Rule{Tenant: "shop", Limits: limits(l)})
	if res := allow(t, b.limiter, key, 0); res.Remaining != 5 || res.Limit != 5 {
		t.Errorf("lowered: %+v", res)
	}
}

// TestR122: refused calls count for nothing, neither later nor in the limits beside the one that refused.
func TestR122(t *testing.T) {
	t.Parallel()
	for _, a := range []ratelimit.Algorithm{ratelimit.SlidingLog, ratelimit.SlidingCounter} {
		l := ratelimit.Limit{Algorithm: a, Rate: 10, Period: time.Hour}
		b := newBench(t, Rule{Tenant: "shop", Limits: limits(l)})
		if n := admitted(t, b.limiter, key, 50); n != 10 {
			t.Errorf("%v: %d of 50 admitted", a, n)
		}
		l.Rate = 20
		b.rules(Rule{Tenant: "shop", Limits: limits(l)})
		if n := admitted(t, b.limiter, key, 50); n != 10 {
			t.Errorf("%v: %d more admitted once the limit is 20; want 10", a, n)
		}
	}
	group := ratelimit.PerMinute(10).Named("group")
	b := newBench(t,
		Rule{Tenant: "shop", Shared: limits(group)},
		Rule{Tenant: "shop", Route: "special", Limits: limits(ratelimit.PerMinute(3).Named("special")), Shared: limits(group)})
	if n := admitted(t, b.limiter, ratelimit.Key("shop", "special"), 5); n != 3 {
		t.Errorf("%d special calls admitted; want 3", n)
	}
	if res := allow(t, b.limiter, ratelimit.Key("shop", "any"), 0); res.Remaining != 7 {
		t.Errorf("the group has %d left; want 7", res.Remaining)
	}
}

// TestR124: another period keeps what was spent; a rule that is removed leaves no decision behind, and finds its state when
// it comes back.
func TestR124(t *testing.T) {
	t.Parallel()
	l := ratelimit.Limit{Algorithm: ratelimit.SlidingCounter, Rate: 10, Period: time.Hour}
	b := newBench(t, Rule{Tenant: "shop", Limits: limits(l)})
	admitted(t, b.limiter, key, 10)
	l.Period = time.Minute
	b.rules(Rule{Tenant: "shop", Limits: limits(l)})
	if res := allow(t, b.limiter, key, 1); res.Allowed || res.RetryAfter > 2*time.Minute {
		t.Errorf("a shorter period: %+v; want what was spent to wane within two of the new", res)
	}
	b.rules(Rule{Tenant: "shop", Mode: Off})
	b.asked()
	if res := allow(t, b.limiter, key, 1); !res.Allowed || res.Limit != 0 || b.asked() != "" {
		t.Errorf("without the rule: %+v", res)
	}
	b.rules(Rule{Tenant: "shop", Limits: limits(l)})
	if res := allow(t, b.limiter, key, 1); res.Allowed {
		t.Errorf("once it is back: %+v", res)
	}
}

// TestR125: only what a rule needs is counted, and a limit that is new starts unused.
func TestR125(t *testing.T) {
	t.Parallel()
	b := newBench(t, Rule{Tenant: "shop", Limits: limits(ratelimit.PerMinute(100).Named("minute"))})
	if n := admitted(t, b.limiter, key, 60); n != 60 || b.store.Store.(*memstore.Store).Stats().Keys != 1 {
		t.Errorf("%d admitted, %+v", n, b.store.Store.(*memstore.Store).Stats())
	}
	b.rules(Rule{Tenant: "shop", Limits: limits(ratelimit.PerMinute(100).Named("minute"), ratelimit.PerHour(50).Named("hour"))})
	if n := admitted(t, b.limiter, key, 60); n != 40 {
		t.Errorf("%d more admitted; want the 40 that the minute has left", n)
	}
	if res := Explain(t.Context(), b.set, b.store, "shop", "order").Limits[1].Result; res.Remaining != 10 {
		t.Errorf("the hour has %d left; want 10", res.Remaining)
	}
}

// TestR128: 30, then none, then 100, then 150: each holds at once.
func TestR128(t *testing.T) {
	t.Parallel()
	b := newBench(t, Rule{Tenant: "shop", Limits: perSecond(30)}, Rule{Limits: perSecond(100)})
	if n := admitted(t, b.limiter, key, 200); n != 30 {
		t.Errorf("%d under 30", n)
	}
	b.rules(Rule{Tenant: "shop", Mode: DenyAll}, Rule{Limits: perSecond(100)})
	b.clock.move(time.Second)
	if n := admitted(t, b.limiter, key, 200); n != 0 {
		t.Errorf("%d under a rule that denies all", n)
	}
	b.rules(Rule{Limits: perSecond(100)})
	b.clock.move(time.Second)
	if n := admitted(t, b.limiter, key, 200); n != 100 {
		t.Errorf("%d once the override is gone", n)
	}
	b.rules(Rule{Tenant: "shop", Limits: perSecond(150)}, Rule{Limits: perSecond(100)})
	b.clock.move(time.Second)
	if n := admitted(t, b.limiter, key, 200); n != 150 {
		t.Errorf("%d under an override of 150", n)
	}
}

// TestR128Lease: a lease taken under the old limit decides nothing under a new one, and while all is denied.
func TestR128Lease(t *testing.T) {
	t.Parallel()
	b := newBench(t, Rule{Tenant: "shop", Limits: perSecond(30)})
	lease, err := ratelimit.NewLease(b.store, ratelimit.LeaseOptions{Size: 10, Clock: b.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Close()
	l := b.set.Limiter(lease)
	for range 20 {
		admitted(t, l, key, 1)
		b.clock.move(time.Second / 60)
	}
	b.rules(Rule{Tenant: "shop", Mode: DenyAll})
	if n := admitted(t, l, key, 10); n != 0 {
		t.Errorf("%d of 10 admitted by a lease under a rule that denies all", n)
	}
	for _, rate := range []int64{100, 150} {
		b.rules(Rule{Tenant: "shop", Limits: perSecond(rate)})
		b.clock.move(2 * time.Second)
		if n := admitted(t, l, key, 300); n != int(rate) {
			t.Errorf("%d admitted under %d", n, rate)
		}
	}
}

// TestTwoFleets with old and new rules against one key do not flap it: each decides under its own limit, and the two
// together admit no more than the larger.
func TestTwoFleets(t *testing.T) {
	t.Parallel()
	b := newBench(t, Rule{Tenant: "shop", Limits: limits(bucket("", 20, 10))})
	o := byDefault()
	o.Clock = b.clock.now
	other := newSet(t, Static(Rule{Tenant: "shop", Limits: limits(bucket("", 10, 5))}), o).Limiter(b.store)
	total := 0
	for range 100 { // ten seconds
		for range 5 {
			total += admitted(t, b.limiter, key, 1) + admitted(t, other, key, 1)
		}
		b.clock.move(100 * time.Millisecond)
	}
	if total < 50 || total > 20+100 {
		t.Errorf("%d admitted in 10 s under 10 and 5 a second; want from 50 to 120", total)
	}
}
