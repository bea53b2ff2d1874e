package ratelimit

import (
	"errors"
	"math/big"
	"testing"
	"time"
)

const day = 24 * time.Hour

// R140: the part of a bucket keeps its exact rate, that of a window its whole units, and none is below one.
func TestShare(t *testing.T) {
	t.Parallel()
	window := func(rate int64, period time.Duration) Limit {
		return Limit{Algorithm: SlidingCounter, Rate: rate, Period: period}
	}
	for _, c := range []struct {
		of       Limit
		num, den int64
		want     Limit
	}{
		{PerSecond(100), 1, 1, PerSecond(100)},
		{PerSecond(100), 5, 5, PerSecond(100)},
		{PerMinute(5), 1, 10, Limit{Rate: 5, Period: 10 * time.Minute, Burst: 1}},
		{PerSecond(100), 1, 3, Limit{Rate: 100, Period: 3 * time.Second, Burst: 33}},
		{PerSecond(100), 7, 10, Limit{Rate: 700, Period: 10 * time.Second, Burst: 70}},
		{PerSecond(100), 70, 100, Limit{Rate: 700, Period: 10 * time.Second, Burst: 70}},
		{Limit{Rate: 10, Period: time.Second, Burst: 1}, 1, 4, Limit{Rate: 10, Period: 4 * time.Second, Burst: 1}},
		{PerDay(1), 1, 50, Limit{Rate: 1, Period: 50 * day, Burst: 1}},
		{PerDay(1), 1, 500, Limit{Rate: 1, Period: 500 * day, Burst: 1, long: true}},
		{PerDay(1), 1, 1e18, Limit{Rate: 1, Period: maxSharePeriod, Burst: 1, long: true}},
		{Limit{Rate: 1e9, Period: time.Millisecond}, 7, 10, Limit{Rate: 700_700_000, Period: 1001 * time.Microsecond, Burst: 700_000_000}},
		{window(10, time.Minute), 1, 3, window(3, time.Minute)},
		{window(10, time.Minute), 7, 10, window(7, time.Minute)},
		{window(5, time.Minute), 1, 10, window(1, 2*time.Minute)},
		{window(5, time.Minute), 1, 12, window(1, 3*time.Minute)},
		{window(5, time.Minute), 2, 11, window(1, 2*time.Minute)},
		{window(1, 366*day), 1, 1000, Limit{Algorithm: SlidingCounter, Rate: 1, Period: maxSharePeriod, long: true}},
	} {
		got, err := Share(c.of, c.num, c.den)
		if err != nil || got != c.want {
			t.Errorf("%d/%d of %v is %+v, %v; want %+v", c.num, c.den, c.of, got, err, c.want)
		}
	}
	named, err := Share(Limit{Name: "n", Rate: 4, Period: day, OnFailure: FailClosed}, 1, 2)
	if err != nil || named.Name != "n" || named.OnFailure != FailClosed {
		t.Errorf("a share is %v, %v", named, err)
	}
}

func TestShareRefuses(t *testing.T) {
	t.Parallel()
	for _, part := range [][2]int64{{0, 1}, {-1, 1}, {2, 1}, {1, 0}, {-1, -1}} {
		if _, err := Share(PerSecond(1), part[0], part[1]); !errors.Is(err, ErrInvalidLimit) {
			t.Errorf("%d/%d: %v", part[0], part[1], err)
		}
	}
	if _, err := Share(Limit{}, 1, 2); !errors.Is(err, ErrInvalidLimit) {
		t.Errorf("of an invalid limit: %v", err)
	}
}

// Shares that make up a whole never sum to a higher rate, nor to more capacity than one unit a share above it, and each
// is a limit that runs.
func TestSharesSumToTheLimit(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []Algorithm{TokenBucket, SlidingLog, SlidingCounter} {
		for _, rate := range []int64{1, 2, 7, 97, 1000, 99_991} {
			for _, period := range []time.Duration{time.Millisecond, 1001 * time.Microsecond, time.Second, time.Hour, 366 * day} {
				for _, parts := range [][]int64{{1, 1, 1}, {7, 3}, {1, 98, 1}, {99_991, 99_989}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}} {
					limit := Limit{Algorithm: algorithm, Rate: rate, Period: period}
					whole := int64(0)
					for _, n := range parts {
						whole += n
					}
					speed, capacity := new(big.Rat), int64(0)
					for _, n := range parts {
						s, err := Share(limit, n, whole)
						if err != nil {
							t.Fatalf("%d/%d of %v: %v", n, whole, limit, err)
						}
						m, err := NewMachine(s)
						if err != nil {
							t.Fatalf("%d/%d of %v does not run: %v", n, whole, limit, err)
						}
						var state State
						if res, _ := m.Take(&state, 1e15, 1, 0); !res.Allowed || state.Unused() <= 1e15 {
							t.Errorf("%d/%d of %v: the first call is %+v, unused at %d", n, whole, limit, res, state.Unused())
						}
						if s.Period < maxSharePeriod { // beyond, a unit a century stands for less
							speed.Add(speed, big.NewRat(s.Rate, s.Period.Microseconds()))
						}
						capacity += s.Capacity()
					}
					if speed.Cmp(big.NewRat(rate, period.Microseconds())) > 0 {
						t.Errorf("parts %v of %v sum to %v a microsecond", parts, limit, speed)
					}
					if capacity > rate+int64(len(parts)) {
						t.Errorf("parts %v of %v hold %d", parts, limit, capacity)
					}
				}
			}
		}
	}
}

// Only a share may have a Period past 366 days, and it outlives a database.
func TestLongShare(t *testing.T) {
	t.Parallel()
	limit := Limit{Rate: 1, Period: 400 * day}
	if err := limit.Validate(); !errors.Is(err, ErrInvalidLimit) {
		t.Errorf("a limit of 400 days: %v", err)
	}
	share, err := Share(PerDay(1), 1, 400)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMachine(share)
	if err != nil {
		t.Fatal(err)
	}
	var state, read State
	m.Take(&state, 1e15, 1, 0)
	data, err := state.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := read.UnmarshalBinary(data); err != nil {
		t.Fatal(err)
	}
	res, _ := m.Take(&read, 1e15+1, 1, 0)
	if want := 400*day - time.Microsecond; res.Allowed || res.RetryAfter != want {
		t.Errorf("read back: %+v, want a denial with RetryAfter %v", res, want)
	}
}

func TestShareCache(t *testing.T) {
	var cache shareCache
	limit := PerSecond(100)
	first, err := cache.get(&limit, 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		if again, _ := cache.get(&limit, 1, 3); again != first {
			t.Error("worked out twice")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if _, err := cache.get(&limit, 3, 1); !errors.Is(err, ErrInvalidLimit) {
		t.Errorf("3/1: %v", err)
	}
	for i := range int64(maxShares + 5) {
		if _, err := cache.get(&limit, 1, i+4); err != nil {
			t.Fatal(err)
		}
	}
	if len(cache.shares) > maxShares {
		t.Errorf("%d are kept", len(cache.shares))
	}
}
