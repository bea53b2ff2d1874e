package httplimit

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// asked is how long the server that sent res wants to be left alone, and whether it has refused the request; ok tells
// whether it said so. Retry-After goes before RateLimit, and counts only where a request is refused.
func asked(res *http.Response) (wait time.Duration, refused, ok bool) {
	refused = res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusServiceUnavailable
	if v := res.Header.Get(retryField); refused && v != "" {
		now := time.Now()
		if date, err := http.ParseTime(res.Header.Get("Date")); err == nil {
			now = date // by the server's own clock
		}
		if wait, ok = parseRetryAfter(v, now); ok {
			return wait, true, true
		}
	}
	if age := res.Header.Get("Age"); age != "" && age != "0" {
		return 0, refused, false // out of a cache, and no longer so
	}
	wait, ok = parseRateLimit(strings.Join(res.Header.Values(standingField), ","))
	return wait, refused, ok
}

// maxAsked bounds what a server can ask for; no caller waits that long, but the sum with a time must not overflow.
const maxAsked = 100 * 365 * 24 * time.Hour

// parseRetryAfter reads a number of seconds or a date.
func parseRetryAfter(v string, now time.Time) (wait time.Duration, ok bool) {
	if n, ok := parseDigits(v); ok {
		return n, true
	}
	date, err := http.ParseTime(v)
	if err != nil {
		return 0, false
	}
	return min(max(0, date.Sub(now)), maxAsked), true
}

// parseDigits reads whole seconds without a sign.
func parseDigits(v string) (time.Duration, bool) {
	if v == "" || !digits(v) {
		return 0, false
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n > int64(maxAsked/time.Second) {
		return maxAsked, true // too many digits are many seconds
	}
	return time.Duration(n) * time.Second, true
}

// parseRateLimit returns the longest t of the items that have nothing left. A field that is not as the draft has it is
// ignored as a whole, as the draft wants.
func parseRateLimit(field string) (wait time.Duration, ok bool) {
	for more := true; more; {
		var item string
		item, field, more = cutQuoted(field, ',')
		name, params, _ := cutQuoted(trimBlanks(item), ';')
		if len(name) < 2 || name[0] != '"' || name[len(name)-1] != '"' {
			return 0, false
		}
		left, window := time.Duration(-1), time.Duration(-1)
		for others := params != ""; others; {
			var param string
			param, params, others = cutQuoted(params, ';')
			k, v, _ := strings.Cut(strings.TrimLeft(param, " "), "=")
			n, number := parseDigits(v)
			switch {
			case k != "r" && k != "t":
			case !number:
				return 0, false
			case k == "r":
				left = n
			default:
				window = n
			}
		}
		if left < 0 {
			return 0, false
		}
		if left == 0 && window >= 0 {
			wait, ok = max(wait, window), true
		}
	}
	return wait, ok
}

// cutQuoted is strings.Cut at the first sep that is not within a quoted string.
func cutQuoted(s string, sep byte) (before, after string, found bool) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == sep && !quoted:
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}
