package ginlimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/ginlimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	m.Run()
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func clock() time.Time { return epoch }

// bucket is a limiter whose time stands still.
func bucket(t testing.TB, n int64) *ratelimit.StoreLimiter {
	t.Helper()
	limiter, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{Clock: clock}), ratelimit.PerMinute(n))
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

func send(h http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(method, path, nil), httptest.NewRecorder()
	for _, field := range headers {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Add(name, value)
	}
	h.ServeHTTP(w, r)
	return w
}

// TestR115ThirdOfTwoIsDenied looks at the response, the handlers before and behind, and what is aborted; for the middleware
// of the engine, a group and a route.
func TestR115ThirdOfTwoIsDenied(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"engine", "group", "route"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			limit := ginlimit.New(bucket(t, 2), ginlimit.Options{Key: httplimit.ByHeader("X-Api-Key"), Clock: clock})
			var aborted bool
			later, served := 0, 0
			router := gin.New()
			router.Use(func(c *gin.Context) { c.Next(); aborted = c.IsAborted() })
			group := router.Group("/v1")
			handlers := []gin.HandlerFunc{
				func(*gin.Context) { later++ },
				func(c *gin.Context) { served++; c.String(200, "found") },
			}
			switch place {
			case "engine":
				router.Use(limit)
				group = router.Group("/v1")
			case "group":
				group.Use(limit)
			case "route":
				handlers = append([]gin.HandlerFunc{limit}, handlers...)
			}
			group.GET("/search", handlers...)
			for i, left := range []string{"1", "0"} {
				w := send(router, "GET", "/v1/search", "X-Api-Key: a")
				if w.Code != 200 || w.Body.String() != "found" || aborted || w.Header().Get("X-RateLimit-Remaining") != left || w.Header().Get("Retry-After") != "" {
					t.Errorf("request %d: %d %q %v, aborted %t", i, w.Code, w.Body, w.Header(), aborted)
				}
			}
			w := send(router, "GET", "/v1/search", "X-Api-Key: a")
			h := w.Header()
			if w.Code != 429 || !aborted || h.Get("X-RateLimit-Remaining") != "0" || h.Get("Retry-After") != "30" ||
				h.Get("Content-Type") != "application/problem+json" || !strings.Contains(w.Body.String(), "quota-exceeded") {
				t.Errorf("third: %d %q %v, aborted %t", w.Code, w.Body, h, aborted)
			}
			if w := send(router, "GET", "/v1/search"); w.Code != 401 || !aborted {
				t.Errorf("without a key: %d, aborted %t", w.Code, aborted)
			}
			if later != 2 || served != 2 {
				t.Errorf("handlers behind ran %d and %d times, want 2", later, served)
			}
		})
	}
}

// TestR115Denied: whatever Denied does, nothing runs behind it, and something is written, once.
func TestR115Denied(t *testing.T) {
	t.Parallel()
	viaGin := func(f func(c *gin.Context)) func(http.ResponseWriter, *http.Request, ratelimit.Result) {
		return func(_ http.ResponseWriter, r *http.Request, _ ratelimit.Result) { f(ginlimit.Context(r.Context())) }
	}
	for _, c := range []struct {
		name   string
		denied func(http.ResponseWriter, *http.Request, ratelimit.Result)
		status int
		body   string
	}{
		{"nothing", func(http.ResponseWriter, *http.Request, ratelimit.Result) {}, 429, "quota-exceeded"},
		{"writer", func(w http.ResponseWriter, _ *http.Request, _ ratelimit.Result) {
			w.WriteHeader(420)
			_, _ = w.Write([]byte("calm"))
		}, 420, "calm"},
		{"json", viaGin(func(c *gin.Context) { c.JSON(420, gin.H{"calm": true}) }), 420, `{"calm":true}`},
		{"200", viaGin(func(c *gin.Context) { c.String(200, "fine") }), 200, "fine"},
		{"status alone", viaGin(func(c *gin.Context) { c.Status(420) }), 420, ""},
		{"abort", viaGin(func(c *gin.Context) { c.AbortWithStatus(420) }), 420, ""},
		{"next", viaGin(func(c *gin.Context) { c.Next() }), 429, "quota-exceeded"},
		{"panic", viaGin(func(*gin.Context) { panic("oh") }), 500, ""},
	} {
		for _, path := range []string{"/", "/none"} {
			served := 0
			router := gin.New()
			router.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(500) }))
			router.Use(ginlimit.New(bucket(t, 1), ginlimit.Options{Denied: c.denied}))
			router.GET("/", func(*gin.Context) { served++ })
			send(router, "GET", path)
			w := send(router, "GET", path)
			exact := c.body == "" || c.status != 429
			if w.Code != c.status || served > 1 || exact && w.Body.String() != c.body || strings.Count(w.Body.String(), c.body) < 1 {
				t.Errorf("%s at %s: %d %q, handler ran %d times", c.name, path, w.Code, w.Body, served)
			}
		}
	}
}

