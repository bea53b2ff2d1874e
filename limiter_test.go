package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// A scripted Store answers with what it was told and remembers what it was asked.
type scripted struct {
	results [][]ratelimit.Result // for one call after the other
	err     error                // once there are no more results
	asked   [][]ratelimit.Request
	resets  []string
}

func (s *scripted) TakeAll(_ context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
	s.asked = append(s.asked, slices.Clone(reqs))
	if len(s.results) == 0 {
		return nil, s.err
	}
	results := s.results[0]
	s.results = s.results[1:]
	return results, nil
}

func (s *scripted) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	results, err := s.TakeAll(ctx, []ratelimit.Request{req})
	if err != nil {
		return ratelimit.Result{}, err
	}
	return results[0], nil
}

func (s *scripted) Reset(_ context.Context, key string, limits ...*ratelimit.Limit) error {
	for _, l := range limits {
		s.resets = append(s.resets, fmt.Sprintf("%s %v", key, *l))
	}
	return s.err
}

var errBoom = fmt.Errorf("%w: boom", ratelimit.ErrStoreUnavailable)

func TestNewRefuses(t *testing.T) {
	store := &scripted{err: errBoom}
	sixteen := make([]ratelimit.Limit, ratelimit.MaxTakeAll)
	for i := range sixteen {
		sixteen[i] = ratelimit.PerSecond(1).Named(fmt.Sprint(i))
	}
	a := ratelimit.PerSecond(5).Named("a")
	asLog := a
	asLog.Algorithm = ratelimit.SlidingLog
	for name, c := range map[string]struct {
		limits []ratelimit.Limit
		text   string // "": it is accepted
	}{
		"no limits":                        {nil, "0 limits"},
		"seventeen limits":                 {append(slices.Clone(sixteen), a), "17 limits"},
		"sixteen limits":                   {sixteen, ""},
		"an invalid limit":                 {[]ratelimit.Limit{a, ratelimit.PerSecond(0)}, "Rate 0"},
		"a name twice":                     {[]ratelimit.Limit{a, ratelimit.PerMinute(50).Named("a")}, `two limits are a token-bucket of Name "a"`},
		"no name twice":                    {[]ratelimit.Limit{ratelimit.PerSecond(5), ratelimit.PerMinute(50)}, `two limits are a token-bucket of Name ""`},
		"a name once for each algorithm":   {[]ratelimit.Limit{a, asLog}, ""},
		"names that differ":                {[]ratelimit.Limit{a, ratelimit.PerMinute(50).Named("A")}, ""},
		"one limit without a name or more": {[]ratelimit.Limit{ratelimit.PerDay(1)}, ""},
	} {
		l, err := ratelimit.New(store, c.limits...)
		switch {
		case c.text == "":
			if err != nil || l == nil {
				t.Errorf("%s: %v", name, err)
			}
		case !errors.Is(err, ratelimit.ErrInvalidLimit) || !strings.Contains(err.Error(), c.text) || l != nil:
			t.Errorf("%s: %v, want ErrInvalidLimit with %q", name, err, c.text)
		}
	}
	if l, err := ratelimit.New(nil, a); err == nil || l != nil || errors.Is(err, ratelimit.ErrInvalidLimit) {
		t.Errorf("no store: %v", err)
	}
	if len(store.asked) != 0 {
		t.Errorf("the store was asked: %v", store.asked)
	}
}

func TestConstructorsSetTheAlgorithm(t *testing.T) {
	for algorithm, construct := range map[ratelimit.Algorithm]func(ratelimit.Store, ratelimit.Limit) (*ratelimit.StoreLimiter, error){
		ratelimit.TokenBucket:    ratelimit.NewTokenBucket,
		ratelimit.SlidingLog:     ratelimit.NewSlidingLog,
		ratelimit.SlidingCounter: ratelimit.NewSlidingCounter,
	} {
		for given := range ratelimit.Algorithm(3) {
			limit := ratelimit.Limit{Name: "n", Algorithm: given, Rate: 5, Period: time.Minute}
			l, err := construct(&scripted{}, limit)
			if err != nil {
				t.Errorf("%v given %v: %v", algorithm, given, err)
				continue
			}
			limit.Algorithm = algorithm
			if got := l.LimitsFor("any"); !slices.Equal(got, []ratelimit.Limit{limit}) {
				t.Errorf("%v given %v: %v", algorithm, given, got)
			}
		}
		if _, err := construct(nil, ratelimit.PerSecond(1)); err == nil {
			t.Errorf("%v accepts no store", algorithm)
		}
		if _, err := construct(&scripted{}, ratelimit.Limit{Rate: 5}); !errors.Is(err, ratelimit.ErrInvalidLimit) {
			t.Errorf("%v of an invalid limit: %v", algorithm, err)
		}
	}
}

