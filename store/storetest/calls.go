package storetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/sluicego/ratelimit"
)

// secret is a key that no error may tell.
const secret = "sekret-7391"

// A badCall is a call that is refused before any state is touched.
type badCall struct {
	name string
	req  ratelimit.Request
	want error
	text string // part of the error's text
}

func badCalls() []badCall {
	good := bucket(5, 1, h)
	calls := []badCall{
		{"an empty key", ratelimit.Request{Limit: &good, Cost: 1}, ratelimit.ErrInvalidKey, ""},
		{"no limit", ratelimit.Request{Key: secret, Cost: 1}, ratelimit.ErrInvalidLimit, ""},
		{"Extra below 0", ratelimit.Request{Key: secret, Limit: &good, Cost: 1, Extra: -1}, ratelimit.ErrInvalidCost, ""},
		{"Extra with a negative Cost", ratelimit.Request{Key: secret, Limit: &good, Cost: -1, Extra: 1}, ratelimit.ErrInvalidCost, ""},
	}
	for _, b := range []struct {
		limit ratelimit.Limit
		field string
	}{
		{ratelimit.Limit{}, "Rate"},
		{bucket(5, 0, s), "Rate"},
		{bucket(0, -1, s), "Rate"},
		{bucket(0, 1_000_000_001, s), "Rate"},
		{logOf(100_001, s), "Rate"},
		{counter(0, s), "Rate"},
		{bucket(0, 5, 0), "Period"},
		{bucket(0, 5, -s), "Period"},
		{bucket(0, 5, ms-us), "Period"},
		{bucket(0, 5, 366*24*h+us), "Period"},
		{logOf(5, s+time.Nanosecond), "Period"},
		{bucket(-1, 5, s), "Burst"},
		{bucket(1_000_000_001, 5, s), "Burst"},
		{ratelimit.Limit{Algorithm: ratelimit.SlidingLog, Rate: 5, Period: s, Burst: 5}, "Burst"},
		{ratelimit.Limit{Algorithm: ratelimit.SlidingCounter, Rate: 5, Period: s, Burst: 1}, "Burst"},
		{ratelimit.Limit{Algorithm: 3, Rate: 5, Period: s}, "Algorithm"},
		{bucket(0, 5, s).Named("a b"), "Name"},
		{bucket(0, 5, s).Named("a:b"), "Name"},
		{ratelimit.Limit{Rate: 5, Period: s, OnFailure: 9}, "OnFailure"},
	} {
		calls = append(calls, badCall{b.limit.String(), ratelimit.Request{Key: secret, Limit: &b.limit, Cost: 1}, ratelimit.ErrInvalidLimit, b.field})
	}
	return calls
}

