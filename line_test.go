package ratelimit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicego/ratelimit"
)

// TestWaitThousand: a thousand callers on one key. Each is admitted at the moment its unit is there, no two at one, and the store
// is asked twice for each.
func TestWaitThousand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, every = 1000, 10 * time.Millisecond
		store := newMeter()
		l := must(t, store, ratelimit.Limit{Rate: 100, Period: time.Second, Burst: 1})
		start := time.Now()
		times := make([]time.Duration, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				res, err := ratelimit.Wait(t.Context(), l, ratelimit.Key("k"), 1)
				if err != nil || !res.Allowed {
					t.Errorf("caller %d: %+v, %v", i, res, err)
				}
				times[i] = time.Since(start)
			})
		}
		wg.Wait()
		slices.Sort(times)
		for i, at := range times {
			if at != time.Duration(i)*every {
				t.Fatalf("admission %d came at %v, want %v", i, at, time.Duration(i)*every)
			}
		}
		if calls := store.calls.Load(); calls > 2*n {
			t.Errorf("the store was asked %d times for %d admissions", calls, n)
		}
		gone(t, l)
	})
}

// TestWaitInOrder: first come first served, whatever the costs, and "k" is the key Key("k").
func TestWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(t, newMeter(), ratelimit.Limit{Rate: 10, Period: time.Second, Burst: 5})
		spend(t, l, "k", 5)
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 20 {
			wg.Go(func() {
				key := "k"
				if i%2 == 1 {
					key = ratelimit.Key("k")
				}
				if _, err := ratelimit.Wait(t.Context(), l, key, int64(1+(i*7)%5)); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			})
			synctest.Wait()
		}
		wg.Wait()
		if !slices.IsSorted(order) || len(order) != 20 {
			t.Errorf("served in the order %v", order)
		}
		if d := time.Since(start); d != 6*time.Second { // 60 units
			t.Errorf("it took %v", d)
		}
		gone(t, l)
	})
}

// TestWaitLeaves: who gives up leaves the others alone.
func TestWaitLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMeter()
		l := must(t, store, ratelimit.Limit{Rate: 1, Period: time.Second, Burst: 1})
		spend(t, l, "k", 1)
		var wg sync.WaitGroup
		start := time.Now()
		admitted := make([]time.Duration, 10)
		for i := range 10 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i%2 == 0 { // the one in front among them
					time.AfterFunc(time.Duration(300+i)*time.Millisecond, cancel)
				}
				res, err := ratelimit.Wait(ctx, l, "k", 1)
				switch {
				case i%2 == 0 && (err != context.Canceled || time.Since(start) != time.Duration(300+i)*time.Millisecond):
					t.Errorf("caller %d: %+v, %v, at %v", i, res, err, time.Since(start))
				case i%2 == 1 && err != nil:
					t.Errorf("caller %d: %+v, %v", i, res, err)
				}
				admitted[i] = time.Since(start)
			})
			synctest.Wait()
		}
		wg.Wait()
		for i := 1; i < 10; i += 2 {
			if want := time.Duration(i+1) / 2 * time.Second; admitted[i] != want {
				t.Errorf("caller %d was admitted at %v, want %v", i, admitted[i], want)
			}
		}
		if calls := store.calls.Load(); calls > 1+2*5+5 {
			t.Errorf("the store was asked %d times", calls)
		}
		gone(t, l)
	})
}

