package rules

import (
	"slices"
	"strconv"
	"time"

	"github.com/sluicego/ratelimit"
)

// A policy is what a rule says, without whom it is for. Rules that say the same share one. It never changes.
type policy struct {
	limits  []ratelimit.Limit
	shared  []ratelimit.Limit
	aside   []ratelimit.Limit // shared, under Names of their own for Shadow
	cost    int64
	mode    Mode
	percent uint8
}

// shadowName ends the Names under which a rule in Shadow spends from its Shared limits, so that it takes nothing from
// the rules that enforce them.
const shadowName = ".shadow"

// newPolicy returns the policy of a rule that was checked.
func newPolicy(r *Rule) *policy {
	p := &policy{
		limits: slices.Clip(slices.Clone(r.Limits)), shared: slices.Clip(slices.Clone(r.Shared)),
		cost: r.Cost, mode: r.Mode, percent: uint8(r.EnforcePercent),
	}
	if len(p.shared) > 0 && (p.mode == Shadow || p.percent < 100) {
		p.aside = slices.Clone(p.shared)
		for i := range p.aside {
			p.aside[i].Name += shadowName
		}
	}
	return p
}

func (p *policy) equal(q *policy) bool {
	return p == q || p.cost == q.cost && p.mode == q.mode && p.percent == q.percent &&
		slices.Equal(p.limits, q.limits) && slices.Equal(p.shared, q.shared)
}

// appendPolicy appends what tells apart the policies of rules.
func appendPolicy(b []byte, r *Rule) []byte {
	b = append(b, byte(r.Mode), byte(r.EnforcePercent))
	b = strconv.AppendInt(b, r.Cost, 10)
	for i, limits := range [...][]ratelimit.Limit{r.Limits, r.Shared} {
		for _, l := range limits {
			b = append(b, '|', byte(i), byte(l.Algorithm), byte(l.OnFailure))
			b = append(b, l.Name...)
			for _, n := range [...]int64{l.Rate, int64(l.Period), l.Burst} {
				b = append(b, ' ')
				b = strconv.AppendInt(b, n, 10)
			}
		}
	}
	return b
}

// modeFor is what the policy comes to for a tenant.
func (p *policy) modeFor(tenant string) Mode {
	if p.mode == Enforce && p.percent < 100 && percentile(tenant) >= p.percent {
		return Shadow
	}
	return p.mode
}

// percentile is where among a hundred a tenant stands: FNV-1a, so that every process and every version agrees.
func percentile(tenant string) uint8 {
	h := uint64(14695981039346656037)
	for i := range len(tenant) {
		h = (h ^ uint64(tenant[i])) * 1099511628211
	}
	h ^= h >> 32
	return uint8(h % 100)
}

// An entry is a rule in a snapshot. Whom it is for is where it stands.
type entry struct {
	route   string
	id      string
	policy  *policy
	expires int64 // nanoseconds since the Unix epoch; 0 is never
}

func (e *entry) equal(f *entry) bool {
	return e.route == f.route && e.id == f.id && e.expires == f.expires && e.policy.equal(f.policy)
}

// rule is the entry as a Rule of that tenant and tier. It shares the limits with the snapshot.
func (e *entry) rule(tenant, tier string) Rule {
	p := e.policy
	r := Rule{
		Tenant: tenant, Route: e.route, Tier: tier, ID: e.id,
		Limits: p.limits, Shared: p.shared, Cost: p.cost, Mode: p.mode, EnforcePercent: int(p.percent),
	}
	if e.expires != 0 {
		r.Expires = time.Unix(0, e.expires).UTC()
	}
	return r
}

// expiry is a Rule's Expires in an entry.
func expiry(t time.Time) int64 {
	switch {
	case t.IsZero() || t.Year() > 2261: // what nanoseconds cannot say is as good as never
		return 0
	case t.Year() < 1971:
		return 1
	default:
		return t.UnixNano()
	}
}
