package rules

import (
	"strings"
	"time"
)

// An entry is a rule in an index, but for its ID: one cache line. The owner's name lies in it, since to fetch it from elsewhere
// would take as long as all the rest of a look-up. Whether the owner is a tenant or a tier is told by which index it is.
type entry struct {
	hash   uint16 // empty, gone, or what is above them of the hash of owner and route
	size   uint8  // of name; long if the name is its policy's
	name   [37]byte
	route  string
	policy *policy // nil for a tenant's tier
}

// A hit is an entry that was found, and its ID, which lies elsewhere. The zero hit is none.
type hit struct {
	*entry
	id *string
}

// long is the size of an entry whose name does not fit.
const long = 255

// newEntry returns the entry of an owner. It keeps no part of owner.
func newEntry(owner, route string, p *policy) entry {
	e := entry{route: route, policy: p}
	if len(owner) <= len(e.name) {
		e.size = uint8(copy(e.name[:], owner))
		return e
	}
	own := policy{}
	if p != nil {
		own = *p
	}
	own.owner = strings.Clone(owner)
	e.size, e.policy = long, &own
	return e
}

// of tells whether the entry is of that owner.
func (e *entry) of(owner string) bool {
	if e.size == long {
		return e.policy.owner == owner
	}
	return string(e.name[:e.size]) == owner
}

// owner returns the owner's name.
func (e *entry) owner() string {
	if e.size == long {
		return e.policy.owner
	}
	return string(e.name[:e.size])
}

func (e *entry) holds(clock func() time.Time) bool {
	return e.policy.expires == 0 || clock().UnixNano() < e.policy.expires
}

// fill makes r, the zero Rule, the one that was found. It shares the limits with the index, and leaves out whom it is for.
func (h hit) fill(r *Rule) {
	p := h.policy
	r.Route, r.ID = h.route, *h.id
	r.Limits, r.Shared, r.Cost, r.Mode, r.EnforcePercent = p.limits, p.shared, p.cost, p.mode, int(p.percent)
	if p.expires != 0 {
		r.Expires = time.Unix(0, p.expires).UTC()
	}
}
