package ratelimit

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"
)

// R98: the parts of a limit sum to it exactly, capacity and rate, and none is zero; more shards than units are refused.
func TestR98PartsSumToTheLimit(t *testing.T) {
	t.Parallel()
	for _, units := range []int64{1, 2, 7, 10, 11, 97, 1000, 99_999} {
		for _, limit := range []Limit{
			PerMinute(units),
			{Rate: 3, Period: time.Hour, Burst: units},
			{Rate: 999_999_937, Period: 7 * time.Millisecond, Burst: units},
			{Rate: 1000, Period: 366 * 24 * time.Hour, Burst: units},
			{Algorithm: SlidingLog, Rate: units, Period: time.Second},
			{Algorithm: SlidingCounter, Rate: units, Period: 366 * 24 * time.Hour, Name: "n", OnFailure: FailClosed},
		} {
			for n := 1; n <= 16; n++ {
				parts, err := split(&limit, n)
				if int64(n) > units {
					if !errors.Is(err, ErrInvalidLimit) || !strings.Contains(err.Error(), fmt.Sprint(n)) {
						t.Fatalf("%v over %d: %v", limit, n, err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("%v over %d: %v", limit, n, err)
				}
				capacity, rate := int64(0), new(big.Rat)
				for _, p := range parts {
					if p.Validate() != nil || p.Capacity() < 1 || p.Name != limit.Name || p.OnFailure != limit.OnFailure {
						t.Fatalf("%v over %d has %v", limit, n, p)
					}
					capacity += p.Capacity()
					rate.Add(rate, perSecond(p))
				}
				if capacity != limit.Capacity() || rate.Cmp(perSecond(limit)) != 0 {
					t.Fatalf("%v over %d sums to %d, %v a second", limit, n, capacity, rate)
				}
			}
		}
	}
}

func perSecond(l Limit) *big.Rat { return big.NewRat(l.Rate*int64(time.Second), int64(l.Period)) }

func TestSplitRefuses(t *testing.T) {
	t.Parallel()
	year := 366 * 24 * time.Hour
	for limit, n := range map[Limit]int{
		{}:                                  1,
		{Rate: 1, Period: year, Burst: 10}:  2, // a unit in two years
		{Rate: 11, Period: year, Burst: 30}: 12,
	} {
		if _, err := split(&limit, n); !errors.Is(err, ErrInvalidLimit) {
			t.Errorf("%v over %d: %v", limit, n, err)
		}
	}
	if _, err := split(&Limit{Rate: 12, Period: year, Burst: 30}, 12); err != nil {
		t.Error(err)
	}
}

func TestSplitCache(t *testing.T) {
	cache := splitCache{n: 100}
	limit := PerSecond(1000)
	first, err := cache.get(&limit)
	if err != nil {
		t.Fatal(err)
	}
	if allocs := testing.AllocsPerRun(100, func() {
		if again, _ := cache.get(&limit); &again[0] != &first[0] {
			t.Error("it was worked out again")
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	for i := range int64(2 * maxShares / 100) {
		l := PerSecond(1000 + i)
		if _, err := cache.get(&l); err != nil || len(cache.parts)*cache.n > maxShares+cache.n {
			t.Fatalf("%d limits are kept, %v", len(cache.parts), err)
		}
	}
	if _, err := cache.get(&Limit{}); !errors.Is(err, ErrInvalidLimit) {
		t.Error(err)
	}
}

// The sub-keys of different keys never meet, nor do two of one key; every one has the shape of Key's result, or its tag
// would be another one. Keys with one tag have one on each shard.
func TestShardKeysNeverMeet(t *testing.T) {
	t.Parallel()
	keys := []string{
		"abc", "abc#a0", "abc#A0", "abc#", "a", "a#a0#a0", Key("a", "b"), Key("a", "#a0"), Key("a#a0", "b"), Key("a", "b#a0"),
		"a:b", Key("a:b"), Key("a:b", "c"), "a%3Ab", Key("a%3Ab"), Key(""), Key("", ""), Key("", "a"), Key("%0"), "%0", "#a0", "#A0",
		"{a", "{a}b", "{a:b}", "{a}:", "{a}:#a0", "{a#a0}:", Key("{a}"), Key("{a}", "b"), Key("#a0"), "a:b#A0", Key("a:b#A0"), "\xff", " ",
	}
	owner := map[string]string{}
	for _, key := range keys {
		for shard := range maxShards {
			sub := shardKey(key, shard)
			if _, _, ok := shape(sub); !ok || sub != string(AppendKey(nil, sub)) {
				t.Fatalf("%q has the sub-key %q", key, sub)
			}
			id := BareKey(sub)
			if other, ok := owner[id]; ok && BareKey(other) != BareKey(key) {
				t.Fatalf("%q and %q have the sub-key %q", key, other, sub)
			}
			owner[id] = key
			for _, other := range keys {
				if SameTag(key, other) != SameTag(sub, shardKey(other, shard)) || SameTag(sub, shardKey(other, (shard+1)%maxShards)) {
					t.Fatalf("tags of %q and %q, shard %d", key, other, shard)
				}
			}
		}
	}
	for _, c := range []struct{ key, sub string }{
		{Key("user-1", "search"), Key("user-1#b0", "search")},
		{"user-1", Key("user-1#b0")},
		{Key("user-1"), Key("user-1#b0")},
		{Key("", "x"), Key("#b0", "x")},
		{"user:1", Key("user:1#B0")},
	} {
		if got := shardKey(c.key, 1); got != c.sub {
			t.Errorf("%q: %q, want %q", c.key, got, c.sub)
		}
	}
}

// On a Cluster of three masters that share the slots evenly, six shards of any key reach all of them, and of ten none
// has more than half.
func TestShardsSpreadOverSlots(t *testing.T) {
	t.Parallel()
	for i := range 500 {
		key := Key(fmt.Sprint("user-", i*i), "search")
		for _, n := range []int{6, 10, 16} {
			var masters [3]int
			for shard := range n {
				masters[slotOf(hashTag(shardKey(key, shard)))*3/16_384]++
			}
			for _, m := range masters {
				if m == 0 || n >= 10 && m > n/2 {
					t.Fatalf("%q: %d shards are %v on the masters", key, n, masters)
				}
			}
		}
	}
}

// slotOf is a tag's slot in a Redis Cluster: CRC16 of the XMODEM kind.
func slotOf(tag string) int {
	crc := uint16(0)
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
	}
	return int(crc % 16_384)
}
