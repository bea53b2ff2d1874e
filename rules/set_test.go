package rules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicego/ratelimit"
)

// TestPrecedence walks down the chain: each rule that is taken away leaves the decision to the next.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	chain := []Rule{
		{ID: "1", Tenant: "shop", Route: "order", Limits: perSecond(1)},
		{ID: "2", Tenant: "shop", Limits: perSecond(2)},
		{ID: "3", Tier: "gold", Route: "order", Limits: perSecond(3)},
		{ID: "4", Tier: "gold", Limits: perSecond(4)},
		{ID: "5", Route: "order", Limits: perSecond(5)},
		{ID: "6", Limits: perSecond(6)},
	}
	others := []Rule{
		{ID: "x", Tenant: "other", Route: "order", Limits: perSecond(99)},
		{ID: "y", Tier: "silver", Limits: perSecond(99)},
		{ID: "z", Tenant: "shop", Route: "other", Limits: perSecond(99)},
	}
	src := &changing{tiers: map[string]string{"shop": "gold"}}
	set := newSet(t, src, byDefault())
	from := []string{"(tenant, route)", "(tenant, *)", "(tier, route)", "(tier, *)", "(*, route)", "(*, *)", "default"}
	for i := range len(chain) + 1 {
		src.set(nil, append(slices.Clone(others), chain[i:]...)...)
		refresh(t, set)
		r, ok := set.Find("shop", "order")
		if r.Limits[0].Rate != int64(i+1) || ok != (i < len(chain)) {
			t.Errorf("without the first %d rules %v holds, %v", i, r, ok)
		}
		if e := Explain(t.Context(), set, nil, "shop", "order"); e.From != from[i] || e.Rule.ID != r.ID {
			t.Errorf("without the first %d rules it is from %s, rule %s; want %s", i, e.From, e.Rule.ID, from[i])
		}
	}
}

// TestWildcardNames: a tenant or route that calls itself "*" is one as any other, and not all of them.
func TestWildcardNames(t *testing.T) {
	t.Parallel()
	set := newSet(t, Static(Rule{Tenant: "a", Route: "r", Limits: perSecond(1)}, Rule{Tenant: "a", Limits: perSecond(2)}, Rule{Route: "r", Limits: perSecond(3)}), byDefault())
	for _, c := range []struct {
		tenant, route string
		want          int64
	}{{"a", "r", 1}, {"a", "*", 2}, {"a", "", 2}, {"*", "r", 3}, {"", "r", 3}, {"*", "*", 7}, {"", "", 7}} {
		if r, _ := set.Find(c.tenant, c.route); r.Limits[0].Rate != c.want {
			t.Errorf("Find(%q, %q) is %d; want %d", c.tenant, c.route, r.Limits[0].Rate, c.want)
		}
	}
}

func TestTiers(t *testing.T) {
	t.Parallel()
	src := &changing{tiers: map[string]string{"a": "gold", "b": "silver", "c": "unheard-of"}, rules: []Rule{
		{Tier: "gold", Limits: perSecond(100)}, {Tier: "silver", Limits: perSecond(50)},
	}}
	o := byDefault()
	o.TierOf = func(tenant string) string {
		if tenant == "b" || tenant == "d" {
			return "gold"
		}
		return ""
	}
	set := newSet(t, src, o)
	rate := func(tenant string) int64 { r, _ := set.Find(tenant, "x"); return r.Limits[0].Rate }
	for tenant, want := range map[string]int64{"a": 100, "b": 100, "c": 7, "d": 100, "e": 7} {
		if got := rate(tenant); got != want {
			t.Errorf("tenant %s has %d; want %d", tenant, got, want)
		}
	}
	src.tiers = map[string]string{"a": "silver"}
	refresh(t, set)
	if rate("a") != 50 || rate("c") != 7 {
		t.Errorf("after the change a has %d, c has %d; want 50, 7", rate("a"), rate("c"))
	}
}

