package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// saying is a Limiter with one answer.
func saying(res ratelimit.Result, err error) ratelimit.Limiter {
	return ratelimit.LimiterFunc(func(context.Context, string, int64) (ratelimit.Result, error) { return res, err })
}

func serveNothing(http.ResponseWriter, *http.Request) {}

func ask(l ratelimit.Limiter, o httplimit.Options) *http.Response {
	return do(httplimit.New(l, o)(http.HandlerFunc(serveNothing)), httptest.NewRequest("GET", "/", nil))
}

// TestR07R53NothingNegative: whatever a limiter says, no field has a sign, and no denial sends its client straight back.
func TestR07R53NothingNegative(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, -1, -2 * time.Second, -1767225600 * time.Second} {
		want(t, ask(saying(ratelimit.Result{Limit: 1, RetryAfter: after}, nil), httplimit.Options{}), 429, "Retry-After", "1", "RateLimit", `"default";r=0;t=1`)
	}
	sign := regexp.MustCompile(`^-|=-|[+eE.]|Inf|NaN`)
	pick := func(vs ...int64) int64 { return vs[rand.N(len(vs))] }
	for range 2000 {
		res := ratelimit.Result{
			Allowed: rand.N(2) == 0, Limit: pick(-1, 0, 1, 1e9, 1<<62), Remaining: pick(-1, 0, 1, 1<<62),
			RetryAfter: time.Duration(pick(-1, 0, 1, 1e9, 1<<62)), ResetAfter: time.Duration(pick(-1<<62, -1, 0, 1, 1e9, 1<<62)),
			Source: ratelimit.Source(rand.N(6)),
		}
		h := ask(saying(res, nil), httplimit.Options{}).Header
		for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit", "Retry-After"} {
			if v := strings.ReplaceAll(h.Get(name), "default", ""); sign.MatchString(v) {
				t.Fatalf("%s: %s of %+v", name, v, res)
			}
		}
	}
}

// TestRetryAfter: R07, R08, R10, R26.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	type step struct {
		at     time.Duration
		status int
		retry  string
	}
	for _, c := range []struct {
		name  string
		limit ratelimit.Limit
		steps []step
	}{
		{"R10", ratelimit.PerMinute(6), []step{
			{0, 200, ""},
			{0, 200, ""},
			{0, 200, ""},
			{0, 200, ""},
			{0, 200, ""},
			{0, 200, ""},
			{0, 429, "10"},
			{5001 * time.Millisecond, 429, "5"},
			{9 * time.Second, 429, "1"},
			{9999 * time.Millisecond, 429, "1"},
			{10 * time.Second, 200, ""},
		}},
		{"R26 bucket", ratelimit.PerDay(1), []step{
			{0, 200, ""},
			{time.Second, 429, "86399"},
			{86399*time.Second + 999*time.Millisecond, 429, "1"},
			{24 * time.Hour, 200, ""},
		}},
		{"R26 log", ratelimit.Limit{Algorithm: ratelimit.SlidingLog, Rate: 1, Period: 24 * time.Hour}, []step{
			{0, 200, ""},
			{time.Second, 429, "86399"},
			{86399*time.Second + 999*time.Millisecond, 429, "1"},
			{24 * time.Hour, 200, ""},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t, httplimit.Options{}, c.limit)
			for _, s := range c.steps {
				b.now = epoch.Add(s.at)
				want(t, b.get(), s.status, "Retry-After", s.retry)
			}
		})
	}
}

// TestRetryAfterIsExact: who waits for Retry-After is admitted at once, and who waits a second less is not. R07, R08.
func TestRetryAfterIsExact(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		limit := ratelimit.Limit{
			Algorithm: ratelimit.Algorithm(i % 3), Rate: 1 + r.Int64N(20),
			Period: time.Duration(1+r.Int64N(90_000_000)) * time.Microsecond,
		}
		limit.Period = max(limit.Period, time.Millisecond)
		if limit.Algorithm == ratelimit.TokenBucket {
			limit.Burst = r.Int64N(30)
		}
		cost := 1 + r.Int64N(limit.Capacity())
		b := newBed(t, httplimit.Options{Cost: func(*http.Request) int64 { return cost }}, limit)
		denials := 0
		for range 40 {
			b.now = b.now.Add(time.Duration(r.Int64N(int64(limit.Period)/4 + 1)))
			res := b.get()
			if res.StatusCode == 200 {
				continue
			}
			denials++
			wait, err := strconv.Atoi(res.Header.Get("Retry-After"))
			if err != nil {
				t.Fatal(err)
			}
			at := b.now
			if b.now = at.Add(time.Duration(wait-1) * time.Second); wait > 1 && b.get().StatusCode != 429 {
				t.Fatalf("%v, cost %d: admitted %d seconds after a denial whose Retry-After was %d", limit, cost, wait-1, wait)
			}
			if b.now = at.Add(time.Duration(wait) * time.Second); b.get().StatusCode != 200 {
				t.Fatalf("%v, cost %d: denied after the whole Retry-After of %d", limit, cost, wait)
			}
		}
		if denials == 0 && cost == limit.Capacity() {
			t.Errorf("%v, cost %d: no denial", limit, cost)
		}
	}
}

