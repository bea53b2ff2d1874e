package rules

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/sluicego/ratelimit"
)

// TestChanges: whatever a source tells piece by piece, the rules come to what they would if all were told at once.
func TestChanges(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		table, tiers := map[place]Rule{}, map[string]string{}
		now := newSnapshot()
		for step := range 40 {
			b := newBuilder(now)
			if step == 0 {
				b.all()
			}
			touched := map[place]bool{}
			for range r.IntN(12) {
				p := place{tenant: fmt.Sprint("t", r.IntN(12)), route: fmt.Sprint("r", r.IntN(12))}
				switch r.IntN(8) {
				case 0:
					p.tenant, p.tier = Any, fmt.Sprint("tier", r.IntN(3))
				case 1:
					p.tenant = Any
				}
				if r.IntN(4) == 0 {
					p.route = Any
				}
				if touched[p] { // a source tells of each place once, and of a deletion before the rule that follows it
					continue
				}
				touched[p] = true
				if !b.full && r.IntN(3) == 0 {
					delete(table, p)
					b.drop(p)
				}
				if r.IntN(3) > 0 {
					rule := Rule{ID: fmt.Sprint(step), Tenant: p.tenant, Tier: p.tier, Route: p.route, Limits: perSecond(r.Int64N(5) + 1)}
					table[p] = rule
					b.put(rule)
				}
			}
			if r.IntN(3) == 0 {
				tenant, tier := fmt.Sprint("t", r.IntN(15)), []string{"", "tier0", "tier1"}[r.IntN(3)]
				tiers[tenant] = tier
				b.tier(tenant, tier)
			}
			next, skipped := b.finish()
			if len(skipped) > 0 {
				t.Fatal(skipped)
			}
			before := dump(now)
			if s := dump(next); !maps.Equal(s, flat(table)) || next.rules != len(table) {
				t.Fatalf("seed %d, step %d: %d rules\n%v\nwant %d\n%v", seed, step, next.rules, s, len(table), flat(table))
			}
			if !maps.Equal(before, dump(now)) {
				t.Fatalf("seed %d, step %d changed the snapshot before it", seed, step)
			}
			for tenant, tier := range tiers {
				if got := next.tier(tenant, next.own.hash(tenant)); got != tier {
					t.Fatalf("seed %d, step %d: %s is of tier %q; want %q", seed, step, tenant, got, tier)
				}
			}
			now = next
		}
	}
}

func dump(s *snapshot) map[place]string {
	rules := map[place]string{}
	for e := range s.own.each {
		if e.route != "" {
			rules[place{tenant: e.owner(), route: e.route}] = said(*e.id, e.policy.limits)
		}
	}
	for e := range s.wild.each {
		rules[place{Any, e.owner(), e.route}] = said(*e.id, e.policy.limits)
	}
	for p := range rules { // and each is found where it stands
		if e := s.rule(p); e.entry == nil || said(*e.id, e.policy.limits) != rules[p] {
			panic(fmt.Sprint(p, " is not found"))
		}
	}
	return rules
}

func said(id string, l []ratelimit.Limit) string { return id + ":" + strconv.FormatInt(l[0].Rate, 10) }

func flat(table map[place]Rule) map[place]string {
	rules := map[place]string{}
	for p, r := range table {
		rules[p] = said(r.ID, r.Limits)
	}
	return rules
}

// TestNothingChanged: a load that tells what is known already copies nothing.
func TestNothingChanged(t *testing.T) {
	t.Parallel()
	b := newBuilder(newSnapshot())
	b.all()
	rule := Rule{ID: "1", Tenant: "a", Route: "r", Limits: perSecond(1)}
	b.put(rule)
	b.tier("a", "gold")
	now, _ := b.finish()
	b = newBuilder(now)
	b.put(rule)
	b.drop(place{tenant: "b", route: "r"})
	b.tier("a", "gold")
	next, _ := b.finish()
	if next.own.find("a", "r") != now.own.find("a", "r") || next.rules != 1 {
		t.Error("the rules were copied")
	}
}

