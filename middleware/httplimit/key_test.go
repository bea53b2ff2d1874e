package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
)

func keyOf(t *testing.T, k httplimit.KeyFunc, r *http.Request) string {
	t.Helper()
	key, err := k(r)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func withHeader(name, value string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set(name, value)
	return r
}

type userKey struct{}

func byUser(ctx context.Context) string {
	u, _ := ctx.Value(userKey{}).(string)
	return u
}

func withUser(u string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	return r.WithContext(context.WithValue(r.Context(), userKey{}, u))
}

func TestKindsNeverMeet(t *testing.T) {
	t.Parallel()
	r := withUser("192.0.2.1")
	for _, name := range []string{"X-Api-Key", "X-Tenant", "Ip", "User", "Route"} {
		r.Header.Set(name, "192.0.2.1")
	}
	seen := map[string]bool{}
	for _, k := range []httplimit.KeyFunc{
		httplimit.ByIP(), httplimit.ByHeader("X-Api-Key"), httplimit.ByHeader("x-tenant"), httplimit.ByHeader("ip"),
		httplimit.ByHeader("user"), httplimit.ByHeader("route"), httplimit.ByUser(byUser), httplimit.ByPattern,
		httplimit.Hashed(httplimit.ByIP()), httplimit.Join(httplimit.ByIP(), httplimit.ByPattern),
	} {
		key := keyOf(t, k, r)
		if seen[key] {
			t.Errorf("%q twice", key)
		}
		seen[key] = true
	}
}

// TestR118Values: any bytes make a key of their own, of a bounded length.
func TestR118Values(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	values := []string{
		" ", "a b", "a\nb", "\x00", "\xff\xfe", "\u00e9", "e\u0301", "🙂", "%s", "*", "]]", "{a}:b", "a:b", "{", "}{", "%7B", long, long + "y",
		strings.Repeat("x", 128), strings.Repeat("x", 129),
	}
	for name, make := range map[string]func(k httplimit.KeyFunc) httplimit.KeyFunc{
		"alone":  func(k httplimit.KeyFunc) httplimit.KeyFunc { return k },
		"joined": func(k httplimit.KeyFunc) httplimit.KeyFunc { return httplimit.Join(k, httplimit.ByPattern) },
		"hashed": httplimit.Hashed,
	} {
		k, seen := make(httplimit.ByUser(byUser)), map[string]string{}
		for _, v := range values {
			key := string(ratelimit.AppendKey(nil, keyOf(t, k, withUser(v))))
			if len(key) > 450 {
				t.Errorf("%s: a value of %d bytes has a key of %d", name, len(v), len(key))
			}
			if other, ok := seen[key]; ok {
				t.Errorf("%s: %.20q and %.20q have one key", name, v, other)
			}
			seen[key] = v
		}
	}
	var got string
	l := ratelimit.LimiterFunc(func(_ context.Context, key string, _ int64) (ratelimit.Result, error) {
		got = key
		return ratelimit.Result{Allowed: true}, nil
	})
	ask(l, httplimit.Options{Key: func(*http.Request) (string, error) { return long, nil }})
	if len(got) > 128 || got == "" {
		t.Errorf("a key of one's own of %d bytes stays one of %d", len(long), len(got))
	}
}

func TestMissingKeys(t *testing.T) {
	t.Parallel()
	empty := func(*http.Request) (string, error) { return "", nil }
	own := errors.New("directory away")
	for name, c := range map[string]struct {
		key       httplimit.KeyFunc
		onError   func(http.ResponseWriter, *http.Request, error) bool
		status    int
		challenge string
	}{
		"header":        {httplimit.ByHeader("X-Api-Key"), nil, 401, `ApiKey header="X-Api-Key"`},
		"authorization": {httplimit.ByHeader("authorization"), nil, 401, "Bearer"},
		"user":          {httplimit.ByUser(byUser), nil, 401, "ApiKey"},
		"joined":        {httplimit.Join(httplimit.ByPattern, httplimit.ByHeader("A")), nil, 401, `ApiKey header="A"`},
		"first of":      {httplimit.FirstOf(httplimit.ByHeader("A"), empty), nil, 401, "ApiKey"},
		"first of none": {httplimit.FirstOf(), nil, 401, "ApiKey"},
		"join of none":  {httplimit.Join(), nil, 401, "ApiKey"},
		"hashed":        {httplimit.Hashed(empty), nil, 401, "ApiKey"},
		"empty":         {empty, nil, 401, "ApiKey"},
		"joined empty":  {httplimit.Join(empty), nil, 401, "ApiKey"},
		"fail open":     {empty, httplimit.FailOpen, 401, "ApiKey"}, // an outage is something else
		"own challenge": {empty, func(w http.ResponseWriter, _ *http.Request, _ error) bool {
			w.Header().Set("WWW-Authenticate", "Basic")
			return false
		}, 401, "Basic"},
		"own error": {func(*http.Request) (string, error) { return "", own }, func(_ http.ResponseWriter, _ *http.Request, err error) bool {
			return err == own
		}, 200, ""},
	} {
		l := ratelimit.LimiterFunc(func(context.Context, string, int64) (ratelimit.Result, error) {
			t.Errorf("%s: the limiter was asked", name)
			return ratelimit.Result{}, nil
		})
		res := ask(l, httplimit.Options{Key: c.key, OnError: c.onError})
		want(t, res, c.status, "WWW-Authenticate", c.challenge, "Retry-After", "")
	}
}

func TestFirstOf(t *testing.T) {
	t.Parallel()
	k := httplimit.FirstOf(httplimit.ByHeader("X-Api-Key"), httplimit.ByIP())
	if got := keyOf(t, k, withHeader("X-Api-Key", "abc")); got != "X-Api-Key=abc" {
		t.Errorf("key %q", got)
	}
	if got := keyOf(t, k, withHeader("X-Api-Key", "")); got != "ip=192.0.2.1" {
		t.Errorf("key %q", got)
	}
	own := errors.New("own")
	_, err := httplimit.FirstOf(func(*http.Request) (string, error) { return "", own }, httplimit.ByIP())(withUser(""))
	if err != own {
		t.Errorf("error %v", err)
	}
}

// TestR110Spellings: whatever reaches one handler spends from one bucket.
func TestR110Spellings(t *testing.T) {
	t.Parallel()
	var key string
	mux := http.NewServeMux()
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { key, _ = httplimit.ByPattern(r) })
	mux.Handle("/users/", handler)
	mux.Handle("GET /items/{id}", handler)
	mux.Handle("example.com/hosted", handler)
	for _, c := range []struct{ method, target, key string }{
		{"POST", "/users/validate", "route=POST /users/"},
		{"POST", "/users/%76alidate", "route=POST /users/"},
		{"POST", "/users/a/", "route=POST /users/"},
		{"POST", "/users/A;p=1", "route=POST /users/"},
		{"POST", "http://example.com/users/x", "route=POST /users/"},
		{"FOO", "/users/x", "route=* /users/"},
		{"BAR", "/users/x", "route=* /users/"}, // no bucket for each method that one can think of
		{"GET", "/items/1", "route=GET /items/{id}"},
		{"HEAD", "/items/2", "route=GET /items/{id}"}, // R112
		{"HEAD", "/users/1", "route=GET /users/"},
		{"GET", "/hosted", "route=GET example.com/hosted"},
	} {
		key = "not reached"
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(c.method, c.target, nil))
		if key != c.key {
			t.Errorf("%s %s: key %q, want %q", c.method, c.target, key, c.key)
		}
	}
	for target, want := range map[string]string{ // outside the mux
		"/a//b": "route=GET /a/b", "/a/./b": "route=GET /a/b", "/a/x/../b": "route=GET /a/b", "/a/b/": "route=GET /a/b",
		"/%61/b": "route=GET /a/b", "http://example.com": "route=GET /",
	} {
		if got := keyOf(t, httplimit.ByPattern, httptest.NewRequest("GET", target, nil)); got != want {
			t.Errorf("%s: key %q, want %q", target, got, want)
		}
	}
	star := httptest.NewRequest("OPTIONS", "*", nil)
	if got := keyOf(t, httplimit.ByPattern, star); got != "route=OPTIONS *" {
		t.Errorf("key %q", got)
	}
}