// TestLimitsAreCopies: neither what was handed in nor what was handed out changes the limiter.
func TestLimitsAreCopies(t *testing.T) {
	given := []ratelimit.Limit{ratelimit.PerSecond(5).Named("a"), ratelimit.PerMinute(50).Named("b")}
	want := slices.Clone(given)
	l := must(t, &scripted{}, given...)
	given[0].Rate = 1
	handed := l.LimitsFor("k")
	handed[1].Rate = 1
	if got := l.LimitsFor("k"); !slices.Equal(got, want) {
		t.Errorf("limits %v, want %v", got, want)
	}
}

// TestMistakesDoNotReachTheStore: R22, R23, R29.
func TestMistakesDoNotReachTheStore(t *testing.T) {
	one := ratelimit.Limit{Rate: 3, Period: 2 * time.Second}
	for _, limits := range [][]ratelimit.Limit{{one}, {one.Named("a"), ratelimit.PerHour(100).Named("b")}} {
		store := &scripted{err: errBoom}
		l := must(t, store, limits...)
		ctx := t.Context()
		for _, cost := range []int64{-1, math.MinInt64} {
			if res, err := l.Allow(ctx, "k", cost); !errors.Is(err, ratelimit.ErrInvalidCost) || res != (ratelimit.Result{}) {
				t.Errorf("Allow(%d): %+v, %v", cost, res, err)
			}
			if res, err := l.TakeUpTo(ctx, "k", cost); !errors.Is(err, ratelimit.ErrInvalidCost) || res != (ratelimit.Result{}) {
				t.Errorf("TakeUpTo(%d): %+v, %v", cost, res, err)
			}
		}
		for _, n := range []int64{0, -1, math.MinInt64} {
			if res, err := l.Refund(ctx, "k", n); !errors.Is(err, ratelimit.ErrInvalidCost) || res != (ratelimit.Result{}) {
				t.Errorf("Refund(%d): %+v, %v", n, res, err)
			}
		}
		for _, cost := range []int64{0, 1, 4} {
			if res, err := l.Allow(ctx, "", cost); !errors.Is(err, ratelimit.ErrInvalidKey) || res != (ratelimit.Result{}) {
				t.Errorf("Allow without a key: %+v, %v", res, err)
			}
		}
		for _, cost := range []int64{4, 301, math.MaxInt64} {
			want := ratelimit.Result{Limit: 3, RetryAfter: ratelimit.Never, Name: limits[0].Name}
			if res, err := l.Allow(ctx, "k", cost); err != nil || res != want {
				t.Errorf("Allow(%d): %+v, %v, want %+v", cost, res, err, want)
			}
		}
		if len(store.asked) != 0 {
			t.Errorf("the store was asked: %v", store.asked)
		}
	}
	// Of several limits that a cost is too much for, the first speaks.
	l := must(t, &scripted{}, ratelimit.PerHour(9).Named("roomy"), ratelimit.PerSecond(5).Named("a"), ratelimit.PerSecond(3).Named("b"))
	if res, err := l.Allow(t.Context(), "k", 6); err != nil || res.Name != "a" || res.Limit != 5 || res.RetryAfter != ratelimit.Never {
		t.Errorf("cost 6: %+v, %v", res, err)
	}
}