// TestBadAfterDrop: the last good version stays of a rule that a source tells to be bad after it told of a deletion, which may
// have been of an older version.
func TestBadAfterDrop(t *testing.T) {
	t.Parallel()
	b := newBuilder(newSnapshot())
	b.all()
	b.put(Rule{ID: "1", Tenant: "a", Route: "r", Limits: perSecond(3)})
	now, _ := b.finish()
	for range 2 {
		b = newBuilder(now)
		b.drop(place{tenant: "a", route: "r"})
		b.put(Rule{ID: "1", Tenant: "a", Route: "r", Limits: perSecond(0)})
		now, _ = b.finish()
		if h := now.own.find("a", "r"); h.entry == nil || h.policy.limits[0].Rate != 3 || now.rules != 1 || len(now.skipped) != 1 {
			t.Fatalf("%+v, %d rules, %v", h.entry, now.rules, now.skipped)
		}
	}
	b = newBuilder(now)
	b.drop(place{tenant: "a", route: "r"})
	if now, _ = b.finish(); now.rules != 0 || len(now.skipped) != 0 {
		t.Errorf("once it is gone: %d rules, %v", now.rules, now.skipped)
	}
}

// TestMemory holds the set to what its comment says.
func TestMemory(t *testing.T) {
	const tenants, routes, plans = 20_000, 5, 5
	load := func() *snapshot {
		b := newBuilder(newSnapshot())
		b.all()
		for i := range tenants * routes {
			b.put(Rule{
				ID: fmt.Sprintf("%08d", i), Tenant: fmt.Sprintf("tenant-%08d", i%tenants), Route: fmt.Sprint("route-", i/tenants),
				Limits: perSecond(int64(i%plans + 1)),
			})
		}
		s, _ := b.finish()
		return s
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	s := load()
	used := heap() - before
	const texts = tenants * routes * 16
	bound := int64(134*tenants*routes + 100<<10 + plans*(200+72) + texts)
	t.Logf("%d rules of %d tenants: %d bytes, %.1f a rule; at most %d", s.rules, tenants, used, float64(used)/float64(s.rules), bound)
	if used > bound+bound/50 { // what else the process does
		t.Errorf("%d bytes for %d rules; want at most %d", used, s.rules, bound)
	}
	runtime.KeepAlive(s)
}

// TestPercentile: a tenth of the tenants is in at 10 per cent, and stays in.
func TestPercentile(t *testing.T) {
	t.Parallel()
	const n = 100_000
	var counts [100]int
	for i := range n {
		counts[percentile(fmt.Sprint("tenant-", i))]++
	}
	if least, most := slices.Min(counts[:]), slices.Max(counts[:]); least < n/100*8/10 || most > n/100*12/10 {
		t.Errorf("of %d tenants %d to %d fall on each hundredth", n, least, most)
	}
	p := policy{percent: 10}
	for i := range n {
		tenant := fmt.Sprint("tenant-", i)
		p.percent = 10
		in := p.modeFor(tenant) == Enforce
		if p.percent = 20; in && p.modeFor(tenant) != Enforce {
			t.Fatalf("%s is in at 10 per cent and out at 20", tenant)
		}
	}
	// Every process and every version agrees.
	if a, b := percentile("shop-a"), percentile(""); a != 31 || b != 45 {
		t.Errorf("shop-a is at %d, the empty tenant at %d", a, b)
	}
}

// TestPolicies: rules that differ in anything share no policy.
func TestPolicies(t *testing.T) {
	t.Parallel()
	l := ratelimit.PerSecond(10)
	rules := []Rule{
		{Limits: []ratelimit.Limit{l}},
		{Shared: []ratelimit.Limit{l}},
		{Limits: []ratelimit.Limit{l}, Cost: 2},
		{Limits: []ratelimit.Limit{l}, Mode: Shadow},
		{Limits: []ratelimit.Limit{l}, EnforcePercent: 5},
		{Limits: []ratelimit.Limit{l.Named("1")}},
		{Limits: []ratelimit.Limit{l, l.Named("b")}},
		{Limits: []ratelimit.Limit{{Rate: 10, Period: l.Period, Burst: 1}}},
		{Limits: []ratelimit.Limit{{Rate: 10, Period: l.Period + 1000}}},
		{Limits: []ratelimit.Limit{{Rate: 10, Period: l.Period, Algorithm: ratelimit.SlidingLog}}},
		{Limits: []ratelimit.Limit{{Rate: 10, Period: l.Period, OnFailure: ratelimit.FailOpen}}},
	}
	for i := range rules {
		if err := rules[i].check(); err != nil {
			t.Fatal(err)
		}
		for j := range i {
			if string(appendPolicy(nil, &rules[i])) == string(appendPolicy(nil, &rules[j])) || newPolicy(&rules[i]).equal(newPolicy(&rules[j])) {
				t.Errorf("%+v and %+v are one policy", rules[i], rules[j])
			}
		}
	}
}