// TestClientIsTheHashTag: ten thousand users of one route are spread over a Cluster's slots, wherever the route stands.
func TestClientIsTheHashTag(t *testing.T) {
	t.Parallel()
	byRoute, user := httplimit.ByPattern, httplimit.ByUser(byUser)
	for name, k := range map[string]httplimit.KeyFunc{
		"last": httplimit.Join(user, byRoute), "first": httplimit.Join(byRoute, user), "alone": user,
		"between": httplimit.Join(byRoute, user, byRoute), "two": httplimit.Join(byRoute, httplimit.ByIP(), user),
	} {
		slots := map[uint16]bool{}
		for i := range 10_000 {
			r := withUser("user-" + strconv.Itoa(i))
			r.RemoteAddr = "10.0." + strconv.Itoa(i/256) + "." + strconv.Itoa(i%256) + ":1"
			stored := "rl:" + string(ratelimit.AppendKey(nil, keyOf(t, k, r)))
			_, tag, _ := strings.Cut(stored, "{")
			tag, _, _ = strings.Cut(tag, "}")
			slots[crc16(tag)%16384] = true
		}
		if len(slots) < 5000 {
			t.Errorf("%s: 10,000 users on %d slots", name, len(slots))
		}
	}
	r := withUser("u")
	r.Header.Set("A", "a")
	want := "{user=u}:A=a:route=GET /"
	for _, k := range []httplimit.KeyFunc{
		httplimit.Join(user, httplimit.ByHeader("A"), byRoute), httplimit.Join(user, byRoute, httplimit.ByHeader("A")),
		httplimit.Join(byRoute, user, httplimit.ByHeader("A")),
	} {
		if got := keyOf(t, k, r); got != want {
			t.Errorf("key %q, want %q", got, want)
		}
	}
}

