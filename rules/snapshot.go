package rules

import "time"

// A snapshot is all rules as they were loaded at one time. It never changes: what is loaded next shares what is the same.
type snapshot struct {
	own     index // the rules of tenants, by tenant; one of no route is the tenant's tier, by its id
	wild    index // the rules of tiers, by tier, and of all tenants, by ""
	rules   int
	at      time.Time          // when the source was asked
	loaded  bool               // it ever was
	skipped map[place][]string // why, of each rule that is bad
}

// A place is where a rule stands. Its tenant is Any if it has a tier.
type place struct{ tenant, tier, route string }

func newSnapshot() *snapshot {
	return &snapshot{own: newIndex(), wild: newIndex(), skipped: map[place][]string{}}
}

// index is the one for a place, and the owner in it.
func (s *snapshot) index(p place) (x *index, owner string) {
	if p.tenant == Any {
		return &s.wild, p.tier
	}
	return &s.own, p.tenant
}

// rule returns the rule of that very place, or none.
func (s *snapshot) rule(p place) hit {
	x, owner := s.index(p)
	return x.find(owner, p.route)
}

// tier returns the tier of a tenant whose hash is given, "" if it has none.
func (s *snapshot) tier(tenant string, hash uint64) string {
	if h := s.own.get(tenant, hash, "", s.own.none); h.entry != nil {
		return *h.id
	}
	return ""
}

// put puts a rule in its place. It is for a snapshot that nobody else has yet.
func (s *snapshot) put(p place, id string, what *policy) {
	x, owner := s.index(p)
	if x.put(newEntry(owner, p.route, what), id) {
		s.rules++
	}
}

// drop takes the rule of a place away.
func (s *snapshot) drop(p place) {
	if x, owner := s.index(p); x.drop(owner, p.route) {
		s.rules--
	}
}
