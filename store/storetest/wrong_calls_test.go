package storetest_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/sluicego/ratelimit"
)

func wrongKeys() []wrong {
	key := func(f func(string) string) maker {
		return keys(func(_ *reference, i id, _ string, _ *ratelimit.Limit) id { i.key = f(i.key); return i })
	}
	return []wrong{
		{"keys without case", key(strings.ToLower), []string{"R118"}},
		{"keys without spaces around", key(strings.TrimSpace), []string{"R118"}},
		{"keys up to a NUL", key(func(k string) string { k, _, _ = strings.Cut(k, "\x00"); return k }), []string{"R118"}},
		{"keys in valid UTF-8", key(func(k string) string { return strings.ToValidUTF8(k, "\ufffd") }), []string{"R118"}},
		{"keys of 256 bytes", key(func(k string) string { return k[:min(len(k), 256)] }), []string{"R118"}},
		{"keys without braces", key(func(k string) string { return strings.NewReplacer("{", "", "}", "").Replace(k) }), []string{"R118"}},
		{"names run into keys", keys(func(_ *reference, i id, _ string, _ *ratelimit.Limit) id {
			i.key, i.name = strings.TrimPrefix(i.name+":"+i.key, ":"), ""
			return i
		}), []string{"names and keys"}},
		{"Key is another key", keys(func(_ *reference, i id, key string, _ *ratelimit.Limit) id { i.key = key; return i }), []string{"a raw key"}},
	}
}

func wrongCalls() []wrong {
	return []wrong{
		{"errors with the key", errs(func(key string, err error) error {
			if err != nil {
				err = fmt.Errorf("key %q: %w", key, err)
			}
			return err
		}), []string{"errors do not tell"}},
		{"errors of its own", errs(func(_ string, err error) error {
			if err != nil {
				err = fmt.Errorf("ratelimit: %v", err)
			}
			return err
		}), []string{"R01 ", "went away"}},
		{"every error is an outage", errs(func(_ string, err error) error {
			if err != nil {
				err = fmt.Errorf("%w: %w", ratelimit.ErrStoreUnavailable, err)
			}
			return err
		}), []string{"R01 ", "went away", "takes sixteen"}},
		{"contexts are ignored", contexts(func(context.Context) context.Context { return context.Background() }), []string{"went away"}},
		{"a cancelled call is an outage, sometimes", cancelledOutage(), []string{"cancelled on the way"}},
		{"mistakes are repaired", repaired(), []string{"R01 "}},
		{"mistakes are found after spending", bend(func(b *bent) {
			b.takeAll = func(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
				for _, req := range reqs[:1] {
					if _, err := b.reference.Take(ctx, req); err != nil {
						return nil, err
					}
				}
				all, err := b.reference.TakeAll(ctx, reqs)
				return all, err
			}
		}), []string{"R01 ", "R53"}},
	}
}

func cancelledOutage() maker {
	return bend(func(b *bent) {
		b.take = func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
			res, err := b.reference.Take(ctx, req)
			if err == nil && ctx.Done() != nil && req.Limit.Rate == 1 && req.Limit.Burst == 1_000_000 {
				err = fmt.Errorf("%w: %w", ratelimit.ErrStoreUnavailable, context.Canceled)
			}
			return res, err
		}
	})
}

// repaired makes a store that takes the nearest valid limit for one that is not.
func repaired() maker {
	return requests(func(req ratelimit.Request) ratelimit.Request {
		req.Extra = max(0, req.Extra)
		if req.Limit != nil && req.Limit.Validate() != nil {
			l := ratelimit.PerSecond(min(max(1, req.Limit.Rate), 1000))
			req.Limit = &l
		}
		return req
	})
}

