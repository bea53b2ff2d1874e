package rueidisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/rueidisstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// R76: a decision that is redirected is sent twice, at once, and executed once; ErrStoreUnavailable is not among the
// outcomes.
func TestRedirected(t *testing.T) {
	for _, mode := range []string{"MOVED", "ASK"} {
		var to atomic.Value
		old := func(int, []string) redisserver.Reply {
			return redisserver.Error(mode + " 0 " + to.Load().(string)) // the slot is not looked at
		}
		book := &ledger{}
		owner := func(_ int, args []string) redisserver.Reply {
			book.add(args)
			return admitted()
		}
		stubs, o := clusterOf(t, old, owner)
		to.Store(stubs[1].Addr)
		s := storeOn(t, o)
		for key, err := range race(100, func(key string) error {
			start := time.Now()
			_, err := take(context.Background(), s, key)
			if d := time.Since(start); d > time.Second {
				t.Errorf("%s: a decision took %v", mode, d)
			}
			return err
		}) {
			if err != nil || book.of(key) != 1 {
				t.Errorf("%s: executed %d times, error %v", mode, book.of(key), err)
			}
		}
		if n := stubs[0].Count("EVALSHA"); n == 0 || n > 100 {
			t.Errorf("%s: %d of 100 decisions went to the old master", mode, n)
		}
	}
}

// Masters that send a decision to each other for ever are bothered no longer than the caller waits.
func TestRedirectedForEver(t *testing.T) {
	var addrs atomic.Value
	to := func(i int) func(int, []string) redisserver.Reply {
		return func(int, []string) redisserver.Reply {
			return redisserver.Error("MOVED 0 " + addrs.Load().([]string)[i])
		}
	}
	stubs, o := clusterOf(t, to(1), to(0))
	addrs.Store(o.InitAddress)
	s := storeOn(t, o)
	before := goroutines()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := take(ctx, s, "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	leavesNone(t, before)
	count := func() int { return stubs[0].Count() + stubs[1].Count() }
	eventually(t, func() error {
		n := count()
		<-time.After(50 * time.Millisecond)
		if now := count(); now != n {
			return fmt.Errorf("%d more commands after the caller has left", now-n)
		}
		return nil
	})
}

// R53, R55: the keys of one call are in one slot whatever the parts hold, and those of many clients spread over them.
func TestSlots(t *testing.T) {
	var keys [][]string
	_, o := clusterOf(t, func(_ int, args []string) redisserver.Reply {
		n, _ := strconv.Atoi(args[2])
		keys = append(keys, args[3:3+n])
		return redisserver.Int(0)
	})
	client := connect(t, o)
	s := over(t, client, rueidisstore.Options{})
	slot := func(key string) uint16 {
		cmd := client.B().Get().Key(key).Build()
		return cmd.Slot()
	}
	seen := make(map[uint16]bool)
	ids := []string{"a{b}c", "{}", "}{", "{", "", "a}b", "{{x}}", "{a}", "a:b", "%7B", "\x00", "\xff"}
	for i := range 10_000 {
		ids = append(ids, "user-"+strconv.Itoa(i))
	}
	limits := []*ratelimit.Limit{&bucket, &logOf, {Name: "n", Rate: 1, Period: time.Second}}
	for _, id := range ids {
		keys = nil
		key := ratelimit.Key(id, "search")
		if err := s.Reset(context.Background(), key, limits...); err != nil {
			t.Fatal(err)
		}
		var reqs []ratelimit.Request
		for _, l := range limits {
			reqs = append(reqs, ratelimit.Request{Key: key, Limit: l, Cost: 1}, ratelimit.Request{Key: ratelimit.Key(id), Limit: l, Cost: 1})
		}
		_, _ = s.TakeAll(context.Background(), reqs) // the stub's reply is none of TakeAll's
		if len(keys) != 2 || len(keys[0]) != 3 || len(keys[1]) != 6 {
			t.Fatalf("keys of the calls: %q", keys)
		}
		for _, call := range keys {
			for _, k := range call {
				if slot(k) != slot(call[0]) {
					t.Errorf("%q and %q are in different slots", k, call[0])
				}
			}
		}
		seen[slot(keys[0][0])] = true
	}
	if len(seen) < 5000 {
		t.Errorf("10,000 clients are in %d slots", len(seen))
	}
	_, err := s.TakeAll(context.Background(), []ratelimit.Request{{Key: "a", Limit: &bucket}, {Key: "b", Limit: &bucket}})
	if !errors.Is(err, ratelimit.ErrCrossSlot) {
		t.Errorf("keys of two slots: %v", err)
	}
}

// R52, R76: scripts flushed on one master, a master that is new, slots that move while callers take from them: no error,
// and every bucket gives exactly what it has.
func TestResharding(t *testing.T) {
	servers := redisserver.Cluster(t)
	s := storeOn(t, rueidis.ClientOption{InitAddress: servers.Addrs()})
	const perKey = 10 // the buckets' capacity
	var keys []string
	for i := range 30 {
		keys = append(keys, fmt.Sprintf("key-%d", i))
	}
	var given [30]atomic.Int64
	var calls atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	for range 50 {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				i := int(calls.Add(1)) % len(keys)
				res, err := take(context.Background(), s, keys[i])
				if err != nil {
					t.Errorf("during resharding: %v", err)
					return
				}
				given[i].Add(res.Taken)
			}
		}()
	}
	if _, err := servers.Nodes[0].Do("SCRIPT", "FLUSH"); err != nil {
		t.Fatal(err)
	}
	added := servers.AddNode()
	for _, key := range keys[:10] {
		slot := servers.Slot("{" + key + "}")
		servers.MoveSlot(slot, servers.Owner(slot), added)
	}
	after := calls.Load()
	eventually(t, func() error {
		if calls.Load() < after+1000 {
			return errors.New("the callers stand still")
		}
		return nil
	})
	cancel()
	for range 50 {
		<-done
	}
	for i := range keys {
		if n := given[i].Load(); n != perKey {
			t.Errorf("a bucket of %d gave %d", perKey, n)
		}
	}
	if size, err := added.Text("DBSIZE"); err != nil || strings.TrimSpace(size) == "0" {
		t.Errorf("the new master holds %s keys, %v", size, err)
	}
}
