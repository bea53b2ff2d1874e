package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

func TestWithCost(t *testing.T) {
	t.Parallel()
	b := newBed(t, httplimit.Options{}, ratelimit.PerMinute(10))
	want(t, b.get(), 200, "X-RateLimit-Remaining", "9")
	limited := b.handler
	b.handler = httplimit.WithCost(5)(limited)
	want(t, b.get(), 200, "X-RateLimit-Remaining", "4")
	want(t, b.get(), 429, "X-RateLimit-Remaining", "4", "Retry-After", "6", "RateLimit", `"default";r=1;t=6`)
	b.handler = httplimit.WithCost(5)(httplimit.WithCost(0)(limited))
	want(t, b.get(), 200, "X-RateLimit-Remaining", "4")
}

func TestCostByLength(t *testing.T) {
	t.Parallel()
	cost := httplimit.CostByLength(1000, 7)
	for length, want := range map[int64]int64{-1: 7, 0: 1, 1: 1, 1000: 1, 1001: 2, 1 << 62: 1<<62/1000 + 1} {
		if got := cost(&http.Request{ContentLength: length}); got != want {
			t.Errorf("%d bytes cost %d, want %d", length, got, want)
		}
	}
}

// TestChoose: callers who are signed in have another limit than those who are not.
func TestChoose(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	guard := func(n int64, k httplimit.KeyFunc) *httplimit.Guard {
		l, err := ratelimit.NewTokenBucket(store, ratelimit.PerDay(n))
		if err != nil {
			t.Fatal(err)
		}
		return httplimit.NewGuard(l, httplimit.Options{Key: k})
	}
	anonymous, users := guard(1, nil), guard(3, httplimit.ByHeader("X-User"))
	h := httplimit.Choose(func(r *http.Request) *httplimit.Guard {
		switch r.Header.Get("X-User") {
		case "":
			return anonymous
		case "root":
			return nil
		}
		return users
	})(http.HandlerFunc(serveNothing))
	want(t, do(h, withHeader("X-User", "a")), 200, "X-RateLimit-Limit", "3", "X-RateLimit-Remaining", "2")
	want(t, do(h, withHeader("X-User", "")), 200, "X-RateLimit-Limit", "1")
	want(t, do(h, withHeader("X-User", "")), 429)
	want(t, do(h, withHeader("X-User", "a")), 200, "X-RateLimit-Remaining", "1")
	want(t, do(h, withHeader("X-User", "root")), 200, "X-RateLimit-Limit", "")
}

// TestRefund: only failures count.
func TestRefund(t *testing.T) {
	t.Parallel()
	refund := func(_ *http.Request, status int) int64 {
		if status < 400 {
			return 100 // more than it cost: it gets back what it cost
		}
		return -1
	}
	b := newBed(t, httplimit.Options{Refund: refund, Cost: func(*http.Request) int64 { return 2 }}, ratelimit.PerMinute(4))
	limited := b.handler
	for _, s := range []struct {
		status int
		left   int64
	}{{0, 4}, {200, 4}, {401, 2}, {302, 2}, {500, 0}} {
		b.status = s.status
		if res := do(limited, httptest.NewRequest("GET", "/", nil)); res.StatusCode != max(200, s.status) {
			t.Errorf("status %d, want %d", res.StatusCode, s.status)
		}
		if res, err := b.limiter.Peek(t.Context(), "ip=192.0.2.1"); err != nil || res.Remaining != s.left {
			t.Errorf("after a %d %d are left, want %d; error %v", s.status, res.Remaining, s.left, err)
		}
	}
	want(t, b.get(), 429)
}

// TestR119DecideWithoutWriting: a decision in a handler, below middleware that made one, writes nothing by itself.
func TestR119DecideWithoutWriting(t *testing.T) {
	t.Parallel()
	l, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{}), ratelimit.PerDay(2).Named("rows"))
	if err != nil {
		t.Fatal(err)
	}
	guard := httplimit.NewGuard(l, httplimit.Options{})
	b := newBed(t, httplimit.Options{}, ratelimit.PerMinute(100))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := guard.Decide(r, nil)
		if got := w.Header().Get("X-RateLimit-Limit"); got != "100" {
			t.Errorf("limit %q before anything is written", got)
		}
		guard.SetHeaders(w.Header(), d)
		if !d.Result.Allowed {
			http.Error(w, "come back", http.StatusTooManyRequests)
		}
	})
	l2, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{}), ratelimit.PerMinute(100))
	if err != nil {
		t.Fatal(err)
	}
	b.handler = httplimit.New(l2, httplimit.Options{})(h)
	want(t, b.get(), 200, "X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "1")
	want(t, b.get(), 200, "X-RateLimit-Remaining", "0")
	res := b.get()
	want(t, res, 429, "X-RateLimit-Limit", "2", "Retry-After", "43200", "RateLimit-Policy", `"default";q=100;w=60, "rows";q=2;w=86400`)
	if body := text(t, res); body != "come back\n" {
		t.Errorf("body %q", body)
	}
	if d := guard.Decide(withUser(""), func(*http.Request) (string, error) { return "other", nil }); d.Key != "other" || !d.Result.Allowed {
		t.Errorf("decision %+v", d)
	}
}

// TestRefundErrorIsLogged, and does not hold the response for longer than a second.
func TestRefundThatHangs(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	l := hangingRefunds{saying(ratelimit.Result{Allowed: true, Taken: 1}, nil)}
	h := httplimit.New(l, httplimit.Options{
		Refund: func(*http.Request, int) int64 { return 1 }, Logger: textLogger(&log),
	})(http.HandlerFunc(serveNothing))
	bubble(t, func(t *testing.T) {
		start := time.Now()
		want(t, do(h, httptest.NewRequest("GET", "/", nil)), 200)
		if d := time.Since(start); d != time.Second {
			t.Errorf("the response took %v", d)
		}
	})
	if !strings.Contains(log.String(), "could not be given back") {
		t.Errorf("log %q", log.String())
	}
}

type hangingRefunds struct{ ratelimit.Limiter }

func (hangingRefunds) Refund(ctx context.Context, _ string, _ int64) (ratelimit.Result, error) {
	<-ctx.Done()
	return ratelimit.Result{}, ctx.Err()
}
