package rules

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/sluicego/ratelimit"
)

// A limiter decides by the rule that holds when it is asked.
type limiter struct {
	set   *Set
	store ratelimit.Store
}

var (
	_ ratelimit.Limiter   = (*limiter)(nil)
	_ ratelimit.Refunder  = (*limiter)(nil)
	_ ratelimit.Describer = (*limiter)(nil)
)

// Limiter returns a Limiter whose keys are ratelimit.Key(tenant, route): each call is decided by the rule that holds
// then. A key that Key did not make is a tenant without a route. It is a Refunder and a Describer too, has nothing to
// close, and goes on with the last rules after the set is closed. It panics if store is nil.
//
// A call of cost n spends n times the rule's Cost, and a refund of n gives back as much; Result.Taken is n too, and the
// other numbers of a Result are units of the limits. Where no limit holds, in Shadow, Off, DenyAll and after
// SetEnabled(false), Result.Limit is 0, which no limit has, and LimitsFor returns none: a middleware sets no headers
// then. A store that fails fails no call in Shadow.
func (s *Set) Limiter(store ratelimit.Store) ratelimit.Limiter {
	if store == nil {
		panic("rules: store is nil")
	}
	return &limiter{set: s, store: store}
}

// A matter is what a call is about.
type matter struct {
	key    string
	tenant string
	owner  string // the key of Shared limits
	hit    hit
	from   origin
	tier   string
	mode   Mode
}

// of tells what a call for key is about.
func (l *limiter) of(key string) matter {
	m := matter{key: key}
	tenant, route, ok := ratelimit.SplitKey(key)
	if ok {
		m.owner = key[:strings.IndexByte(key, '}')+1]
	} else {
		tenant, m.owner = key, key
	}
	m.tenant = tenant
	m.hit, m.from, m.tier = l.set.find(tenant, route)
	if m.mode = m.hit.policy.modeFor(tenant); l.set.disabled.Load() {
		m.mode = Off
	}
	return m
}

// rule returns the rule that decides.
func (m *matter) rule() (r Rule) {
	m.hit.fill(&r)
	r.Tenant, r.Tier = m.from.whose(m.tenant, m.tier)
	return r
}

// Allow is as Limiter says.
func (l *limiter) Allow(ctx context.Context, key string, cost int64) (ratelimit.Result, error) {
	if cost < 0 {
		return ratelimit.Result{}, fmt.Errorf("%w: %d is below 0", ratelimit.ErrInvalidCost, cost)
	}
	if key == "" {
		return ratelimit.Result{}, ratelimit.ErrInvalidKey
	}
	m := l.of(key)
	units := times(cost, m.hit.policy.cost)
	switch m.mode {
	case Off:
		return ratelimit.Result{Allowed: true, Taken: cost}, nil
	case DenyAll:
		return ratelimit.Result{RetryAfter: ratelimit.Never}, nil
	case Shadow:
		would, err := l.shadow(ctx, &m, units)
		l.report(&m, would, err)
		return ratelimit.Result{Allowed: true, Taken: cost}, nil
	}
	if limit := m.hit.policy.never(units); limit != nil {
		return ratelimit.Result{Limit: limit.Capacity(), RetryAfter: ratelimit.Never, Name: limit.Name}, nil
	}
	return l.take(ctx, &m, units)
}

// Refund gives back what n calls spent under the rule that holds now.
func (l *limiter) Refund(ctx context.Context, key string, n int64) (ratelimit.Result, error) {
	if n < 1 {
		return ratelimit.Result{}, fmt.Errorf("%w: a refund of %d is below 1", ratelimit.ErrInvalidCost, n)
	}
	if key == "" {
		return ratelimit.Result{}, ratelimit.ErrInvalidKey
	}
	m := l.of(key)
	units := times(n, m.hit.policy.cost)
	switch m.mode {
	case Off, DenyAll:
		return ratelimit.Result{Allowed: true}, nil
	case Shadow:
		if _, err := l.all(ctx, m.requests(-units, 0)); err != nil {
			l.report(&m, ratelimit.Result{}, err)
		}
		return ratelimit.Result{Allowed: true, Taken: -n}, nil
	}
	return l.take(ctx, &m, -units)
}

// LimitsFor returns the limits that hold for key, those of the route first, in units and not in calls.
func (l *limiter) LimitsFor(key string) []ratelimit.Limit {
	m := l.of(key)
	if m.mode != Enforce {
		return nil
	}
	return slices.Concat(m.hit.policy.limits, m.hit.policy.shared)
}

