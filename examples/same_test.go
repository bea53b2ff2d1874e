// Package examples_test holds the adapters of all frameworks to one behaviour.
package examples_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/chilimit"
	"github.com/sluicego/ratelimit/middleware/ginlimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

const body = "found nothing\n"

func search(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write([]byte(body))
}

// frameworks serve /search and /export with the same limiter, by the caller and the framework's own pattern.
var frameworks = map[string]func(limiter ratelimit.Limiter, o httplimit.Options) http.Handler{
	"net/http": func(limiter ratelimit.Limiter, o httplimit.Options) http.Handler {
		o.Key = httplimit.Join(o.Key, httplimit.ByPattern)
		limit, mux := httplimit.New(limiter, o), http.NewServeMux()
		mux.Handle("/search", limit(http.HandlerFunc(search)))
		mux.Handle("/export", httplimit.WithCost(5)(limit(http.HandlerFunc(search))))
		return mux
	},
	"chi": func(limiter ratelimit.Limiter, o httplimit.Options) http.Handler {
		o.Key = httplimit.Join(o.Key, chilimit.ByRoutePattern())
		limit, router := httplimit.New(limiter, o), chi.NewRouter()
		router.With(limit).HandleFunc("/search", search)
		router.With(httplimit.WithCost(5), limit).HandleFunc("/export", search)
		return router
	},
	"gin": func(limiter ratelimit.Limiter, o httplimit.Options) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		o.Key = httplimit.Join(o.Key, ginlimit.ByFullPath)
		limit, router := ginlimit.New(limiter, o), gin.New()
		router.Any("/search", limit, gin.WrapF(search))
		router.Any("/export", ginlimit.WithCost(5), limit, gin.WrapF(search))
		return router
	},
}

// TestSame: the same requests have the same answers, to the byte, from every framework.
func TestSame(t *testing.T) {
	epoch := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	outage := fmt.Errorf("%w: %w", ratelimit.ErrStoreUnavailable, errors.New("refused"))
	requests := []string{ // method, path, key; "-" for none
		"GET /search a", "HEAD /search a", "GET /search a", "HEAD /search a", "POST /search a", "GET /search b", "GET /search -",
		"GET /export a", "GET /export c", "HEAD /export -", "OPTIONS /search a", "GET /search outage", "HEAD /search outage", "GET /search closed", "GET /search open",
	}
	for name, o := range map[string]httplimit.Options{
		"default":   {},
		"delta":     {Headers: httplimit.HeadersLegacy, ResetFormat: httplimit.ResetDelta},
		"draft":     {Headers: httplimit.HeadersDraft},
		"none":      {Headers: httplimit.HeadersNone},
		"fail open": {OnError: httplimit.FailOpen},
		"denied": {Denied: func(w http.ResponseWriter, _ *http.Request, _ ratelimit.Result) {
			w.WriteHeader(420)
			_, _ = w.Write([]byte("calm"))
		}},
		"refund": {Refund: func(_ *http.Request, status int) int64 {
			if status == 200 {
				return 1
			}
			return 0
		}},
	} {
		t.Run(name, func(t *testing.T) {
			answers := make(map[string][]string)
			for framework, build := range frameworks {
				now := epoch
				clock := func() time.Time { return now }
				o.Clock, o.Logger, o.Key = clock, slog.New(slog.DiscardHandler), httplimit.ByHeader("X-Api-Key")
				buckets, err := ratelimit.New(memstore.New(memstore.Options{Clock: clock}),
					ratelimit.PerMinute(2).Named("burst"), ratelimit.PerHour(4).Named("hour"))
				if err != nil {
					t.Fatal(err)
				}
				server := httptest.NewServer(build(faulty{buckets, outage}, o))
				for _, request := range requests {
					now = now.Add(1500 * time.Millisecond)
					answers[framework] = append(answers[framework], request+": "+answer(t, server.URL, request))
				}
				server.Close()
			}
			want := answers["net/http"]
			for framework, got := range answers {
				for i := range want {
					if got[i] != want[i] {
						t.Errorf("%s answers\n%s\nbut net/http\n%s", framework, got[i], want[i])
					}
				}
			}
			for _, status := range []string{"200", "401"} { // or nothing has been compared
				if !strings.Contains(strings.Join(want, "\n"), status) {
					t.Errorf("no answer is a %s:\n%s", status, strings.Join(want, "\n"))
				}
			}
		})
	}
}

// answer sends a request and returns all that came back, but for what the server itself adds.
func answer(t *testing.T, url, request string) string {
	t.Helper()
	words := strings.Fields(request)
	r, err := http.NewRequestWithContext(t.Context(), words[0], url+words[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	if words[2] != "-" {
		r.Header.Set("X-Api-Key", words[2])
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var text strings.Builder
	fmt.Fprintln(&text, res.Status)
	res.Header.Del("Date")
	for _, name := range slices.Sorted(maps.Keys(res.Header)) {
		fmt.Fprintf(&text, "%s: %q\n", name, res.Header[name])
	}
	if _, err := io.Copy(&text, res.Body); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// faulty has answers of its own for some keys.
type faulty struct {
	*ratelimit.StoreLimiter
	outage error
}

func (f faulty) Allow(ctx context.Context, key string, cost int64) (ratelimit.Result, error) {
	switch {
	case strings.Contains(key, "=outage"):
		return ratelimit.Result{}, f.outage
	case strings.Contains(key, "=closed"):
		return ratelimit.Result{Limit: 2, RetryAfter: 3 * time.Second, Source: ratelimit.SourceFailClosed}, nil
	case strings.Contains(key, "=open"):
		return ratelimit.Result{Allowed: true, Limit: 2, Remaining: 2, Taken: cost, Source: ratelimit.SourceFailOpen}, nil
	}
	return f.StoreLimiter.Allow(ctx, key, cost)
}
