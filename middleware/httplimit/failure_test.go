package httplimit_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

func text(t *testing.T, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestR116Failure: an outage is no quota, and nothing but an outage is let through by FailOpen. R53: a store that refuses
// for good is loud.
func TestR116R53Failure(t *testing.T) {
	t.Parallel()
	open, served := ratelimit.Result{Allowed: true, Limit: 5, Remaining: 5, Source: ratelimit.SourceFailOpen}, 0
	closed := ratelimit.Result{Limit: 5, RetryAfter: 3 * time.Second, Source: ratelimit.SourceFailClosed}
	for _, c := range []struct {
		name   string
		res    ratelimit.Result
		err    error
		onErr  func(http.ResponseWriter, *http.Request, error) bool
		status int
		retry  string
		logs   string
	}{
		{"outage", ratelimit.Result{}, errOutage, nil, 503, "1", "ratelimit.Fallback"},
		{"outage, open", ratelimit.Result{}, errOutage, httplimit.FailOpen, 200, "", "ratelimit.Fallback"},
		{"cross slot, open", ratelimit.Result{}, ratelimit.ErrCrossSlot, httplimit.FailOpen, 503, "1", "this is no outage"},
		{"misconfigured, open", ratelimit.Result{}, ratelimit.ErrMisconfigured, httplimit.FailOpen, 503, "1", "this is no outage"},
		{"negative cost, open", ratelimit.Result{}, ratelimit.ErrInvalidCost, httplimit.FailOpen, 503, "1", "this is no outage"},
		{"own words", ratelimit.Result{}, errOutage, func(w http.ResponseWriter, _ *http.Request, _ error) bool { w.WriteHeader(500); return false }, 500, "", "hint"},
		{"fallback open", open, nil, nil, 200, "", ""},
		{"fallback closed", closed, nil, nil, 503, "3", ""},
	} {
		var log bytes.Buffer
		served = 0
		o := httplimit.Options{OnError: c.onErr, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		h := httplimit.New(saying(c.res, c.err), o)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
		res := do(h, httptest.NewRequest("GET", "/", nil))
		t.Log(c.name)
		want(t, res, c.status, "Retry-After", c.retry, "X-RateLimit-Remaining", "", "X-RateLimit-Reset", "", "RateLimit", "")
		if (served == 1) != (c.status == 200) {
			t.Errorf("the handler ran %d times", served)
		}
		if c.status == 503 {
			want(t, res, 503, "Content-Type", "application/problem+json", "Cache-Control", "no-store")
			if body := text(t, res); strings.Contains(body, "quota") || !strings.Contains(body, `"status":503`) {
				t.Errorf("body %s", body)
			}
		}
		if !strings.Contains(log.String(), c.logs) || c.logs == "" && log.Len() > 0 {
			t.Errorf("log %q, want %q", log.String(), c.logs)
		}
	}
}

// TestLogOnceASecond: an outage is not answered with a flood of lines.
func TestLogOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := httplimit.New(saying(ratelimit.Result{}, errOutage), httplimit.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})(nil)
		for range 3 {
			for range 100 {
				do(h, httptest.NewRequest("GET", "/secret?key=secret", nil))
			}
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "\n"); n != 3 {
			t.Errorf("%d lines in 3 seconds: %s", n, &log)
		}
		if strings.Contains(log.String(), "192.0.2") || strings.Contains(log.String(), "secret") {
			t.Errorf("the log tells who called: %s", &log)
		}
	})
}

// TestR115NothingRunsAfterADenial, whatever the callback does.
func TestR115NothingRunsAfterADenial(t *testing.T) {
	t.Parallel()
	denied := saying(ratelimit.Result{Limit: 1, RetryAfter: time.Second}, nil)
	for _, c := range []struct {
		name   string
		f      func(http.ResponseWriter, *http.Request, ratelimit.Result)
		status int
		body   string
	}{
		{"none", nil, 429, "quota-exceeded"},
		{"writes nothing", func(http.ResponseWriter, *http.Request, ratelimit.Result) {}, 429, "quota-exceeded"},
		{"writes 200", func(w http.ResponseWriter, _ *http.Request, _ ratelimit.Result) { _, _ = w.Write([]byte("hm")) }, 200, "hm"},
		{"writes 418", func(w http.ResponseWriter, _ *http.Request, r ratelimit.Result) { w.WriteHeader(418) }, 418, ""},
		{"panics", func(http.ResponseWriter, *http.Request, ratelimit.Result) { panic("denied") }, 0, ""},
	} {
		h := httplimit.New(denied, httplimit.Options{Denied: c.f})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Errorf("%s: the handler ran", c.name)
		}))
		func() {
			defer func() {
				if p := recover(); (p != nil) != (c.status == 0) {
					t.Errorf("%s: panic %v", c.name, p)
				}
			}()
			res := do(h, httptest.NewRequest("GET", "/", nil))
			want(t, res, c.status, "Retry-After", "1", "X-RateLimit-Remaining", "0")
			if body := text(t, res); !strings.Contains(body, c.body) || strings.Count(body, "{") > 1 {
				t.Errorf("%s: body %q", c.name, body)
			}
		}()
	}
}