// TestR22Never: a cost that can never fit.
func TestR22Never(t *testing.T) {
	t.Parallel()
	cost := int64(4)
	b := newBed(t, httplimit.Options{Cost: func(*http.Request) int64 { return cost }}, ratelimit.Limit{Rate: 3, Period: 2 * time.Second})
	res := b.get()
	want(t, res, 429, "X-RateLimit-Limit", "3", "X-RateLimit-Remaining", "", "X-RateLimit-Reset", "", "Retry-After", "", "RateLimit", "",
		"RateLimit-Policy", `"default";q=3;w=2`)
	if body := text(t, res); !strings.Contains(body, "costs more than the limit default can ever hold") || !strings.Contains(body, "quota-exceeded") {
		t.Errorf("body %s", body)
	}
	cost = 1
	want(t, b.get(), 200, "X-RateLimit-Remaining", "2")
}

// TestR28R29: whole numbers, and no wait where there is none.
func TestR28R29(t *testing.T) {
	t.Parallel()
	b := newBed(t, httplimit.Options{}, ratelimit.PerSecond(10))
	want(t, b.get(), 200, "Retry-After", "")
	b.now = b.now.Add(33 * time.Millisecond)
	want(t, b.get(), 200, "X-RateLimit-Remaining", "8", "Retry-After", "")
}

// TestR43Reset: X-RateLimit-Reset is rounded up, and who waits for it is admitted.
func TestR43Reset(t *testing.T) {
	t.Parallel()
	for format, reset := range map[httplimit.ResetFormat]string{httplimit.ResetUnix: "1767225630", httplimit.ResetDelta: "30"} {
		b := newBed(t, httplimit.Options{ResetFormat: format}, ratelimit.Limit{Rate: 1, Period: 29650 * time.Millisecond})
		b.now = epoch.Add(300 * time.Millisecond)
		want(t, b.get(), 200, "X-RateLimit-Reset", reset)
		want(t, b.get(), 429, "X-RateLimit-Reset", reset)
	}
	r := rand.New(rand.NewPCG(3, 4))
	b := newBed(t, httplimit.Options{}, ratelimit.Limit{Rate: 1, Period: 29650 * time.Millisecond})
	for range 10_000 {
		b.now = b.now.Add(time.Duration(r.Int64N(int64(time.Minute))))
		b.get()
		res := b.get()
		if res.StatusCode != 429 {
			t.Fatal("two of one were admitted")
		}
		at, err := strconv.ParseInt(res.Header.Get("X-RateLimit-Reset"), 10, 64)
		if err != nil || at <= b.now.Unix() {
			t.Fatalf("reset %d at %v, error %v", at, b.now, err)
		}
		b.now = time.Unix(at, 0)
		if b.get().StatusCode != 200 {
			t.Fatalf("denied at the announced reset")
		}
	}
}

// TestR44OneClockReading: the clock is read once a response, and not at all where nothing needs it.
func TestR44OneClockReading(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		o     httplimit.Options
		reads int
	}{
		{httplimit.Options{}, 1},
		{httplimit.Options{ResetFormat: httplimit.ResetDelta}, 0},
		{httplimit.Options{Headers: httplimit.HeadersDraft}, 0},
		{httplimit.Options{Headers: httplimit.HeadersNone}, 0},
	} {
		reads := 0
		c.o.Clock = func() time.Time { reads++; return epoch.Add(59*time.Second + 2*time.Second*time.Duration(reads-1)) }
		res := ask(saying(ratelimit.Result{Allowed: true, Limit: 5, Remaining: 4, ResetAfter: time.Second}, nil), c.o)
		if reads != c.reads {
			t.Errorf("%+v: %d readings, want %d", c.o.Headers, reads, c.reads)
		}
		if reads == 1 {
			want(t, res, 200, "X-RateLimit-Remaining", "4", "X-RateLimit-Reset", strconv.FormatInt(epoch.Unix()+60, 10))
		}
	}
}

