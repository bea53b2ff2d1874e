package ratelimit_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// A shaky Store answers late by up to delay, fails while it is away, and may be replaced by an empty one.
type shaky struct {
	store atomic.Pointer[memstore.Store]
	away  atomic.Bool
	delay time.Duration
	calls atomic.Int64
}

func newShaky() *shaky {
	s := &shaky{}
	s.wipe()
	return s
}

func (s *shaky) wipe() { s.store.Store(memstore.New(memstore.Options{})) }

func (s *shaky) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	s.calls.Add(1)
	if s.delay > 0 {
		time.Sleep(rand.N(s.delay))
	}
	if s.away.Load() {
		return ratelimit.Result{}, errBoom
	}
	return s.store.Load().Take(ctx, req)
}

func (s *shaky) TakeAll(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
	if s.away.Load() {
		return nil, errBoom
	}
	return s.store.Load().TakeAll(ctx, reqs)
}

func (s *shaky) Reset(ctx context.Context, key string, limits ...*ratelimit.Limit) error {
	if s.away.Load() {
		return errBoom
	}
	return s.store.Load().Reset(ctx, key, limits...)
}

func join(t testing.TB, store ratelimit.Store, n int) []*ratelimit.Fleet {
	t.Helper()
	fleet := make([]*ratelimit.Fleet, n)
	for i := range fleet {
		var err error
		if fleet[i], err = ratelimit.NewFleet(store, ratelimit.FleetOptions{Name: "api"}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = fleet[i].Close() })
	}
	return fleet
}

func leave(fleet []*ratelimit.Fleet) {
	for _, f := range fleet {
		_ = f.Close()
	}
}

// watch checks every half second, for so many, that all of fleet count from least to most.
func watch(t testing.TB, what string, fleet []*ratelimit.Fleet, seconds, least, most int) {
	t.Helper()
	for range 2 * seconds {
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		for i, f := range fleet {
			if n := f.Instances(); n < least || n > most {
				t.Fatalf("%s: instance %d of %d counts %d, want %d to %d", what, i, len(fleet), n, least, most)
			}
		}
	}
}

// In the steady state the count is exact, for fleets of every size and a store whose answers come early and late; one
// that joins is counted within two seconds, one that is gone is not after twenty.
func TestFleet(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 20; n++ {
		synctest.Test(t, func(t *testing.T) {
			store := newShaky()
			store.delay = 5 * time.Millisecond
			fleet := join(t, store, n)
			watch(t, "start", fleet, 2, 1, 2*n)
			watch(t, "start", fleet, 22, n, 2*n)
			watch(t, "steady", fleet, 100, n, n)
			more := join(t, store, 3)
			watch(t, "joined", more, 2, 1, n+6)
			watch(t, "joined", append(more, fleet...), 22, n+3, n+6)
			watch(t, "steady again", append(more, fleet...), 30, n+3, n+3)
			leave(more)
			watch(t, "left", fleet, 23, n, n+3)
			watch(t, "steady at last", fleet, 30, n, n)
			leave(fleet)
		})
	}
}

// Ten instances that are replaced one by one by others count for at most thirty, for no fewer than ten, and for ten
// after 24 seconds.
func TestFleetRollingReplacement(t *testing.T) {
	t.Parallel()
	for _, pause := range []int{0, 1, 3, 10} {
		synctest.Test(t, func(t *testing.T) {
			store := newShaky()
			fleet := join(t, store, 10)
			watch(t, "old", fleet, 30, 1, 20)
			for i := range fleet {
				old := fleet[i]
				fleet[i] = join(t, store, 1)[0]
				_ = old.Close()
				watch(t, "replacement", fleet[i+1:], pause, 10, 30)
			}
			watch(t, "new", fleet, 2, 1, 30)
			watch(t, "new", fleet, 22, 10, 30)
			watch(t, "steady", fleet, 30, 10, 10)
			leave(fleet)
		})
	}
}

// While the store is away the last count stands, and its return, with or without its memory, makes nobody count less.
func TestFleetStoreAway(t *testing.T) {
	t.Parallel()
	for _, away := range []int{0, 3, 9, 60, 600} { // 0: it lost its memory and nobody saw it away
		for _, empty := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				store := newShaky()
				store.delay = 5 * time.Millisecond
				fleet := join(t, store, 7)
				time.Sleep(time.Minute)
				store.away.Store(away > 0)
				watch(t, "away", fleet, away, 7, 7)
				if empty {
					store.wipe()
				}
				store.away.Store(false)
				watch(t, "back", fleet, 23, 7, 14)
				watch(t, "steady", fleet, 30, 7, 7)
				leave(fleet)
			})
		}
	}
}

