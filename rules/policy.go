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
	expires int64  // nanoseconds since the Unix epoch; 0 is never
	owner   string // whose it is, if the name is too long for an entry; then no two rules share it
}

// shadowName ends the Names under which a rule in Shadow spends from its Shared limits, so that it takes nothing from
// the rules that enforce them.
const shadowName = ".shadow"

// newPolicy returns the policy of a rule that was checked.
func newPolicy(r *Rule) *policy {
	p := &policy{
		limits: slices.Clip(slices.Clone(r.Limits)), shared: slices.Clip(slices.Clone(r.Shared)),
		cost: r.Cost, mode: r.Mode, percent: uint8(r.EnforcePercent), expires: expiry(r.Expires),
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
	return p == q || p.cost == q.cost && p.mode == q.mode && p.percent == q.percent && p.expires == q.expires &&
		slices.Equal(p.limits, q.limits) && slices.Equal(p.shared, q.shared)
}

// appendPolicy appends what tells apart the policies of rules.
func appendPolicy(b []byte, r *Rule) []byte {
	b = append(b, byte(r.Mode), byte(r.EnforcePercent))
	b = strconv.AppendInt(b, r.Cost, 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, expiry(r.Expires), 10)
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

// expiry is a Rule's Expires in a policy.
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