// TestBadRule covers R20 and R127, and R19 for a table: a bad rule is skipped and named, its last good version stays, and all
// others change.
func TestBadRule(t *testing.T) {
	t.Parallel()
	good := Rule{ID: "7", Tenant: "shop", Route: "order", Limits: perSecond(5)}
	for field, bad := range map[string]Rule{
		"Limits[0]: ratelimit: invalid limit: Rate 0":            {Limits: perSecond(0)},
		"Limits[0]: ratelimit: invalid limit: Rate -1":           {Limits: perSecond(-1)},
		"Limits[0]: ratelimit: invalid limit: Rate 9":            {Limits: perSecond(9e18)},
		"Limits[0]: ratelimit: invalid limit: Period 0s":         {Limits: []ratelimit.Limit{{Rate: 1}}},
		"Limits[0]: ratelimit: invalid limit: Burst -1":          {Limits: []ratelimit.Limit{{Rate: 1, Period: time.Second, Burst: -1}}},
		"Limits[0]: ratelimit: invalid limit: unknown Algorithm": {Limits: []ratelimit.Limit{{Rate: 1, Period: time.Second, Algorithm: 9}}},
		"Limits[0]: ratelimit: invalid limit: Name":              {Limits: []ratelimit.Limit{ratelimit.PerSecond(1).Named("a b")}},
		"Limits[1]: ratelimit: invalid limit: two limits":        {Limits: slices.Concat(perSecond(1), perSecond(2))},
		"Shared[0]: ratelimit: invalid limit: two limits":        {Limits: perSecond(1), Shared: perSecond(2)},
		"Limits: ratelimit: invalid limit: there is none":        {},
		"Limits: ratelimit: invalid limit: 17 limits":            {Limits: make([]ratelimit.Limit, 17)},
		"Cost: -1":            {Limits: perSecond(1), Cost: -1},
		"Cost: 2 is above":    {Limits: perSecond(1), Cost: 2},
		"Mode: unknown":       {Limits: perSecond(1), Mode: 9},
		"EnforcePercent: 101": {Limits: perSecond(1), EnforcePercent: 101},
		"capacity: NaN":       {Invalid: fmt.Errorf("wrapped: %w", &RuleError{Field: "capacity", Err: errors.New("NaN")})},
		"no such thing":       {Invalid: errors.New("no such thing")},
	} {
		src := &changing{rules: []Rule{good, {Tenant: "b", Limits: perSecond(1)}}}
		var told errs
		o := byDefault()
		o.OnError = told.add
		set := newSet(t, src, o)
		bad.ID, bad.Tenant, bad.Route = good.ID, good.Tenant, good.Route
		src.set(nil, bad, Rule{Tenant: "b", Limits: perSecond(2)})
		refresh(t, set)
		refresh(t, set)
		got := told.take()
		if len(got) != 1 || !strings.HasPrefix(got[0].Error(), "rules: rule 7: "+field) {
			t.Errorf("%s: told %q; want it once", field, got)
		}
		if r, ok := set.Find("shop", "order"); !ok || r.Limits[0].Rate != 5 {
			t.Errorf("%s: %v holds; want the last good version", field, r)
		}
		if r, _ := set.Find("b", "x"); r.Limits[0].Rate != 2 {
			t.Errorf("%s: the other rule did not change", field)
		}
		if s := set.Stats(); s != (Stats{Rules: 2, Skipped: 1}) {
			t.Errorf("%s: %+v", field, s)
		}
		src.set(nil, good)
		refresh(t, set)
		if s := set.Stats(); s != (Stats{Rules: 1}) || len(told.take()) > 0 {
			t.Errorf("%s: once it is good again: %+v", field, s)
		}
	}
}

// TestTwice: of two rules for one place the first holds, and the other is told.
func TestTwice(t *testing.T) {
	t.Parallel()
	var told errs
	o := byDefault()
	o.OnError = told.add
	set := newSet(t, Static(
		Rule{ID: "1", Tenant: "a", Limits: perSecond(1)}, Rule{ID: "2", Tenant: "a", Route: "*", Limits: perSecond(2)},
		Rule{ID: "3", Tenant: "a", Tier: "gold", Limits: perSecond(2)},
	), o)
	if r, _ := set.Find("a", "x"); r.Limits[0].Rate != 1 || set.Stats().Rules != 1 {
		t.Errorf("%v holds, %+v", r, set.Stats())
	}
	if got := fmt.Sprint(told.take()); got != "[rules: rule 2: "+errTwice.Error()+" rules: rule 3: Tier: a rule is for one tenant or for a tier, not for both]" {
		t.Error(got)
	}
}

