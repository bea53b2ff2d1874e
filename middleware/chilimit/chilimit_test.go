package chilimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/chilimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// A tap is middleware at some place of a router that notes the key there.
type tap struct {
	t    *testing.T
	key  httplimit.KeyFunc
	keys []string // "place key", in the order in which a request came by
}

func (p *tap) at(place string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key, err := p.key(r)
			if err != nil {
				p.t.Error(err)
			}
			p.keys = append(p.keys, place+" "+key)
			next.ServeHTTP(w, r)
		})
	}
}

func (p *tap) get(h http.Handler, method, path string) []string {
	p.keys = nil
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, nil))
	return p.keys
}

func newTap(t *testing.T) *tap { return &tap{t: t, key: chilimit.ByRoutePattern()} }

func ok(http.ResponseWriter, *http.Request) {}

// A wrapped router is one that is no *chi.Mux.
type wrapped struct{ chi.Router }

// tapped is a router with a tap wherever middleware can be.
func tapped(p *tap) http.Handler {
	root := chi.NewRouter()
	root.Use(p.at("root"))
	root.Get("/", ok)
	root.With(p.at("with")).Get("/users/{id}", ok)
	root.Get("/users/{id}/posts/{post:[0-9]+}", ok)
	root.Get("/files/*", ok)
	root.Group(func(r chi.Router) {
		r.Use(p.at("group"))
		r.Post("/users", ok)
		r.Get("/users", ok)
	})
	root.With(p.at("round")).Route("/admin", func(r chi.Router) {
		r.Use(p.at("sub"))
		r.Get("/", ok)
		r.With(p.at("with")).Get("/jobs/{job}", ok)
		r.With(p.at("round2")).Route("/{team}/deep", func(r chi.Router) {
			r.Use(p.at("sub2"))
			r.With(p.at("with")).Delete("/leaf/{n}", ok)
		})
	})
	assets := chi.NewRouter()
	assets.Use(p.at("sub"))
	assets.With(p.at("with")).Get("/*", ok)
	root.With(p.at("round")).Mount("/assets", assets)
	own := chi.NewRouter()
	own.Get("/{x}", ok)
	root.Mount("/own", wrapped{own})
	plain := http.NewServeMux()
	plain.Handle("/plain/{x}", p.at("plain")(http.HandlerFunc(ok)))
	root.Mount("/plain", plain)
	return root
}

// TestR110Pattern: the key of a route is the same wherever the limiter stands, and whichever path led there.
func TestR110Pattern(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ method, path, want, places string }{
		{"GET", "/", "GET /", "root"},
		{"GET", "/users/1", "GET /users/{id}", "root with"},
		{"GET", "/users/%31", "GET /users/{id}", "root with"},
		{"GET", "/users/a%2Fb", "GET /users/{id}", "root with"},
		{"GET", "/users/2/posts/77", "GET /users/{id}/posts/{post:[0-9]+}", "root"},
		{"GET", "/files/a/b", "GET /files/*", "root"},
		{"GET", "/files/", "GET /files/*", "root"},
		{"GET", "/users", "GET /users", "root group"},
		{"POST", "/users", "POST /users", "root group"},
		{"GET", "/admin", "GET /admin", "root round sub"},
		{"GET", "/admin/", "GET /admin", "root round sub"},
		{"GET", "/admin/jobs/9", "GET /admin/jobs/{job}", "root round sub with"},
		{"DELETE", "/admin/blue/deep/leaf/1", "DELETE /admin/{team}/deep/leaf/{n}", "root round sub round2 sub2 with"},
		{"GET", "/assets/x/y.css", "GET /assets/*", "root round sub with"},
		{"GET", "/assets/", "GET /assets/*", "root round sub with"},
		{"GET", "/assets", "GET /assets/*", "root round sub with"},
		{"GET", "/plain/1", "GET /plain/*", "root plain"},
		{"GET", "/own/1", "GET /own/{x}", "root"},
		{"GET", "/users/1;a=b", "GET /users/{id}", "root with"},
		{"GET", "/users/1?a=b", "GET /users/{id}", "root with"},
		{"GET", "http://elsewhere.example/users/1", "GET /users/{id}", "root with"},
		{"GET", "http://elsewhere.example", "GET /", "root"},
		// Routes that there are not: one key, whatever the path.
		{"GET", "/none", "GET unmatched", "root"},
		{"GET", "/none/at/all", "GET unmatched", "root"},
		{"GET", "//users", "GET unmatched", "root"},
		{"GET", "/USERS/1", "GET unmatched", "root"},
		{"GET", "/%75sers/1", "GET unmatched", "root"},
		{"OPTIONS", "*", "OPTIONS unmatched", "root"},
		{"PUT", "/users/1", "PUT unmatched", "root"},
		{"GET", "/admin/blue/deep/leaf", "GET unmatched", "root round sub round2 sub2"},
		{"BREW", "/users/1", "* unmatched", "root"},
	} {
		t.Run(c.method+c.path, func(t *testing.T) {
			t.Parallel()
			p := newTap(t)
			h := tapped(p)
			for range 2 { // the second time out of what is remembered
				var want []string
				for place := range strings.FieldsSeq(c.places) {
					want = append(want, place+" route="+c.want)
				}
				if got := p.get(h, c.method, c.path); !slices.Equal(got, want) {
					t.Errorf("got\n%q, want\n%q", got, want)
				}
			}
		})
	}
}

