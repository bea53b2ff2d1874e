package rueidisstore_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/rueidisstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// A service starts while Redis is down, gets ErrStoreUnavailable at once, and decisions as soon as Redis is up.
func TestLazy(t *testing.T) {
	stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply { return admitted() })
	stub.Down()
	before := goroutines()
	s, err := rueidisstore.NewLazy(func() (rueidis.Client, error) { return rueidis.NewClient(at(stub.Addr)) }, rueidisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, op := range operations(context.Background(), s) {
		start := time.Now()
		if err := op(); !errors.Is(err, ratelimit.ErrStoreUnavailable) {
			t.Errorf("%s while Redis is down: %v", name, err)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("%s while Redis is down took %v", name, d)
		}
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := take(cancelled, s, "k"); !errors.Is(err, context.Canceled) || errors.Is(err, ratelimit.ErrStoreUnavailable) {
		t.Errorf("a cancelled call while Redis is down: %v", err)
	}
	stub.Up()
	eventually(t, func() error { _, err := take(context.Background(), s, "k"); return err })
	s.Close()
	s.Close()
	if _, err := take(context.Background(), s, "k"); !errors.Is(err, ratelimit.ErrStoreUnavailable) || !errors.Is(err, rueidis.ErrClosing) {
		t.Errorf("after Close: %v", err)
	}
	stub.Down()
	leavesNone(t, before)
}

// Close ends calls under way and waits for them.
func TestLazyCloseUnderWay(t *testing.T) {
	stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply { return redisserver.Reply{} })
	s, err := rueidisstore.NewLazy(func() (rueidis.Client, error) { return rueidis.NewClient(at(stub.Addr)) }, rueidisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const callers = 20
	errs := make(chan error, callers)
	for range callers {
		go func() {
			for {
				if _, err := take(ctx, s, "k"); !errors.Is(err, ratelimit.ErrStoreUnavailable) || stub.Count("EVALSHA") > 0 {
					errs <- err
					return
				}
			}
		}()
	}
	eventually(t, func() error {
		if stub.Count("EVALSHA") == 0 { // the others wait behind it, in rueidis
			return errors.New("no call is under way")
		}
		return nil
	})
	s.Close()
	for range callers {
		if err := <-errs; !errors.Is(err, ratelimit.ErrStoreUnavailable) {
			t.Errorf("a call during Close: %v", err)
		}
	}
}

// Attempts never end but grow rare, and Close ends them.
func TestLazyBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var attempts []time.Time
		soFar := func() []time.Time {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(attempts)
		}
		refused := errors.New("refused")
		s, err := rueidisstore.NewLazy(func() (rueidis.Client, error) {
			mu.Lock()
			defer mu.Unlock()
			attempts = append(attempts, time.Now())
			return nil, refused
		}, rueidisstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // of the bubble
		if n := len(soFar()); n < 3 || n > 20 {
			t.Errorf("%d attempts in the first second", n)
		}
		time.Sleep(time.Hour)
		made := soFar()
		if n := len(made); n < 4800 || n > 14_400 {
			t.Errorf("%d attempts in an hour", n)
		}
		for i := 1; i < len(made); i++ {
			if pause := made[i].Sub(made[i-1]); pause <= 0 || pause > 750*time.Millisecond {
				t.Errorf("a pause of %v", pause)
			}
		}
		if _, err := take(context.Background(), s, "k"); !errors.Is(err, ratelimit.ErrStoreUnavailable) || !errors.Is(err, refused) {
			t.Errorf("the attempt's error is %v", err)
		}
		s.Close()
		ended := len(soFar())
		time.Sleep(time.Hour)
		if n := len(soFar()); n != ended {
			t.Errorf("%d attempts after Close", n-ended)
		}
	})
}

// A Close that comes while the client is being made closes that client.
func TestLazyCloseWhileConnecting(t *testing.T) {
	stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply { return admitted() })
	before := goroutines()
	connecting, goOn := make(chan struct{}), make(chan struct{})
	s, err := rueidisstore.NewLazy(func() (rueidis.Client, error) {
		close(connecting)
		<-goOn
		return rueidis.NewClient(at(stub.Addr))
	}, rueidisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	<-connecting
	closed := make(chan struct{})
	go func() {
		s.Close()
		close(closed)
	}()
	close(goOn)
	<-closed
	stub.Down()
	leavesNone(t, before)
	if open, _, accepted := stub.Conns(); open != 0 || accepted == 0 {
		t.Errorf("%d connections are open of %d", open, accepted)
	}
}

// A connect that returns nothing at all is tried again.
func TestLazyNothing(t *testing.T) {
	stub := redisserver.NewStub(t, func(int, []string) redisserver.Reply { return admitted() })
	calls := 0
	s, err := rueidisstore.NewLazy(func() (rueidis.Client, error) {
		if calls++; calls == 1 {
			return nil, nil
		}
		return rueidis.NewClient(at(stub.Addr))
	}, rueidisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	eventually(t, func() error { _, err := take(context.Background(), s, "k"); return err })
}
