package ratelimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// A distant Store takes its time both ways, and loses one call in so many, or its answer.
type distant struct {
	ratelimit.Store
	loses int // 0: none
}

func (d *distant) Take(ctx context.Context, req ratelimit.Request) (res ratelimit.Result, err error) {
	err = d.trip(ctx, func() { res, err = d.Store.Take(ctx, req) })
	return res, err
}

func (d *distant) TakeAll(ctx context.Context, reqs []ratelimit.Request) (res []ratelimit.Result, err error) {
	err = d.trip(ctx, func() { res, err = d.Store.TakeAll(ctx, reqs) })
	return res, err
}

func (d *distant) trip(ctx context.Context, call func()) error {
	for there := range 2 {
		select {
		case <-time.After(time.Duration(rand.IntN(3000)) * time.Microsecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		if d.loses > 0 && rand.IntN(d.loses) == 0 {
			return errBoom
		}
		if there == 0 {
			call()
		}
	}
	return nil
}

// Whatever happens on the way, the store is short of what was admitted: of nothing else if no call is lost, and of no
// less if some are. R94.
func TestLeaseMakesNothing(t *testing.T) {
	t.Parallel()
	const capacity = 1_000_000
	for _, loses := range []int{0, 20} {
		for _, a := range leasedAlgorithms {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New(memstore.Options{})
				limits := []ratelimit.Limit{{Rate: 1, Period: 24 * time.Hour, Burst: capacity}, {Rate: 1, Period: 23 * time.Hour, Burst: capacity}}
				if a == ratelimit.SlidingCounter {
					limits = []ratelimit.Limit{{Algorithm: a, Rate: capacity, Period: 24 * time.Hour}, {Algorithm: a, Rate: capacity, Period: 24 * time.Hour, OnFailure: ratelimit.FailOpen}}
				}
				var admitted [4]atomic.Int64 // by key
				var leases []*ratelimit.Lease
				var wg sync.WaitGroup
				for range 3 {
					l := newLease(t, &distant{store, loses}, ratelimit.LeaseOptions{MaxAge: 20 * time.Millisecond, MaxKeys: 3})
					leases = append(leases, l)
					for range 8 {
						wg.Go(func() {
							for range 300 {
								ctx, cancel := t.Context(), func() {}
								if loses > 0 {
									ctx, cancel = context.WithTimeout(ctx, 8*time.Millisecond)
								}
								key := min(rand.IntN(20), len(admitted)-1) // the last is hot
								req := ratelimit.Request{Key: fmt.Sprint(key), Limit: &limits[rand.IntN(200)/199], Cost: rand.Int64N(4)}
								switch rand.IntN(20) {
								case 0:
									req.Extra = 5
								case 1:
									other := req
									other.Key = fmt.Sprint((key + 1) % len(admitted))
									if results, err := l.TakeAll(ctx, []ratelimit.Request{req, other}); err == nil {
										admitted[key].Add(results[0].Taken)
										admitted[(key+1)%len(admitted)].Add(results[1].Taken)
									}
									req.Cost = 0
								case 2:
									time.Sleep(30 * time.Millisecond)
								}
								if res, err := l.Take(ctx, req); err == nil {
									admitted[key].Add(res.Taken)
								} else if loses == 0 {
									t.Error(err)
								}
								time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
								cancel()
							}
						})
					}
				}
				wg.Wait()
				for _, l := range leases {
					if err := l.Close(); err != nil && loses == 0 {
						t.Error(err)
					}
				}
				for key := range admitted {
					left := remaining(t, store, fmt.Sprint(key), limits[0])
					if n := admitted[key].Load(); left > capacity-n || loses == 0 && left != capacity-n {
						t.Errorf("%v, one in %d is lost, key %d: %d were admitted, %d are left", a, loses, key, n, left)
					}
				}
			})
		}
	}
}
