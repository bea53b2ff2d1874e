package rules

import (
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
)

// A builder takes what a source tells, all rules or what changed since, and makes the next snapshot of it.
type builder struct {
	old  *snapshot
	full bool // all rules and tiers are told, and what is not told is gone

	owners   map[owner]int32
	names    []owner
	records  [][]record
	count    int // of rules told, bad ones too
	tiers    map[string]string
	gone     map[place]bool
	bad      map[place]*RuleError
	lost     []*RuleError // bad, and of no place that is known
	policies map[string]*policy
	texts    map[string]string
	scratch  []byte
}

// A record is a rule on its way into a snapshot.
type record struct {
	entry
	owner int32 // in names
}

// Records are kept in pieces of so many: growing one slice to a million would copy it over and over.
const (
	firstChunk  = 16
	recordChunk = 4096
)

func newBuilder(old *snapshot) *builder {
	return &builder{
		old: old, owners: map[owner]int32{}, tiers: map[string]string{}, gone: map[place]bool{}, bad: map[place]*RuleError{},
		policies: map[string]*policy{}, texts: map[string]string{},
	}
}

// put takes a rule, which may be bad.
func (b *builder) put(r Rule) {
	b.count++
	if r.ID == "" {
		r.ID = fmt.Sprintf("#%d", b.count)
	}
	if err := r.check(); err != nil {
		b.refuse(place{owner{r.Tenant, r.Tier}, r.Route}, err)
		return
	}
	b.scratch = appendPolicy(b.scratch[:0], &r)
	p := b.policies[string(b.scratch)]
	if p == nil {
		p = newPolicy(&r)
		b.policies[string(b.scratch)] = p
	}
	b.add(owner{r.Tenant, r.Tier}, entry{route: b.text(r.Route), id: r.ID, policy: p, expires: expiry(r.Expires)})
}

// add takes a rule that was checked.
func (b *builder) add(o owner, e entry) { b.record(record{e, b.own(o)}) }

// own returns the place of an owner in names.
func (b *builder) own(o owner) int32 {
	at, ok := b.owners[o]
	if !ok {
		o = owner{strings.Clone(o.tenant), b.text(o.tier)}
		at = int32(len(b.names))
		b.names = append(b.names, o)
		b.owners[o] = at
	}
	return at
}

func (b *builder) record(r record) {
	n := len(b.records)
	if n == 0 || len(b.records[n-1]) == cap(b.records[n-1]) {
		size := recordChunk
		if n == 0 {
			size = firstChunk
		}
		b.records = append(b.records, make([]record, 0, size))
		n++
	}
	b.records[n-1] = append(b.records[n-1], r)
}

// refuse takes a rule that is bad.
func (b *builder) refuse(p place, err *RuleError) {
	p = place{owner{strings.Clone(p.tenant), strings.Clone(p.tier)}, strings.Clone(p.route)}
	if p.tier != "" && p.tenant != Any || b.bad[p] != nil {
		b.lost = append(b.lost, err)
		return
	}
	b.bad[p] = err
}

// tier takes a tenant's tier; "" is none.
func (b *builder) tier(tenant, tier string) {
	b.tiers[strings.Clone(tenant)] = b.text(tier)
}

// drop takes a rule that is gone, unless it is put too.
func (b *builder) drop(p place) { b.gone[p] = true }

// text returns s, the same string each time: there are few routes, tiers and names, and many rules.
func (b *builder) text(s string) string {
	if t, ok := b.texts[s]; ok {
		return t
	}
	s = strings.Clone(s)
	b.texts[s] = s
	return s
}

var errTwice = errors.New("another rule is for the same tenant, route and tier")

// finish returns the next snapshot and the rules that were skipped now, and not already before for the same reason.
func (b *builder) finish() (*snapshot, []*RuleError) {
	s := b.base()
	reports := b.lost
	if b.full {
		b.keepOld()
	}
	for p, err := range b.bad {
		s.skipped[p] = err.Error()
		if b.old.skipped[p] != err.Error() {
			reports = append(reports, err)
		}
	}
	groups := b.groups()
	for at, o := range b.names {
		twice := func(e *entry) {
			p := place{o, e.route}
			err := &RuleError{ID: e.id, Err: errTwice}
			if s.skipped[p] = err.Error(); b.old.skipped[p] != s.skipped[p] {
				reports = append(reports, err)
			}
		}
		b.settle(s, o, groups[at], twice)
	}
	for name, tier := range b.tiers {
		b.settleTier(s, name, tier)
	}
	slices.SortFunc(reports, func(x, y *RuleError) int { return strings.Compare(x.ID, y.ID) })
	return s, reports
}