// An instance that alone could not reach the store for a while is forgotten, and counted again within two seconds.
func TestFleetOneCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newShaky()
		fleet := join(t, store, 4)
		cut := &shaky{}
		cut.store.Store(store.store.Load())
		one := join(t, cut, 1)
		time.Sleep(time.Minute)
		watch(t, "all", append(one, fleet...), 1, 5, 5)
		cut.away.Store(true)
		time.Sleep(23 * time.Second)
		watch(t, "cut off", fleet, 60, 4, 4)
		watch(t, "itself", one, 1, 5, 5)
		cut.away.Store(false)
		time.Sleep(2 * time.Second)
		watch(t, "back", append(one, fleet...), 22, 5, 6)
		watch(t, "steady", append(one, fleet...), 10, 5, 5)
		leave(append(one, fleet...))
	})
}

// A store that hangs costs an instance one call at a time, and errors are told; Close does not wait for the store.
func TestFleetErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var errs []error
		hung := storeFunc(func(ctx context.Context, _ ratelimit.Request) (ratelimit.Result, error) {
			<-ctx.Done()
			return ratelimit.Result{}, ctx.Err()
		})
		f, err := ratelimit.NewFleet(hung, ratelimit.FleetOptions{Interval: time.Minute, OnError: func(err error) { errs = append(errs, err) }})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if n := f.Instances(); n != 1 || len(errs) < 9 || !errors.Is(errs[0], context.DeadlineExceeded) {
			t.Errorf("%d instances, errors %v", n, errs)
		}
		begun, told := time.Now(), len(errs)
		if err := errors.Join(f.Close(), f.Close()); err != nil || time.Since(begun) > 0 || len(errs) != told {
			t.Errorf("Close: %v after %v, %d errors more", err, time.Since(begun), len(errs)-told)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		local := storeFunc(func(context.Context, ratelimit.Request) (ratelimit.Result, error) {
			return ratelimit.Result{Allowed: true, Limit: 100_000, Source: ratelimit.SourceFallback}, nil
		})
		var told atomic.Pointer[error]
		f, err := ratelimit.NewFleet(local, ratelimit.FleetOptions{OnError: func(err error) { told.Store(&err) }})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if f.Instances() != 1 || !errors.Is(*told.Load(), ratelimit.ErrStoreUnavailable) {
			t.Errorf("a fallback counted %d, %v", f.Instances(), *told.Load())
		}
		_ = f.Close()
	})
}

func TestNewFleetRefuses(t *testing.T) {
	t.Parallel()
	if _, err := ratelimit.NewFleet(nil, ratelimit.FleetOptions{}); err == nil {
		t.Error("a nil store")
	}
	for _, d := range []time.Duration{-1, 1, time.Microsecond, time.Millisecond + 1, time.Hour + time.Millisecond} {
		if _, err := ratelimit.NewFleet(&scripted{}, ratelimit.FleetOptions{Interval: d}); err == nil || !strings.Contains(err.Error(), "Interval") {
			t.Errorf("%v: %v", d, err)
		}
	}
}

// A store, and a hook, that panic cost a beat and not the process.
func TestFleetStorePanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem, panics, told := memstore.New(memstore.Options{}), atomic.Bool{}, atomic.Int64{}
		panics.Store(true)
		f, err := ratelimit.NewFleet(storeFunc(func(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
			if panics.Load() {
				panic("the store's own")
			}
			return mem.Take(ctx, req)
		}), ratelimit.FleetOptions{OnError: func(error) { told.Add(1); panic("the hook's own") }})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		panics.Store(false)
		time.Sleep(2 * time.Second)
		used, err := mem.Take(t.Context(), ratelimit.Request{Key: ratelimit.Key("fleet"), Limit: &ratelimit.Limit{Name: "fleet", Algorithm: ratelimit.SlidingLog, Rate: 100_000, Period: 10 * time.Second}})
		if told.Load() < 10 || err != nil || used.Limit-used.Remaining < 10 {
			t.Errorf("told %d times; %+v, %v", told.Load(), used, err)
		}
		_ = f.Close()
	})
}