// TestR110Rewritten: middleware further out may have told chi to route another path or method.
func TestR110Rewritten(t *testing.T) {
	t.Parallel()
	p := newTap(t)
	root := chi.NewRouter()
	root.Use(middleware.CleanPath, middleware.StripSlashes, p.at("root"))
	root.Route("/api", func(r chi.Router) {
		r.Use(p.at("sub"))
		r.Get("/users/{id}", ok)
	})
	for _, path := range []string{"/api/users/1", "/api/users/1/", "//api///users/1", "/api/./users/x/../1"} {
		if got, want := p.get(root, "GET", path), []string{"root route=GET /api/users/{id}", "sub route=GET /api/users/{id}"}; !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// TestR112Head: HEAD spends what GET does, where chi serves it by the handler of GET and where it has its own.
func TestR112Head(t *testing.T) {
	t.Parallel()
	p := newTap(t)
	root := chi.NewRouter()
	root.Use(p.at("outside"), middleware.GetHead, p.at("inside"))
	root.Get("/one/{x}", ok)
	root.Head("/two/{x}", ok)
	for path, want := range map[string]string{"/one/1": "/one/{x}", "/two/1": "/two/{x}"} {
		if got, want := p.get(root, "HEAD", path), []string{"outside route=GET " + want, "inside route=GET " + want}; !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// TestOwnRouteBesideMount: a route of the mount's own path is no part of what is mounted.
func TestOwnRouteBesideMount(t *testing.T) {
	t.Parallel()
	p := newTap(t)
	root, sub := chi.NewRouter(), chi.NewRouter()
	sub.Get("/*", ok)
	root.Use(p.at("root"))
	root.Mount("/docs", sub)
	root.Get("/docs", ok)
	for path, want := range map[string]string{"/docs": "GET /docs", "/docs/": "GET /docs/*", "/docs/x": "GET /docs/*"} {
		if got := p.get(root, "GET", path); !slices.Equal(got, []string{"root route=" + want}) {
			t.Errorf("%s: got %q, want %s", path, got, want)
		}
	}
}

// TestOutsideOfChi: without a router of chi the request's own pattern or path is the key.
func TestOutsideOfChi(t *testing.T) {
	t.Parallel()
	p := newTap(t)
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", p.at("mux")(http.HandlerFunc(ok)))
	if got := p.get(mux, "GET", "/items/1"); !slices.Equal(got, []string{"mux route=GET /items/{id}"}) {
		t.Errorf("got %q", got)
	}
	if got := p.get(p.at("path")(mux), "GET", "/items/1"); got[0] != "path route=GET /items/1" {
		t.Errorf("got %q", got)
	}
}

// TestLimits is the whole way: the paths of one route share the caller's bucket, other routes and callers do not.
func TestLimits(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	store := memstore.New(memstore.Options{Clock: func() time.Time { return now }})
	limiter, err := ratelimit.NewTokenBucket(store, ratelimit.PerMinute(2))
	if err != nil {
		t.Fatal(err)
	}
	r := chi.NewRouter()
	r.Use(httplimit.New(limiter, httplimit.Options{
		Key: httplimit.Join(httplimit.ByHeader("X-Api-Key"), chilimit.ByRoutePattern()),
	}))
	r.Route("/v1", func(r chi.Router) {
		r.Get("/items/{id}", ok)
		r.Get("/search", ok)
	})
	for _, c := range []struct {
		key, path string
		want      int
	}{
		{"a", "/v1/items/1", 200},
		{"a", "/v1/items/2", 200},
		{"a", "/v1/items/3", 429},
		{"a", "/v1/search", 200},
		{"b", "/v1/items/1", 200},
		{"", "/v1/items/1", 401},
	} {
		req, w := httptest.NewRequest("GET", c.path, nil), httptest.NewRecorder()
		if c.key != "" {
			req.Header.Set("X-Api-Key", c.key)
		}
		if r.ServeHTTP(w, req); w.Code != c.want {
			t.Errorf("%s of %q: %d, want %d", c.path, c.key, w.Code, c.want)
		}
	}
}

// TestConcurrent asks one KeyFunc for many keys at once.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	key := chilimit.ByRoutePattern()
	r := chi.NewRouter()
	r.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got, _ := key(r); got != "route=GET /a/{"+r.URL.Query().Get("x")+"}" {
				t.Errorf("%s: %q", r.URL, got)
			}
			next.ServeHTTP(w, r)
		})
	})
	r.Route("/a", func(r chi.Router) {
		r.Get("/{x}", ok)
		r.Get("/{y:[0-9]+}", ok)
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/a/b?x=x", nil))
				r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/a/1?x=y:[0-9]%2B", nil))
			}
		})
	}
	all.Wait()
}

func ExampleByRoutePattern() {
	limiter, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{}), ratelimit.PerMinute(1))
	if err != nil {
		panic(err)
	}
	r := chi.NewRouter()
	r.Use(httplimit.New(limiter, httplimit.Options{
		Key: httplimit.Join(httplimit.ByIP(), chilimit.ByRoutePattern()),
	}))
	r.Get("/items/{id}", func(http.ResponseWriter, *http.Request) {})
	for _, path := range []string{"/items/1", "/items/2"} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		fmt.Println(path, w.Code)
	}
	// Output:
	// /items/1 200
	// /items/2 429
}

func BenchmarkByRoutePattern(b *testing.B) {
	key := chilimit.ByRoutePattern()
	for _, place := range []string{"Use", "With"} {
		b.Run(place, func(b *testing.B) {
			r := chi.NewRouter()
			limit := func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = key(r) })
			}
			if place == "Use" {
				r.Use(limit)
				r.Get("/items/{id}", ok)
			} else {
				r.With(limit).Get("/items/{id}", ok)
			}
			w, req := httptest.NewRecorder(), httptest.NewRequest("GET", "/items/1", nil)
			b.ReportAllocs()
			for b.Loop() {
				r.ServeHTTP(w, req)
			}
		})
	}
}
