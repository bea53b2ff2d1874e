package storetest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/sluicego/ratelimit"
)

// A wrong is a store with a fault, and the cases that have to find it, by unique parts of their names. They are not all
// that do.
type wrong struct {
	name  string
	make  maker
	cases []string
}

func wrongArithmetic() []wrong {
	return []wrong{
		{"< where <= is needed", bend(func(b *bent) {
			b.take = func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
				look := req
				look.Cost, look.Extra = 0, 0
				res, err := b.reference.Take(ctx, look)
				if err == nil && req.Cost > 0 && req.Cost == res.Remaining {
					res.Allowed, res.RetryAfter = false, res.ResetAfter
					return res, nil
				}
				return b.reference.Take(ctx, req)
			}
		}), []string{"R05", "R31", "bounds"}},
		{"one more than the capacity", limits(func(_ *ratelimit.State, l ratelimit.Limit) ratelimit.Limit {
			if l.Algorithm == ratelimit.TokenBucket {
				l.Burst = l.Capacity() + 1
			} else {
				l.Rate++
			}
			return l
		}), []string{"R31", "R25 ", "64 goroutines", "R47", "R35", "cost 0 looks", "the result's Limit"}},
		{"floats", newFloatBucket, []string{"R11", "R43", "R37", "R41 forward", "R38", "Extra takes no part"}},
		{"one stored arrival time", newGCRA, []string{"[R] R121 raised", "[R] R121 lowered", "R121 10 to 1000", "R04"}},
		{"waits in whole milliseconds", results(func(_ ratelimit.Request, res ratelimit.Result) ratelimit.Result {
			if res.RetryAfter != ratelimit.Never {
				res.RetryAfter = (res.RetryAfter + time.Millisecond - 1).Truncate(time.Millisecond)
			}
			return res
		}), []string{"R10", "R43", "counter whose Period"}},
		{"waits a microsecond short", results(func(_ ratelimit.Request, res ratelimit.Result) ratelimit.Result {
			if res.RetryAfter > 0 {
				res.RetryAfter -= time.Microsecond
			}
			return res
		}), []string{"R10", "R43", "article: bucket of 2", "counter: RetryAfter", "random traces"}},
		{"a wait of -1 with an admission", results(func(_ ratelimit.Request, res ratelimit.Result) ratelimit.Result {
			if res.Allowed {
				res.RetryAfter = -1
			}
			return res
		}), []string{"R28", "article: bucket of 10", "the result's Limit"}},
		{"waits until all is forgotten", results(func(_ ratelimit.Request, res ratelimit.Result) ratelimit.Result {
			if !res.Allowed && res.RetryAfter != ratelimit.Never {
				res.RetryAfter = res.ResetAfter
			}
			return res
		}), []string{"R34", "article: log", "R46"}},
		{"a time in whole milliseconds", clocks(func() func(time.Time) time.Time {
			return func(now time.Time) time.Time { return now.Truncate(time.Millisecond) }
		}), []string{"R10", "log: an entry", "R11"}},
		{"a time in whole seconds", clocks(func() func(time.Time) time.Time {
			return func(now time.Time) time.Time { return now.Truncate(time.Second) }
		}), []string{"[R] 40 per minute", "R28"}},
		{"a time of 32 bits of seconds", clocks(func() func(time.Time) time.Time {
			return func(now time.Time) time.Time {
				return time.Unix(int64(int32(now.Unix())), int64(now.Nanosecond()))
			}
		}), []string{"[R] Remaining is 9", "R16"}},
		{"a minimum period of a second", limits(func(_ *ratelimit.State, l ratelimit.Limit) ratelimit.Limit {
			l.Period = max(l.Period, time.Second)
			return l
		}), []string{"[R] periods below"}},
		{"a rate per whole second", limits(func(_ *ratelimit.State, l ratelimit.Limit) ratelimit.Limit {
			perSecond := int64(float64(l.Rate)/l.Period.Seconds() + 0.5)
			l.Burst, l.Rate, l.Period = l.Capacity(), max(1, perSecond), time.Second
			if l.Algorithm != ratelimit.TokenBucket {
				l.Burst = 0
			}
			l.Rate = min(l.Rate, 100_000)
			return l
		}), []string{"R25 ", "R04", "R91", "bounds"}},
		{"denials count", bend(func(b *bent) {
			b.take = func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
				res, err := b.reference.Take(ctx, req)
				if err == nil && !res.Allowed {
					req.Cost, req.Extra = 0, req.Limit.Capacity()
					_, err = b.reference.Take(ctx, req)
				}
				return res, err
			}
		}), []string{"[R] a denied cost", "R22"}},
		{"Remaining from before the decision", results(func(_ ratelimit.Request, res ratelimit.Result) ratelimit.Result {
			res.Remaining += res.Taken
			return res
		}), []string{"R28", "R46", "R04"}},
		{"no ResetAfter", results(func(_ ratelimit.Request, res ratelimit.Result) ratelimit.Result {
			res.ResetAfter = 0
			return res
		}), []string{"the result's Limit", "R23 a bucket"}},
		{"no Name", results(func(_ ratelimit.Request, res ratelimit.Result) ratelimit.Result {
			res.Name = ""
			return res
		}), []string{"the result's Limit", "R83"}},
		{"Limit is the Rate", results(func(req ratelimit.Request, res ratelimit.Result) ratelimit.Result {
			res.Limit = req.Limit.Rate
			return res
		}), []string{"the result's Limit", "cost 0 looks"}},
		{"another Source", results(func(_ ratelimit.Request, res ratelimit.Result) ratelimit.Result {
			res.Source = ratelimit.SourceLease
			return res
		}), []string{"the result's Limit"}},
	}
}

