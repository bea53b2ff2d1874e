package httplimit

import (
	"net/http"
	"strconv"
	"time"

	"github.com/sluicego/ratelimit"
)

// Headers are the dialects in which a response tells the client where it stands; they may be combined with |.
type Headers uint8

const (
	// HeadersLegacy are X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset.
	HeadersLegacy Headers = 1 << iota
	// HeadersDraft are RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11.
	HeadersDraft
	// HeadersNone is none of them.
	HeadersNone
)

// ResetFormat is what X-RateLimit-Reset holds.
type ResetFormat uint8

const (
	// ResetUnix is the Unix time in whole seconds, rounded up, when the key is as if unused. Most clients read that.
	ResetUnix ResetFormat = iota
	// ResetDelta is the seconds until then, rounded up.
	ResetDelta
)

// Names of header fields in the form that http.Header keeps them.
const (
	limitField     = "X-Ratelimit-Limit"
	remainingField = "X-Ratelimit-Remaining"
	resetField     = "X-Ratelimit-Reset"
	policyField    = "Ratelimit-Policy"
	standingField  = "Ratelimit"
	retryField     = "Retry-After"
)

// SetHeaders sets the header fields that tell of d, and none if it is skipped or an error. Of several decisions about
// one response the tightest stands: a denial, or else the least that remains.
//
// A decision that counted nothing tells no remainder: one without a store, or about a cost that can never fit. A denial
// has Retry-After, unless waiting does not help.
func (g *Guard) SetHeaders(h http.Header, d Decision) {
	if d.Skipped || d.Err != nil {
		return
	}
	var room [224]byte
	var f fields
	b, res := room[:0], &d.Result
	if !res.Allowed { // what others have left is no room for this request
		delete(h, remainingField)
		delete(h, resetField)
		delete(h, standingField)
	}
	if g.options.Headers&HeadersLegacy != 0 {
		b = g.legacy(h, &f, b, res)
	}
	if g.options.Headers&HeadersDraft != 0 {
		b = draft(h, &f, b, res, g.policies.of(g.limiter, d.Key))
	}
	if !res.Allowed {
		if res.RetryAfter == ratelimit.Never {
			delete(h, retryField)
		} else {
			b = f.add(b, retryField, retrySeconds(res))
		}
	}
	f.set(h, b)
}

// legacy appends to b the values of the fields of HeadersLegacy, where they are tighter than what h has.
func (g *Guard) legacy(h http.Header, f *fields, b []byte, res *ratelimit.Result) []byte {
	counted := counted(res)
	if old := h[remainingField]; len(old) > 0 {
		left, err := strconv.ParseInt(old[0], 10, 64)
		if !counted || err == nil && left <= res.Remaining {
			return b
		}
	}
	if res.Limit > 0 {
		b = f.add(b, limitField, res.Limit)
	}
	if !counted {
		return b
	}
	b = f.add(b, remainingField, max(0, res.Remaining))
	reset := seconds(res.ResetAfter)
	if g.options.ResetFormat == ResetUnix {
		at := g.options.Clock().Add(max(0, res.ResetAfter))
		reset = at.Unix()
		if at.Nanosecond() > 0 {
			reset++
		}
	}
	return f.add(b, resetField, max(0, reset))
}

// counted tells whether res knows what remains. Limit is 0 where none holds.
func counted(res *ratelimit.Result) bool {
	return res.Limit > 0 && res.Source != ratelimit.SourceFailOpen && res.Source != ratelimit.SourceFailClosed && res.RetryAfter != ratelimit.Never
}

// retrySeconds is the Retry-After of a denial. 0 would send the client straight back.
func retrySeconds(res *ratelimit.Result) int64 { return max(1, seconds(res.RetryAfter)) }

// seconds is d in whole seconds, rounded up, and at least 0.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// fields are header fields in the making. Their values share one string, and the slices that hold them one array, for
// this runs at every request. The buffer goes from hand to hand, or else it would not stay on the stack.
type fields struct {
	n      int
	names  [6]string
	values [6]string // those that are whole already; else what the buffer has up to end
	ends   [6]int
}

func (f *fields) add(b []byte, name string, v int64) []byte {
	return f.end(strconv.AppendInt(b, v, 10), name)
}

// end makes a field of what was appended to b since the last.
func (f *fields) end(b []byte, name string) []byte {
	f.names[f.n], f.ends[f.n] = name, len(b)
	f.n++
	return b
}

// whole makes a field of a value that is there already.
func (f *fields) whole(b []byte, name, value string) {
	f.values[f.n] = value
	f.end(b, name)
}

func (f *fields) set(h http.Header, b []byte) {
	if f.n == 0 {
		return
	}
	all, values, start := string(b), make([]string, f.n), 0
	for i := range f.n {
		if values[i] = f.values[i]; values[i] == "" {
			values[i] = all[start:f.ends[i]]
		}
		start = f.ends[i]
		h[f.names[i]] = values[i : i+1 : i+1]
	}
}