// TestToldOnce: each bad rule is told once, however many are for one place, and again only when it changes.
func TestToldOnce(t *testing.T) {
	t.Parallel()
	bad := func(rate int64) []Rule {
		return []Rule{
			{ID: "1", Tenant: "a", Limits: perSecond(1)},
			{ID: "2", Tenant: "a", Limits: perSecond(2)},
			{ID: "3", Tenant: "a", Limits: perSecond(3)},
			{ID: "4", Tenant: "b", Limits: perSecond(0)},
			{ID: "5", Tenant: "b", Limits: perSecond(rate)},
			{ID: "6", Tenant: "c", Tier: "gold", Limits: perSecond(1)},
			{ID: "7", Tenant: "c", Tier: "gold", Limits: perSecond(1)},
		}
	}
	src := &changing{rules: bad(-1)}
	var told errs
	o := byDefault()
	o.OnError = told.add
	set := newSet(t, src, o)
	for _, c := range []struct{ rate, want int64 }{{-1, 6}, {-1, 0}, {-2, 1}, {-2, 0}} {
		src.set(nil, bad(c.rate)...)
		if c.want != 6 {
			refresh(t, set)
		}
		if got := told.take(); len(got) != int(c.want) || set.Stats() != (Stats{Rules: 1, Skipped: 6}) {
			t.Errorf("with rate %d told %q; want %d, %+v", c.rate, got, c.want, set.Stats())
		}
	}
}

// TestHookPanics: a hook that panics is still told of everything, and changes nothing.
func TestHookPanics(t *testing.T) {
	t.Parallel()
	var told errs
	o := byDefault()
	o.OnError = func(err error) { told.add(err); panic("hook") }
	o.OnShadow = func(Rule, string, ratelimit.Result, error) { panic("hook") }
	src := &changing{rules: []Rule{{Tenant: "a", Limits: perSecond(0)}, {Tenant: "b", Limits: perSecond(0)}, {Tenant: "c", Limits: perSecond(1), Mode: Shadow}}}
	set := newSet(t, src, o)
	if got := told.take(); len(got) != 2 {
		t.Errorf("told %q; want both", got)
	}
	if n := admitted(t, set.Limiter(recording(newClock())), ratelimit.Key("c", "r"), 3); n != 3 {
		t.Errorf("%d of 3 admitted in shadow", n)
	}
	src.set(errDown)
	if err := set.Refresh(t.Context()); !errors.Is(err, errDown) {
		t.Errorf("%v; want the error of the load", err)
	}
}

// TestIntervalNever polls never.
func TestIntervalNever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &changing{}
		o := byDefault()
		o.Interval, o.Timeout = ratelimit.Never, ratelimit.Never
		set := newSet(t, src, o)
		defer set.Close()
		for range 20 {
			refresh(t, set)
			time.Sleep(time.Hour)
		}
		if n := src.count(); n != 21 {
			t.Errorf("asked %d times for 21", n)
		}
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	good := Rule{Limits: perSecond(1)}
	for want, o := range map[string]Options{
		"Options.Default":  {},
		"Options.Interval": {Default: good, Interval: -1},
		"Timeout":          {Default: good, Timeout: -1},
		"every tenant":     {Default: Rule{Tenant: "a", Limits: perSecond(1)}},
		"expire":           {Default: Rule{Limits: perSecond(1), Expires: time.Now()}},
	} {
		if _, err := New(t.Context(), Static(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want one that names %s", o, err, want)
		}
	}
	if _, err := New(t.Context(), nil, Options{Default: good}); err == nil {
		t.Error("no source is no error")
	}
}

// TestAway: a service starts without its database, tries again after 1, 2, 4 s and so on, then sees each change within
// the interval, and a load that fails changes nothing.
func TestAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &changing{err: errDown}
		var told errs
		o := byDefault()
		o.OnError = told.add
		set := newSet(t, src, o)
		defer set.Close()
		rate := func() int64 { r, _ := set.Find("a", "x"); return r.Limits[0].Rate }
		if rate() != 7 || set.Age() != ratelimit.Never {
			t.Fatalf("%d holds, age %v; want the default, Never", rate(), set.Age())
		}
		if got := told.take(); len(got) != 1 || !errors.Is(got[0], errDown) {
			t.Fatalf("told %v", got)
		}
		time.Sleep(8 * time.Second) // after 1, 2 and 4 more, give or take a tenth
		if got := len(told.take()); got != 3 {
			t.Fatalf("asked %d times in 8 s; want 3", got)
		}
		src.set(nil, Rule{Tenant: "a", Limits: perSecond(1)})
		time.Sleep(9 * time.Second)
		if rate() != 1 {
			t.Fatalf("%d holds once the database is back", rate())
		}
		src.set(errDown)
		time.Sleep(33 * time.Second)
		if rate() != 1 || len(told.take()) == 0 {
			t.Errorf("%d holds after a load that failed", rate())
		}
		if age := set.Age(); age < 33*time.Second || age > 42*time.Second {
			t.Errorf("the rules are %v old", age)
		}
		src.set(nil, Rule{Tenant: "a", Limits: perSecond(2)})
		time.Sleep(33 * time.Second)
		if rate() != 2 || set.Age() > 33*time.Second {
			t.Errorf("%d holds, %v old", rate(), set.Age())
		}
		before := src.count()
		time.Sleep(10 * time.Minute)
		if n := src.count() - before; n < 18 || n > 22 {
			t.Errorf("asked %d times in 10 min; want about 20", n)
		}
	})
}