// TestErrorsPass: what the Store reports is what the caller sees, and no Result comes with it.
func TestErrorsPass(t *testing.T) {
	for n, limits := range map[int][]ratelimit.Limit{1: {ratelimit.PerSecond(5)}, 2: {ratelimit.PerSecond(5).Named("a"), ratelimit.PerMinute(50).Named("b")}} {
		l := must(t, &scripted{err: errBoom}, limits...)
		for name, call := range map[string]func() (ratelimit.Result, error){
			"Allow":    func() (ratelimit.Result, error) { return l.Allow(t.Context(), "k", 1) },
			"Peek":     func() (ratelimit.Result, error) { return l.Peek(t.Context(), "k") },
			"Refund":   func() (ratelimit.Result, error) { return l.Refund(t.Context(), "k", 1) },
			"TakeUpTo": func() (ratelimit.Result, error) { return l.TakeUpTo(t.Context(), "k", 1) },
			"Reset":    func() (ratelimit.Result, error) { return ratelimit.Result{}, l.Reset(t.Context(), "k") },
		} {
			if res, err := call(); err != errBoom || res != (ratelimit.Result{}) {
				t.Errorf("%s under %d limits: %+v, %v", name, n, res, err)
			}
		}
	}
	scarce := &scripted{err: errBoom, results: [][]ratelimit.Result{{{Remaining: 1, RetryAfter: 1}, {Remaining: 3}}}}
	l := must(t, scarce, ratelimit.PerSecond(5).Named("a"), ratelimit.PerMinute(50).Named("b"))
	if res, err := l.TakeUpTo(t.Context(), "k", 3); err != errBoom || res != (ratelimit.Result{}) {
		t.Errorf("TakeUpTo whose second call fails: %+v, %v", res, err)
	}
}

// TestRequests: one limit is one Take, several are one TakeAll in the order given.
func TestRequests(t *testing.T) {
	allowed := ratelimit.Result{Allowed: true}
	limits := []ratelimit.Limit{ratelimit.PerSecond(9).Named("a"), ratelimit.PerMinute(90).Named("b")}
	for n := 1; n <= 2; n++ {
		for name, c := range map[string]struct {
			call        func(*ratelimit.StoreLimiter) (ratelimit.Result, error)
			cost, extra int64
		}{
			"Allow":    {func(l *ratelimit.StoreLimiter) (ratelimit.Result, error) { return l.Allow(t.Context(), "k", 3) }, 3, 0},
			"Peek":     {func(l *ratelimit.StoreLimiter) (ratelimit.Result, error) { return l.Peek(t.Context(), "k") }, 0, 0},
			"Refund":   {func(l *ratelimit.StoreLimiter) (ratelimit.Result, error) { return l.Refund(t.Context(), "k", 3) }, -3, 0},
			"TakeUpTo": {func(l *ratelimit.StoreLimiter) (ratelimit.Result, error) { return l.TakeUpTo(t.Context(), "k", 3) }, 0, 3},
		} {
			if name == "TakeUpTo" && n > 1 { // with an Extra the roomier limits would be charged for more than they share
				c.cost, c.extra = 3, 0
			}
			store := &scripted{results: [][]ratelimit.Result{slices.Repeat([]ratelimit.Result{allowed}, n)}}
			if _, err := c.call(must(t, store, limits[:n]...)); err != nil || len(store.asked) != 1 || len(store.asked[0]) != n {
				t.Errorf("%s under %d limits: asked %v, %v", name, n, store.asked, err)
				continue
			}
			for i, req := range store.asked[0] {
				if *req.Limit != limits[i] || req.Key != "k" || req.Cost != c.cost || req.Extra != c.extra {
					t.Errorf("%s under %d limits, request %d: %+v", name, n, i, req)
				}
			}
		}
	}
	store := &scripted{}
	if err := must(t, store, limits...).Reset(t.Context(), "k"); err != nil || !slices.Equal(store.resets, []string{"k " + limits[0].String(), "k " + limits[1].String()}) {
		t.Errorf("Reset: %q, %v", store.resets, err)
	}
}

