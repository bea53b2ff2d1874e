package httplimit_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
)

// TestR104 seconds to go, never more than the window, under a name that no number changes.
func TestR104(t *testing.T) {
	t.Parallel()
	b := newBed(t, httplimit.Options{}, ratelimit.PerMinute(10).Named("api"))
	for i := range 10 {
		r := 9 - i
		want(t, b.get(), 200, "RateLimit", fmt.Sprintf(`"api";r=%d;t=%d`, r, max(6*r, 60-6*r)), "RateLimit-Policy", `"api";q=10;w=60`)
	}
	raised := newBed(t, httplimit.Options{}, ratelimit.PerMinute(20).Named("api"))
	want(t, raised.get(), 200, "RateLimit-Policy", `"api";q=20;w=60`)
	counter := newBed(t, httplimit.Options{}, ratelimit.Limit{Algorithm: ratelimit.SlidingCounter, Rate: 1, Period: 3 * time.Second})
	want(t, counter.get(), 200, "RateLimit", `"default";r=0;t=3`) // unused again after 6
	want(t, counter.get(), 429, "RateLimit", `"default";r=0;t=3`, "Retry-After", "6")
}

// TestDraftInvitesNoMore: what a client may infer from the draft's fields is never more than the limit.
func TestDraftInvitesNoMore(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	item := regexp.MustCompile(`^"x";[qr]=([0-9]{1,15});[wt]=([0-9]{1,15})$`)
	parse := func(field string) (n, window int64) {
		m := item.FindStringSubmatch(field)
		if m == nil {
			t.Fatalf("field %q", field)
		}
		n, _ = strconv.ParseInt(m[1], 10, 64)
		window, _ = strconv.ParseInt(m[2], 10, 64)
		return n, window
	}
	product := func(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }
	upTo := func(n int64) int64 { return 1 + r.Int64N(1<<r.IntN(63))%n }
	for range 5000 {
		limit := ratelimit.Limit{
			Name: "x", Algorithm: ratelimit.Algorithm(r.IntN(3)), Rate: upTo(100_000),
			Period: max(time.Millisecond, time.Duration(upTo(366*24*3600e6))*time.Microsecond),
		}
		if limit.Algorithm == ratelimit.TokenBucket {
			limit.Rate, limit.Burst = upTo(1e9), r.Int64N(2)*upTo(1e9)
		}
		if err := limit.Validate(); err != nil {
			t.Fatal(err)
		}
		res := ratelimit.Result{
			Allowed: r.IntN(2) == 0, Limit: limit.Capacity(), Name: "x", Remaining: r.Int64N(limit.Capacity() + 1),
			ResetAfter: time.Duration(upTo(int64(2 * limit.Period))), RetryAfter: time.Duration(upTo(int64(2 * limit.Period))),
		}
		h := ask(described{saying(res, nil), []ratelimit.Limit{limit}}, httplimit.Options{}).Header
		q, w := parse(h.Get("RateLimit-Policy"))
		left, window := parse(h.Get("RateLimit"))
		if product(q, int64(limit.Period)).Cmp(product(w, limit.Rate*int64(time.Second))) > 0 || w < 1 || q < 1 {
			t.Fatalf("%v has the policy q=%d;w=%d", limit, q, w)
		}
		if product(left, w).Cmp(product(q, window)) > 0 || window > w || left > max(0, res.Remaining) {
			t.Fatalf("%v and %+v: r=%d;t=%d of q=%d;w=%d", limit, res, left, window, q, w)
		}
	}
}

// described is a Limiter that tells limits.
type described struct {
	ratelimit.Limiter
	limits []ratelimit.Limit
}

func (d described) LimitsFor(string) []ratelimit.Limit { return d.limits }

func TestPolicies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limits []ratelimit.Limit
		policy string
	}{
		{[]ratelimit.Limit{ratelimit.PerMinute(100).Named("burst"), ratelimit.PerDay(1000).Named("day")}, `"burst";q=100;w=60, "day";q=1000;w=86400`},
		{[]ratelimit.Limit{{Rate: 10, Period: time.Second, Burst: 25}}, `"default";q=25;w=3`},
		{[]ratelimit.Limit{{Rate: 1, Period: 366 * 24 * time.Hour, Burst: 1e9}}, `"default";q=31623153;w=999999999999999`},
		{[]ratelimit.Limit{{Rate: 5, Period: 100 * time.Millisecond}}, `"default";q=5;w=1`},
		{[]ratelimit.Limit{{Algorithm: ratelimit.SlidingCounter, Rate: 7, Period: 90 * time.Minute}}, `"default";q=7;w=5400`},
		{[]ratelimit.Limit{{}, ratelimit.PerSecond(1)}, `"default";q=1;w=1`}, // what is no limit is no policy
		{nil, ""},
	} {
		l := described{saying(ratelimit.Result{Allowed: true, Limit: 1}, nil), c.limits}
		want(t, ask(l, httplimit.Options{}), 200, "RateLimit-Policy", c.policy)
	}
	l := saying(ratelimit.Result{Allowed: true, Limit: 1, Name: "ü\"\n"}, nil)
	want(t, ask(l, httplimit.Options{}), 200, "RateLimit-Policy", "", "RateLimit", `"____";r=0;t=0`)
	changing := &described{saying(ratelimit.Result{Allowed: true, Limit: 1}, nil), []ratelimit.Limit{ratelimit.PerSecond(1)}}
	h := httplimit.New(changing, httplimit.Options{})(http.HandlerFunc(serveNothing))
	want(t, do(h, httptest.NewRequest("GET", "/", nil)), 200, "RateLimit-Policy", `"default";q=1;w=1`)
	changing.limits = []ratelimit.Limit{ratelimit.PerSecond(2)}
	want(t, do(h, httptest.NewRequest("GET", "/", nil)), 200, "RateLimit-Policy", `"default";q=2;w=1`)
}
