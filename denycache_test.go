package ratelimit_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// A counted Store counts the calls that reach it.
type counted struct {
	ratelimit.Store
	calls atomic.Int64
	// after, if set, is called with what Take answers, before its caller sees it.
	after func(*ratelimit.Result)
}

func (c *counted) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	c.calls.Add(1)
	res, err := c.Store.Take(ctx, req)
	if c.after != nil {
		c.after(&res)
	}
	return res, err
}

func (c *counted) TakeAll(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
	c.calls.Add(1)
	return c.Store.TakeAll(ctx, reqs)
}

// A denying is a DenyCache over a counted memory store, and a clock that moves when told.
type denying struct {
	*ratelimit.DenyCache
	t     *testing.T
	store *counted
	clock atomic.Int64 // microseconds
}

func newDenying(t *testing.T, o ratelimit.DenyCacheOptions) *denying {
	t.Helper()
	d := &denying{t: t}
	d.clock.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
	o.Clock = d.now
	d.store = &counted{Store: memstore.New(memstore.Options{Clock: d.now})}
	c, err := ratelimit.NewDenyCache(d.store, o)
	if err != nil {
		t.Fatal(err)
	}
	d.DenyCache = c
	return d
}

func (d *denying) now() time.Time       { return time.UnixMicro(d.clock.Load()) }
func (d *denying) pass(t time.Duration) { d.clock.Add(t.Microseconds()) }

// take is one call, and whether the store was asked.
func (d *denying) take(key string, l ratelimit.Limit, cost int64) (res ratelimit.Result, asked bool) {
	d.t.Helper()
	before := d.store.calls.Load()
	res, err := d.Take(d.t.Context(), ratelimit.Request{Key: key, Limit: &l, Cost: cost})
	if err != nil {
		d.t.Fatal(err)
	}
	asked = d.store.calls.Load() > before
	if asked == (res.Source == ratelimit.SourceDenyCache) && res.RetryAfter != ratelimit.Never {
		d.t.Errorf("the store was asked: %v, and Source is %v", asked, res.Source)
	}
	return res, asked
}

func windowed(l ratelimit.Limit, a ratelimit.Algorithm) ratelimit.Limit {
	l.Algorithm = a
	return l
}

var everyAlgorithm = []ratelimit.Algorithm{ratelimit.TokenBucket, ratelimit.SlidingLog, ratelimit.SlidingCounter}

func TestNewDenyCacheRefuses(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	for _, c := range []struct {
		store ratelimit.Store
		o     ratelimit.DenyCacheOptions
		says  string
	}{
		{nil, ratelimit.DenyCacheOptions{}, "store is nil"},
		{store, ratelimit.DenyCacheOptions{MaxKeys: -1}, "MaxKeys -1 is below 0"},
		{store, ratelimit.DenyCacheOptions{MaxAge: -time.Second}, "MaxAge -1s"},
		{store, ratelimit.DenyCacheOptions{MaxAge: 999}, "MaxAge 999ns"},
	} {
		if _, err := ratelimit.NewDenyCache(c.store, c.o); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.says)
		}
	}
}

// The bound of the doc comment: who hammers on a denied key costs the store a call per min(RetryAfter, MaxAge).
func TestDenyCacheSparesTheStore(t *testing.T) {
	t.Parallel()
	for _, a := range everyAlgorithm {
		d := newDenying(t, ratelimit.DenyCacheOptions{})
		limit := windowed(ratelimit.PerMinute(10), a)
		if res, asked := d.take("k", limit, 10); !res.Allowed || !asked {
			t.Fatalf("%v: %+v", a, res)
		}
		before := d.store.calls.Load()
		for range 5 * 1000 { // five seconds
			if res, _ := d.take("k", limit, 7); res.Allowed {
				t.Fatalf("%v: %+v", a, res)
			}
			d.pass(time.Millisecond)
		}
		if asked := d.store.calls.Load() - before; asked != 5 {
			t.Errorf("%v: the store was asked %d times in 5 s, want once a second", a, asked)
		}
	}
}