// TestR100Tightest: two limits in one limiter and in two say the same.
func TestR100Tightest(t *testing.T) {
	t.Parallel()
	a, b := ratelimit.PerMinute(100).Named("a"), ratelimit.PerMinute(2).Named("b")
	store := memstore.New(memstore.Options{Clock: func() time.Time { return epoch }})
	o := httplimit.Options{Clock: func() time.Time { return epoch }}
	limiter := func(limits ...ratelimit.Limit) func(http.Handler) http.Handler {
		l, err := ratelimit.New(store, limits...)
		if err != nil {
			t.Fatal(err)
		}
		return httplimit.New(l, o)
	}
	handler := http.HandlerFunc(serveNothing)
	for name, h := range map[string]http.Handler{
		"192.0.2.1:1": limiter(a, b)(handler),
		"192.0.2.2:1": limiter(a)(limiter(b)(handler)),
		"192.0.2.3:1": limiter(b)(limiter(a)(handler)),
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = name
		policy := `"a";q=100;w=60, "b";q=2;w=60`
		if name == "192.0.2.3:1" {
			policy = `"b";q=2;w=60, "a";q=100;w=60`
		}
		want(t, do(h, r), 200, "X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "1", "RateLimit", `"b";r=1;t=30`, "RateLimit-Policy", policy)
		want(t, do(h, r), 200, "X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0", "RateLimit", `"b";r=0;t=60`, "RateLimit-Policy", policy)
		if name == "192.0.2.3:1" {
			policy = `"b";q=2;w=60` // the inner one is not asked
		}
		want(t, do(h, r), 429, "X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0", "RateLimit", `"b";r=0;t=30`, "RateLimit-Policy", policy,
			"Retry-After", "30")
		if name == "192.0.2.1:1" { // one limiter spends from all or none
			la, err := ratelimit.New(store, a)
			if err != nil {
				t.Fatal(err)
			}
			if res, err := la.Peek(t.Context(), "ip=192.0.2.1"); err != nil || res.Remaining != 98 {
				t.Errorf("a has %d left after two of three, error %v", res.Remaining, err)
			}
		}
	}
	same := limiter(a)(limiter(a)(handler))
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "192.0.2.9:1"
	want(t, do(same, r), 200, "X-RateLimit-Remaining", "98", "RateLimit-Policy", `"a";q=100;w=60`)
}

// TestR101RetryAfterOnDenialsAlone.
func TestR101RetryAfterOnDenialsAlone(t *testing.T) {
	t.Parallel()
	b := newBed(t, httplimit.Options{}, ratelimit.PerMinute(6))
	for _, b.status = range []int{200, 201, 204, 304, 404, 500} {
		res := b.get()
		want(t, res, b.status, "Retry-After", "", "X-RateLimit-Limit", "6")
		if res.Header.Get("X-RateLimit-Remaining") == "" || res.Header.Get("RateLimit") == "" || res.Header.Get("RateLimit-Policy") == "" {
			t.Errorf("status %d has not all fields: %v", b.status, res.Header)
		}
	}
	want(t, b.get(), 429, "Retry-After", "10")
	closed := ask(saying(ratelimit.Result{Limit: 5, RetryAfter: 2 * time.Second, Source: ratelimit.SourceFailClosed}, nil), httplimit.Options{})
	want(t, closed, 503, "Retry-After", "2", "X-RateLimit-Remaining", "", "RateLimit", "")
}

func TestDialects(t *testing.T) {
	t.Parallel()
	all := []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit", "RateLimit-Policy"}
	for dialects, n := range map[httplimit.Headers]string{
		0: "11111", httplimit.HeadersLegacy | httplimit.HeadersDraft: "11111", httplimit.HeadersLegacy: "11100",
		httplimit.HeadersDraft: "00011", httplimit.HeadersNone: "00000",
	} {
		b := newBed(t, httplimit.Options{Headers: dialects}, ratelimit.PerMinute(1))
		for _, retry := range []string{"", "60"} {
			res := b.get()
			for i, name := range all {
				if has := len(res.Header.Values(name)); has != int(n[i]-'0') {
					t.Errorf("%d: %s stands %d times", dialects, name, has)
				}
			}
			want(t, res, res.StatusCode, "Retry-After", retry)
		}
	}
}

// TestUncountedKeepsWhatIsThere: a decision without a count does not replace a remainder, and a denial without one removes it.
func TestUncountedKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	counted := ratelimit.Result{Allowed: true, Limit: 9, Remaining: 3, ResetAfter: time.Second, Name: "x"}
	open := ratelimit.Result{Allowed: true, Limit: 5, Remaining: 5, Source: ratelimit.SourceFailOpen}
	never := ratelimit.Result{Limit: 5, RetryAfter: ratelimit.Never}
	nest := func(outer, inner ratelimit.Result) *http.Response {
		o := httplimit.Options{ResetFormat: httplimit.ResetDelta}
		h := httplimit.New(saying(outer, nil), o)(httplimit.New(saying(inner, nil), o)(http.HandlerFunc(serveNothing)))
		return do(h, httptest.NewRequest("GET", "/", nil))
	}
	want(t, nest(open, open), 200, "X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "", "X-RateLimit-Reset", "", "RateLimit", "")
	for _, res := range []*http.Response{nest(counted, open), nest(open, counted)} {
		want(t, res, 200, "X-RateLimit-Limit", "9", "X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "1", "RateLimit", `"x";r=3;t=1`)
	}
	tie := ratelimit.Result{Allowed: true, Limit: 7, Remaining: 3, ResetAfter: 2 * time.Second, Name: "y"}
	want(t, nest(tie, counted), 200, "X-RateLimit-Limit", "7", "X-RateLimit-Reset", "2", "RateLimit", `"y";r=3;t=2`) // the first
	w := httptest.NewRecorder()
	w.Header().Set("Retry-After", "5")
	httplimit.New(saying(never, nil), httplimit.Options{})(nil).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	want(t, w.Result(), 429, "Retry-After", "")
	want(t, nest(counted, never), 429, "X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "", "X-RateLimit-Reset", "", "RateLimit", "", "Retry-After", "")
}

// TestR100DenialInAnotherDialect: what a limiter further out has left does not stand beside a denial that does not say
// the same field.
func TestR100DenialInAnotherDialect(t *testing.T) {
	t.Parallel()
	outer := saying(ratelimit.Result{Allowed: true, Limit: 100, Remaining: 99, ResetAfter: time.Hour, Name: "out"}, nil)
	inner := saying(ratelimit.Result{Limit: 2, ResetAfter: 2 * time.Second, RetryAfter: time.Second, Name: "in"}, nil)
	for dialect, fields := range map[httplimit.Headers][3]string{
		httplimit.HeadersLegacy: {"0", "2", ""}, httplimit.HeadersDraft: {"", "", `"in";r=0;t=1`}, httplimit.HeadersNone: {},
	} {
		h := httplimit.New(inner, httplimit.Options{Headers: dialect, ResetFormat: httplimit.ResetDelta})(nil)
		res := do(httplimit.New(outer, httplimit.Options{})(h), httptest.NewRequest("GET", "/", nil))
		want(t, res, 429, "X-RateLimit-Remaining", fields[0], "X-RateLimit-Reset", fields[1], "RateLimit", fields[2], "Retry-After", "1")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	l := saying(ratelimit.Result{}, nil)
	refund := func(*http.Request, int) int64 { return 1 }
	for name, f := range map[string]func(){
		"limiter": func() { httplimit.New(nil, httplimit.Options{}) },
		"Headers": func() {
			httplimit.New(l, httplimit.Options{Headers: httplimit.HeadersNone | httplimit.HeadersLegacy})
		},
		"ResetFormat":         func() { httplimit.New(l, httplimit.Options{ResetFormat: 2}) },
		"MaxWait":             func() { httplimit.New(l, httplimit.Options{MaxWait: -1}) },
		"Refund":              func() { httplimit.New(l, httplimit.Options{Refund: refund}) },
		"ByHeader":            func() { httplimit.ByHeader("a b") },
		"AddressHeader":       func() { httplimit.AddressHeader("") },
		"prefix of 0 bits":    func() { httplimit.IPv6Prefix(0) },
		"prefix is not valid": func() { httplimit.TrustedProxies(noPrefix) },
		"cost":                func() { httplimit.WithCost(-1) },
		"Choose of nil":       func() { httplimit.Choose(nil) },
		"ByUser of nil":       func() { httplimit.ByUser(nil) },
		"Join of nil":         func() { httplimit.Join(httplimit.ByIP(), nil) },
		"FirstOf of nil":      func() { httplimit.FirstOf(nil) },
		"Hashed of nil":       func() { httplimit.Hashed(nil) },
		"unit":                func() { httplimit.CostByLength(0, 1) },
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.HasPrefix(text, "httplimit: ") || !strings.Contains(text, name) {
					t.Errorf("%s: panic %q", name, text)
				}
			}()
			f()
		}()
	}
}

var errOutage = fmt.Errorf("%w: %w", ratelimit.ErrStoreUnavailable, errors.New("connection refused"))

// TestNoLimit: where no limit holds there is nothing to tell, and a denial then is no matter of waiting.
func TestNoLimit(t *testing.T) {
	t.Parallel()
	none := []string{"X-RateLimit-Limit", "", "X-RateLimit-Remaining", "", "X-RateLimit-Reset", "", "RateLimit", "", "Retry-After", ""}
	want(t, ask(saying(ratelimit.Result{Allowed: true, Taken: 1}, nil), httplimit.Options{}), 200, none...)
	res := ask(saying(ratelimit.Result{RetryAfter: ratelimit.Never}, nil), httplimit.Options{})
	want(t, res, 429, none...)
	if body, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(body), "No requests of this kind") {
		t.Errorf("%s, %v", body, err)
	}
}