var callChecks = []check{
	{
		name: "R01 R20 R127 mistakes are errors before any state is touched",
		rule: "An invalid limit is ErrInvalidLimit and names the field, an empty key ErrInvalidKey, a bad Extra ErrInvalidCost; nothing is spent or written.",
		run: func(k *kit) {
			ctx := context.Background()
			var before int64
			if k.c.Writes != nil {
				before = k.c.Writes(k.t, k.store)
			}
			witness := bucket(5, 1, h).Named("witness")
			for _, b := range badCalls() {
				_, err := k.store.Take(ctx, b.req)
				k.wantError("Take with "+b.name, err, b.want, b.text)
				_, err = k.store.TakeAll(ctx, []ratelimit.Request{{Key: secret, Limit: &witness, Cost: 1}, b.req})
				k.wantError("TakeAll with "+b.name, err, b.want, b.text)
				if b.req.Extra == 0 {
					k.wantError("Reset with "+b.name, k.store.Reset(ctx, b.req.Key, b.req.Limit), b.want, b.text)
				}
			}
			k.wantError("Reset of no limits", k.store.Reset(ctx, secret), ratelimit.ErrInvalidLimit, "")
			if k.c.Writes != nil && k.c.Writes(k.t, k.store) != before {
				k.Errorf("mistakes were written")
			}
			for _, l := range []ratelimit.Limit{witness, bucket(5, 1, h)} {
				if res := k.take(secret, l, 0); res.Remaining != 5 {
					k.Errorf("mistakes have spent: %+v", res)
				}
			}
		},
	},
	{
		name: "limits at the bounds are accepted",
		rule: "Rate to 1e9, a log's to 100,000, Period from 1 ms to 366 days in odd microseconds, Burst to 1e9 and below Rate.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{
				bucket(0, 1_000_000_000, ms), bucket(1_000_000_000, 1, 366*24*h), bucket(1, 1_000_000_000, 366*24*h),
				bucket(1_000_000_000, 999_999_937, 366*24*h-us), bucket(3, 1_000_000_000, ms+us),
				logOf(100_000, 366*24*h), logOf(1, ms), logOf(99_991, 1234567*us),
				counter(1_000_000_000, 366*24*h), counter(1, ms), counter(999_999_937, 366*24*h-us),
				bucket(0, 5, s).Named("A-Z_a.z-09"),
			} {
				key := k.key()
				if res := k.take(key, l, l.Capacity()); !res.Allowed || res.Remaining != 0 {
					k.Errorf("%v, all of it: %+v", l, res)
				}
				res := k.take(key, l, 1)
				if res.Allowed || res.RetryAfter <= 0 || res.ResetAfter < res.RetryAfter {
					k.Errorf("%v, one more: %+v", l, res)
				}
				if res := k.take(key, l, -1); res.Taken != -1 || res.Remaining != 1 {
					k.Errorf("%v, one back: %+v", l, res)
				}
			}
		},
	},
	{
		name: "R136 a caller that went away gets its context's error",
		rule: "Promptly, never ErrStoreUnavailable, and what it asked for is not spent.",
		run: func(k *kit) {
			l := bucket(5, 1, h)
			cancelled, cancel := context.WithCancel(context.Background())
			cancel()
			caused, cancelCause := context.WithCancelCause(context.Background())
			cancelCause(errors.New("went home"))
			late, cancelLate := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
			defer cancelLate()
			for _, ctx := range []context.Context{cancelled, caused, late} {
				start := time.Now()
				_, err := k.store.Take(ctx, ratelimit.Request{Key: secret, Limit: &l, Cost: 1})
				k.wantError("Take", err, ctx.Err(), "")
				_, err = k.store.Take(ctx, ratelimit.Request{Key: secret, Limit: &l})
				k.wantError("a look", err, ctx.Err(), "")
				_, err = k.store.TakeAll(ctx, []ratelimit.Request{{Key: secret, Limit: &l, Cost: 1}})
				k.wantError("TakeAll", err, ctx.Err(), "")
				_, err = k.store.TakeAll(ctx, []ratelimit.Request{{Key: secret, Limit: &l, Cost: 1}, {Key: secret, Limit: named(l, "n"), Cost: 1}})
				k.wantError("TakeAll of two", err, ctx.Err(), "")
				k.wantError("Reset", k.store.Reset(ctx, secret, &l), ctx.Err(), "")
				if d := time.Since(start); d > s {
					k.Errorf("five calls with %v took %v", ctx.Err(), d)
				}
			}
			if res := k.take(secret, l, 0); res.Remaining != 5 {
				k.Errorf("callers who were away have spent: %+v", res)
			}
		},
	},
	{
		name: "R136 cancelled on the way",
		rule: "A context that ends during the call makes its error or a decision, never an outage; the other callers are not disturbed.",
		run: func(k *kit) {
			l := bucket(1_000_000, 1, h)
			key := k.key()
			var wg sync.WaitGroup
			var mu sync.Mutex
			admitted, unknown := int64(0), int64(0)
			for i := range 32 {
				wg.Go(func() {
					for j := range 20 {
						ctx, cancel := context.WithCancel(context.Background())
						if i%2 == 0 {
							stop := time.AfterFunc(time.Duration(j)*10*us, cancel)
							defer stop.Stop()
						}
						res, err := k.store.Take(ctx, ratelimit.Request{Key: key, Limit: &l, Cost: 1})
						mu.Lock()
						switch {
						case err == nil && res.Allowed:
							admitted++
						case errors.Is(err, context.Canceled) && !errors.Is(err, ratelimit.ErrStoreUnavailable) && i%2 == 0:
							unknown++
						default:
							k.Errorf("caller %d: %+v, %v", i, res, err)
						}
						mu.Unlock()
						cancel()
					}
				})
			}
			wg.Wait()
			if spent := 1_000_000 - k.take(key, l, 0).Remaining; spent < admitted || spent > admitted+unknown {
				k.Errorf("%d were admitted and %d left on the way, but %d are spent", admitted, unknown, spent)
			}
		},
	},
	{
		name: "errors do not tell the key",
		rule: "Keys may be secrets: no error's text carries one.",
		run: func(k *kit) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			l := bucket(5, 1, h)
			bad := bucket(6, 1, h)
			far := ratelimit.Request{Key: secret + "-too", Limit: &l, Cost: 1}
			good := ratelimit.Request{Key: secret, Limit: &l, Cost: 1}
			var errs []error
			for _, reqs := range [][]ratelimit.Request{{good, far}, {good, {Key: secret, Limit: &bad}}, make17(good)} {
				_, err := k.store.TakeAll(context.Background(), reqs)
				errs = append(errs, err)
			}
			_, err := k.store.Take(ctx, good)
			errs = append(errs, err)
			_, err = k.store.TakeAll(ctx, []ratelimit.Request{good, good})
			errs = append(errs, err, k.store.Reset(ctx, secret, &l), k.store.Reset(context.Background(), secret))
			for _, b := range badCalls() {
				_, err := k.store.Take(context.Background(), b.req)
				errs = append(errs, err)
			}
			for _, err := range errs {
				if err != nil && strings.Contains(err.Error(), secret) {
					k.Errorf("an error tells the key: %v", err)
				}
			}
		},
	},
}

func make17(r ratelimit.Request) []ratelimit.Request {
	reqs := make([]ratelimit.Request, ratelimit.MaxTakeAll+1)
	for i := range reqs {
		reqs[i] = r
	}
	return reqs
}

// wantError reports an error that is not the one expected, does not name what it should, or passes for an outage.
func (k *kit) wantError(what string, err, want error, text string) {
	k.Helper()
	switch {
	case !errors.Is(err, want):
		k.Errorf("%s: error %v, want %v", what, err, want)
	case errors.Is(err, ratelimit.ErrStoreUnavailable):
		k.Errorf("%s: error %v passes for an outage", what, err)
	case !strings.Contains(err.Error(), text):
		k.Errorf("%s: error %v does not name %s", what, err, text)
	}
}