// What is not the same question is not answered from memory. R97.
func TestDenyCacheAsksAboutAnythingElse(t *testing.T) {
	t.Parallel()
	limit := ratelimit.PerMinute(5)
	log := windowed(limit, ratelimit.SlidingLog)
	for _, c := range []struct {
		what  string
		limit ratelimit.Limit
		cost  int64
		first func(d *denying)
		allow bool
	}{
		{what: "a raised limit", limit: ratelimit.PerSecond(20), cost: 1, first: func(d *denying) { d.pass(60 * time.Millisecond) }, allow: true},
		{what: "a lowered limit", limit: ratelimit.PerHour(5), cost: 3},
		{what: "another name", limit: limit.Named("other"), cost: 3, allow: true},
		{what: "another algorithm", limit: log, cost: 3, allow: true},
		{what: "a smaller cost", limit: limit, cost: 2, allow: true},
		{what: "a smaller cost that has no room either", limit: limit, cost: 2, first: func(d *denying) { d.take("k", limit, 1) }},
		{what: "nothing", limit: limit, cost: 0, allow: true},
		{what: "a refund", limit: limit, cost: -1, allow: true},
		{what: "after a refund", limit: limit, cost: 3, first: func(d *denying) { d.take("k", limit, -1) }, allow: true},
		{what: "after a refund by Key's name of it", limit: limit, cost: 3, first: func(d *denying) { d.take(ratelimit.Key("k"), limit, -1) }, allow: true},
		{what: "after a reset", limit: limit, cost: 5, first: func(d *denying) { d.Reset(d.t.Context(), "k", &limit) }, allow: true},
		{what: "after RetryAfter", limit: limit, cost: 3, first: func(d *denying) { d.pass(12 * time.Second) }, allow: true},
		{what: "after MaxAge", limit: limit, cost: 3, first: func(d *denying) { d.pass(time.Second) }},
		{what: "after the clock stepped back", limit: limit, cost: 3, first: func(d *denying) { d.pass(-time.Second) }},
	} {
		d := newDenying(t, ratelimit.DenyCacheOptions{})
		d.take("k", limit, 3)
		if res, _ := d.take("k", limit, 3); res.Allowed || res.Remaining != 2 {
			t.Fatalf("%+v", res)
		}
		if res, asked := d.take("k", limit, 4); res.Allowed || asked || res.RetryAfter != 24*time.Second {
			t.Fatalf("a larger cost: %+v", res)
		}
		if c.first != nil {
			c.first(d)
		}
		if res, asked := d.take("k", c.limit, c.cost); !asked || res.Allowed != c.allow {
			t.Errorf("%s: asked %v, %+v", c.what, asked, res)
		}
	}
}

// R97: what is given back elsewhere is seen after MaxAge at the latest, and the denial is true until RetryAfter at the
// earliest.
func TestDenyCacheBounds(t *testing.T) {
	t.Parallel()
	const maxAge = 100 * time.Millisecond
	d := newDenying(t, ratelimit.DenyCacheOptions{MaxAge: maxAge})
	limit := ratelimit.PerHour(5)
	d.take("k", limit, 5)
	d.take("k", limit, 1)
	if err := d.Unwrap().Reset(t.Context(), "k", &limit); err != nil { // another instance
		t.Fatal(err)
	}
	d.pass(maxAge - time.Microsecond)
	if res, asked := d.take("k", limit, 1); asked || res.RetryAfter != 720*time.Second-maxAge+time.Microsecond {
		t.Errorf("before MaxAge: asked %v, %+v", asked, res)
	}
	d.pass(time.Microsecond)
	if res, asked := d.take("k", limit, 1); !asked || !res.Allowed {
		t.Errorf("after MaxAge: asked %v, %+v", asked, res)
	}

	fast := ratelimit.PerSecond(50) // a unit each 20 ms
	d.take("k", fast.Named("fast"), 50)
	d.store.after = func(*ratelimit.Result) { d.pass(3 * time.Millisecond) } // what the answer's way back takes
	d.take("k", fast.Named("fast"), 1)
	d.store.after = nil
	d.pass(17*time.Millisecond - time.Microsecond)
	if res, asked := d.take("k", fast.Named("fast"), 1); asked || res.RetryAfter != time.Microsecond {
		t.Errorf("a tick before RetryAfter since the call was sent: asked %v, %+v", asked, res)
	}
	d.pass(time.Microsecond)
	if res, asked := d.take("k", fast.Named("fast"), 1); !asked || !res.Allowed {
		t.Errorf("RetryAfter since the call was sent: asked %v, %+v", asked, res)
	}
}

