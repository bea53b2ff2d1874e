package rules

import (
	"hash/maphash"
	"slices"
	"strings"
	"time"
)

// A snapshot is all rules as they were loaded at one time. It never changes: what is loaded next shares what is the same.
type snapshot struct {
	seed     maphash.Seed
	slots    []slot // tenants by hash, open addressing; a power of two, at most three quarters full
	tenants  int
	borrowed bool             // slots are another snapshot's too
	tiers    map[string]*list // the rules of each tier
	all      *list            // the rules of every tenant
	rules    int
	at       time.Time // when the source was asked
	loaded   bool      // it ever was
	skipped  map[place]string
}

type slot struct {
	hash   uint64
	tenant *tenant
}

// A tenant is one that has rules or a tier.
type tenant struct {
	name string
	tier string
	list
}

// A list is the rules of a tenant, of a tier, or of all tenants: by route, but that of any route first.
type list struct {
	entries []entry
	any     bool
}

// An owner is whose list it is: tenant and no tier, Any and a tier, Any and no tier.
type owner struct{ tenant, tier string }

// A place is where a rule stands.
type place struct {
	owner
	route string
}

// fewRoutes is up to how many routes looking at each is the quickest way.
const fewRoutes = 8

// exact returns the rule of that very route, Any too, or nil.
func (l *list) exact(route string) *entry {
	named := l.entries
	if l.any {
		if route == Any {
			return &l.entries[0]
		}
		named = named[1:]
	}
	if len(named) <= fewRoutes {
		for i := range named {
			if named[i].route == route {
				return &named[i]
			}
		}
		return nil
	}
	if i, ok := slices.BinarySearchFunc(named, route, compareRoute); ok {
		return &named[i]
	}
	return nil
}

func compareRoute(e entry, route string) int { return strings.Compare(e.route, route) }

// find returns the rule for a route that holds now: its own, else that of any, or nil.
func (l *list) find(route string, clock func() time.Time) *entry {
	if route != Any { // a route of that name is not all of them
		if e := l.exact(route); e != nil && e.holds(clock) {
			return e
		}
	}
	if l.any && l.entries[0].holds(clock) {
		return &l.entries[0]
	}
	return nil
}

func (e *entry) holds(clock func() time.Time) bool {
	return e.expires == 0 || clock().UnixNano() < e.expires
}

// tenant returns what is known of a tenant, or nil.
func (s *snapshot) tenant(name string) *tenant {
	if len(s.slots) == 0 {
		return nil
	}
	hash, last := maphash.String(s.seed, name), uint64(len(s.slots)-1)
	for i := hash & last; ; i = (i + 1) & last {
		switch at := &s.slots[i]; {
		case at.tenant == nil:
			return nil
		case at.hash == hash && at.tenant.name == name:
			return at.tenant
		}
	}
}

// list returns the rules of an owner, or nil.
func (s *snapshot) list(o owner) *list {
	switch {
	case o.tier != "":
		return s.tiers[o.tier]
	case o.tenant == Any:
		return s.all
	}
	if t := s.tenant(o.tenant); t != nil {
		return &t.list
	}
	return nil
}

// put adds or replaces a tenant. It is for a snapshot that nobody else has yet.
func (s *snapshot) put(t *tenant) {
	switch {
	case (s.tenants+1)*4 > len(s.slots)*3:
		s.grow(s.tenants + 1)
	case s.borrowed:
		s.slots = slices.Clone(s.slots)
	}
	s.borrowed = false
	if s.place(maphash.String(s.seed, t.name), t) {
		s.tenants++
	}
}

func (s *snapshot) place(hash uint64, t *tenant) (added bool) {
	last := uint64(len(s.slots) - 1)
	for i := hash & last; ; i = (i + 1) & last {
		at := &s.slots[i]
		if at.tenant == nil || at.hash == hash && at.tenant.name == t.name {
			added = at.tenant == nil
			*at = slot{hash, t}
			return added
		}
	}
}

// grow makes room for n tenants.
func (s *snapshot) grow(n int) {
	size := 8
	for size*3 < n*4 {
		size *= 2
	}
	old := s.slots
	s.slots = make([]slot, size)
	for _, at := range old {
		if at.tenant != nil {
			s.place(at.hash, at.tenant)
		}
	}
}

// each calls f for every rule, in no order.
func (s *snapshot) each(f func(o owner, e *entry)) {
	each := func(o owner, l *list) {
		for i := range l.entries {
			f(o, &l.entries[i])
		}
	}
	for _, at := range s.slots {
		if at.tenant != nil {
			each(owner{tenant: at.tenant.name}, &at.tenant.list)
		}
	}
	for tier, l := range s.tiers {
		each(owner{tenant: Any, tier: tier}, l)
	}
	each(owner{tenant: Any}, s.all)
}

// newList sorts entries, which come to belong to it, and calls twice for those of a route that already had one.
func newList(entries []entry, twice func(*entry)) list {
	slices.SortStableFunc(entries, func(a, b entry) int {
		if aAny, bAny := a.route == Any, b.route == Any; aAny != bAny {
			if aAny {
				return -1
			}
			return 1
		}
		return strings.Compare(a.route, b.route)
	})
	kept := entries[:0]
	for i := range entries {
		if n := len(kept); n > 0 && kept[n-1].route == entries[i].route {
			twice(&entries[i])
			continue
		}
		kept = append(kept, entries[i])
	}
	return list{entries: kept, any: len(kept) > 0 && kept[0].route == Any}
}
