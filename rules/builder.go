package rules

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A builder takes what a source tells, all rules or what changed since, and makes the next snapshot of it.
type builder struct {
	old  *snapshot
	full bool // all rules and tiers are told, and what is not told is gone

	next     *snapshot
	count    int // of rules told, bad ones too
	bad      map[place]bool
	reports  []*RuleError
	policies map[string]*policy
	texts    map[string]string
	scratch  []byte
}

func newBuilder(old *snapshot) *builder {
	return &builder{old: old, bad: map[place]bool{}, policies: map[string]*policy{}, texts: map[string]string{}}
}

// all says that all will be told, and forgets what was told before.
func (b *builder) all() { b.full, b.next = true, nil }

// snapshot is where to put what is told: an empty one, or one that shares what the old one has.
func (b *builder) snapshot() *snapshot {
	if b.next != nil {
		return b.next
	}
	if b.full {
		b.next = newSnapshot()
		return b.next
	}
	s := *b.old
	s.own.borrow()
	s.wild.borrow()
	s.skipped = maps.Clone(s.skipped)
	b.next = &s
	return b.next
}

// put takes a rule, which may be bad. It returns the policy of one that is not.
func (b *builder) put(r Rule) *policy {
	b.count++
	if r.ID == "" {
		r.ID = fmt.Sprintf("#%d", b.count)
	}
	if err := r.check(); err != nil {
		b.refuse(place{r.Tenant, r.Tier, r.Route}, err)
		return nil
	}
	b.scratch = appendPolicy(b.scratch[:0], &r)
	p := b.policies[string(b.scratch)]
	if p == nil {
		p = newPolicy(&r)
		b.policies[string(b.scratch)] = p
	}
	b.add(place{r.Tenant, r.Tier, b.text(r.Route)}, r.ID, p)
	return p
}

var errTwice = errors.New("another rule is for the same tenant, route and tier")

// add takes a rule that was checked. Of the texts of its place only the route is kept.
func (b *builder) add(p place, id string, what *policy) {
	s := b.snapshot()
	old := s.rule(p)
	switch {
	case old.entry != nil && b.full: // the first one holds
		b.skip(place{strings.Clone(p.tenant), strings.Clone(p.tier), p.route}, &RuleError{ID: id, Err: errTwice})
		return
	case !b.full:
		delete(s.skipped, p)
	}
	if old.entry == nil || *old.id != id || !old.policy.equal(what) {
		s.put(p, id, what)
	}
}

// refuse takes a rule that is bad.
func (b *builder) refuse(p place, err *RuleError) {
	if !b.full && !b.bad[p] {
		delete(b.snapshot().skipped, p)
	}
	b.bad[p] = true
	b.skip(p, err)
}

// skip notes that a rule is skipped, and reports it if it was not already before, and for the same reason.
func (b *builder) skip(p place, err *RuleError) {
	s, text := b.snapshot(), err.Error()
	s.skipped[p] = append(slices.Clip(s.skipped[p]), text)
	if !slices.Contains(b.old.skipped[p], text) {
		b.reports = append(b.reports, err)
	}
}

// tier takes a tenant's tier; "" is none.
func (b *builder) tier(tenant, tier string) {
	s := b.snapshot()
	old := s.own.find(tenant, "")
	switch {
	case old.entry == nil && tier == "" || old.entry != nil && *old.id == tier:
	case tier == "":
		s.own.drop(tenant, "")
	default:
		s.own.put(newEntry(tenant, "", nil), b.text(tier))
	}
}

// drop takes a rule that is gone; one that took its place is told later.
func (b *builder) drop(p place) {
	s := b.snapshot()
	delete(s.skipped, p)
	s.drop(p)
}

// text returns s, the same string each time: rules have few texts that no other has.
func (b *builder) text(s string) string {
	if t, ok := b.texts[s]; ok {
		return t
	}
	s = strings.Clone(s)
	b.texts[s] = s
	return s
}

// finish returns the next snapshot and the rules that were skipped now, and not already before for the same reason.
func (b *builder) finish() (*snapshot, []*RuleError) {
	s := b.snapshot()
	for p := range b.bad {
		if p.tenant != Any && p.tier != "" { // it has no place
			continue
		}
		if old := b.old.rule(p); old.entry != nil && s.rule(p).entry == nil { // its last good version stays
			s.put(p, *old.id, old.policy)
		}
	}
	slices.SortFunc(b.reports, func(x, y *RuleError) int { return strings.Compare(x.ID, y.ID) })
	return s, b.reports
}
