package httplimit_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

func newLimiter(limits ...ratelimit.Limit) ratelimit.Limiter {
	limiter, err := ratelimit.New(memstore.New(memstore.Options{}), limits...)
	if err != nil {
		log.Fatal(err)
	}
	return limiter
}

func ok(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }

// show sends requests to h, each for a path.
func show(h http.Handler, paths ...string) {
	for _, p := range paths {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", p, nil))
		fmt.Println(p, w.Code, "remaining:", w.Header().Get("X-RateLimit-Remaining"))
	}
}

func ExampleNew() {
	limit := httplimit.New(newLimiter(ratelimit.PerMinute(2)), httplimit.Options{})
	mux := http.NewServeMux()
	mux.Handle("GET /search", limit(http.HandlerFunc(ok)))
	show(mux, "/search", "/search", "/search")
	// Output:
	// /search 200 remaining: 1
	// /search 200 remaining: 0
	// /search 429 remaining: 0
}

// By API key where there is one, else by address, behind one load balancer.
func ExampleFirstOf() {
	byIP := httplimit.ByIP(httplimit.TrustedProxies(netip.MustParsePrefix("10.0.0.0/8")))
	key := httplimit.FirstOf(httplimit.ByHeader("X-Api-Key"), byIP)
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.7:4321"
	r.Header.Set("X-Forwarded-For", "192.0.2.66, 2001:db8::1")
	fmt.Println(key(r))
	r.Header.Set("X-Api-Key", "abc")
	fmt.Println(key(r))
	// Output:
	// ip=2001:db8::/64 <nil>
	// X-Api-Key=abc <nil>
}

// Each caller has a bucket for each route.
func ExampleJoin() {
	limit := httplimit.New(newLimiter(ratelimit.PerMinute(1)), httplimit.Options{
		Key: httplimit.Join(httplimit.ByIP(), httplimit.ByPattern),
	})
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", limit(http.HandlerFunc(ok)))
	mux.Handle("GET /search", limit(http.HandlerFunc(ok)))
	show(mux, "/items/1", "/items/2", "/search")
	// Output:
	// /items/1 200 remaining: 0
	// /items/2 429 remaining: 0
	// /search 200 remaining: 0
}

func ExampleWithCost() {
	limit := httplimit.New(newLimiter(ratelimit.PerMinute(6)), httplimit.Options{})
	mux := http.NewServeMux()
	mux.Handle("/search", limit(http.HandlerFunc(ok)))
	mux.Handle("/export", httplimit.WithCost(5)(limit(http.HandlerFunc(ok))))
	show(mux, "/search", "/export", "/search")
	// Output:
	// /search 200 remaining: 5
	// /export 200 remaining: 0
	// /search 429 remaining: 0
}

// Only logins that fail count.
func ExampleOptions_refund() {
	limit := httplimit.New(newLimiter(ratelimit.PerHour(2)), httplimit.Options{
		Refund: func(_ *http.Request, status int) int64 {
			if status == http.StatusUnauthorized {
				return 0
			}
			return 1
		},
	})
	login := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/right" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	show(login, "/right", "/right", "/right", "/wrong", "/wrong", "/wrong")
	// Output:
	// /right 200 remaining: 1
	// /right 200 remaining: 1
	// /right 200 remaining: 1
	// /wrong 401 remaining: 1
	// /wrong 401 remaining: 0
	// /wrong 429 remaining: 0
}

// Callers who say who they are have more.
func ExampleChoose() {
	anonymous := httplimit.NewGuard(newLimiter(ratelimit.PerMinute(1)), httplimit.Options{})
	known := httplimit.NewGuard(newLimiter(ratelimit.PerMinute(100)), httplimit.Options{Key: httplimit.ByHeader("X-Api-Key")})
	limit := httplimit.Choose(func(r *http.Request) *httplimit.Guard {
		if r.Header.Get("X-Api-Key") != "" { // checked further out
			return known
		}
		return anonymous
	})
	show(limit(http.HandlerFunc(ok)), "/", "/")
	// Output:
	// / 200 remaining: 0
	// / 429 remaining: 0
}

// An adapter for a framework whose handlers are not http.Handlers.
func ExampleGuard() {
	guard := httplimit.NewGuard(newLimiter(ratelimit.PerMinute(1)), httplimit.Options{})
	type handler func(w http.ResponseWriter, r *http.Request) (status int)
	limited := func(next handler) handler {
		return func(w http.ResponseWriter, r *http.Request) int {
			d := guard.Decide(r, nil)
			if !guard.Write(w, r, d) {
				return http.StatusTooManyRequests
			}
			status := next(w, r)
			guard.Done(r, d, status)
			return status
		}
	}
	h := limited(func(http.ResponseWriter, *http.Request) int { return http.StatusOK })
	for range 2 {
		fmt.Println(h(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)))
	}
	// Output:
	// 200
	// 429
}

// A client that sends ten requests a second at most to any host, and comes back when it is told to.
func ExampleTransport() {
	client := &http.Client{
		Transport: &httplimit.Transport{Limiter: newLimiter(ratelimit.PerSecond(10))},
		Timeout:   30 * time.Second,
	}
	limit := httplimit.New(newLimiter(ratelimit.PerSecond(1)), httplimit.Options{})
	server := httptest.NewServer(limit(http.HandlerFunc(ok)))
	defer server.Close()
	for range 2 {
		res, err := client.Get(server.URL)
		if err != nil {
			log.Fatal(err)
		}
		res.Body.Close()
		fmt.Println(res.StatusCode)
	}
	// Output:
	// 200
	// 200
}
