package ratelimit_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

func TestMerge(t *testing.T) {
	t.Parallel()
	a, alike, b := tokens(10, 1, time.Hour), tokens(10, 1, time.Hour), tokens(10, 1, time.Hour).Named("b")
	req := func(key string, l *ratelimit.Limit, cost, extra int64) ratelimit.Request {
		return ratelimit.Request{Key: key, Limit: l, Cost: cost, Extra: extra}
	}
	type want struct{ cost, extra int64 }
	for _, c := range []struct {
		name string
		reqs []ratelimit.Request
		want []want
	}{
		{"nothing", nil, nil},
		{"different states", []ratelimit.Request{req("x", &a, 1, 2), req("x", &b, 3, 4), req("y", &a, 5, 6)}, []want{{1, 2}, {3, 4}, {5, 6}}},
		{"one state twice", []ratelimit.Request{req("x", &a, 1, 2), req("x", &b, 3, 4), req("x", &alike, 5, 6)}, []want{{6, 8}, {3, 4}}},
		{"one key in two spellings", []ratelimit.Request{req("x", &a, 1, 0), req("{x}", &a, 2, 0), req("{x}:y", &a, 3, 0)}, []want{{3, 0}, {3, 0}}},
		{"two states twice", []ratelimit.Request{req("x", &a, 1, 0), req("x", &a, 1, 0), req("y", &a, 2, 0), req("y", &a, 2, 0)}, []want{{2, 0}, {4, 0}}},
		{"more than there are numbers", []ratelimit.Request{req("x", &a, math.MaxInt64, 0), req("x", &a, math.MaxInt64, 0)}, []want{{math.MaxInt64, 0}}},
		{"less than there are", []ratelimit.Request{req("x", &a, math.MinInt64, 0), req("x", &a, math.MinInt64, 0)}, []want{{-math.MaxInt64, 0}}},
		{"back and forth", []ratelimit.Request{req("x", &a, -3, 0), req("x", &a, 5, 1)}, []want{{2, 1}}},
		{"below zero on the way", []ratelimit.Request{req("x", &a, -3, 0), req("x", &a, 0, 1), req("x", &a, 3, 0)}, []want{{0, 1}}},
	} {
		asked := slices.Clone(c.reqs)
		batch, err := ratelimit.Merge(c.reqs)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []want
		for _, r := range batch.Requests {
			got = append(got, want{r.Cost, r.Extra})
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if !slices.Equal(asked, c.reqs) {
			t.Errorf("%s: the caller's requests were changed", c.name)
		}
	}
}

func TestMergeRefuses(t *testing.T) {
	t.Parallel()
	l, other, bad := tokens(10, 1, time.Hour), tokens(11, 1, time.Hour), ratelimit.Limit{}
	good := ratelimit.Request{Key: "x", Limit: &l, Cost: 1}
	for _, c := range []struct {
		name string
		reqs []ratelimit.Request
		want error
	}{
		{"seventeen", slices.Repeat([]ratelimit.Request{good}, ratelimit.MaxTakeAll+1), ratelimit.ErrInvalidLimit},
		{"no key", []ratelimit.Request{good, {Limit: &l}}, ratelimit.ErrInvalidKey},
		{"no limit", []ratelimit.Request{good, {Key: "x"}}, ratelimit.ErrInvalidLimit},
		{"a bad limit", []ratelimit.Request{good, {Key: "x", Limit: &bad}}, ratelimit.ErrInvalidLimit},
		{"a bad extra", []ratelimit.Request{good, {Key: "x", Limit: &l, Extra: -1}}, ratelimit.ErrInvalidCost},
		{"two limits for one state", []ratelimit.Request{good, {Key: "{x}", Limit: &other}}, ratelimit.ErrInvalidLimit},
		{"back in all, with extra", []ratelimit.Request{{Key: "x", Limit: &l, Cost: -5}, {Key: "x", Limit: &l, Cost: 1, Extra: 1}}, ratelimit.ErrInvalidCost},
	} {
		if _, err := ratelimit.Merge(c.reqs); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// What one state took is shared among the requests that were added up for it.
func TestBatchResults(t *testing.T) {
	t.Parallel()
	l := tokens(10, 1, time.Hour)
	m := machine(t, l)
	for _, c := range []struct {
		name  string
		spent int64 // before
		costs [][2]int64
		taken []int64 // nil: denied
	}{
		{"costs", 0, [][2]int64{{1, 0}, {2, 0}, {0, 0}}, []int64{1, 2, 0}},
		{"extras in order", 0, [][2]int64{{1, 4}, {1, 9}, {0, 3}}, []int64{5, 5, 0}},
		{"extras of all", 0, [][2]int64{{1, 2}, {1, 3}}, []int64{3, 4}},
		{"denied", 8, [][2]int64{{1, 5}, {2, 5}}, nil},
		{"never", 0, [][2]int64{{10, 0}, {1, 0}}, nil},
		{"all back", 5, [][2]int64{{-2, 0}, {-3, 0}}, []int64{-2, -3}},
		{"not all back", 4, [][2]int64{{-3, 0}, {-3, 0}}, []int64{-1, -3}},
		{"the least there is back", 4, [][2]int64{{math.MinInt64, 0}, {0, 0}}, []int64{-4, 0}},
		{"none back of the least there is", 0, [][2]int64{{math.MinInt64, 0}, {0, 0}}, []int64{0, 0}},
		{"more spent than back", 4, [][2]int64{{-2, 0}, {5, 0}}, []int64{-2, 5}},
	} {
		var state ratelimit.State
		m.Take(&state, micro(0), c.spent, 0)
		var reqs []ratelimit.Request
		for _, cost := range c.costs {
			reqs = append(reqs, ratelimit.Request{Key: "x", Limit: &l, Cost: cost[0], Extra: cost[1]})
		}
		batch, err := ratelimit.Merge(reqs)
		if err != nil || len(batch.Requests) != 1 {
			t.Fatalf("%s: %v, %v", c.name, batch, err)
		}
		decided := make([]ratelimit.Result, 1)
		ratelimit.StepAll(micro(0), []ratelimit.Step{{Machine: m, State: &state, Cost: batch.Requests[0].Cost, Extra: batch.Requests[0].Extra}}, decided)
		var taken []int64
		for _, res := range batch.Results(decided) {
			if res.Allowed {
				taken = append(taken, res.Taken)
			} else if res.Taken != 0 || res.RetryAfter == 0 {
				t.Errorf("%s: %+v", c.name, res)
			}
			if res.Remaining != decided[0].Remaining || res.ResetAfter != decided[0].ResetAfter {
				t.Errorf("%s: %+v is not of %+v", c.name, res, decided[0])
			}
		}
		if !slices.Equal(taken, c.taken) {
			t.Errorf("%s: taken %v, want %v", c.name, taken, c.taken)
		}
	}
}

// miscounts is a Store whose TakeAll has so many results, whatever it was asked.
type miscounts struct {
	ratelimit.Store
	n int
}

func (m miscounts) TakeAll(context.Context, []ratelimit.Request) ([]ratelimit.Result, error) {
	return make([]ratelimit.Result, m.n), nil
}

// A store that has not as many results as it was asked for is an error, of a Fallback's primary a mistake in the set-up, and
// panics nobody.
func TestStoreMiscounts(t *testing.T) {
	t.Parallel()
	minute, hour := ratelimit.PerMinute(100).Named("m"), ratelimit.PerHour(1000).Named("h")
	reqs := []ratelimit.Request{{Key: "k", Limit: &minute, Cost: 1}, {Key: "k", Limit: &hour, Cost: 1}, {Key: "k", Limit: &hour, Cost: 2}}
	for _, n := range []int{0, 1, 4} {
		bad := miscounts{memstore.New(memstore.Options{}), n}
		deny, err := ratelimit.NewDenyCache(bad, ratelimit.DenyCacheOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := ratelimit.NewLease(bad, ratelimit.LeaseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Close()
		for what, s := range map[string]ratelimit.Store{
			"deny cache": deny, "lease": lease, "shards": sharded(t, bad, 2),
			"region": regional(t, bad, func() (num, den int64) { return 1, 2 }),
		} {
			if results, err := s.TakeAll(t.Context(), reqs); err == nil || results != nil {
				t.Errorf("%s, %d results: %v, %v", what, n, results, err)
			}
		}
		if res, err := must(t, bad, minute, hour).Allow(t.Context(), "k", 1); err == nil {
			t.Errorf("limiter, %d results: %+v", n, res)
		}
		told := 0
		f, err := ratelimit.NewFallback(bad, memstore.New(memstore.Options{}), ratelimit.FallbackOptions{Timeout: time.Minute, OnError: func(error) { told++ }})
		if err != nil {
			t.Fatal(err)
		}
		results, err := f.TakeAll(t.Context(), reqs)
		if err != nil || len(results) != 3 || !results[0].Allowed || results[2].Source != ratelimit.SourceFallback || told != 1 {
			t.Errorf("fallback, %d results: %+v, %v, told %d times", n, results, err, told)
		}
		_ = f.Close()
	}
}