// A denial that was on its way while units were given back is not remembered.
func TestDenyCacheForgetsWhatWasUnderWay(t *testing.T) {
	t.Parallel()
	limit := ratelimit.PerHour(5)
	for what, give := range map[string]func(d *denying){
		"a refund":            func(d *denying) { d.take("k", limit, -3) },
		"a reset":             func(d *denying) { d.Reset(d.t.Context(), "k", &limit) },
		"a refund among many": func(d *denying) { d.TakeAll(d.t.Context(), []ratelimit.Request{{Key: "k", Limit: &limit, Cost: -3}}) },
	} {
		d := newDenying(t, ratelimit.DenyCacheOptions{})
		d.take("k", limit, 5)
		d.store.after = func(res *ratelimit.Result) {
			d.store.after = nil
			give(d)
		}
		if res, _ := d.take("k", limit, 2); res.Allowed {
			t.Fatalf("%+v", res)
		}
		if res, asked := d.take("k", limit, 2); !asked || !res.Allowed {
			t.Errorf("%s while a denial was under way: asked %v, %+v", what, asked, res)
		}
	}
}

func TestDenyCacheKeepsOnlyTheStoresDenials(t *testing.T) {
	t.Parallel()
	limit := ratelimit.PerHour(5)
	for _, source := range []ratelimit.Source{ratelimit.SourceFallback, ratelimit.SourceFailClosed, ratelimit.SourceLease, ratelimit.SourceDenyCache} {
		store := &scripted{err: errBoom, results: [][]ratelimit.Result{{{Limit: 5, RetryAfter: time.Hour, Source: source}}}}
		c, err := ratelimit.NewDenyCache(store, ratelimit.DenyCacheOptions{})
		if err != nil {
			t.Fatal(err)
		}
		req := ratelimit.Request{Key: "k", Limit: &limit, Cost: 1}
		if res, err := c.Take(t.Context(), req); err != nil || res.Source != source {
			t.Fatalf("%+v, %v", res, err)
		}
		if _, err := c.Take(t.Context(), req); !errors.Is(err, errBoom) {
			t.Errorf("a denial by %v was remembered: %v", source, err)
		}
	}
}

func TestDenyCacheErrors(t *testing.T) {
	t.Parallel()
	limit, bad := ratelimit.PerHour(5), ratelimit.PerHour(0)
	d := newDenying(t, ratelimit.DenyCacheOptions{})
	d.take("k", limit, 5)
	d.take("k", limit, 1)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		req  ratelimit.Request
		want error
	}{
		{t.Context(), ratelimit.Request{Limit: &limit, Cost: 1}, ratelimit.ErrInvalidKey},
		{t.Context(), ratelimit.Request{Key: "k", Limit: &bad, Cost: 1}, ratelimit.ErrInvalidLimit},
		{t.Context(), ratelimit.Request{Key: "k", Limit: &limit, Extra: -1}, ratelimit.ErrInvalidCost},
		{gone, ratelimit.Request{Key: "k", Limit: &limit, Cost: 1}, context.Canceled},
	} {
		if _, err := d.Take(c.ctx, c.req); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c.req, err, c.want)
		}
		if _, err := d.TakeAll(c.ctx, []ratelimit.Request{c.req}); !errors.Is(err, c.want) {
			t.Errorf("TakeAll %+v: %v, want %v", c.req, err, c.want)
		}
	}
	if err := d.Reset(t.Context(), "k"); !errors.Is(err, ratelimit.ErrInvalidLimit) {
		t.Errorf("Reset of nothing: %v", err)
	}
	before := d.store.calls.Load()
	if res, err := d.Take(t.Context(), ratelimit.Request{Key: "new", Limit: &limit, Cost: 6}); err != nil || res.RetryAfter != ratelimit.Never || res.Limit != 5 {
		t.Errorf("a cost above the capacity: %+v, %v", res, err)
	}
	if d.store.calls.Load() != before {
		t.Error("the store was asked about a cost above the capacity")
	}
}

