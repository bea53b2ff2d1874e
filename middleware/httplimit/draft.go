package httplimit

import (
	"math/bits"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluicego/ratelimit"
)

// This file is all there is of draft-ietf-httpapi-ratelimit-headers-11, which still moves:
//
//	RateLimit-Policy: "burst";q=100;w=60, "day";q=1000;w=86400
//	RateLimit: "burst";r=50;t=30
//
// q is the capacity and w the time in which that much comes back, so that q over w is the rate: for a token bucket
// Burst × Period / Rate, for a window its Period; rounded up.
//
// r is what remains and t the time until the key is as if unused, as in the other dialect; or r × w / q, if that is
// more, so that who spreads r over t never sends faster than q over w. t is never more than w. In a denial t is
// Retry-After, as the draft wants, and r is lowered where it would be too much for that time.

// maxInteger is the largest integer of a structured field.
const maxInteger = 999_999_999_999_999

// A policy is a limit in the words of the draft.
type policy struct {
	limit ratelimit.Limit
	q, w  int64
}

// policies are those of some limits, and their field's value.
type policies struct {
	limits []ratelimit.Limit
	list   []policy
	text   string
}

// A policyCache keeps the policies last used: most limiters have the same limits for every key.
type policyCache struct {
	fixed bool // the limits are those of a StoreLimiter, which never change
	last  atomic.Pointer[policies]
}

func (c *policyCache) init(limiter ratelimit.Limiter) {
	if l, ok := limiter.(*ratelimit.StoreLimiter); ok {
		c.fixed = true
		c.last.Store(newPolicies(l.LimitsFor("")))
	}
}

// of returns the policies for key, or nil where the limiter cannot tell.
func (c *policyCache) of(limiter ratelimit.Limiter, key string) *policies {
	if c.fixed {
		return c.last.Load()
	}
	d, ok := limiter.(ratelimit.Describer)
	if !ok {
		return nil
	}
	limits := d.LimitsFor(key)
	p := c.last.Load()
	if p == nil || !slices.Equal(p.limits, limits) {
		p = newPolicies(limits)
		c.last.Store(p)
	}
	return p
}

func newPolicies(limits []ratelimit.Limit) *policies {
	p := &policies{limits: limits}
	var b []byte
	for _, l := range limits {
		if l.Validate() != nil {
			continue
		}
		one := newPolicy(l)
		p.list = append(p.list, one)
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		b = appendItem(b, l.Name, 'q', one.q, 'w', one.w)
	}
	p.text = string(b)
	return p
}

func newPolicy(l ratelimit.Limit) policy {
	p := policy{limit: l, q: l.Capacity(), w: maxInteger}
	period, second := uint64(l.Period), uint64(l.Rate)*uint64(time.Second) // below 2^63 both
	if l.Algorithm != ratelimit.TokenBucket {
		p.w = int64((period-1)/uint64(time.Second) + 1)
		return p
	}
	hi, lo := bits.Mul64(uint64(p.q), period)
	if hi < second {
		w, rest := bits.Div64(hi, lo, second)
		if rest > 0 {
			w++
		}
		p.w = int64(min(w, maxInteger))
	}
	if p.w == maxInteger { // q would be more than comes back in that time
		hi, lo = bits.Mul64(maxInteger, second)
		q, _ := bits.Div64(hi, lo, period)
		p.q = min(p.q, int64(min(q, maxInteger)))
	}
	return p
}

// find returns the policy under which res was decided, or nil.
func (p *policies) find(res *ratelimit.Result) (found *policy) {
	if p == nil {
		return nil
	}
	for i := range p.list {
		if one := &p.list[i]; one.limit.Name == res.Name && (found == nil || one.limit.Capacity() == res.Limit) {
			found = one
		}
	}
	return found
}

// draft appends to b the values of the draft's fields, where they are tighter than what h has.
func draft(h http.Header, f *fields, b []byte, res *ratelimit.Result, p *policies) []byte {
	if p != nil && p.text != "" {
		if old := h[policyField]; len(old) > 0 {
			f.whole(b, policyField, mergeLists(strings.Join(old, ", "), p.text))
		} else {
			f.whole(b, policyField, p.text)
		}
	}
	if !counted(res) {
		return b
	}
	r, t := standing(res, p.find(res))
	if old := h[standingField]; len(old) > 0 {
		if left, ok := remaining(old[0]); ok && left <= r {
			return b
		}
	}
	return f.end(appendItem(b, res.Name, 'r', r, 't', t), standingField)
}

// standing is r and t of the RateLimit field.
func standing(res *ratelimit.Result, p *policy) (r, t int64) {
	r, t = min(max(0, res.Remaining), maxInteger), min(seconds(res.ResetAfter), maxInteger)
	if !res.Allowed {
		t = min(retrySeconds(res), maxInteger)
	}
	if p == nil {
		return r, t
	}
	t, r = min(t, p.w), min(r, p.q)
	if !res.Allowed {
		hi, lo := bits.Mul64(uint64(t), uint64(p.q))
		most, _ := bits.Div64(hi, lo, uint64(p.w))
		return min(r, int64(most)), t
	}
	hi, lo := bits.Mul64(uint64(r), uint64(p.w))
	least, rest := bits.Div64(hi, lo, uint64(p.q))
	if rest > 0 {
		least++
	}
	return r, max(t, int64(least))
}

// appendItem appends a string item with two parameters.
func appendItem(b []byte, name string, k1 byte, v1 int64, k2 byte, v2 int64) []byte {
	b = append(b, '"')
	b = appendName(b, name)
	b = append(b, '"', ';', k1, '=')
	b = strconv.AppendInt(b, v1, 10)
	b = append(b, ';', k2, '=')
	return strconv.AppendInt(b, v2, 10)
}

// appendName appends the name of a limit as clients see it, which needs no quoting anywhere.
func appendName(b []byte, name string) []byte {
	if name == "" {
		return append(b, "default"...)
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '.', c == '-':
		default: // no Limit is called so, but a Limiter may say what it likes
			c = '_'
		}
		b = append(b, c)
	}
	return b
}

// mergeLists returns the items of a and those of b that a has not.
func mergeLists(a, b string) string {
	for item := range strings.SplitSeq(b, ", ") {
		if !slices.Contains(strings.Split(a, ", "), item) {
			a += ", " + item
		}
	}
	return a
}

// remaining reads r of a RateLimit field that appendItem wrote.
func remaining(field string) (r int64, ok bool) {
	_, field, ok = strings.Cut(field, ";r=")
	field, _, _ = strings.Cut(field, ";")
	r, err := strconv.ParseInt(field, 10, 64)
	return r, ok && err == nil
}
