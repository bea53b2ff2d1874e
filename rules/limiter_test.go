package rules

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// A bench is a set over a source that the test changes, and a limiter over a store that writes down what it is asked.
type bench struct {
	*testing.T
	src     *changing
	set     *Set
	clock   *clock
	store   *recorder
	limiter ratelimit.Limiter
	shadows []string
}

func newBench(t *testing.T, rules ...Rule) *bench {
	b := &bench{T: t, src: &changing{rules: rules}, clock: newClock()}
	b.store = recording(b.clock)
	o := byDefault()
	o.Clock = b.clock.now
	o.OnError = func(err error) { t.Error(err) }
	o.OnShadow = func(r Rule, key string, would ratelimit.Result, err error) {
		b.shadows = append(b.shadows, fmt.Sprint(r.ID, " ", key, " ", would.Allowed, " ", would.Remaining, " ", err))
	}
	b.set = newSet(t, b.src, o)
	b.limiter = b.set.Limiter(b.store)
	return b
}

func (b *bench) rules(rules ...Rule) {
	b.Helper()
	b.src.set(nil, rules...)
	refresh(b, b.set)
}

// asked returns what the store was asked since the last time, as key, limit's name, cost and extra.
func (b *bench) asked() string {
	var list []string
	for _, r := range b.store.asked {
		list = append(list, fmt.Sprintf("%s/%s %d+%d", r.Key, r.Limit.Name, r.Cost, r.Extra))
	}
	b.store.asked, b.store.calls = nil, 0
	return strings.Join(list, ", ")
}

var (
	key  = ratelimit.Key("shop", "order")
	key2 = ratelimit.Key("shop", "search")
)

func bucket(name string, capacity, perSecond int64) ratelimit.Limit {
	return ratelimit.Limit{Name: name, Rate: perSecond, Period: time.Second, Burst: capacity}
}

func limits(l ...ratelimit.Limit) []ratelimit.Limit { return l }

// TestEnforce: one limit is one Take, several are one TakeAll, all or nothing, in one hash slot.
func TestEnforce(t *testing.T) {
	t.Parallel()
	b := newBench(t, Rule{Tenant: "shop", Route: "order", Limits: limits(bucket("", 3, 1))})
	if n := admitted(t, b.limiter, key, 5); n != 3 || b.store.calls != 5 || b.asked()[:len(key)] != key {
		t.Errorf("%d of 5 admitted", n)
	}
	b.rules(Rule{Tenant: "shop", Limits: limits(bucket("s", 5, 1), bucket("d", 4, 1)), Shared: limits(bucket("all", 6, 1)), Cost: 2})
	res := allow(t, b.limiter, key, 1)
	if got := b.asked(); got != "{shop}:order/s 2+0, {shop}:order/d 2+0, {shop}/all 2+0" || res.Taken != 1 || res.Name != "d" || res.Remaining != 2 {
		t.Errorf("asked %s: %+v", got, res)
	}
	allow(t, b.limiter, key, 1)
	if res := allow(t, b.limiter, key, 1); res.Allowed || res.Name != "d" || res.RetryAfter != 2*time.Second {
		t.Errorf("%+v; want denied by d for 2 s", res)
	}
	if res := allow(t, b.limiter, key2, 1); !res.Allowed || res.Name != "all" || res.Remaining != 0 {
		t.Errorf("%+v; want the last two units over all routes", res)
	}
	if res := allow(t, b.limiter, ratelimit.Key("other", "order"), 3); !res.Allowed || res.Name != "" {
		t.Errorf("%+v; want the default for another tenant", res)
	}
	if !ratelimit.SameTag(key, ratelimit.Key("shop")) {
		t.Error("the tenant's own key is in another slot")
	}
	b.asked()
	if res := allow(t, b.limiter, key, 3); res.Allowed || res.RetryAfter != ratelimit.Never || res.Limit != 5 || b.asked() != "" {
		t.Errorf("%+v; want Never, and the store not asked", res)
	}
	if got := b.limiter.(ratelimit.Describer).LimitsFor(key); len(got) != 3 || got[2].Name != "all" {
		t.Errorf("LimitsFor: %v", got)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.limiter.(ratelimit.Refunder)
	if _, err := b.limiter.Allow(t.Context(), key, -1); !errors.Is(err, ratelimit.ErrInvalidCost) {
		t.Errorf("cost -1: %v", err)
	}
	if _, err := r.Refund(t.Context(), key, 0); !errors.Is(err, ratelimit.ErrInvalidCost) {
		t.Errorf("refund of 0: %v", err)
	}
	if _, err := b.limiter.Allow(t.Context(), "", 1); !errors.Is(err, ratelimit.ErrInvalidKey) {
		t.Errorf("no key: %v", err)
	}
	if _, err := r.Refund(t.Context(), "", 1); !errors.Is(err, ratelimit.ErrInvalidKey) {
		t.Errorf("refund of no key: %v", err)
	}
	b.rules(Rule{Limits: limits(bucket("a", 1e9, 1), bucket("b", 1e9, 1)), Cost: 1e9})
	if res, err := b.limiter.Allow(t.Context(), key, math.MaxInt64); err != nil || res.RetryAfter != ratelimit.Never {
		t.Errorf("the highest cost: %+v, %v", res, err)
	}
	b.store.err = ratelimit.ErrStoreUnavailable
	if _, err := b.limiter.Allow(t.Context(), key, 1); !errors.Is(err, ratelimit.ErrStoreUnavailable) {
		t.Errorf("without a store: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a nil store is accepted")
		}
	}()
	b.set.Limiter(nil)
}

