package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicego/ratelimit"
)

// together calls f in n goroutines that one barrier releases, and fails the case if they do not end.
func (k *kit) together(n int, f func(i int)) {
	k.Helper()
	start := make(chan struct{})
	var ready, done sync.WaitGroup
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-start
			f(i)
		})
	}
	ready.Wait()
	close(start)
	ended := make(chan struct{})
	go func() {
		done.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(k.patience):
		k.Fatalf("%d goroutines have not ended after %v", n, k.patience)
	}
}

// race is how many units n goroutines of so many calls each get.
func race(k *kit, n, calls int, req func(i, j int) ratelimit.Request) int64 {
	k.Helper()
	var taken atomic.Int64
	k.together(n, func(i int) {
		for j := range calls {
			res, err := k.store.Take(context.Background(), req(i, j))
			if err != nil {
				k.Errorf("goroutine %d, call %d: %v", i, j, err)
				return
			}
			taken.Add(res.Taken)
		}
	})
	return taken.Load()
}

var raceChecks = []check{
	{
		name: "64 goroutines get exactly the capacity",
		rule: "Check and spend are one step.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(500, 1, h), logOf(500, h), counter(500, h)} {
				key := k.key()
				if n := race(k, 64, 16, func(int, int) ratelimit.Request { return ratelimit.Request{Key: key, Limit: &l, Cost: 1} }); n != 500 {
					k.Errorf("%v: %d admitted", l, n)
				}
				if res := k.take(key, l, 0); res.Remaining != 0 {
					k.Errorf("%v afterwards: %+v", l, res)
				}
			}
		},
	},
	{
		name: "R82 ten calls at once on a fresh log of five",
		rule: "Exactly five pass, every time.",
		run: func(k *kit) {
			l := logOf(5, m)
			for round := range 60 {
				key := k.key()
				if n := race(k, 10, 1, func(int, int) ratelimit.Request { return ratelimit.Request{Key: key, Limit: &l, Cost: 1} }); n != 5 {
					k.Fatalf("round %d: %d admitted", round, n)
				}
			}
		},
	},
	{
		name: "R86 many calls at the edge of a window",
		rule: "When a log, a counter or a bucket has just become free again, a hundred callers get exactly what it holds.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{logOf(10, s), counter(10, s), bucket(10, 10, s)} {
				key := k.key()
				for round := range 10 {
					k.at(time.Duration(round) * 2 * s)
					if n := race(k, 50, 2, func(int, int) ratelimit.Request { return ratelimit.Request{Key: key, Limit: &l, Cost: 1} }); n != 10 {
						k.Fatalf("%v, round %d: %d admitted", l, round, n)
					}
				}
			}
		},
	},
	{
		name: "spending and giving back at once loses no unit",
		rule: "What was taken, less what came back, is what is missing.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(1000, 1, h), logOf(1000, h), counter(1000, h)} {
				key := k.key()
				missing := race(k, 32, 20, func(i, j int) ratelimit.Request {
					r := ratelimit.Request{Key: key, Limit: &l, Cost: int64(i%7) - 2}
					if r.Cost == 3 {
						r.Extra = int64(j)
					}
					return r
				})
				if res := k.take(key, l, 0); res.Remaining != 1000-missing {
					k.Errorf("%v: %d are missing, but %d remain", l, missing, res.Remaining)
				}
			}
		},
	},
	{
		name: "TakeAll in every order of keys",
		rule: "Concurrent calls that name the same states in different orders do not wait for each other for ever, and stay all or nothing.",
		run: func(k *kit) {
			limits := []ratelimit.Limit{bucket(300, 1, h), logOf(250, h), counter(350, h)}
			var admitted atomic.Int64
			k.together(32, func(i int) {
				for j := range 12 {
					var reqs []ratelimit.Request
					for n := range limits {
						n = (n + j) % len(limits)
						if i%2 == 1 {
							n = len(limits) - 1 - n
						}
						key := ratelimit.Key("tenant", fmt.Sprint(n))
						reqs = append(reqs, ratelimit.Request{Key: key, Limit: &limits[n], Cost: 1})
					}
					reqs = append(reqs, reqs[0])
					reqs[0].Cost = 0
					results, err := k.store.TakeAll(context.Background(), reqs)
					if err != nil {
						k.Errorf("goroutine %d: %v", i, err)
						return
					}
					if results[0].Allowed {
						admitted.Add(1)
					}
				}
			})
			if admitted.Load() != 250 {
				k.Errorf("%d admitted, want 250", admitted.Load())
			}
			for n := range limits {
				if res := k.take(ratelimit.Key("tenant", fmt.Sprint(n)), limits[n], 0); res.Remaining != limits[n].Capacity()-250 {
					k.Errorf("%v: %d remain", limits[n], res.Remaining)
				}
			}
		},
	},
	{
		name: "R83 R85 everything at once",
		rule: "Calls over many keys, resets and changing limits run together, and each Result belongs to the limit of its own call.",
		run: func(k *kit) {
			small, large := bucket(10, 10, s).Named("n"), bucket(20, 20, s).Named("n")
			k.together(64, func(i int) {
				for j := range 30 {
					key := fmt.Sprintf("k%d", (i*j)%37)
					l := small
					if (i+j)%2 == 0 {
						l = large
					}
					res, err := k.store.Take(context.Background(), ratelimit.Request{Key: key, Limit: &l, Cost: 1})
					if err != nil || res.Limit != l.Burst || res.Remaining < 0 || res.Remaining >= res.Limit || res.Name != "n" {
						k.Errorf("%v: %+v, %v", l, res, err)
					}
					if i%16 == 0 {
						if err := k.store.Reset(context.Background(), key, &l); err != nil {
							k.Errorf("Reset: %v", err)
						}
					}
				}
			})
		},
	},
	{
		name: "R82 two processes get exactly the capacity",
		rule: "A thousand calls released together, by half from another process where the store has state outside its own, admit what there is.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(500, 1, 366*24*h), logOf(500, 24*h), counter(500, 24*h)} {
				key := k.key()
				here, there := k.raceProcesses(key, l)
				if here+there != 500 {
					k.Errorf("%v: %d admitted here and %d there, want 500 in all", l, here, there)
				}
			}
		},
	},
}