func wrongWindows() []wrong {
	return []wrong{
		{"fixed windows", keys(func(r *reference, i id, _ string, l *ratelimit.Limit) id {
			if l.Algorithm != ratelimit.TokenBucket {
				i.name += fmt.Sprint(r.clock().UnixNano() / int64(l.Period))
			}
			return i
		}), []string{"R67", "R46", "article: counter", "log: calls"}},
		{"a counter for a log", limits(func(_ *ratelimit.State, l ratelimit.Limit) ratelimit.Limit {
			if l.Algorithm == ratelimit.SlidingLog {
				l.Algorithm = ratelimit.SlidingCounter
			}
			return l
		}), []string{"R65", "article: log", "History"}},
		{"a log for a counter", limits(func(_ *ratelimit.State, l ratelimit.Limit) ratelimit.Limit {
			if l.Algorithm == ratelimit.SlidingCounter {
				l.Algorithm, l.Rate = ratelimit.SlidingLog, min(l.Rate, 100_000)
			}
			return l
		}), []string{"R32", "R46", "article: counter", "counter: RetryAfter"}},
		{"a bucket for everything", limits(func(_ *ratelimit.State, l ratelimit.Limit) ratelimit.Limit {
			l.Algorithm = ratelimit.TokenBucket
			return l
		}), []string{"R25 ", "R34", "R65", "R122 refused"}},
		{"state dropped ten seconds after its last use", func(clock func() time.Time) ratelimit.Store {
			r := newReference(clock)
			used := map[id]time.Time{}
			right := r.machine
			r.machine = func(s *ratelimit.State, i id, l ratelimit.Limit) *ratelimit.Machine {
				if now := r.clock(); now.Sub(used[i]) > 10*time.Second {
					*s = ratelimit.State{}
				}
				used[i] = r.clock()
				return right(s, i, l)
			}
			return r
		}, []string{"R91", "R26"}},
		{"history of one unit each", bend(func(b *bent) {
			b.history = func(entries []ratelimit.Entry) []ratelimit.Entry {
				for i := range entries {
					entries[i].Cost = 1
				}
				return entries
			}
		}), []string{"History"}},
	}
}

func wrongCosts() []wrong {
	return []wrong{
		{"no Extra", requests(func(req ratelimit.Request) ratelimit.Request { req.Extra = max(-1, min(0, req.Extra)); return req }), []string{"Extra takes as much", "Extra is served"}},
		{"Extra as cost", requests(func(req ratelimit.Request) ratelimit.Request {
			if req.Extra > 0 && req.Cost >= 0 {
				req.Cost, req.Extra = req.Cost+min(req.Extra, 1<<50), 0
			}
			return req
		}), []string{"Extra takes as much"}},
		{"cost 0 of nothing is denied", results(func(req ratelimit.Request, res ratelimit.Result) ratelimit.Result {
			if req.Cost == 0 && res.Remaining == 0 && res.Taken == 0 {
				res.Allowed = false
			}
			return res
		}), []string{"cost 0 looks"}},
		{"cost 0 costs", requests(func(req ratelimit.Request) ratelimit.Request {
			if req.Cost == 0 && req.Extra == 0 {
				req.Extra = 1
			}
			return req
		}), []string{"cost 0 looks", "R125"}},
		{"too much takes all there is", requests(func(req ratelimit.Request) ratelimit.Request {
			if req.Limit != nil && req.Cost > req.Limit.Capacity() {
				req.Cost = req.Limit.Capacity()
			}
			return req
		}), []string{"R22", "each its own wait"}},
		{"never, with what is left", func(clock func() time.Time) ratelimit.Store {
			b := &bent{reference: newReference(clock)}
			b.take = func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
				res, err := b.reference.Take(ctx, req)
				if err == nil && res.RetryAfter == ratelimit.Never {
					req.Cost, req.Extra = 0, 0
					look, _ := b.reference.Take(ctx, req)
					res.Remaining = look.Remaining
				}
				return res, err
			}
			return b
		}, []string{"R22"}},
		{"giving back is nothing", requests(func(req ratelimit.Request) ratelimit.Request { req.Cost = max(0, req.Cost); return req }), []string{"R23 a bucket", "R23 a log", "R23 a counter"}},
		{"giving back tells what was asked", results(func(req ratelimit.Request, res ratelimit.Result) ratelimit.Result {
			if req.Cost < 0 && res.Allowed {
				res.Taken = req.Cost
			}
			return res
		}), []string{"R23 a bucket", "R23 a log", "R23 a counter"}},
		{"giving back is Reset", bend(func(b *bent) {
			b.take = func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
				if req.Validate() == nil && req.Cost < 0 {
					if err := b.reference.Reset(ctx, req.Key, req.Limit); err != nil {
						return ratelimit.Result{}, err
					}
				}
				return b.reference.Take(ctx, req)
			}
		}), []string{"R23 a bucket", "R23 a log", "R23 a counter", "spending and giving back"}},
	}
}