func wrongTakeAll() []wrong {
	return []wrong{
		{"TakeAll is one Take after the other", bend(func(b *bent) {
			b.takeAll = func(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
				if _, err := ratelimit.Merge(reqs); err != nil {
					return nil, err
				}
				var all []ratelimit.Result
				for _, req := range reqs {
					res, err := b.reference.Take(ctx, req)
					if err != nil {
						return nil, err
					}
					all = append(all, res)
				}
				return all, nil
			}
		}), []string{"R122 TakeAll", "gives back and spends"}},
		{"TakeAll looks first and takes later", bend(func(b *bent) {
			b.takeAll = func(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
				looks := slices.Clone(reqs)
				for i := range looks {
					looks[i].Cost, looks[i].Extra = 0, 0
				}
				room, err := b.reference.TakeAll(ctx, looks)
				if err != nil {
					return nil, err
				}
				for i := range reqs {
					if reqs[i].Cost > room[i].Remaining {
						return b.reference.TakeAll(ctx, reqs)
					}
				}
				runtime.Gosched()
				for i, req := range reqs {
					if room[i], err = b.reference.Take(ctx, req); err != nil {
						return nil, err
					}
				}
				return room, nil
			}
		}), []string{"every order"}},
		{"duplicates are not summed", bend(func(b *bent) {
			b.takeAll = func(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
				if _, err := ratelimit.Merge(reqs); err != nil {
					return nil, err
				}
				b.mu.Lock()
				defer b.mu.Unlock()
				var steps []ratelimit.Step
				for _, req := range reqs {
					i := b.id(req.Key, req.Limit)
					s := b.find(i)
					steps = append(steps, ratelimit.Step{Machine: b.machine(s, i, *req.Limit), State: s, Cost: req.Cost, Extra: req.Extra})
				}
				all := make([]ratelimit.Result, len(reqs))
				ratelimit.StepAll(b.clock().UnixMicro(), steps, all)
				return all, nil
			}
		}), []string{"named twice"}},
		{"one wait for all", bend(func(b *bent) {
			b.takeAll = func(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
				all, err := b.reference.TakeAll(ctx, reqs)
				var longest time.Duration
				for _, res := range all {
					longest = max(longest, res.RetryAfter)
				}
				for i := range all {
					all[i].RetryAfter = longest
				}
				return all, err
			}
		}), []string{"R122 TakeAll", "binding one"}},
		{"results sorted by key", bend(func(b *bent) {
			b.takeAll = func(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
				sorted := slices.Clone(reqs)
				sort.SliceStable(sorted, func(i, j int) bool {
					return sorted[i].Limit != nil && sorted[j].Limit != nil && sorted[i].Limit.Name < sorted[j].Limit.Name
				})
				return b.reference.TakeAll(ctx, sorted)
			}
		}), []string{"leaves its arguments"}},
		{"the last Extra first", bend(func(b *bent) {
			b.takeAll = func(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
				reversed := slices.Clone(reqs)
				slices.Reverse(reversed)
				all, err := b.reference.TakeAll(ctx, reversed)
				slices.Reverse(all)
				return all, err
			}
		}), []string{"Extra is served"}},
		{"more than sixteen, in batches", bend(func(b *bent) {
			b.takeAll = func(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
				var all []ratelimit.Result
				for batch := range slices.Chunk(reqs, ratelimit.MaxTakeAll) {
					results, err := b.reference.TakeAll(ctx, batch)
					if err != nil {
						return nil, err
					}
					all = append(all, results...)
				}
				return all, nil
			}
		}), []string{"takes sixteen"}},
		{"two limits for one state are both right", bend(func(b *bent) {
			b.takeAll = func(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
				if all, err := b.reference.TakeAll(ctx, reqs); err == nil || len(reqs) != 2 {
					return all, err
				}
				first, err := b.reference.TakeAll(ctx, reqs[:1])
				if err != nil {
					return nil, err
				}
				second, err := b.reference.TakeAll(ctx, reqs[1:])
				return append(first, second...), err
			}
		}), []string{"two limits for one state"}},
		{"requests are summed in place", bend(func(b *bent) {
			b.takeAll = func(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
				all, err := b.reference.TakeAll(ctx, reqs)
				for i := range reqs {
					reqs[i].Extra = 0
				}
				return all, err
			}
		}), []string{"leaves its arguments"}},
		{"hash tags matter", bend(func(b *bent) {
			b.takeAll = func(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
				for _, req := range reqs {
					if !ratelimit.SameTag(req.Key, reqs[0].Key) {
						return nil, ratelimit.ErrCrossSlot
					}
				}
				return b.reference.TakeAll(ctx, reqs)
			}
		}), []string{"R53"}},
		{"locks in the order of the requests", orderedLocks(), []string{"every order"}},
	}
}

// orderedLocks makes a store with a lock for each key, taken in the order of the requests.
func orderedLocks() maker {
	return bend(func(b *bent) {
		var mu sync.Mutex
		locks := map[id]*sync.Mutex{}
		b.takeAll = func(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
			batch, err := ratelimit.Merge(reqs)
			if err != nil {
				return nil, err
			}
			for _, req := range batch.Requests {
				mu.Lock()
				i := b.id(req.Key, req.Limit)
				if locks[i] == nil {
					locks[i] = &sync.Mutex{}
				}
				l := locks[i]
				mu.Unlock()
				l.Lock()
				defer l.Unlock()
				runtime.Gosched() // a look into a database gives others time
			}
			return b.reference.TakeAll(ctx, reqs)
		}
	})
}

func wrongRaces() []wrong {
	return []wrong{
		{"load and save are two steps", bend(func(b *bent) {
			b.take = func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
				if err := req.Validate(); err != nil || ctx.Err() != nil {
					return b.reference.Take(ctx, req)
				}
				i := b.id(req.Key, req.Limit)
				b.mu.Lock()
				data, _ := b.find(i).AppendBinary(nil)
				b.mu.Unlock()
				runtime.Gosched() // a look into a database gives others time
				var s ratelimit.State
				if err := s.UnmarshalBinary(data); err != nil {
					return ratelimit.Result{}, err
				}
				res, changed := b.machine(&s, i, *req.Limit).Take(&s, b.clock().UnixMicro(), req.Cost, req.Extra)
				b.mu.Lock()
				defer b.mu.Unlock()
				if changed {
					b.state[i] = &s
				}
				return res, nil
			}
		}), []string{"64 goroutines", "R82 ten", "R86", "spending and giving back", "cancelled on the way", "R82 two"}},
		{"the limit of another call", func(clock func() time.Time) ratelimit.Store {
			b := &bent{reference: newReference(clock)}
			var mu sync.Mutex
			var last *ratelimit.Limit
			b.take = func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
				mu.Lock()
				if req.Limit != nil && last != nil && last.Name == "n" && req.Limit.Name == "n" && req.Limit.Algorithm == last.Algorithm {
					req.Limit, last = last, req.Limit
				} else {
					last = req.Limit
				}
				mu.Unlock()
				return b.reference.Take(ctx, req)
			}
			return b
		}, []string{"R83"}},
	}
}
