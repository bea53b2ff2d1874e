package rules

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluicego/ratelimit"
)

// An Explanation is what Explain found. It is plain data, for people and for JSON.
type Explanation struct {
	Tenant, Route, Tier string
	Key                 string // of the limits of the route
	Rule                Rule   // the one that decides
	From                string // where in the precedence it stands, such as "(tenant, *)"; "default" is Options.Default
	Mode                Mode   // what the rule's Mode comes to for this tenant, with EnforcePercent; Off when all limits are switched off
	Enabled             bool   // Set.Enabled
	Age                 time.Duration
	Blocked             bool // a call of cost 1 would be denied now
	Limits              []LimitState
}

// A LimitState is a limit and how it stands.
type LimitState struct {
	Limit  ratelimit.Limit
	Key    string
	Shared bool
	Units  int64            // what a call of cost 1 spends
	Result ratelimit.Result // a look, without spending
	Error  string           // why it could not be looked at; ""
}

// Explain tells why a tenant is blocked, or is not: which rule decides, where it comes from, and how its limits stand.
// It looks and spends nothing. A store that fails shows in LimitState.Error, one that is nil is not asked.
func Explain(ctx context.Context, set *Set, store ratelimit.Store, tenant, route string) Explanation {
	l := &limiter{set: set, store: store}
	key := ratelimit.Key(tenant, route)
	m := l.of(key)
	p := m.hit.policy
	e := Explanation{
		Tenant: tenant, Route: route, Tier: m.tier, Key: key, Rule: m.rule(),
		From: m.where(), Mode: m.mode, Enabled: set.Enabled(), Age: set.Age(), Blocked: m.mode == DenyAll,
	}
	for i, r := range m.requests(0, 0) {
		s := LimitState{Limit: *r.Limit, Key: r.Key, Shared: i >= len(p.limits), Units: p.cost}
		if store != nil {
			var err error
			if s.Result, err = store.Take(ctx, r); err != nil {
				s.Error = err.Error()
			} else if m.mode == Enforce && s.Result.Remaining < p.cost {
				e.Blocked = true
			}
		}
		e.Limits = append(e.Limits, s)
	}
	return e
}

// where names the place of the rule in the precedence.
func (m *matter) where() string {
	who, what := "tenant", "route"
	switch m.from {
	case fromDefault:
		return "default"
	case fromTier:
		who = "tier"
	case fromAll:
		who = Any
	}
	if m.hit.route == Any {
		what = Any
	}
	return fmt.Sprintf("(%s, %s)", who, what)
}

// A Change is one difference between two sets of rules: Old is nil for a new rule, New for one that is gone.
type Change struct {
	Tenant, Route, Tier string
	Old, New            *Rule
}

// Diff tells what would change from old rules to new ones, by tier, tenant and route. Which row a rule stands in, its ID, is no
// difference. Of two rules for one place the first counts, as in a Set, and a rule that has become bad is no change: its last good
// version stays.
func Diff(old, new []Rule) []Change {
	was, _ := byPlace(old)
	is, bad := byPlace(new)
	var changes []Change
	for p, r := range was {
		if n := is[p]; n == nil && !bad[p] || n != nil && !same(r, n) {
			changes = append(changes, Change{p.tenant, p.route, p.tier, r, n})
		}
	}
	for p, n := range is {
		if was[p] == nil {
			changes = append(changes, Change{p.tenant, p.route, p.tier, nil, n})
		}
	}
	slices.SortFunc(changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Route, b.Route))
	})
	return changes
}

func byPlace(rules []Rule) (good map[place]*Rule, bad map[place]bool) {
	good, bad = make(map[place]*Rule, len(rules)), map[place]bool{}
	for _, r := range rules {
		err := r.check()
		p := place{r.Tenant, r.Tier, r.Route}
		switch {
		case err != nil:
			bad[p] = true
		case good[p] == nil:
			good[p] = &r
		}
	}
	return good, bad
}

func same(a, b *Rule) bool {
	return newPolicy(a).equal(newPolicy(b))
}

// A Report is what Validate found.
type Report struct {
	Rules  []Rule            // the good ones, what they leave out in its place
	Bad    []*RuleError      // the ones that a Set would skip
	Tiers  map[string]string // by tenant
	Adrift []string          // tiers that tenants have and no rule is for: they are as none
}

// Validate reads a source as a Set would, without one. The error is of a load that failed.
func Validate(ctx context.Context, source Source) (Report, error) {
	rules, err := source.Rules(ctx)
	if err != nil {
		return Report{}, err
	}
	var report Report
	seen, tiers := map[place]bool{}, map[string]bool{}
	for i, r := range rules {
		if r.ID == "" {
			r.ID = fmt.Sprintf("#%d", i+1)
		}
		p := func() place { return place{r.Tenant, r.Tier, r.Route} }
		err := r.check()
		if err == nil && seen[p()] {
			err = &RuleError{ID: r.ID, Err: errTwice}
		}
		if err != nil {
			report.Bad = append(report.Bad, err)
			continue
		}
		seen[p()], tiers[r.Tier] = true, true
		report.Rules = append(report.Rules, r)
	}
	if t, ok := source.(TierSource); ok {
		if report.Tiers, err = t.Tiers(ctx); err != nil {
			return Report{}, err
		}
	}
	adrift := map[string]bool{}
	for _, tier := range report.Tiers {
		if tier != "" && !tiers[tier] {
			adrift[tier] = true
		}
	}
	report.Adrift = slices.Sorted(maps.Keys(adrift))
	return report, nil
}