// A stuck source answers when the test lets it, or when its context ends.
type stuck struct{ let chan []Rule }

func (s stuck) Rules(ctx context.Context) ([]Rule, error) {
	select {
	case r := <-s.let:
		return r, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestStuck: New waits no longer than its context says, and Refreshes that meet share one load.
func TestStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := stuck{make(chan []Rule)}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		set, err := New(ctx, src, byDefault())
		if err != nil || time.Since(start) != 3*time.Second {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
		done := make(chan error)
		for range 100 {
			go func() { done <- set.Refresh(t.Context()) }()
		}
		synctest.Wait()
		src.let <- nil // the first load, which New began
		src.let <- []Rule{{Tenant: "a", Limits: perSecond(1)}}
		for range 100 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if r, _ := set.Find("a", ""); r.Limits[0].Rate != 1 {
			t.Errorf("%v holds", r)
		}
		go func() { done <- set.Refresh(t.Context()) }()
		synctest.Wait()
		set.Close()
		if err := <-done; err == nil {
			t.Error("a Refresh that Close cut short is no error")
		}
		if err := set.Refresh(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("Refresh after Close: %v", err)
		}
		set.Close()
		if r, _ := set.Find("a", ""); r.Limits[0].Rate != 1 {
			t.Error("the rules ended with Close")
		}
	})
}

type panicking struct{}

func (panicking) Rules(context.Context) ([]Rule, error) { panic("boom") }

func TestPanic(t *testing.T) {
	t.Parallel()
	o := byDefault()
	o.OnError = func(error) { panic("hook") }
	set := newSet(t, panicking{}, o)
	if err := set.Refresh(t.Context()); err == nil {
		t.Error("a panic is no error")
	}
}

func TestExpires(t *testing.T) {
	t.Parallel()
	c := newClock()
	o := byDefault()
	o.Clock = c.now
	set := newSet(t, Static(
		Rule{Tenant: "a", Route: "r", Limits: perSecond(1), Expires: c.now().Add(time.Minute)},
		Rule{Tenant: "a", Limits: perSecond(2), Expires: c.now().Add(time.Hour)},
		Rule{Tenant: "b", Limits: perSecond(3), Expires: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
		Rule{Tenant: "c", Limits: perSecond(4), Expires: time.Unix(-1e10, 0)},
	), o)
	for _, want := range [][3]int64{{1, 3, 7}, {2, 3, 7}, {7, 3, 7}} {
		for i, tenant := range []string{"a", "b", "c"} {
			if r, _ := set.Find(tenant, "r"); r.Limits[0].Rate != want[i] {
				t.Errorf("at %v %s has %d; want %d", c.now(), tenant, r.Limits[0].Rate, want[i])
			}
		}
		c.move(time.Minute)
		if want[0] == 2 {
			c.move(time.Hour)
		}
	}
}

// TestFindAllocates nothing, in any place of the precedence.
func TestFindAllocates(t *testing.T) {
	var many []Rule
	for i := range 20 {
		many = append(many, Rule{Tenant: "many", Route: fmt.Sprint("r", i), Limits: perSecond(1)})
	}
	set := newSet(t, Static(append(many,
		Rule{Tenant: "shop", Route: "order", Limits: perSecond(1)}, Rule{Tier: "gold", Limits: perSecond(4)},
	)...).WithTiers(map[string]string{"g": "gold"}), byDefault())
	for _, tenant := range []string{"shop", "g", "many", "nobody"} {
		if n := testing.AllocsPerRun(100, func() { set.Find(tenant, "order") }); n > 0 {
			t.Errorf("%s: %v allocations", tenant, n)
		}
	}
}
