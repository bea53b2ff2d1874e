package httplimit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"path"
	"strings"

	"github.com/sluicego/ratelimit"
)

// A KeyFunc says whose units a request spends. What it returns is a key of ratelimit: user input is made one by
// ratelimit.Key, or by the functions here, which all name the kind of what they return, so that an API key that looks
// like an address never meets that address. An empty key is ErrNoKey. Whoever can make up keys can make up buckets.
//
// Keys stand in the store as they are, readable to whoever reads the store; Hashed is for those that are secrets. A key
// of more than 1024 bytes is replaced by its hash.
type KeyFunc func(*http.Request) (string, error)

// ErrNoKey is a request that does not say who is calling. It is answered with 401 unless Options.OnError says otherwise.
var ErrNoKey = errors.New("httplimit: the request has no key")

// A missingHeader is ErrNoKey with the header field that would have had it.
type missingHeader string

func (h missingHeader) Error() string { return ErrNoKey.Error() + ": " + string(h) + " is missing" }
func (missingHeader) Unwrap() error   { return ErrNoKey }

// ByHeader is the value of a header field, such as X-Api-Key; without one it is ErrNoKey. It takes the value on trust:
// check it before the limiter, or join it with ByIP. It panics if name is no name of a header field.
func ByHeader(name string) KeyFunc {
	if !token(name) {
		panic("httplimit: ByHeader of what is no name of a header field")
	}
	name = http.CanonicalHeaderKey(name)
	var missing error = missingHeader(name)
	return func(r *http.Request) (string, error) {
		if v := r.Header[name]; len(v) > 0 && v[0] != "" {
			return kind(name, v[0]), nil
		}
		return "", missing
	}
}

// ByUser is what user finds in the request's context, where authentication further out has put it; "" is ErrNoKey.
func ByUser(user func(context.Context) string) KeyFunc {
	if user == nil {
		panic("httplimit: ByUser of nil")
	}
	return func(r *http.Request) (string, error) {
		if u := user(r.Context()); u != "" {
			return kind("user", u), nil
		}
		return "", ErrNoKey
	}
}

// ByPattern is the method and http.Request.Pattern, so that no spelling of a path has a bucket of its own. Requests of
// HEAD are requests of GET, and methods that are not of HTTP itself are one. The pattern is known where the limiter is
// inside the mux, round one handler; outside, the cleaned path stands for it, and any path has a bucket.
//
// On its own it is one bucket for all callers of a route; Join it with the caller's key.
func ByPattern(r *http.Request) (string, error) {
	if r.Pattern != "" {
		return RouteKey(r.Method, r.Pattern), nil
	}
	p := r.URL.Path
	if p == "" {
		p = "/"
	}
	return RouteKey(r.Method, path.Clean(p)), nil
}

// RouteKey is the key of a route as ByPattern makes it, for routers with patterns of their own. A pattern that begins
// with a method keeps that.
func RouteKey(method, pattern string) string {
	if i := strings.IndexByte(pattern, ' '); i > 0 && token(pattern[:i]) {
		return kind(route, pattern)
	}
	switch method {
	case http.MethodHead, "":
		method = http.MethodGet
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
		http.MethodConnect, http.MethodTrace:
	default:
		method = "*"
	}
	return kind(route, method+" "+pattern)
}

// route is the kind of keys that many callers share.
const route = "route"

// Join is the keys of all ks together, as the parts of ratelimit.Key: Join(ByIP(), ByPattern). The first is the hash tag
// in Redis, which must not be the same for everybody, so routes go last wherever they stand: what ByPattern or RouteKey
// made, known by its "route=". The first error is the result's.
func Join(ks ...KeyFunc) KeyFunc {
	noNil("Join", ks)
	return func(r *http.Request) (string, error) {
		var some [4]string
		parts, routes := some[:0], 0
		for _, k := range ks {
			part, err := k(r)
			if err != nil {
				return "", err
			}
			if part == "" {
				return "", ErrNoKey
			}
			if !isRoute(part) && routes > 0 { // before the routes
				at := len(parts) - routes
				parts = append(parts, "")
				copy(parts[at+1:], parts[at:])
				parts[at] = part
				continue
			}
			if isRoute(part) {
				routes++
			}
			parts = append(parts, part)
		}
		return ratelimit.Key(parts...), nil
	}
}

func isRoute(key string) bool {
	return strings.HasPrefix(key, route+"=") || strings.HasPrefix(key, route+"#")
}

// FirstOf is the key of the first of ks that has one: FirstOf(ByHeader("X-Api-Key"), ByIP()). Any error but ErrNoKey is
// the result's.
func FirstOf(ks ...KeyFunc) KeyFunc {
	noNil("FirstOf", ks)
	return func(r *http.Request) (string, error) {
		err := ErrNoKey
		for _, k := range ks {
			var key string
			if key, err = k(r); err == nil && key != "" {
				return key, nil
			}
			if err == nil {
				err = ErrNoKey
			}
			if !errors.Is(err, ErrNoKey) {
				break
			}
		}
		return "", err
	}
}

// Hashed is the SHA-256 of k's key, for keys that are secrets.
func Hashed(k KeyFunc) KeyFunc {
	noNil("Hashed", []KeyFunc{k})
	return func(r *http.Request) (string, error) {
		key, err := k(r)
		if err != nil || key == "" {
			return "", err
		}
		return "sha256#" + digest(key), nil
	}
}

func noNil(who string, ks []KeyFunc) {
	for _, k := range ks {
		if k == nil {
			panic("httplimit: " + who + " of nil")
		}
	}
}

const (
	maxValue = 128  // bytes of a value that stand in a key as they are
	maxKey   = 1024 // bytes of a whole key, which a KeyFunc of the user may have made of anything
)

// kind is a value with its kind, hashed if it is long. Kinds have no '=' or '#', and begin in lower case but for header
// fields, so two kinds never meet; and none begins with a brace, so a value cannot pass for a result of ratelimit.Key.
func kind(name, value string) string {
	if len(value) > maxValue {
		return name + "#" + digest(value)
	}
	return name + "=" + value
}

func bounded(key string) string {
	if len(key) > maxKey {
		return "sha256#" + digest(key)
	}
	return key
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// token tells whether s is a token of HTTP, as names of header fields and methods are.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