// crc16 is Redis Cluster's: XMODEM.
func crc16(s string) (crc uint16) {
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			if crc <<= 1; carry {
				crc ^= 0x1021
			}
		}
	}
	return crc
}

// TestR112Head: GET and HEAD spend from one bucket, once.
func TestR112Head(t *testing.T) {
	t.Parallel()
	b := newBed(t, httplimit.Options{Key: httplimit.Join(httplimit.ByIP(), httplimit.ByPattern)}, ratelimit.PerMinute(5))
	for _, m := range []string{"GET", "HEAD", "GET", "HEAD", "GET"} {
		want(t, b.send(m), 200)
	}
	res := b.send("HEAD")
	want(t, res, 429, "X-RateLimit-Remaining", "0", "Retry-After", "12", "Content-Type", "application/problem+json")
	if body := text(t, res); body != "" {
		t.Errorf("HEAD has the body %q", body)
	}
}

// TestR113Preflight: a browser's questions are not counted, other OPTIONS are, and CORS middleware outside has its say
// about a denial.
func TestR113Preflight(t *testing.T) {
	t.Parallel()
	b := newBed(t, httplimit.Options{}, ratelimit.PerMinute(5))
	limited := b.handler
	b.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		limited.ServeHTTP(w, r)
	})
	for range 5 {
		want(t, b.send("OPTIONS", "Origin: https://example.com", "Access-Control-Request-Method: GET"), 200, "X-RateLimit-Limit", "")
		want(t, b.get("Origin: https://example.com"), 200)
	}
	want(t, b.send("OPTIONS"), 429, "Access-Control-Allow-Origin", "*")
	want(t, b.send("OPTIONS", "Origin: https://example.com"), 429)
	want(t, b.send("GET", "Origin: https://example.com", "Access-Control-Request-Method: GET"), 429)
}
