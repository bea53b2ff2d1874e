package ginlimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/ginlimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
)

// keyOf is the key that a request gets from router, where its limiters' Key is k.
func keyOf(t *testing.T, router *gin.Engine, k httplimit.KeyFunc) func(r *http.Request) string {
	var got string
	router.Use(ginlimit.New(bucket(t, 1e6), ginlimit.Options{Key: func(r *http.Request) (key string, err error) {
		got, err = k(r)
		return got, err
	}}))
	return func(r *http.Request) string {
		got = ""
		router.ServeHTTP(httptest.NewRecorder(), r)
		return got
	}
}

// TestR110FullPath: whatever reaches one route spends from one bucket, and what reaches none from another.
func TestR110FullPath(t *testing.T) {
	t.Parallel()
	router := gin.New()
	key := keyOf(t, router, ginlimit.ByFullPath)
	group := router.Group("/v1")
	group.GET("/users/:id", func(*gin.Context) {})
	group.GET("/files/*rest", func(*gin.Context) {})
	for path, want := range map[string]string{
		"/v1/users/1":        "route=GET /v1/users/:id",
		"/v1/users/%31?a=b":  "route=GET /v1/users/:id",
		"/v1/files/a/../b":   "route=GET /v1/files/*rest",
		"/v1/files/":         "route=GET /v1/files/*rest",
		"/none":              "route=GET unmatched",
		"/none/at/all":       "route=GET unmatched",
		"/v1/users/1/././no": "route=GET unmatched",
	} {
		if got := key(httptest.NewRequest("GET", path, nil)); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if got, err := ginlimit.ByFullPath(httptest.NewRequest("GET", "/a/../b", nil)); got != "route=GET /b" || err != nil {
		t.Errorf("outside of gin: %q, %v", got, err)
	}
}

// TestR106ClientIP: gin's trusted proxies decide for ByClientIP, and for nothing else.
func TestR106ClientIP(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		trusted []string // nil: gin's default, everybody
		peer    string
		forward string
		client  string // of ByClientIP
		peers   string // of the default Key
	}{
		{"everybody trusted", nil, "192.0.2.1:80", "203.0.113.9", "ip=203.0.113.9", "ip=192.0.2.1"},
		{"nobody trusted", []string{}, "192.0.2.1:80", "203.0.113.9", "ip=192.0.2.1", "ip=192.0.2.1"},
		{"proxy", []string{"192.0.2.0/24"}, "192.0.2.1:80", "203.0.113.9, 192.0.2.7", "ip=203.0.113.9", "ip=192.0.2.1"},
		{"IPv6 is a /64", []string{"192.0.2.0/24"}, "192.0.2.1:80", "2001:db8:1:2:3::4", "ip=2001:db8:1:2::/64", "ip=192.0.2.1"},
		{"no address", []string{"192.0.2.0/24"}, "192.0.2.1:80", "you", "ip=192.0.2.1", "ip=192.0.2.1"},
		{"no peer", nil, "@", "", "ip=unix", "ip=unix"},
	} {
		for want, k := range map[string]httplimit.KeyFunc{c.client: ginlimit.ByClientIP(), c.peers: httplimit.ByIP()} {
			router := gin.New()
			if c.trusted != nil {
				if err := router.SetTrustedProxies(c.trusted); err != nil {
					t.Fatal(err)
				}
			}
			key := keyOf(t, router, k)
			r := httptest.NewRequest("GET", "/", nil)
			r.RemoteAddr = c.peer
			if c.forward != "" {
				r.Header.Set("X-Forwarded-For", c.forward)
			}
			if got := key(r); got != want {
				t.Errorf("%s: %q, want %q", c.name, got, want)
			}
		}
	}
	router := gin.New()
	router.TrustedPlatform = gin.PlatformCloudflare
	key := keyOf(t, router, ginlimit.ByClientIP(httplimit.IPv6Prefix(48)))
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("CF-Connecting-IP", "2001:db8:1:2::3")
	if got := key(r); got != "ip=2001:db8:1::/48" {
		t.Errorf("by the platform: %q", got)
	}
}

// TestDefaultKey: without a Key nobody chooses his bucket, though gin believes everybody.
func TestDefaultKey(t *testing.T) {
	t.Parallel()
	router := gin.New()
	router.Use(ginlimit.New(bucket(t, 1), ginlimit.Options{}))
	send(router, "GET", "/", "X-Forwarded-For: 203.0.113.1")
	if w := send(router, "GET", "/", "X-Forwarded-For: 203.0.113.2"); w.Code != 429 {
		t.Errorf("%d, want 429", w.Code)
	}
}

// TestContext: what other middleware has found out is there for a Key.
func TestContext(t *testing.T) {
	t.Parallel()
	var limiter ratelimit.Limiter = bucket(t, 1)
	router := gin.New()
	router.Use(func(c *gin.Context) { c.Set("user", c.Query("user")) })
	router.Use(ginlimit.New(limiter, ginlimit.Options{
		Key: httplimit.ByUser(func(ctx context.Context) string { return ginlimit.Context(ctx).GetString("user") }),
	}))
	router.GET("/", func(c *gin.Context) {
		if ginlimit.Context(c.Request.Context()) != nil {
			t.Error("the gin.Context is in the context of the handler's request")
		}
	})
	for path, want := range map[string]int{"/?user=a": 200, "/?user=b": 200, "/": 401} {
		if w := send(router, "GET", path); w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
	if w := send(router, "GET", "/?user=a"); w.Code != 429 {
		t.Errorf("again: %d, want 429", w.Code)
	}
}