func TestRefund(t *testing.T) {
	t.Parallel()
	b := newBench(t, Rule{Tenant: "shop", Limits: limits(bucket("", 10, 1)), Shared: limits(bucket("all", 10, 1)), Cost: 3})
	allow(t, b.limiter, key, 3)
	b.asked()
	res, err := b.limiter.(ratelimit.Refunder).Refund(t.Context(), key, 2)
	if err != nil || res.Taken != -2 || res.Remaining != 7 || b.asked() != "{shop}:order/ -6+0, {shop}/all -6+0" {
		t.Errorf("%+v, %v", res, err)
	}
	for _, m := range []Mode{Off, DenyAll, Shadow} {
		b.rules(Rule{Tenant: "shop", Limits: limits(bucket("", 10, 1)), Mode: m})
		res, err := b.limiter.(ratelimit.Refunder).Refund(t.Context(), key, 2)
		if err != nil || !res.Allowed || res.Limit != 0 || (b.asked() == "") != (m != Shadow) {
			t.Errorf("%v: %+v, %v", m, res, err)
		}
	}
}

// TestModes: Off and DenyAll ask nobody, and neither has anything for headers to say.
func TestModes(t *testing.T) {
	t.Parallel()
	b := newBench(t, Rule{ID: "off", Tenant: "shop", Mode: Off}, Rule{ID: "deny", Tenant: "shop", Route: "order", Mode: DenyAll})
	for _, cost := range []int64{0, 1, 1e6} {
		if res := allow(t, b.limiter, key2, cost); res != (ratelimit.Result{Allowed: true, Taken: cost}) {
			t.Errorf("off: %+v", res)
		}
		if res := allow(t, b.limiter, key, cost); res != (ratelimit.Result{RetryAfter: ratelimit.Never}) {
			t.Errorf("deny-all: %+v", res)
		}
	}
	if b.store.calls > 0 || b.limiter.(ratelimit.Describer).LimitsFor(key) != nil {
		t.Errorf("the store was asked %s", b.asked())
	}
}