// base is the snapshot that what was told goes into: an empty one, or a copy of the old that shares the tenants.
func (b *builder) base() *snapshot {
	if b.full {
		s := &snapshot{seed: maphash.MakeSeed(), tiers: map[string]*list{}, all: &list{}, skipped: map[place]string{}}
		s.grow(len(b.names))
		return s
	}
	s := *b.old
	s.borrowed = true
	s.tiers, s.skipped = maps.Clone(s.tiers), maps.Clone(s.skipped)
	for p := range b.gone {
		delete(s.skipped, p)
		b.own(p.owner) // so that it is looked at, though no rule of it may have been told
	}
	return &s
}

// keepOld keeps the last good versions of rules that are bad now, unless good ones are told as well.
func (b *builder) keepOld() {
	if len(b.bad) == 0 {
		return
	}
	told := map[place]bool{}
	for _, chunk := range b.records {
		for i := range chunk {
			p := place{b.names[chunk[i].owner], chunk[i].route}
			if b.bad[p] != nil {
				told[p] = true
			}
		}
	}
	for p := range b.bad {
		if l := b.old.list(p.owner); l != nil && !told[p] {
			if e := l.exact(p.route); e != nil {
				b.add(p.owner, *e)
			}
		}
	}
}

// groups returns the entries of each of names. All lie in one piece of memory.
func (b *builder) groups() [][]entry {
	counts := make([]int, len(b.names))
	total := 0
	for _, chunk := range b.records {
		for i := range chunk {
			counts[chunk[i].owner]++
		}
		total += len(chunk)
	}
	slab := make([]entry, total)
	groups := make([][]entry, len(b.names))
	for i, n := range counts {
		groups[i], slab = slab[:0:n], slab[n:]
	}
	for at, chunk := range b.records {
		for i := range chunk {
			g := &groups[chunk[i].owner]
			*g = append(*g, chunk[i].entry)
		}
		b.records[at] = nil
	}
	return groups
}

// settle puts the rules that were told of one owner into s.
func (b *builder) settle(s *snapshot, o owner, entries []entry, twice func(*entry)) {
	old := s.list(o)
	if old == nil {
		old = &list{}
	}
	l := newList(entries, twice)
	if !b.full {
		for i := range l.entries {
			p := place{o, l.entries[i].route}
			if _, bad := b.bad[p]; !bad {
				delete(s.skipped, p)
			}
		}
		l = b.merge(o, old, l)
		if slices.EqualFunc(l.entries, old.entries, func(x, y entry) bool { return x.equal(&y) }) {
			return
		}
	}
	s.rules += len(l.entries) - len(old.entries)
	switch {
	case o.tier != "":
		s.tiers[o.tier] = &l
	case o.tenant == Any:
		s.all = &l
	default:
		t := &tenant{name: o.tenant, list: l}
		if known := s.tenant(o.tenant); known != nil {
			t.name, t.tier = known.name, known.tier
		}
		s.put(t)
	}
}

// merge is an owner's old rules without those that are gone, and with those that were told.
func (b *builder) merge(o owner, old *list, told list) list {
	entries := slices.Clone(told.entries)
	for _, e := range old.entries {
		if told.exact(e.route) == nil && !b.gone[place{o, e.route}] {
			entries = append(entries, e)
		}
	}
	return newList(slices.Clip(entries), func(*entry) {})
}

func (b *builder) settleTier(s *snapshot, name, tier string) {
	known := s.tenant(name)
	switch {
	case known == nil && tier == "":
	case known == nil:
		s.put(&tenant{name: name, tier: tier})
	case known.tier != tier:
		t := *known
		t.tier = tier
		s.put(&t)
	}
}