// TestR116OnError: an outage is a 503, or what OnError makes of it.
func TestR116OnError(t *testing.T) {
	t.Parallel()
	outage := ratelimit.LimiterFunc(func(context.Context, string, int64) (ratelimit.Result, error) {
		return ratelimit.Result{}, fmt.Errorf("%w: %w", ratelimit.ErrStoreUnavailable, errors.New("refused"))
	})
	for _, c := range []struct {
		name    string
		onError func(http.ResponseWriter, *http.Request, error) bool
		status  int
		body    string
	}{
		{"default", nil, 503, `"status":503`},
		{"open", httplimit.FailOpen, 200, "served"},
		{"own", func(_ http.ResponseWriter, r *http.Request, _ error) bool {
			ginlimit.Context(r.Context()).String(502, "sorry")
			return false
		}, 502, "sorry"},
		{"nothing", func(http.ResponseWriter, *http.Request, error) bool { return false }, 503, `"status":503`},
	} {
		router := gin.New()
		router.Use(ginlimit.New(outage, ginlimit.Options{OnError: c.onError, Logger: slog.New(slog.DiscardHandler)}))
		router.GET("/", func(c *gin.Context) { c.String(200, "served") })
		w := send(router, "GET", "/")
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) || c.status == 503 != (w.Header().Get("Retry-After") == "1") ||
			w.Header().Get("X-RateLimit-Remaining") != "" || c.status != 503 && w.Body.String() != c.body {
			t.Errorf("%s: %d %q %v", c.name, w.Code, w.Body, w.Header())
		}
	}
}

// TestRefund: the status that decides is the one the handlers leave.
func TestRefund(t *testing.T) {
	t.Parallel()
	limiter, got := bucket(t, 10), 0
	router := gin.New()
	router.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(500) }))
	router.Use(ginlimit.New(limiter, ginlimit.Options{
		Key: httplimit.ByHeader("X-Api-Key"),
		Refund: func(_ *http.Request, status int) int64 {
			if got = status; status < 400 {
				return 1
			}
			return 0
		},
	}))
	router.GET("/right", func(c *gin.Context) { c.Status(204) })
	router.GET("/wrong", func(c *gin.Context) { c.AbortWithStatus(401) })
	router.GET("/panic", func(*gin.Context) { panic("oh") })
	router.GET("/late", func(c *gin.Context) { c.String(201, "made"); panic("oh") })
	router.GET("/push", func(c *gin.Context) {
		if err := http.NewResponseController(c.Writer).Flush(); err != nil {
			t.Error(err)
		}
	})
	left := int64(10)
	for _, c := range []struct {
		path   string
		status int
		spent  int64
	}{{"/right", 204, 0}, {"/wrong", 401, 1}, {"/panic", 500, 1}, {"/late", 201, 0}, {"/push", 200, 0}, {"/none", 404, 1}} {
		send(router, "GET", c.path, "X-Api-Key: a")
		left -= c.spent
		res, err := limiter.Peek(t.Context(), "X-Api-Key=a")
		if err != nil || got != c.status || res.Remaining != left {
			t.Errorf("%s: Refund saw %d, want %d; %d left, want %d; %v", c.path, got, c.status, res.Remaining, left, err)
		}
	}
}