func wrongClocks() []wrong {
	return []wrong{
		{"the clock is not let back", clocks(func() func(time.Time) time.Time {
			var latest time.Time
			return func(now time.Time) time.Time {
				if now.After(latest) {
					latest = now
				}
				return latest
			}
		}), []string{"R41 a clock set back", "healed", "R40"}},
		{"a clock set back forgets all", func(clock func() time.Time) ratelimit.Store {
			r := newReference(clock)
			used := map[id]time.Time{}
			right := r.machine
			r.machine = func(s *ratelimit.State, i id, l ratelimit.Limit) *ratelimit.Machine {
				if now := r.clock(); now.Before(used[i]) {
					*s = ratelimit.State{}
				}
				used[i] = r.clock()
				return right(s, i, l)
			}
			return r
		}, []string{"R37", "R38", "R40", "healed"}},
		{"a clock of its own that stands still", func(clock func() time.Time) ratelimit.Store {
			if clock == nil {
				now := time.Now()
				clock = func() time.Time { return now }
			}
			return newReference(clock)
		}, []string{"the store's own clock"}},
		{"the clock is read twice", clocksTwice, []string{"R44"}},
	}
}

func clocksTwice(clock func() time.Time) ratelimit.Store {
	r := newReference(clock)
	right := r.clock
	r.clock = func() time.Time { right(); return right() }
	return r
}

func wrongChanges() []wrong {
	return []wrong{
		{"the first limit stays", func(clock func() time.Time) ratelimit.Store {
			r := newReference(clock)
			right := r.machine
			first := map[id]ratelimit.Limit{}
			r.machine = func(s *ratelimit.State, i id, l ratelimit.Limit) *ratelimit.Machine {
				if _, ok := first[i]; !ok {
					first[i] = l
				}
				return right(s, i, first[i])
			}
			return r
		}, []string{"[R] R121 raised", "R128", "R122 refused", "R124 a log"}},
		{"a fresh start with every change", keys(func(_ *reference, i id, _ string, l *ratelimit.Limit) id {
			i.limit = *l
			return i
		}), []string{"[R] R121 lowered", "R124 a counter", "whole tokens carry over"}},
		{"a fresh start with another OnFailure", keys(func(_ *reference, i id, _ string, l *ratelimit.Limit) id {
			i.limit.OnFailure = l.OnFailure
			return i
		}), []string{"compared by value"}},
		{"Reset does nothing", bend(func(b *bent) {
			b.reset = func(ctx context.Context, key string, limits []*ratelimit.Limit) error {
				if len(limits) == 0 {
					return ratelimit.ErrInvalidLimit
				}
				return nil
			}
		}), []string{"Reset forgets", "R01 "}},
		{"Reset of the first limit only", bend(func(b *bent) {
			b.reset = func(ctx context.Context, key string, limits []*ratelimit.Limit) error {
				return b.reference.Reset(ctx, key, limits[:min(1, len(limits))]...)
			}
		}), []string{"Reset forgets"}},
		{"no Name in the state", keys(func(_ *reference, i id, _ string, _ *ratelimit.Limit) id { i.name = ""; return i }), []string{"R125", "names and keys"}},
		{"no Algorithm in the state", func(clock func() time.Time) ratelimit.Store {
			r := keys(func(_ *reference, i id, _ string, _ *ratelimit.Limit) id { i.algorithm = 0; return i })(clock).(*reference)
			right := r.machine
			r.machine = func(s *ratelimit.State, i id, l ratelimit.Limit) *ratelimit.Machine {
				if m := s.Machine(); m != nil && m.Limit().Algorithm != l.Algorithm {
					*s = ratelimit.State{}
				}
				return right(s, i, l)
			}
			return r
		}, []string{"R71", "R125"}},
	}
}
