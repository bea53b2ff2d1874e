package benchmarks

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	sethvargohttp "github.com/sethvargo/go-limiter/httplimit"
	sethvargo "github.com/sethvargo/go-limiter/memorystore"
	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/memstore"
	"github.com/throttled/throttled/v2"
	throttledmem "github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululehttp "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululemem "github.com/ulule/limiter/v3/drivers/store/memory"
)

// A middleware limits a handler by the peer's address, to n requests a second, in memory.
type middleware struct {
	name string
	make func(b *testing.B, n int) func(http.Handler) http.Handler
}

// The rivals send three header fields about the limit but for tollbooth, which sends six.
var middlewares = []middleware{
	{"httplimit-3", func(b *testing.B, n int) func(http.Handler) http.Handler {
		return httplimit.New(newHTTPLimiter(b, n), httplimit.Options{Headers: httplimit.HeadersLegacy})
	}},
	{"httplimit-5", func(b *testing.B, n int) func(http.Handler) http.Handler {
		return httplimit.New(newHTTPLimiter(b, n), httplimit.Options{})
	}},
	{"sethvargo", func(b *testing.B, n int) func(http.Handler) http.Handler {
		store, err := sethvargo.New(&sethvargo.Config{Tokens: uint64(n), Interval: time.Second})
		if err != nil {
			b.Fatal(err)
		}
		m, err := sethvargohttp.NewMiddleware(store, sethvargohttp.IPKeyFunc())
		if err != nil {
			b.Fatal(err)
		}
		return m.Handle
	}},
	{"throttled", func(b *testing.B, n int) func(http.Handler) http.Handler {
		store, err := throttledmem.NewCtx(0)
		if err != nil {
			b.Fatal(err)
		}
		l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(n), MaxBurst: n - 1})
		if err != nil {
			b.Fatal(err)
		}
		m := throttled.HTTPRateLimiterCtx{RateLimiter: l, VaryBy: &throttled.VaryBy{RemoteAddr: true}}
		return m.RateLimit
	}},
	{"ulule", func(_ *testing.B, n int) func(http.Handler) http.Handler {
		return ululehttp.NewMiddleware(ulule.New(ululemem.NewStore(), ulule.Rate{Limit: int64(n), Period: time.Second})).Handler
	}},
	{"httprate", func(_ *testing.B, n int) func(http.Handler) http.Handler {
		return httprate.LimitBy(n, time.Second, func(r *http.Request) (string, error) {
			host, _, err := net.SplitHostPort(r.RemoteAddr)
			return httprate.CanonicalizeIP(host), err
		})
	}},
	{"tollbooth", func(_ *testing.B, n int) func(http.Handler) http.Handler {
		l := tollbooth.NewLimiter(float64(n), nil)
		l.SetIPLookup(tollboothlimiter.IPLookup{Name: "RemoteAddr"})
		return tollbooth.HTTPMiddleware(l)
	}},
}

func newHTTPLimiter(b *testing.B, n int) ratelimit.Limiter {
	l, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{}), ratelimit.PerSecond(int64(n)))
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// BenchmarkHTTP is what a middleware adds to an admitted request, of one of 1,000 clients.
func BenchmarkHTTP(b *testing.B) {
	for _, m := range middlewares {
		b.Run("lib="+m.name, func(b *testing.B) {
			served := 0
			h := m.make(b, 100_000_000)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
			requests := make([]*http.Request, 1000)
			for i, k := range rand.Perm(len(requests)) {
				requests[i] = httptest.NewRequest("GET", "/", nil)
				requests[i].RemoteAddr = fmt.Sprintf("192.0.%d.%d:4321", k/250, k%250)
			}
			w := &response{h: http.Header{}}
			h.ServeHTTP(w, requests[0])
			for name := range w.h {
				if strings.Contains(strings.ToLower(name), "rate") {
					w.fields++
				}
			}
			served = 0
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				clear(w.h)
				h.ServeHTTP(w, requests[i%len(requests)])
			}
			b.StopTimer()
			if served != b.N {
				b.Fatalf("served %d of %d", served, b.N)
			}
			b.ReportMetric(float64(w.fields), "fields")
		})
	}
}

// A response is a ResponseWriter that costs nothing.
type response struct {
	h      http.Header
	fields int
}

func (r *response) Header() http.Header         { return r.h }
func (r *response) Write(b []byte) (int, error) { return len(b), nil }
func (r *response) WriteHeader(int)             {}