// TestRefundOfHijack: a connection that was taken over counts as 101.
func TestRefundOfHijack(t *testing.T) {
	t.Parallel()
	status := make(chan int, 1)
	router := gin.New()
	router.Use(ginlimit.New(bucket(t, 10), ginlimit.Options{
		Refund: func(_ *http.Request, s int) int64 { status <- s; return 0 },
	}))
	router.GET("/", func(c *gin.Context) {
		if err := http.NewResponseController(c.Writer).SetReadDeadline(time.Time{}); err != nil {
			t.Error(err)
		}
		conn, _, err := c.Writer.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\nhello")
		conn.Close()
	})
	server := httptest.NewServer(router)
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: here\r\n\r\n")
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasSuffix(string(answer), "hello") {
		t.Errorf("%q, %v", answer, err)
	}
	if s := <-status; s != 101 {
		t.Errorf("Refund saw %d, want 101", s)
	}
}

// TestR100R119Nested: of two limiters the tighter one's fields stand, once.
func TestR100R119Nested(t *testing.T) {
	t.Parallel()
	router := gin.New()
	router.Use(ginlimit.New(bucket(t, 100), ginlimit.Options{}), ginlimit.WithCost(2), ginlimit.New(bucket(t, 4), ginlimit.Options{}))
	router.GET("/", func(*gin.Context) {})
	for i, want := range []string{"2", "0", "0"} {
		h := send(router, "GET", "/").Header()
		if got := h.Values("X-RateLimit-Remaining"); len(got) != 1 || got[0] != want || h.Get("X-RateLimit-Limit") != "4" {
			t.Errorf("request %d: %q of %s, want %s of 4", i, got, h.Get("X-RateLimit-Limit"), want)
		}
		if (i == 2) != (h.Get("Retry-After") == "30") {
			t.Errorf("request %d: Retry-After %q", i, h.Get("Retry-After"))
		}
	}
}

// TestR112R113HeadAndPreflight: HEAD is counted once and has no body; a preflight is not counted.
func TestR112R113HeadAndPreflight(t *testing.T) {
	t.Parallel()
	router := gin.New()
	router.Use(ginlimit.New(bucket(t, 2), ginlimit.Options{Key: httplimit.Join(httplimit.ByIP(), ginlimit.ByFullPath)}))
	router.GET("/", func(*gin.Context) {})
	router.HEAD("/", func(*gin.Context) {})
	router.OPTIONS("/", func(c *gin.Context) { c.Status(204) })
	for i, c := range []struct {
		method string
		want   int
	}{{"OPTIONS", 204}, {"GET", 200}, {"HEAD", 200}, {"HEAD", 429}, {"GET", 429}} {
		w := send(router, c.method, "/", "Origin: https://there.example", "Access-Control-Request-Method: GET")
		if w.Code != c.want || c.method == "HEAD" && w.Body.Len() > 0 || c.want == 429 && w.Header().Get("Retry-After") != "30" {
			t.Errorf("request %d, %s: %d %q %v", i, c.method, w.Code, w.Body, w.Header())
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(){
		"limiter": func() { ginlimit.New(nil, ginlimit.Options{}) },
		"MaxWait": func() { ginlimit.New(bucket(t, 1), ginlimit.Options{MaxWait: -1}) },
		"cost":    func() { ginlimit.WithCost(-1) },
	} {
		func() {
			defer func() {
				if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), name) {
					t.Errorf("%s: panic %v", name, r)
				}
			}()
			f()
		}()
	}
}

func BenchmarkNew(b *testing.B) {
	router := gin.New()
	router.GET("/", ginlimit.New(bucket(b, 1e9), ginlimit.Options{}), func(*gin.Context) {})
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
	b.ReportAllocs()
	for b.Loop() {
		router.ServeHTTP(w, r)
	}
}