// TestKillSwitch works with store and source both dead.
func TestKillSwitch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.store.err = ratelimit.ErrStoreUnavailable
	b.src.set(errDown)
	b.set.options.OnError = nil
	if b.set.SetEnabled(false); b.set.Enabled() {
		t.Error("it is on")
	}
	if res, err := b.limiter.Allow(t.Context(), key, 1e6); err != nil || !res.Allowed || res.Limit != 0 {
		t.Errorf("%+v, %v", res, err)
	}
	b.set.SetEnabled(true)
	if _, err := b.limiter.Allow(t.Context(), key, 1); err == nil {
		t.Error("it is still off")
	}
}

// TestShadow: decides as Enforce would, denies nobody, is never a denial to the store, and spends nothing of what it
// would have denied.
func TestShadow(t *testing.T) {
	t.Parallel()
	rule := Rule{ID: "9", Tenant: "shop", Limits: limits(bucket("s", 3, 1), bucket("d", 5, 1)), Shared: limits(bucket("all", 50, 1)), Mode: Shadow}
	b := newBench(t, rule)
	for range 5 {
		if res := allow(t, b.limiter, key, 1); res != (ratelimit.Result{Allowed: true, Taken: 1}) {
			t.Errorf("%+v; want it admitted, and nothing for headers", res)
		}
	}
	allow(t, b.limiter, key, 7)
	want := []string{
		"9 {shop}:order true 2 <nil>", "9 {shop}:order true 1 <nil>", "9 {shop}:order true 0 <nil>",
		"9 {shop}:order false 0 <nil>", "9 {shop}:order false 0 <nil>", "9 {shop}:order false 0 <nil>",
	}
	if !slices.Equal(b.shadows, want) {
		t.Errorf("%q", b.shadows)
	}
	for _, r := range b.store.asked {
		if r.Cost > 0 {
			t.Errorf("a request that could be denied: %+v", r)
		}
	}
	// A denied call has left the limits that had room as they were, and those that enforce the shared one too.
	rule.Mode = Enforce
	b.rules(rule)
	b.asked()
	e := Explain(t.Context(), b.set, b.store, "shop", "order")
	for i, want := range []int64{0, 2, 50} {
		if got := e.Limits[i].Result.Remaining; got != want {
			t.Errorf("limit %s has %d left; want %d", e.Limits[i].Limit.Name, got, want)
		}
	}

	rule.Mode = Shadow
	b.rules(rule)
	b.store.err, b.shadows = ratelimit.ErrStoreUnavailable, nil
	if res := allow(t, b.limiter, key, 1); !res.Allowed || len(b.shadows) != 1 || !strings.Contains(b.shadows[0], "unavailable") {
		t.Errorf("without a store: %+v, %q", res, b.shadows)
	}
	if b.limiter.(ratelimit.Describer).LimitsFor(key) != nil {
		t.Error("a shadow describes its limits")
	}
}

// TestShadowWindows: a window that had room is as if a call that another limit would have denied had never come.
func TestShadowWindows(t *testing.T) {
	t.Parallel()
	for _, a := range []ratelimit.Algorithm{ratelimit.SlidingLog, ratelimit.SlidingCounter} {
		var at [2]ratelimit.Result
		for i, m := range []Mode{Enforce, Shadow} {
			hour := ratelimit.Limit{Name: "hour", Algorithm: a, Rate: 10, Period: time.Hour}
			b := newBench(t, Rule{Tenant: "shop", Limits: limits(ratelimit.PerDay(5).Named("day"), hour), Mode: m})
			for range 100 { // the bucket of the day denies from the sixth on
				allow(t, b.limiter, key, 1)
				b.clock.move(time.Minute)
			}
			if m == Shadow && strings.Count(fmt.Sprint(b.shadows), "true") != 5 {
				t.Errorf("%v: %q", a, b.shadows)
			}
			at[i] = Explain(t.Context(), b.set, b.store, "shop", "order").Limits[1].Result
		}
		if at[0] != at[1] {
			t.Errorf("%v: %+v in shadow, %+v enforced", a, at[1], at[0])
		}
	}
}