// TestBinding: of a denial the longest wait speaks, of an admission the least that remains, of equals the first.
func TestBinding(t *testing.T) {
	limits := []ratelimit.Limit{ratelimit.PerSecond(9).Named("a"), ratelimit.PerSecond(9).Named("b"), ratelimit.PerSecond(9).Named("c")}
	yes := func(remaining ...int64) (results []ratelimit.Result) {
		for i, n := range remaining {
			results = append(results, ratelimit.Result{Allowed: true, Remaining: n, Taken: 1, Limit: int64(i), Name: limits[i].Name})
		}
		return results
	}
	no := func(waits ...time.Duration) (results []ratelimit.Result) {
		for i, d := range waits {
			results = append(results, ratelimit.Result{RetryAfter: d, Remaining: int64(9 - i), Limit: int64(i), Name: limits[i].Name})
		}
		return results
	}
	for name, c := range map[string]struct {
		results []ratelimit.Result
		want    int
	}{
		"the least remains in the first":      {yes(1, 2, 3), 0},
		"in the middle":                       {yes(2, 1, 3), 1},
		"in the last":                         {yes(3, 2, 0), 2},
		"as much remains in all":              {yes(2, 2, 2), 0},
		"as little in the last two":           {yes(2, 1, 1), 1},
		"the first waits longest":             {no(3, 2, 1), 0},
		"the middle one, the others had room": {no(0, 1, 0), 1},
		"the last, which has more remaining":  {no(0, 1, 2), 2},
		"all as long":                         {no(5, 5, 5), 0},
		"two as long":                         {no(0, 5, 5), 1},
		"never is longest":                    {no(5, ratelimit.Never, 6), 1},
		"never twice":                         {no(5, ratelimit.Never, ratelimit.Never), 1},
	} {
		l := must(t, &scripted{results: [][]ratelimit.Result{c.results}}, limits...)
		if res, err := l.Allow(t.Context(), "k", 1); err != nil || res != c.results[c.want] {
			t.Errorf("%s: %+v, %v, want %+v", name, res, err, c.results[c.want])
		}
	}
}

