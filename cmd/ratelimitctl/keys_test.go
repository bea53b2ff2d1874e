package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

var (
	bucket  = ratelimit.PerHour(100)
	login   = ratelimit.PerHour(5).Named("login")
	log     = ratelimit.Limit{Name: "audit", Algorithm: ratelimit.SlidingLog, Rate: 10_000, Period: time.Hour}
	counter = ratelimit.Limit{Algorithm: ratelimit.SlidingCounter, Rate: 10, Period: time.Hour}
)

// fill spends from 300 buckets, 40 others, 20 counters and two logs, one of them long.
func fill(t *testing.T, store ratelimit.Store) {
	t.Helper()
	for i := range 300 {
		key := ratelimit.Key(fmt.Sprintf("secret-%d", i), "search")
		spend(t, store, key, bucket, 1)
		if i < 40 {
			spend(t, store, key, login, 1)
		}
		if i < 20 {
			spend(t, store, key, counter, 1)
		}
	}
	spend(t, store, ratelimit.Key("secret-1"), log, 1)
	for range 600 {
		spend(t, store, ratelimit.Key("secret-long"), log, 1)
	}
}

// counted holds a census to what fill left.
func counted(t *testing.T, v censusView, withoutTTL int64) {
	t.Helper()
	if v.Keys != 362 || v.WithoutTTL != withoutTTL || v.Measured < 362/10 || v.Measured > 362/10+10 || v.Bytes < 362*50 || v.Bytes > 362*1000 {
		t.Errorf("%+v", v.count)
	}
	want := map[string]int64{"token-bucket": 300, "token-bucket login": 40, "sliding-counter": 20, "sliding-log audit": 2}
	for _, k := range v.Kinds {
		if k.Keys != want[k.String()] {
			t.Errorf("%d keys of %v; want %d", k.Keys, k, want[k.String()])
		}
	}
	if len(v.Kinds) != len(want) || len(v.Largest) != 3 || v.Largest[0].Name != "audit" || v.Largest[0].Bytes < 2*v.Largest[1].Bytes || v.Largest[0].TTL < 3000 {
		t.Errorf("%+v, %+v", v.Kinds, v.Largest)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	server := redisserver.Single(t)
	fill(t, newStore(t, &redis.UniversalOptions{Addrs: []string{server.Addr}}))
	for _, command := range []string{
		"PERSIST rl:{secret-7}:search", "PERSIST rl:login:{secret-8}:search", // lost TTLs
		"SET other:{a} x", "SET rlx:{a} x", "SET rl:a x", "SET rl:a:b:{c} x", "SET rl-log x", // not the store's
	} {
		if _, err := server.Do(strings.Fields(command)...); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"keys", "-redis", server.Addr, "-largest", "3", "-pause", "1ms", "-count", "50"}
	var v censusView
	out := ctl(t, 0, append(args, "-o", "json")...)
	decode(t, out, &v)
	counted(t, v, 2)
	text := ctl(t, 0, args...)
	has(t, text, "300", "token-bucket", "40", "token-bucket login", "2", "sliding-log audit", "362", "all", "largest keys")
	if strings.Contains(out+text, "secret") {
		t.Errorf("keys are told unasked:\n%s%s", out, text)
	}
	has(t, ctl(t, 0, append(args, "-show-keys")...), "sliding-log audit", "rl-log:audit:{secret-long}")
	decode(t, ctl(t, 0, append(args, "-o", "json", "-sample", "0")...), &v)
	if v.Keys != 362 || v.Measured != 0 || v.Bytes != 0 || len(v.Largest) != 0 {
		t.Errorf("%+v", v)
	}
	has(t, ctl(t, 0, "keys", "-redis", server.Addr, "-prefix", "nobody"), "0", "all")
}

// TestKeysOfCluster: all nodes count.
func TestKeysOfCluster(t *testing.T) {
	t.Parallel()
	cluster := redisserver.Cluster(t)
	fill(t, newStore(t, &redis.UniversalOptions{Addrs: cluster.Addrs()}))
	var v censusView
	decode(t, ctl(t, 0, "keys", "-redis", cluster.Addrs()[1], "-cluster", "-largest", "3", "-pause", "1ms", "-o", "json"), &v)
	counted(t, v, 0)
}
