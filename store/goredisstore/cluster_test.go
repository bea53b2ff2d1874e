package goredisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// clusterOf returns a client of the Cluster that has these stubs as masters.
func clusterOf(t *testing.T, all []*redisserver.Stub) *redis.ClusterClient {
	t.Helper()
	var addrs []string
	for _, s := range all {
		addrs = append(addrs, s.Addr)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// R76: a lone decision that is redirected is sent twice, at once, and executed once; in batches, where it is sent to the
// old master, by the client to the one that it believes in, and to the new one, it is executed once too.
func TestRedirected(t *testing.T) {
	for _, mode := range []string{"MOVED", "ASK"} {
		t.Run(mode, func(t *testing.T) {
			var to atomic.Value
			old := func(int, []string) redisserver.Reply {
				return redisserver.Error(mode + " 0 " + to.Load().(string)) // nobody looks at the slot
			}
			book := &ledger{}
			owner := func(_ int, args []string) redisserver.Reply {
				book.add(args)
				return admitted()
			}
			all := stubs(t, old, owner)
			to.Store(all[1].Addr)
			s := over(t, clusterOf(t, all), goredisstore.Options{})
			lone := "a" // in the upper slots, and so is b
			for all[0].Count() == 0 {
				lone += "a"
				if _, err := take(t.Context(), s, lone); err != nil {
					t.Fatal(err)
				}
			}
			if n := all[0].Count(); n != 1 || book.of(lone) != 1 {
				t.Errorf("a lone decision was sent %d times to the old master and executed %d times", n, book.of(lone))
			}
			before := all[0].Count()
			for key, err := range race(200, func(key string) error { _, err := take(t.Context(), s, key); return err }) {
				if err != nil || book.of(key) != 1 {
					t.Errorf("executed %d times, error %v", book.of(key), err)
				}
			}
			if n := all[0].Count() - before; n == 0 || n > 400 {
				t.Errorf("%d commands for 200 decisions went to the old master", n)
			}
			leavesNone(t)
		})
	}
}

// Masters that send a decision to each other for ever are an outage after a few rounds.
func TestRedirectedForEver(t *testing.T) {
	var addrs [2]atomic.Value
	to := func(i int) handler {
		return func(int, []string) redisserver.Reply { return redisserver.Error("MOVED 0 " + addrs[i].Load().(string)) }
	}
	all := stubs(t, to(1), to(0))
	addrs[0].Store(all[0].Addr)
	addrs[1].Store(all[1].Addr)
	s := over(t, clusterOf(t, all), goredisstore.Options{})
	if _, err := take(t.Context(), s, "k"); !errors.Is(err, ratelimit.ErrStoreUnavailable) {
		t.Error(err)
	}
	if n := all[0].Count() + all[1].Count(); n > 20 {
		t.Errorf("%d commands", n)
	}
	leavesNone(t)
}

// A Cluster that is not there yet: callers leave with their contexts, and are served when it comes.
func TestClusterComesLater(t *testing.T) {
	all := stubs(t, func(int, []string) redisserver.Reply { return admitted() })
	all[0].Down()
	s := over(t, clusterOf(t, all), goredisstore.Options{})
	for _, err := range race(300, func(key string) error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		_, err := take(ctx, s, key)
		return err
	}) {
		if !errors.Is(err, ratelimit.ErrStoreUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a Cluster: %v", err)
		}
	}
	all[0].Up()
	eventually(t, func() error { _, err := take(context.Background(), s, "k"); return err })
	leavesNone(t)
}

// R53, R55: the keys of one call are in one slot whatever the parts hold, and those of many clients spread over them.
func TestSlots(t *testing.T) {
	var mu sync.Mutex
	var keys [][]string
	all := stubs(t, func(_ int, args []string) redisserver.Reply {
		mu.Lock()
		defer mu.Unlock()
		n, _ := strconv.Atoi(args[2])
		keys = append(keys, args[3:3+n])
		return redisserver.Int(0)
	})
	s := over(t, clusterOf(t, all), goredisstore.Options{})
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

// slot is CRC-16/XMODEM of the hash tag, as the Cluster specification says.
func slot(key string) (crc uint16) {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if size := strings.IndexByte(key[open+1:], '}'); size > 0 {
			key = key[open+1 : open+1+size]
		}
	}
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			high := crc & 0x8000
			crc <<= 1
			if high != 0 {
				crc ^= 0x1021
			}
		}
	}
	return crc % 16_384
}

