package ratelimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
	"github.com/sluicego/ratelimit/store/storetest"
)

// The same trace with and without a DenyCache comes to the same decisions, and to the same numbers but for the two
// exceptions of the doc comment.
func TestDenyCacheChangesNoDecision(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 97))
	hits := 0
	for trace := range 400 {
		d := newDenying(t, ratelimit.DenyCacheOptions{MaxAge: time.Hour})
		plain := memstore.New(memstore.Options{Clock: d.now})
		limit := ratelimit.Limit{Algorithm: everyAlgorithm[trace%3], Rate: 1 + random.Int64N(20), Period: time.Duration(1+random.Int64N(3000)) * time.Millisecond}
		if trace%6 == 0 { // a bucket whose parts are too many for one number
			limit.Rate, limit.Burst = 1e9-random.Int64N(1000), 1e9-random.Int64N(1000)
			limit.Period = time.Minute + time.Duration(random.Int64N(1e9))*time.Microsecond
		}
		for step := range 100 {
			if random.IntN(2) == 0 {
				d.pass(time.Duration(random.Int64N(limit.Period.Microseconds()/4+1)) * time.Microsecond)
			}
			req := ratelimit.Request{Key: fmt.Sprint(random.IntN(2)), Limit: &limit, Cost: random.Int64N(limit.Capacity() + 2)}
			switch random.IntN(20) {
			case 0:
				req.Cost = -req.Cost
			case 1:
				req.Extra = 3
			case 2:
				d.Reset(t.Context(), req.Key, &limit)
				plain.Reset(t.Context(), req.Key, &limit)
			}
			got, err := d.Take(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			want, err := plain.Take(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			m, err := ratelimit.NewMachine(*req.Limit)
			if err != nil {
				t.Fatal(err)
			}
			_, perMicrosecond := m.Parts()
			if got.Source == ratelimit.SourceDenyCache {
				hits++
				want.Source = got.Source
				switch {
				case limit.Algorithm != ratelimit.TokenBucket:
					if got.Remaining <= want.Remaining && 0 < got.RetryAfter && got.RetryAfter <= want.RetryAfter {
						want.Remaining, want.RetryAfter = got.Remaining, got.RetryAfter
					}
				case perMicrosecond > 1:
					if late := got.RetryAfter - want.RetryAfter; 0 <= late && late <= time.Microsecond {
						want.RetryAfter = got.RetryAfter
					}
					if want.Remaining-got.Remaining == 1 { // for a microsecond
						want.Remaining = got.Remaining
					}
				}
			}
			if got != want {
				t.Fatalf("seed %d, trace %d, step %d, %v, %+v:\ngot  %+v\nwant %+v", seed, trace, step, *req.Limit, req, got, want)
			}
		}
	}
	if hits < 1000 {
		t.Errorf("only %d denials came from memory", hits)
	}
}

// A sourceless Store says of every decision that the store made it.
type sourceless struct{ ratelimit.Store }

func (s sourceless) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	res, err := s.Store.Take(ctx, req)
	res.Source = ratelimit.SourceStore
	return res, err
}

func (s sourceless) TakeAll(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
	results, err := s.Store.TakeAll(ctx, reqs)
	for i := range results {
		results[i].Source = ratelimit.SourceStore
	}
	return results, err
}

func (s sourceless) Unwrap() ratelimit.Store { return s.Store }

// Within one microsecond a DenyCache is a plain Store, but for the wait of larger costs in a window.
func TestDenyCacheContract(t *testing.T) {
	t.Parallel()
	const larger = "RetryAfter of a larger cost in a window is that of the smaller one"
	storetest.Run(t, storetest.Config{
		New: func(t *testing.T, clock func() time.Time) ratelimit.Store {
			c, err := ratelimit.NewDenyCache(memstore.New(memstore.Options{Clock: clock}), ratelimit.DenyCacheOptions{
				MaxAge: time.Microsecond, Clock: clock,
			})
			if err != nil {
				t.Fatal(err)
			}
			return sourceless{c}
		},
		Except: map[string]string{
			"R34 the oldest entry in the way decides":            larger,
			"counter: RetryAfter in this window and in the next": larger,
			"random traces are those of the exact model":         larger,
			"R44 one clock per decision":                         "the DenyCache reads the clock, too",
		},
	})
}