// TestWaitDeadlinesInLine: who stands in line leaves as soon as its deadline cannot be met, not when it comes.
func TestWaitDeadlinesInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(t, newMeter(), ratelimit.Limit{Rate: 1, Period: time.Second, Burst: 1})
		spend(t, l, "k", 1)
		var wg sync.WaitGroup
		start := time.Now()
		wait := func(timeout, leaves time.Duration, want error) {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				if _, err := ratelimit.Wait(ctx, l, "k", 1); !errors.Is(err, want) || time.Since(start) != leaves {
					t.Errorf("with %v: %v after %v, want %v after %v", timeout, err, time.Since(start), want, leaves)
				}
			})
			synctest.Wait()
		}
		late := ratelimit.ErrDeadline
		wait(time.Minute, time.Second, nil)
		wait(500*time.Millisecond, 0, late)            // the one in front sleeps for longer
		wait(1500*time.Millisecond, time.Second, late) // known when the second is in front
		wait(time.Minute, 2*time.Second, nil)
		wait(2500*time.Millisecond, 2*time.Second, late)
		wait(3500*time.Millisecond, 3*time.Second, nil)
		wait(3100*time.Millisecond, 3*time.Second, late)
		wait(time.Hour, 4*time.Second, nil)
		wait(3600*time.Millisecond, 3*time.Second, late) // known when the one before it is in front
		wait(6500*time.Millisecond, 5*time.Second, nil)
		wait(4800*time.Millisecond, 4*time.Second, late)
		wg.Wait()
		gone(t, l)
	})
}

// TestWaitTogether: as many ask at a time as there is room for, so that a store far away does not make the line slow.
func TestWaitTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMeter()
		store.delay = time.Millisecond
		l := must(t, store, ratelimit.Limit{Rate: 100_000, Period: time.Second, Burst: 1000})
		start := time.Now()
		var wg sync.WaitGroup
		for range 10_000 {
			wg.Go(func() {
				if _, err := ratelimit.Wait(t.Context(), l, "k", 1); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if d := time.Since(start); d > 200*time.Millisecond { // 90 ms for the units alone, 10 s one by one
			t.Errorf("10,000 admissions took %v", d)
		}
		if calls := store.calls.Load(); calls > 10_000*2 {
			t.Errorf("the store was asked %d times", calls)
		}
		gone(t, l)
	})
}

// TestWaitKeepsPlaces: who asked together with others and was denied keeps its place.
func TestWaitKeepsPlaces(t *testing.T) {
	for range 20 { // the denials come in any order
		synctest.Test(t, func(t *testing.T) {
			store := newMeter()
			store.delay = 10 * time.Millisecond
			limit := ratelimit.Limit{Rate: 1, Period: time.Second, Burst: 4}
			l := must(t, store, limit)
			time.AfterFunc(15*time.Millisecond, func() { // when the second to fourth are on their way
				_, _ = store.Store.Take(context.Background(), ratelimit.Request{Key: "k", Limit: &limit, Cost: 3})
			})
			start := time.Now()
			var wg sync.WaitGroup
			for i := range 6 {
				wg.Go(func() {
					_, err := ratelimit.Wait(t.Context(), l, "k", 1)
					if at := time.Since(start).Truncate(time.Second); err != nil || at != time.Duration(i)*time.Second {
						t.Errorf("caller %d was admitted at %v, %v", i, at, err)
					}
				})
				synctest.Wait()
			}
			wg.Wait()
			gone(t, l)
		})
	}
}

// TestWaitOutage: an outage does not take those who stand in line one by one.
func TestWaitOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMeter()
		store.delay = time.Second
		store.fail.Store(&ratelimit.ErrStoreUnavailable)
		l := must(t, store, ratelimit.PerSecond(1))
		start := time.Now()
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if _, err := ratelimit.Wait(t.Context(), l, "k", 1); !errors.Is(err, ratelimit.ErrStoreUnavailable) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if d := time.Since(start); d > 12*time.Second {
			t.Errorf("it took %v until all had their errors", d)
		}
		gone(t, l)
	})
}

// TestWaitPanic: a store that panics does not close the key for the others.
func TestWaitPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMeter()
		l := must(t, panicky{store}, ratelimit.PerSecond(1))
		func() {
			defer func() { _ = recover() }()
			_, _ = ratelimit.Wait(t.Context(), l, "panic", 1)
			t.Error("no panic")
		}()
		gone(t, l)
	})
}

type panicky struct{ ratelimit.Store }

func (panicky) Take(context.Context, ratelimit.Request) (ratelimit.Result, error) { panic("boom") }