// TestSeveralLimits: all or nothing, over a real store.
func TestSeveralLimits(t *testing.T) {
	clock := newHandClock()
	store := memstore.New(memstore.Options{Clock: clock.Now})
	group, special := ratelimit.PerMinute(10).Named("group"), ratelimit.PerMinute(3).Named("special")
	l := must(t, store, group, special)
	for i := range 5 { // R122
		res, err := l.Allow(t.Context(), "k", 1)
		if err != nil || res.Allowed != (i < 3) || res.Name != "special" || res.Remaining != max(0, int64(2-i)) || res.Limit != 3 {
			t.Errorf("call %d: %+v, %v", i+1, res, err)
		}
		if !res.Allowed && res.RetryAfter != 20*time.Second {
			t.Errorf("call %d: retry after %v", i+1, res.RetryAfter)
		}
	}
	if res, err := must(t, store, group).Peek(t.Context(), "k"); err != nil || res.Remaining != 7 {
		t.Errorf("the group has %+v left, %v", res, err)
	}
	if res, err := l.Refund(t.Context(), "k", 2); err != nil || !res.Allowed || res.Name != "special" || res.Taken != -2 || res.Remaining != 2 {
		t.Errorf("Refund: %+v, %v", res, err)
	}
	if err := l.Reset(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	if res, err := must(t, store, group).Peek(t.Context(), "k"); err != nil || res.Remaining != 10 {
		t.Errorf("after Reset the group has %+v left, %v", res, err)
	}
}

// TestRefund: R23, never past the capacity.
func TestRefund(t *testing.T) {
	for algorithm := range ratelimit.Algorithm(3) {
		clock := newHandClock()
		l := must(t, memstore.New(memstore.Options{Clock: clock.Now}), ratelimit.Limit{Algorithm: algorithm, Rate: 10, Period: time.Minute})
		spend(t, l, "k", 10)
		for _, c := range []struct{ n, taken, remaining int64 }{{1, -1, 1}, {100, -9, 10}, {math.MaxInt64, 0, 10}} {
			if res, err := l.Refund(t.Context(), "k", c.n); err != nil || !res.Allowed || res.Taken != c.taken || res.Remaining != c.remaining {
				t.Errorf("%v, Refund(%d): %+v, %v", algorithm, c.n, res, err)
			}
		}
	}
}

// A wrapper is a Store around a Store.
type wrapper struct{ ratelimit.Store }

func (w wrapper) Unwrap() ratelimit.Store { return w.Store }

func TestHistory(t *testing.T) {
	clock := newHandClock()
	store := memstore.New(memstore.Options{Clock: clock.Now})
	log := ratelimit.Limit{Name: "log", Algorithm: ratelimit.SlidingLog, Rate: 10, Period: time.Minute}
	for _, s := range []ratelimit.Store{store, wrapper{store}, wrapper{wrapper{store}}} {
		l := must(t, s, ratelimit.PerSecond(10), log)
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		first := clock.now
		spend(t, l, "k", 2)
		clock.forward(59 * time.Second)
		spend(t, l, "k", 3)
		for _, want := range [][]int64{{2, 3}, {3}} {
			entries, err := l.History(t.Context(), "k")
			var costs []int64
			for _, e := range entries {
				costs = append(costs, e.Cost)
			}
			if err != nil || !slices.Equal(costs, want) || !entries[len(entries)-1].Time.Equal(first.Add(59*time.Second)) {
				t.Errorf("history %v, %v, want costs %v", entries, err, want)
			}
			clock.forward(time.Second)
		}
	}
	for name, l := range map[string]*ratelimit.StoreLimiter{
		"no sliding log":               must(t, store, ratelimit.PerSecond(10)),
		"no history":                   must(t, &scripted{}, log),
		"no history behind a wrapper":  must(t, wrapper{&scripted{}}, log),
		"nothing behind a wrapper":     must(t, wrapper{}, log),
		"a wrapper that hides it well": must(t, struct{ ratelimit.Store }{store}, log),
	} {
		if entries, err := l.History(t.Context(), "k"); !errors.Is(err, errors.ErrUnsupported) || entries != nil {
			t.Errorf("%s: %v, %v", name, entries, err)
		}
	}
}

// TestKeysDoNotMeet: a part that looks like a result of Key is not the key it looks like.
func TestKeysDoNotMeet(t *testing.T) {
	l := must(t, memstore.New(memstore.Options{}), ratelimit.PerDay(1))
	for _, key := range []string{
		ratelimit.Key(""), ratelimit.Key(ratelimit.Key("")), ratelimit.Key(ratelimit.Key(ratelimit.Key(""))),
		ratelimit.Key("a:b"), ratelimit.Key(ratelimit.Key("a:b")), "a:b", "abc", ratelimit.Key(ratelimit.Key("abc")),
	} {
		spend(t, l, key, 1)
	}
	if res, err := l.Allow(t.Context(), ratelimit.Key("abc"), 1); err != nil || res.Allowed {
		t.Errorf("Key(abc) is not abc: %+v, %v", res, err)
	}
}

// TestLimiterFunc hands everything on.
func TestLimiterFunc(t *testing.T) {
	want := ratelimit.Result{Allowed: true, Taken: 7, Source: ratelimit.SourceLease}
	l := ratelimit.LimiterFunc(func(_ context.Context, key string, cost int64) (ratelimit.Result, error) {
		if key != "k" || cost != 7 {
			t.Errorf("key %q, cost %d", key, cost)
		}
		return want, errBoom
	})
	if res, err := l.Allow(t.Context(), "k", 7); res != want || err != errBoom {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestSourceString(t *testing.T) {
	want := []string{"store", "fallback", "lease", "deny-cache", "fail-open", "fail-closed", "Source(6)"}
	for i, text := range want {
		if got := ratelimit.Source(i).String(); got != text {
			t.Errorf("Source %d is %q, want %q", i, got, text)
		}
	}
}

// TestAllowAllocates nothing under one limit.
func TestAllowAllocates(t *testing.T) {
	l := must(t, memstore.New(memstore.Options{}), ratelimit.PerSecond(1000))
	spend(t, l, "k", 1)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _, _ = l.Allow(ctx, "k", 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A Result is copied 16 bytes at a time. If the last were fewer they would overlap those before, and a processor that reads
// what it has just written waits there.
func TestResultIsCopiedWhole(t *testing.T) {
	if size := reflect.TypeFor[ratelimit.Result]().Size(); size%16 != 0 {
		t.Errorf("%d bytes, want a multiple of 16", size)
	}
}