// TestClientGone: nobody is told, and nothing is logged, about a request whose context has ended.
func TestClientGone(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	l := ratelimit.LimiterFunc(func(ctx context.Context, _ string, _ int64) (ratelimit.Result, error) {
		return ratelimit.Result{}, ctx.Err()
	})
	o := httplimit.Options{
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		OnError: func(http.ResponseWriter, *http.Request, error) bool {
			t.Error("OnError was asked")
			return true
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	res := do(httplimit.New(l, o)(nil), httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	want(t, res, 503)
	if log.Len() > 0 {
		t.Errorf("log %q", &log)
	}
}

// TestMaxWait holds requests until there is room, and no longer than that.
func TestMaxWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{}), ratelimit.PerMinute(6))
		if err != nil {
			t.Fatal(err)
		}
		h := httplimit.New(l, httplimit.Options{MaxWait: 11 * time.Second})(http.HandlerFunc(serveNothing))
		start := time.Now()
		for range 6 {
			want(t, do(h, httptest.NewRequest("GET", "/", nil)), 200)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("six of six took %v", d)
		}
		want(t, do(h, httptest.NewRequest("GET", "/", nil)), 200, "X-RateLimit-Remaining", "0")
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("the seventh came after %v, want 10s", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // the caller's patience counts, too
		defer cancel()
		want(t, do(h, httptest.NewRequest("GET", "/", nil).WithContext(ctx)), 429, "Retry-After", "10")
		codes := make(chan int, 3)
		for range 3 {
			go func() { codes <- do(h, httptest.NewRequest("GET", "/", nil)).StatusCode }()
		}
		sum := <-codes + <-codes + <-codes
		if d := time.Since(start); d != 20*time.Second || sum != 200+429+429 {
			t.Errorf("three for one place: sum of statuses %d after %v", sum, d)
		}
		want(t, do(httplimit.WithCost(7)(h), httptest.NewRequest("GET", "/", nil)), 429, "Retry-After", "")
		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		want(t, do(h, httptest.NewRequest("GET", "/", nil).WithContext(gone)), 503)
	})
}

// TestR116MaxWaitIsForDenials: what MaxWait cuts short is a wait for room. A store that has not answered by then is asked
// without it, so an outage is still an outage, and a decision that comes late is still a decision.
func TestR116MaxWaitIsForDenials(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		o := httplimit.Options{MaxWait: 100 * time.Millisecond, OnError: httplimit.FailOpen, Logger: textLogger(&log)}
		away, err := ratelimit.NewTokenBucket(slow{hanging{}, time.Second, errOutage}, ratelimit.PerSecond(10))
		if err != nil {
			t.Fatal(err)
		}
		want(t, ask(away, o), 200)
		if !strings.Contains(log.String(), "ratelimit.Fallback") {
			t.Errorf("an outage is logged as %q", &log)
		}
		log.Reset()
		limit := ratelimit.Limit{Rate: 10, Period: time.Second, Burst: 1}
		far, err := ratelimit.NewTokenBucket(slow{memstore.New(memstore.Options{}), 2 * time.Millisecond, nil}, limit)
		if err != nil {
			t.Fatal(err)
		}
		want(t, ask(far, o), 200)
		time.Sleep(time.Millisecond)
		// The bucket has room after 97 ms of the 100; the answer of who asks then comes 1 ms too late.
		want(t, ask(far, o), 200, "X-RateLimit-Remaining", "0")
		if log.Len() > 0 {
			t.Errorf("log %q", &log)
		}
	})
}

// TestMaxWaitAsksOnce: a denial that no wait helps against costs the store one question, however far away it is.
func TestMaxWaitAsksOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		l, err := ratelimit.NewTokenBucket(counting{slow{memstore.New(memstore.Options{}), 3 * time.Millisecond, nil}, &asked}, ratelimit.PerDay(1))
		if err != nil {
			t.Fatal(err)
		}
		o := httplimit.Options{MaxWait: time.Second}
		want(t, ask(l, o), 200)
		want(t, ask(l, o), 429, "Retry-After", "86400")
		if asked != 2 {
			t.Errorf("two requests asked the store %d times", asked)
		}
	})
}

type counting struct {
	ratelimit.Store
	asked *int
}

func (c counting) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	*c.asked++
	return c.Store.Take(ctx, req)
}

// A slow store answers after some time: with an error, if it has one.
type slow struct {
	ratelimit.Store
	takes time.Duration
	err   error
}

func (s slow) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	select {
	case <-ctx.Done():
		return ratelimit.Result{}, ctx.Err()
	case <-time.After(s.takes):
	}
	if s.err != nil {
		return ratelimit.Result{}, s.err
	}
	return s.Store.Take(ctx, req)
}

// TestR142NoStallWhileTheStoreIsAway: over a Fallback, a store that never answers costs a page 5 ms at first and then
// nothing, and limits hold.
func TestR142NoStallWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, err := ratelimit.NewFallback(hanging{}, memstore.New(memstore.Options{}), ratelimit.FallbackOptions{
			Instances:     func() int { return 2 },
			OnStateChange: func(_, _ ratelimit.BreakerState) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		l, err := ratelimit.NewTokenBucket(store, ratelimit.PerDay(100))
		if err != nil {
			t.Fatal(err)
		}
		h := httplimit.New(l, httplimit.Options{})(http.HandlerFunc(serveNothing))
		for i := range 51 {
			start := time.Now()
			res := do(h, httptest.NewRequest("GET", "/", nil))
			if d := time.Since(start); d > 5*time.Millisecond || i >= 20 && d > 0 {
				t.Errorf("page %d took %v", i, d)
			}
			if i < 50 {
				want(t, res, 200)
			} else {
				want(t, res, 429, "X-RateLimit-Remaining", "0")
			}
		}
	})
}

// hanging is a store behind an address that answers nothing.
type hanging struct{}

func (hanging) Take(ctx context.Context, _ ratelimit.Request) (ratelimit.Result, error) {
	<-ctx.Done()
	return ratelimit.Result{}, ctx.Err()
}

func (hanging) TakeAll(ctx context.Context, _ []ratelimit.Request) ([]ratelimit.Result, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hanging) Reset(ctx context.Context, _ string, _ ...*ratelimit.Limit) error {
	<-ctx.Done()
	return ctx.Err()
}
