package benchmarks

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// A sliding log holds 60,000 entries in less than 1,000,000 bytes, long in use as well, when its running totals have
// nearly all the digits they ever get.
func TestRedisMemoryOfSlidingLog(t *testing.T) {
	t.Parallel()
	const entries = 60_000
	server := redisserver.Single(t)
	store, err := goredisstore.New(newGoredisClient(t, server.Addr), goredisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	key, ctx := userKeys(1)[0], t.Context()
	limiter := func(period time.Duration) *ratelimit.StoreLimiter {
		l, err := ratelimit.NewSlidingLog(store, ratelimit.Limit{Rate: 100_000, Period: period})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}

	short := limiter(time.Millisecond) // the log forgets as fast
	for _, spend := range []int64{8_000_000, 1} {
		for spend > 0 {
			res, err := short.Allow(ctx, key, min(spend, 100_000))
			if err != nil {
				t.Fatal(err)
			}
			spend -= res.Taken
		}
	}

	long := limiter(time.Hour)
	var failed atomic.Pointer[error]
	share(64, entries-1, func(int) { // no two of them in one microsecond, for the server decides one after the other
		if _, err := long.Allow(ctx, key, 1); err != nil {
			failed.Store(&err)
		}
	})
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
	redisKey := "rl-log:{" + key + "}"
	if n := integer(t, server, "LLEN", redisKey); n != 2*(entries+1) {
		t.Fatalf("the list has %d elements, want two for each of %d entries and one more", n, entries)
	}
	if n := integer(t, server, "MEMORY", "USAGE", redisKey, "SAMPLES", "0"); n >= 1_000_000 {
		t.Errorf("a log of %d entries takes %d bytes, want less than 1,000,000", entries, n)
	} else {
		t.Logf("a log of %d entries takes %d bytes", entries, n)
	}
}

// A token bucket takes less than 170 bytes with a key of 24.
func TestRedisMemoryOfTokenBucket(t *testing.T) {
	t.Parallel()
	server := redisserver.Single(t)
	store, err := goredisstore.New(newGoredisClient(t, server.Addr), goredisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	limits := []ratelimit.Limit{
		ratelimit.PerSecond(10),
		ratelimit.PerMinute(100),
		ratelimit.PerHour(1_000),
		ratelimit.PerDay(86_399),
		ratelimit.PerSecond(1_000_000_000),
		{Rate: 1_000_000_000, Period: 366 * 24 * time.Hour},
		{Rate: 999_999_937, Period: 366*24*time.Hour - time.Microsecond}, // whole tokens are a number of their own
	}
	keys := userKeys(len(limits))
	for i, limit := range limits {
		key := keys[i]
		res, err := store.Take(t.Context(), ratelimit.Request{Key: key, Limit: &limit, Cost: 1})
		if err != nil || !res.Allowed {
			t.Fatalf("%v: %+v, %v", limit, res, err)
		}
		redisKey := "rl:{" + key + "}"
		if len(redisKey) != 24 {
			t.Fatalf("the key has %d bytes", len(redisKey))
		}
		n := integer(t, server, "MEMORY", "USAGE", redisKey, "SAMPLES", "0")
		if n >= 170 {
			t.Errorf("%v: a key takes %d bytes, want less than 170", limit, n)
		}
		t.Logf("%v: %d bytes a key", limit, n)
	}
}

func integer(t *testing.T, server *redisserver.Server, args ...string) int64 {
	t.Helper()
	v, err := server.Do(args...)
	n, ok := v.(int64)
	if err != nil || !ok {
		t.Fatalf("%v: %v, %v", args[0], v, err)
	}
	return n
}