// Several limits on a key, of which one denies, as a StoreLimiter asks for them.
func TestDenyCacheOfSeveralLimits(t *testing.T) {
	t.Parallel()
	d := newDenying(t, ratelimit.DenyCacheOptions{})
	second, hour := ratelimit.PerSecond(10).Named("s"), ratelimit.PerHour(5).Named("h")
	l, err := ratelimit.New(d.DenyCache, second, hour)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if res, err := l.Allow(t.Context(), "k", 1); err != nil || !res.Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	before := d.store.calls.Load()
	for i := range int64(1000) {
		res, err := l.Allow(t.Context(), "k", 1)
		if err != nil || res.Allowed || res.Name != "h" || res.RetryAfter != 720*time.Second-time.Duration(i)*time.Millisecond {
			t.Fatalf("call %d: %+v, %v", i, res, err)
		}
		d.pass(time.Millisecond)
	}
	if asked := d.store.calls.Load() - before; asked != 1 {
		t.Errorf("the store was asked %d times within MaxAge", asked)
	}
	l.Allow(t.Context(), "k", 1)
	reqs := []ratelimit.Request{{Key: "k", Limit: &second, Cost: 4}, {Key: "k", Limit: &hour, Cost: 1}, {Key: "k", Limit: &second, Cost: 2}}
	before = d.store.calls.Load()
	results, err := d.TakeAll(t.Context(), reqs)
	if err != nil || d.store.calls.Load() != before || len(results) != 3 || results[0].Remaining != 10 || results[2] != results[0] || results[1].RetryAfter == 0 {
		t.Errorf("%+v, %v", results, err)
	}
	for what, reqs := range map[string][]ratelimit.Request{
		"what nobody denied":      {{Key: "k", Limit: &second, Cost: 1}},
		"with a refund":           {{Key: "k", Limit: &second, Cost: -1}, {Key: "k", Limit: &hour, Cost: 1}},
		"with an unknown key":     {{Key: "k2", Limit: &second, Cost: 1}, {Key: "k", Limit: &hour, Cost: 1}},
		"with more than capacity": {{Key: "k", Limit: &hour, Cost: 1}, {Key: "k", Limit: &second, Cost: 11}},
	} {
		before := d.store.calls.Load()
		if _, err := d.TakeAll(t.Context(), reqs); err != nil || d.store.calls.Load() == before {
			t.Errorf("%s: from memory, %v", what, err)
		}
		if what == "with a refund" { // which is not carried out: the other denies
			l.Allow(t.Context(), "k", 1)
		}
	}
	if res, err := l.Refund(t.Context(), "k", 2); err != nil || !res.Allowed {
		t.Fatalf("%+v, %v", res, err)
	}
	if res, err := l.Allow(t.Context(), "k", 1); err != nil || !res.Allowed {
		t.Errorf("after a refund: %+v, %v", res, err)
	}
}

func TestDenyCacheHitDoesNotAllocate(t *testing.T) {
	store := memstore.New(memstore.Options{})
	for _, clock := range []func() time.Time{nil, time.Now} {
		c, err := ratelimit.NewDenyCache(store, ratelimit.DenyCacheOptions{Clock: clock, MaxAge: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range everyAlgorithm {
			l, err := ratelimit.New(c, windowed(ratelimit.PerDay(1), a))
			if err != nil {
				t.Fatal(err)
			}
			key := ratelimit.Key("user-1", "search")
			l.Allow(t.Context(), key, 1)
			l.Allow(t.Context(), key, 1)
			var res ratelimit.Result
			if n := testing.AllocsPerRun(200, func() { res, _ = l.Allow(t.Context(), key, 1) }); n != 0 {
				t.Errorf("%v: %v allocations", a, n)
			}
			if res.Source != ratelimit.SourceDenyCache {
				t.Errorf("%v: %+v", a, res)
			}
		}
	}
}

// Many callers at once: a refund of one's own is never denied from memory.
func TestDenyCacheConcurrently(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	c, err := ratelimit.NewDenyCache(store, ratelimit.DenyCacheOptions{MaxKeys: 3})
	if err != nil {
		t.Fatal(err)
	}
	limit := ratelimit.PerDay(8)
	var wg sync.WaitGroup
	var denied atomic.Int64
	for g := range 8 {
		wg.Go(func() {
			for i := range 3000 {
				req := ratelimit.Request{Key: strconv.Itoa(i % 4), Limit: &limit, Cost: int64(1 + g%2)}
				results, err := c.TakeAll(t.Context(), []ratelimit.Request{req})
				if err != nil {
					t.Error(err)
					return
				}
				res := results[0]
				if i%2 == 0 {
					res, err = c.Take(t.Context(), req)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if !res.Allowed {
					denied.Add(1)
					c.Take(t.Context(), ratelimit.Request{Key: req.Key, Limit: &limit, Cost: -8})
				}
			}
		})
	}
	wg.Wait()
	for key := range 4 {
		req := ratelimit.Request{Key: strconv.Itoa(key), Limit: &limit, Cost: -8}
		if _, err := c.Take(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		req.Cost = 8
		if res, err := c.Take(t.Context(), req); err != nil || !res.Allowed {
			t.Errorf("key %d is full, and yet: %+v, %v", key, res, err)
		}
	}
	if denied.Load() == 0 {
		t.Error("nothing was denied")
	}
}