// take decides in one round trip.
func (l *limiter) take(ctx context.Context, m *matter, units int64) (res ratelimit.Result, err error) {
	p := m.hit.policy
	if len(p.limits) == 1 && len(p.shared) == 0 {
		res, err = l.store.Take(ctx, ratelimit.Request{Key: m.key, Limit: &p.limits[0], Cost: units})
	} else {
		var results []ratelimit.Result
		if results, err = l.all(ctx, m.requests(units, 0)); err == nil {
			res = binding(results)
		}
	}
	if p.cost > 1 {
		res.Taken /= p.cost
	}
	return res, err
}

// shadow is what take would have come to. It asks for the units as Extra, which is never a denial that somebody on the
// way to the store could remember, and gives back what a denied call would not have spent.
func (l *limiter) shadow(ctx context.Context, m *matter, units int64) (ratelimit.Result, error) {
	p := m.hit.policy
	if limit := p.never(units); limit != nil {
		return ratelimit.Result{Limit: limit.Capacity(), RetryAfter: ratelimit.Never, Name: limit.Name}, nil
	}
	reqs := m.requests(0, units)
	if units > 1 || units > 0 && len(reqs) > 1 {
		if slices.ContainsFunc(reqs, isWindow) { // it would get back its oldest units, and not those just spent
			would, fits, err := l.look(ctx, m, units)
			if err != nil || !fits {
				return would, err
			}
		}
	}
	results, err := l.all(ctx, reqs)
	if err != nil {
		return ratelimit.Result{}, err
	}
	var back []ratelimit.Request
	denied := -1
	for i, r := range results {
		if r.Taken < units && (denied < 0 || r.Taken < results[denied].Taken) {
			denied = i
		}
		if r.Taken > 0 {
			back = append(back, ratelimit.Request{Key: reqs[i].Key, Limit: reqs[i].Limit, Cost: -r.Taken})
		}
	}
	if denied < 0 {
		return binding(results), nil
	}
	would := results[denied]
	would.Allowed, would.Remaining, would.Taken = false, would.Taken, 0
	if len(back) > 0 {
		_, err = l.all(ctx, back)
	}
	return would, err
}

func isWindow(r ratelimit.Request) bool { return r.Limit.Algorithm != ratelimit.TokenBucket }

// look tells whether units fit, without spending, and the denial if not.
func (l *limiter) look(ctx context.Context, m *matter, units int64) (would ratelimit.Result, fits bool, err error) {
	results, err := l.all(ctx, m.requests(0, 0))
	if err != nil {
		return ratelimit.Result{}, false, err
	}
	would = slices.MinFunc(results, func(a, b ratelimit.Result) int { return cmp.Compare(a.Remaining, b.Remaining) })
	would.Allowed = false
	return would, would.Remaining >= units, nil
}

// requests are those of a call, in an array of their own: a store may look at them for a while after a call was left.
func (m *matter) requests(cost, extra int64) []ratelimit.Request {
	p := m.hit.policy
	shared := p.shared
	if m.mode == Shadow {
		shared = p.aside
	}
	reqs := make([]ratelimit.Request, 0, len(p.limits)+len(shared))
	for i := range p.limits {
		reqs = append(reqs, ratelimit.Request{Key: m.key, Limit: &p.limits[i], Cost: cost, Extra: extra})
	}
	for i := range shared {
		reqs = append(reqs, ratelimit.Request{Key: m.owner, Limit: &shared[i], Cost: cost, Extra: extra})
	}
	return reqs
}

func (l *limiter) all(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
	if len(reqs) > 1 {
		return l.store.TakeAll(ctx, reqs)
	}
	res, err := l.store.Take(ctx, reqs[0])
	return []ratelimit.Result{res}, err
}

func (l *limiter) report(m *matter, would ratelimit.Result, err error) {
	if f := l.set.options.OnShadow; f != nil {
		guard(func() { f(m.rule(), m.key, would, err) })
	}
}

// never returns the first limit that units cannot fit in, or nil.
func (p *policy) never(units int64) *ratelimit.Limit {
	for _, limits := range [...][]ratelimit.Limit{p.limits, p.shared} {
		for i := range limits {
			if units > limits[i].Capacity() {
				return &limits[i]
			}
		}
	}
	return nil
}

// binding is the result of the limit that decided: of a denial the one with the longest RetryAfter, else the one with
// the least left, of equals the first.
func binding(results []ratelimit.Result) ratelimit.Result {
	b := results[0]
	for _, r := range results[1:] {
		if r.RetryAfter > b.RetryAfter || r.Allowed && r.Remaining < b.Remaining {
			b = r
		}
	}
	return b
}

// times is cost in units, at most what a number holds.
func times(cost, units int64) int64 {
	if cost > math.MaxInt64/units {
		return math.MaxInt64
	}
	return cost * units
}
