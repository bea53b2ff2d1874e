package lua_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/lua"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// Every clock from 1970 to the end of time, R13 and R14: neighbouring microseconds stay apart in the state.
func TestStateTellsMicrosecondsApart(t *testing.T) {
	t.Parallel()
	b := newBench(t, redisserver.Single(t))
	for i, year := range []int{1970, 2025, 2100, 2200, 2254} {
		b.now = time.Date(year, 1, 1, 0, 0, 0, 123456000, time.UTC).UnixMicro()
		limit := ratelimit.Limit{Rate: 1, Period: 12 * 24 * time.Hour, Burst: 10}
		key := fmt.Sprint("y", i)
		var at [2]string
		for j := range at {
			b.take(ratelimit.Request{Key: key, Limit: &limit, Cost: 1})
			text, err := b.server.Text("HGET", "rl:{"+key+"}", "1036800000000:1:10")
			stored, _, _ := strings.Cut(text, " ")
			if err != nil || stored != fmt.Sprint(b.now) {
				t.Fatalf("the state is %q after a decision at %d: %v", text, b.now, err)
			}
			at[j] = stored
			b.now++
		}
		if at[0] == at[1] {
			t.Errorf("in %d two decisions a microsecond apart stored the same time", year)
		}
	}
}

// What lua/README.md shows is what a person finds in redis-cli.
func TestStateReadsAsDocumented(t *testing.T) {
	t.Parallel()
	b := newBench(t, redisserver.Single(t))
	b.now = 1767225600123456
	for _, c := range []struct {
		limit ratelimit.Limit
		want  string
	}{
		{ratelimit.PerSecond(10), `["100000:1:10" "1767225600123456 700000"]`},
		{ratelimit.Limit{Rate: 999_999_937, Period: 366*24*time.Hour - time.Microsecond}, `["31622399999999:999999937:999999937" "1767225600123456 999999934 0"]`},
		{ratelimit.Limit{Algorithm: ratelimit.SlidingCounter, Rate: 10, Period: time.Minute}, `["60000000" "1767225600000000 3 0"]`},
	} {
		p, err := b.codec.Plan(&c.limit)
		if err != nil {
			t.Fatal(err)
		}
		b.take(ratelimit.Request{Key: "documented", Limit: &c.limit, Cost: 3})
		got, err := b.server.Do("HGETALL", p.Key("documented"))
		if text := fmt.Sprintf("%q", got); err != nil || text != c.want {
			t.Errorf("%v: %s, %v, want %s", c.limit, text, err, c.want)
		}
		if _, err := b.server.Do("DEL", p.Key("documented")); err != nil {
			t.Fatal(err)
		}
		b.states = make(map[string]*ratelimit.State)
	}
}

// A bucket that cannot be read is unused and is replaced whole, so that nothing of it counts when the limit changes
// back.
func TestUnreadableBucketIsReplacedWhole(t *testing.T) {
	t.Parallel()
	b := newBench(t, redisserver.Single(t))
	b.now = 1767225600000000
	narrow, wide := ratelimit.PerSecond(10), ratelimit.Limit{Rate: 999_999_937, Period: 366*24*time.Hour - time.Microsecond}
	for _, c := range []struct {
		limit ratelimit.Limit
		state string
	}{
		{narrow, "abc"},
		{narrow, "1767225600000000"},
		{narrow, "1767225600000000 1000001"},
		{narrow, "1767225600000000 0 0"},
		{narrow, "9007199254740992 0"},
		{wide, "abc"},
		{wide, "1767225600000000 0"},
		{wide, "1767225600000000 999999938 0"},
		{wide, "1767225600000000 0 31622399999999"},
		{wide, "9007199254740992 0 0"},
	} {
		key := fmt.Sprint(c.limit.Rate, " ", c.state)
		p, err := b.codec.Plan(&c.limit)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.server.Do("HSET", p.Key(key), p.Spec, c.state, "50000:1:20", "1767225600000000 0"); err != nil {
			t.Fatal(err)
		}
		b.take(ratelimit.Request{Key: key, Limit: &c.limit, Cost: 1})
		if n, err := b.server.Do("HLEN", p.Key(key)); n != int64(1) {
			t.Errorf("%s: %v fields, %v", key, n, err)
		}
		changed := ratelimit.Limit{Rate: 20, Period: time.Second}
		b.take(ratelimit.Request{Key: key, Limit: &changed, Cost: 1})
	}
}

