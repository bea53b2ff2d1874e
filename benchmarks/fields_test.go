package benchmarks

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// TestFieldsAreStructured reads RateLimit-Policy and RateLimit with a parser of RFC 9651 that is not ours. It stands in
// this module because the root requires no parser.
func TestFieldsAreStructured(t *testing.T) {
	t.Parallel()
	year := 366 * 24 * time.Hour
	for name, limits := range map[string][]ratelimit.Limit{
		"usual":   {ratelimit.PerMinute(2)},
		"named":   {ratelimit.PerMinute(100).Named("burst"), ratelimit.PerDay(1000).Named("per_day.v-2")},
		"short":   {{Rate: 3, Period: 1500 * time.Millisecond}},
		"largest": {{Rate: 1e9, Period: year, Burst: 1e9}},
		"slowest": {{Rate: 1, Period: year, Burst: 1e9}},
		"log":     {{Algorithm: ratelimit.SlidingLog, Rate: 2, Period: time.Hour}},
		"counter": {{Algorithm: ratelimit.SlidingCounter, Rate: 2, Period: 90 * time.Second, Name: "c"}},
	} {
		limiter, err := ratelimit.New(memstore.New(memstore.Options{}), limits...)
		if err != nil {
			t.Fatal(err)
		}
		once := httplimit.New(limiter, httplimit.Options{})
		twice := func(h http.Handler) http.Handler { return once(httplimit.New(limiter, httplimit.Options{})(h)) }
		odd := httplimit.New(ratelimit.LimiterFunc(func(context.Context, string, int64) (ratelimit.Result, error) {
			return ratelimit.Result{Allowed: true, Limit: 1 << 62, Remaining: 1 << 62, ResetAfter: 1 << 62, Name: "a \"b\\\n\xffä"}, nil
		}), httplimit.Options{})
		for _, limit := range []func(http.Handler) http.Handler{once, twice, once, odd} {
			w := httptest.NewRecorder()
			limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			for field, parameters := range map[string][2]string{"RateLimit-Policy": {"q", "w"}, "RateLimit": {"r", "t"}} {
				lines := w.Header().Values(field)
				list, err := httpsfv.UnmarshalList(lines)
				if err != nil {
					t.Errorf("%s: %s %q: %v", name, field, lines, err)
				}
				if field == "RateLimit" && len(list) != 1 || field == "RateLimit-Policy" && len(lines) > 0 && len(list) != len(limits) {
					t.Errorf("%s: %s %q has %d items", name, field, lines, len(list))
				}
				for _, member := range list {
					item := member.(httpsfv.Item)
					if _, ok := item.Value.(string); !ok {
						t.Errorf("%s: %s %q: the item is a %T", name, field, lines, item.Value)
					}
					for i, p := range parameters {
						v, _ := item.Params.Get(p)
						if n, ok := v.(int64); !ok || n < 0 || n == 0 && field == "RateLimit-Policy" {
							t.Errorf("%s: %s %q: parameter %d is %v", name, field, lines, i, v)
						}
					}
				}
			}
		}
	}
}