// R52, R76: scripts flushed on one master, a master that is new, slots that move while callers take from them: no error,
// and every bucket gives exactly what it has.
func TestResharding(t *testing.T) {
	servers := redisserver.Cluster(t)
	s := over(t, connect(t, &redis.UniversalOptions{Addrs: servers.Addrs(), IsClusterMode: true}), goredisstore.Options{})
	var keys []string
	for i := range 30 {
		keys = append(keys, fmt.Sprintf("key-%d", i))
	}
	var given [30]atomic.Int64
	var calls atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(calls.Add(1)) % len(keys)
				res, err := take(context.Background(), s, keys[i])
				if err != nil {
					t.Errorf("during resharding: %v", err)
					return
				}
				given[i].Add(res.Taken)
			}
		})
	}
	for _, n := range servers.Nodes {
		if _, err := n.Do("SCRIPT", "FLUSH"); err != nil {
			t.Fatal(err)
		}
	}
	added := servers.AddNode()
	for _, key := range keys[:10] {
		slot := servers.Slot("{" + key + "}")
		servers.MoveSlot(slot, servers.Owner(slot), added)
	}
	after := calls.Load()
	eventually(t, func() error { return atLeast(int(after)+1000, int(calls.Load())) })
	cancel()
	wg.Wait()
	for i := range keys {
		if n := given[i].Load(); n != bucket.Rate {
			t.Errorf("a bucket of %d gave %d", bucket.Rate, n)
		}
	}
	if size, err := added.Text("DBSIZE"); err != nil || size == "0" {
		t.Errorf("the new master holds %s keys, %v", size, err)
	}
	leavesNone(t)
}

// A master that dies is an outage for its keys until its replica takes over; then they are served again.
func TestClusterFailover(t *testing.T) {
	servers := redisserver.Cluster(t)
	master := servers.Nodes[0]
	servers.AddReplica(master)
	s := over(t, connect(t, &redis.UniversalOptions{Addrs: servers.Addrs(), IsClusterMode: true}), goredisstore.Options{})
	key := "a"
	for servers.Owner(servers.Slot("{"+key+"}")) != master {
		key += "a"
	}
	if _, err := take(t.Context(), s, key); err != nil {
		t.Fatal(err)
	}
	master.Kill()
	eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := take(ctx, s, key)
		if err != nil && !errors.Is(err, ratelimit.ErrStoreUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("during the failover: %v", err)
		}
		return err
	})
	leavesNone(t)
}

// Sentinel replaces a dead master: an outage, then the new one serves.
func TestSentinelFailover(t *testing.T) {
	servers := redisserver.Sentinel(t)
	s := over(t, connect(t, &redis.UniversalOptions{Addrs: servers.Addrs(), MasterName: servers.MasterName}), goredisstore.Options{})
	if _, err := take(t.Context(), s, "k"); err != nil {
		t.Fatal(err)
	}
	servers.Master().Kill()
	eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := take(ctx, s, "k")
		if err != nil && !errors.Is(err, ratelimit.ErrStoreUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("during the failover: %v", err)
		}
		return err
	})
	leavesNone(t)
}

// A Ring keeps each key on one of its servers, and batches by server.
func TestRing(t *testing.T) {
	a, b := redisserver.Single(t), redisserver.Single(t)
	client := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": a.Addr, "b": b.Addr}})
	t.Cleanup(func() { _ = client.Close() })
	s := over(t, client, goredisstore.Options{})
	for range 10 {
		for _, err := range race(200, func(key string) error {
			res, err := take(t.Context(), s, key)
			if err == nil && !res.Allowed {
				return errors.New("denied")
			}
			return err
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for key := range race(200, func(string) error { return nil }) {
		if res, err := take(t.Context(), s, key); err != nil || res.Allowed {
			t.Fatalf("the eleventh of ten: %+v, %v", res, err)
		}
	}
	for _, n := range []*redisserver.Server{a, b} {
		if size, err := n.Text("DBSIZE"); err != nil || size == "0" || size == "200" {
			t.Errorf("a server of two holds %s of 200 keys, %v", size, err)
		}
	}
}