// A lost TTL comes back in the next refill period, however short that is, and is at least twice that.
func TestLostTTLComesBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, redisserver.Single(t))
	for i, limit := range []ratelimit.Limit{
		{Rate: 100, Period: 10 * time.Millisecond}, {Rate: 1e9, Period: time.Millisecond, Burst: 1}, {Rate: 10, Period: time.Hour},
	} {
		b.now = 1767225600000000
		key := fmt.Sprint("ttl", i)
		b.take(ratelimit.Request{Key: key, Limit: &limit, Cost: 1})
		if n, err := b.server.Do("PERSIST", "rl:{"+key+"}"); n != int64(1) {
			t.Fatalf("%v: PERSIST: %v, %v", limit, n, err)
		}
		b.now += limit.Period.Microseconds() * limit.Capacity() / limit.Rate
		b.now++
		b.take(ratelimit.Request{Key: key, Limit: &limit, Cost: 1})
		ttl, err := b.server.Do("PTTL", "rl:{"+key+"}")
		if ms, _ := ttl.(int64); err != nil || ms < max(59000, 2*limit.Period.Milliseconds()) {
			t.Errorf("%v: a TTL of %v ms, %v", limit, ttl, err)
		}
	}
}

// Where the clock stands behind a stored time, a write makes the TTL long enough for that, whatever is left of it.
func TestTTLFollowsAClockSetBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, redisserver.Single(t))
	for _, algorithm := range []ratelimit.Algorithm{ratelimit.TokenBucket, ratelimit.SlidingLog} {
		limit := ratelimit.Limit{Algorithm: algorithm, Rate: 10, Period: time.Hour}
		p, err := b.codec.Plan(&limit)
		if err != nil {
			t.Fatal(err)
		}
		key := p.Key("back")
		b.now = 1767225600000000 + 50*60e6
		b.take(ratelimit.Request{Key: "back", Limit: &limit, Cost: 5})
		if n, err := b.server.Do("PEXPIRE", key, "60000"); n != int64(1) {
			t.Fatalf("PEXPIRE: %v, %v", n, err)
		}
		b.now -= 40 * 60e6
		b.take(ratelimit.Request{Key: "back", Limit: &limit, Cost: 5})
		res, _ := p.Machine.Take(b.state(key), b.now, 0, 0)
		ttl, err := b.server.Do("PTTL", key)
		if ms, _ := ttl.(int64); err != nil || time.Duration(ms)*time.Millisecond < res.ResetAfter {
			t.Errorf("%v: a TTL of %v ms, %v, and unused in %v", algorithm, ttl, err, res.ResetAfter)
		}
	}
}

// By the server's clock a key lives no longer than it must, by the application's a minute at least.
func TestTTLIsAMinuteUnderAClockOfTheApplications(t *testing.T) {
	t.Parallel()
	server := redisserver.Single(t)
	for _, clock := range []func() time.Time{nil, time.Now} {
		codec, err := lua.NewCodec("", clock)
		if err != nil {
			t.Fatal(err)
		}
		b := newBench(t, server)
		for algorithm := range ratelimit.Algorithm(3) {
			for _, extra := range []int64{0, 1} {
				limit := ratelimit.Limit{Algorithm: algorithm, Rate: 10, Period: time.Second, Name: fmt.Sprint("e", extra)}
				p, err := codec.Plan(&limit)
				if err != nil {
					t.Fatal(err)
				}
				batch, err := codec.TakeAll([]ratelimit.Request{{Key: "together", Limit: &limit, Cost: 1, Extra: extra}})
				if err != nil {
					t.Fatal(err)
				}
				b.eval(p.Script, []string{p.Key("alone")}, p.AppendArgs(nil, 1, extra, codec.Now()))
				b.eval(batch.Script, batch.Keys, batch.Args)
				for _, key := range []string{p.Key("alone"), p.Key("together")} {
					ttl, err := server.Do("PTTL", key)
					if ms, _ := ttl.(int64); err != nil || ms <= 0 || (ms > 30000) != (clock != nil) {
						t.Errorf("%s of %v: a TTL of %v ms, %v, a clock of the application's: %t", key, limit, ttl, err, clock != nil)
					}
				}
			}
		}
	}
}
