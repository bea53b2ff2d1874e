package httplimit_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// epoch is T0 of the cases.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A bed is a limited handler on a clock of its own.
type bed struct {
	t       *testing.T
	now     time.Time
	limiter *ratelimit.StoreLimiter
	handler http.Handler
	served  int
	status  int // what the handler writes, 0: nothing
}

func newBed(t *testing.T, o httplimit.Options, limits ...ratelimit.Limit) *bed {
	t.Helper()
	b := &bed{t: t, now: epoch}
	clock := func() time.Time { return b.now }
	limiter, err := ratelimit.New(memstore.New(memstore.Options{Clock: clock}), limits...)
	if err != nil {
		t.Fatal(err)
	}
	b.limiter, o.Clock = limiter, clock
	b.handler = httplimit.New(limiter, o)(b)
	return b
}

func (b *bed) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	b.served++
	if b.status != 0 {
		w.WriteHeader(b.status)
	}
}

// get sends a request; each of headers is "Name: value".
func (b *bed) get(headers ...string) *http.Response {
	return b.send(http.MethodGet, headers...)
}

func (b *bed) send(method string, headers ...string) *http.Response {
	r := httptest.NewRequest(method, "/", nil)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	return do(b.handler, r)
}

func do(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// want checks the status and the header fields, in pairs of name and value; "" wants none.
func want(t *testing.T, res *http.Response, status int, pairs ...string) {
	t.Helper()
	if res.StatusCode != status {
		t.Errorf("status %d, want %d", res.StatusCode, status)
	}
	for i := 0; i < len(pairs); i += 2 {
		if got := strings.Join(res.Header.Values(pairs[i]), " | "); got != pairs[i+1] {
			t.Errorf("%s is %q, want %q", pairs[i], got, pairs[i+1])
		}
	}
}

func TestThirdOfTwoIsDenied(t *testing.T) {
	t.Parallel()
	b := newBed(t, httplimit.Options{Key: httplimit.ByHeader("X-Api-Key")}, ratelimit.PerMinute(2))
	want(t, b.get("X-Api-Key: a"), 200, "X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1767225630",
		"RateLimit-Policy", `"default";q=2;w=60`, "RateLimit", `"default";r=1;t=30`, "Retry-After", "")
	want(t, b.get("X-Api-Key: a"), 200, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225660", "RateLimit", `"default";r=0;t=60`)
	res := b.get("X-Api-Key: a")
	want(t, res, 429, "X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225660", "RateLimit", `"default";r=0;t=30`,
		"RateLimit-Policy", `"default";q=2;w=60`, "Retry-After", "30", "Content-Type", "application/problem+json", "Cache-Control", "no-store")
	var problem struct {
		Type, Title, Detail string
		Status              int
		Violated            []string `json:"violated-policies"`
	}
	if err := json.NewDecoder(res.Body).Decode(&problem); err != nil {
		t.Fatal(err)
	}
	if problem.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" || problem.Status != 429 ||
		len(problem.Violated) != 1 || problem.Violated[0] != "default" || !strings.Contains(problem.Detail, "30 seconds") || problem.Title == "" {
		t.Errorf("problem %+v", problem)
	}
	want(t, b.get("X-Api-Key: b"), 200, "X-RateLimit-Remaining", "1")
	res = b.get()
	want(t, res, 401, "Content-Type", "application/problem+json", "WWW-Authenticate", `ApiKey header="X-Api-Key"`, "X-RateLimit-Limit", "", "Cache-Control", "no-store")
	if b.served != 3 {
		t.Errorf("the handler ran %d times, want 3", b.served)
	}
}

// TestR103 holds the form of every field.
func TestR103Forms(t *testing.T) {
	t.Parallel()
	forms := map[string]*regexp.Regexp{
		"Retry-After":           regexp.MustCompile(`^[1-9][0-9]*$`),
		"X-RateLimit-Limit":     regexp.MustCompile(`^[0-9]+$`),
		"X-RateLimit-Remaining": regexp.MustCompile(`^[0-9]+$`),
		"X-RateLimit-Reset":     regexp.MustCompile(`^[0-9]+$`),
	}
	limit := ratelimit.Limit{Rate: 2, Period: 1500 * time.Millisecond}
	b := newBed(t, httplimit.Options{}, limit)
	for range 4 {
		res := b.get()
		for name, form := range forms {
			if v := res.Header.Get(name); v != "" && !form.MatchString(v) {
				t.Errorf("%s: %s", name, v)
			}
		}
		want(t, res, res.StatusCode, "RateLimit-Policy", `"default";q=2;w=2`) // not 1.5
	}
}