// TestShadowBeforeDenyCache: the cache has nothing to remember of a shadow, so that each call reaches the store.
func TestShadowBeforeDenyCache(t *testing.T) {
	t.Parallel()
	b := newBench(t, Rule{Tenant: "shop", Limits: limits(bucket("", 2, 1)), Mode: Shadow})
	cache, err := ratelimit.NewDenyCache(b.store, ratelimit.DenyCacheOptions{Clock: b.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	l := b.set.Limiter(cache)
	if n := admitted(t, l, key, 6); n != 6 || b.store.calls != 6 {
		t.Errorf("%d of 6 admitted, the store asked %d times", n, b.store.calls)
	}
	b.rules(Rule{Tenant: "shop", Limits: limits(bucket("", 2, 1))})
	b.asked()
	if n := admitted(t, l, key, 6); n != 0 || b.store.calls != 1 {
		t.Errorf("enforced: %d of 6 admitted, the store asked %d times; want 0 and once", n, b.store.calls)
	}
}

// TestEnforcePercent: a client is either in or out, on every route and in every set.
func TestEnforcePercent(t *testing.T) {
	t.Parallel()
	one := newBench(t, Rule{Limits: perSecond(1), EnforcePercent: 30})
	two := newBench(t, Rule{Route: "search", Limits: perSecond(1), EnforcePercent: 30})
	in := 0
	for i := range 1000 {
		tenant := fmt.Sprint("t", i)
		n := admitted(t, one.limiter, ratelimit.Key(tenant, "order"), 2)
		if m := admitted(t, two.limiter, ratelimit.Key(tenant, "search"), 2); m != n {
			t.Fatalf("%s: %d and %d of 2 admitted", tenant, n, m)
		}
		in += 2 - n
	}
	if in < 250 || in > 350 {
		t.Errorf("%d of 1000 tenants are limited; want about 300", in)
	}
}

// TestAllowAllocates nothing for a rule of one limit.
func TestAllowAllocates(t *testing.T) {
	set := newSet(t, Static(Rule{Tenant: "shop", Limits: limits(bucket("", 1e9, 1))}), byDefault())
	l := set.Limiter(memstore.New(memstore.Options{}))
	ctx := context.Background()
	if n := testing.AllocsPerRun(1000, func() { _, _ = l.Allow(ctx, key, 1) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestRace: calls and look-ups see one rule or another while all rules change, and never half of one.
func TestRace(t *testing.T) {
	t.Parallel()
	src := &changing{}
	set := newSet(t, src, byDefault())
	l := set.Limiter(memstore.New(memstore.Options{}))
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				tenant := fmt.Sprint("t", i%50)
				if _, err := l.Allow(context.Background(), ratelimit.Key(tenant, "r"), 1); err != nil {
					t.Error(err)
				}
				switch r, ok := set.Find(tenant, "r"); {
				case !ok && r.Limits[0].Rate != 7, ok && (len(r.Limits) != 1 || r.ID != fmt.Sprint(r.Limits[0].Rate)):
					t.Errorf("%+v", r)
				}
			}
		})
	}
	for n := range 100 {
		var rules []Rule
		for i := range 40 {
			rules = append(rules, Rule{ID: fmt.Sprint(n + 1), Tenant: fmt.Sprint("t", (i*7+n)%60), Limits: perSecond(int64(n + 1)), Mode: Mode(n % 4)})
		}
		src.set(nil, rules...)
		refresh(t, set)
	}
	cancel()
	calls.Wait()
}

// TestLimitsForIsTheCallers: what LimitsFor returns may be changed.
func TestLimitsForIsTheCallers(t *testing.T) {
	t.Parallel()
	b := newBench(t, Rule{Tenant: "shop", Limits: perSecond(5)})
	got := b.limiter.(ratelimit.Describer).LimitsFor(key)
	got[0].Rate = 1
	if allow(t, b.limiter, key, 0).Limit != 5 {
		t.Error("a caller changed the rule")
	}
}
