package main

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// TestWhy: a tenant is blocked, is told why, and is helped.
func TestWhy(t *testing.T) {
	t.Parallel()
	server := redisserver.Single(t)
	store := newStore(t, &redis.UniversalOptions{Addrs: []string{server.Addr}})
	source := file(t, "good.json", good)
	with := func(command string, more ...string) []string {
		return append([]string{command, "-rules", source, "-redis", server.Addr}, more...)
	}
	has(t, ctl(t, 0, with("explain", "shop-b", "search")...), "tier", "gold", "2, of (tier, *)", "a call costs 2", "enforce", "blocked", "no", "10", "50")

	spend(t, store, ratelimit.Key("shop-b", "search"), ratelimit.PerMinute(10), 9) // a call costs 2
	out := ctl(t, 0, with("explain", "-o", "json", "shop-b", "search")...)
	var v struct {
		Tenant, Route, Tier, From, Mode string
		Rule                            *ruleView
		Blocked                         *bool
		Limits                          []standing
	}
	decode(t, out, &v)
	if v.Blocked == nil || !*v.Blocked || len(v.Limits) != 2 || v.Limits[0].Remaining != 1 || v.Limits[0].Capacity != 10 || v.Limits[1].Remaining != 50 {
		t.Errorf("%s", out)
	}
	has(t, ctl(t, 0, with("peek", "shop-b", "search")...), "left", "1 ", "{shop-b}:search", "50 ", "{shop-b}")
	spent, err := server.Do("DBSIZE")
	if err != nil || spent != int64(1) {
		t.Errorf("looking left %v keys, %v", spent, err)
	}
	has(t, ctl(t, 0, with("reset", "shop-b", "search")...), "reset", "{shop-b}:search", "reset", "{shop-b}")
	has(t, ctl(t, 0, with("explain", "shop-b", "search")...), "blocked", "no")

	has(t, ctl(t, 0, with("explain", "shop-x", "search")...), "3, of (tenant, *)", "deny-all", "blocked", "yes")
	has(t, ctl(t, 2, with("reset", "shop-x", "search")...), "has no limits")
	has(t, ctl(t, 2, with("explain", "shop-q", "search")...), "default is not known")
	has(t, ctl(t, 0, with("explain", "-rate", "10", "-burst", "20", "shop-q", "search")...), "default, of default", "burst 20", "no")
	server.Kill()
	has(t, ctl(t, 0, with("explain", "shop-b", "search")...), "blocked", "not known", "?", "unavailable")
	has(t, ctl(t, 2, with("peek", "shop-b", "search")...), "unavailable")
}

// TestPeek: without rules the limit is that of the flags, and the key is made of the arguments.
func TestPeek(t *testing.T) {
	t.Parallel()
	server := redisserver.Single(t)
	store := newStore(t, &redis.UniversalOptions{Addrs: []string{server.Addr}})
	log := ratelimit.Limit{Name: "day", Algorithm: ratelimit.SlidingLog, Rate: 50, Period: 24 * time.Hour}
	spend(t, store, ratelimit.Key("user 1", "a:b"), log, 8)
	flags := []string{"-redis", "redis://" + server.Addr + "/0", "-o", "json", "-algorithm", "sliding-log", "-name", "day", "-rate", "50", "-period", "24h", "user 1", "a:b"}
	var v []standing
	decode(t, ctl(t, 0, append([]string{"peek"}, flags...)...), &v)
	if len(v) != 1 || v[0].Remaining != 42 || v[0].Limit.Algorithm != ratelimit.SlidingLog || v[0].ResetAfter < 80_000 {
		t.Errorf("%+v", v)
	}
	has(t, ctl(t, 0, append([]string{"reset"}, flags...)...), "sliding-log", "{user 1}")
	decode(t, ctl(t, 0, append([]string{"peek"}, flags...)...), &v)
	if v[0].Remaining != 50 {
		t.Errorf("after a reset %d are left", v[0].Remaining)
	}
}

// TestMistakes: each is an error that says what is wrong, and none quotes a password.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, want string }{
		{"", "usage"},
		{"nonsense", "usage"},
		{"validate", "want a source"},
		{"validate -o xml x", "neither text nor json"},
		{"validate not-there.json", "not-there.json"},
		{"validate postgres://u:secret@a:b:c/", "validate: "},
		{"diff x", "want two sources"},
		{"explain a b", "say -rules"},
		{"explain -rules x a", "want a tenant and a route"},
		{"explain -rules not-there.json a b", "not-there.json"},
		{"peek a b", "say -rules, or a limit"},
		{"peek -rate 1 -period 0s a", "Period"},
		{"peek -rate 1", "parts of the key"},
		{"peek -rate 1 a", "say -redis"},
		{"peek -rate 1 -redis http://u:secret@x/ a", "no redis:// URL"},
		{"peek -rate 1 -algorithm none a", "none"},
		{"keys x", "want none"},
		{"keys -count 0", "-count 0"},
		{"keys -redis 127.0.0.1:1", "refused"},
		{"keys -redis 127.0.0.1:1 -prefix a:b", "Prefix"},
	} {
		out := ctl(t, 2, strings.Fields(c.line)...)
		has(t, out, c.want)
		if strings.Contains(out, "secret") {
			t.Errorf("%s: a password is told: %s", c.line, out)
		}
	}
	has(t, ctl(t, 0, "keys", "-h"), "ratelimitctl keys", "-show-keys")
}
