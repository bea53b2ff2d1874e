package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

func benchmarkRequest() (http.Handler, *discard, *http.Request) {
	l, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{}), ratelimit.PerSecond(1_000_000_000))
	if err != nil {
		panic(err)
	}
	h := httplimit.New(l, httplimit.Options{})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequest("GET", "/", nil)
	return h, &discard{http.Header{}}, r
}

// TestAllocs: the fast path of a request allocates its key and its header values.
func TestAllocs(t *testing.T) {
	h, w, r := benchmarkRequest()
	if n := testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }); n > 4 {
		t.Errorf("%v allocations a request, want at most 4", n)
	}
}

func BenchmarkMiddleware(b *testing.B) {
	h, w, r := benchmarkRequest()
	b.ReportAllocs()
	for b.Loop() {
		clear(w.h)
		h.ServeHTTP(w, r)
	}
}
