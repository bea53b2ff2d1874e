package lua_test

import (
	"context"
	"errors"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/lua"
)

func plan(tb testing.TB, limit ratelimit.Limit) *lua.Plan {
	tb.Helper()
	codec, err := lua.NewCodec("rl", nil)
	if err != nil {
		tb.Fatal(err)
	}
	p, err := codec.Plan(&limit)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func TestKeys(t *testing.T) {
	t.Parallel()
	bucket, log, win := ratelimit.PerSecond(1), ratelimit.PerSecond(1), ratelimit.PerSecond(1)
	log.Algorithm, win.Algorithm = ratelimit.SlidingLog, ratelimit.SlidingCounter
	for _, c := range []struct {
		limit     ratelimit.Limit
		key, want string
	}{
		{bucket, ratelimit.Key("shop-a", "create-order"), "rl:{shop-a}:create-order"},
		{bucket, "user:42", "rl:{user:42}"},
		{bucket.Named("burst"), "u", "rl:burst:{u}"},
		{log, "u", "rl-log:{u}"},
		{log.Named("day"), ratelimit.Key("u"), "rl-log:day:{u}"},
		{win, "a}b{c", "rl-win:{a%7Db%7Bc}"},
		{bucket, "{}", "rl:{%7B%7D}"},
	} {
		if got := plan(t, c.limit).Key(c.key); got != c.want {
			t.Errorf("%v, %q is %q, want %q", c.limit, c.key, got, c.want)
		}
	}
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"a:b", "{a}", " ", "rl-log", "x-win", "é"} {
		if _, err := lua.NewCodec(prefix, nil); err == nil || !strings.Contains(err.Error(), "Prefix") {
			t.Errorf("%q: %v, want an error that names Prefix", prefix, err)
		}
	}
}

// A plan is one for all pointers to equal limits, and changing what a pointer points to changes the plan.
func TestPlanComparesByValue(t *testing.T) {
	t.Parallel()
	codec, _ := lua.NewCodec("", nil)
	a, b := ratelimit.PerSecond(3), ratelimit.PerSecond(3)
	pa, _ := codec.Plan(&a)
	if pb, _ := codec.Plan(&b); pa != pb {
		t.Error("equal limits have different plans")
	}
	a.Rate = 4
	if changed, _ := codec.Plan(&a); changed == pa || changed.Machine.Limit().Rate != 4 {
		t.Error("a changed limit has the old plan")
	}
	for i := range int64(10000) { // more than are kept
		l := ratelimit.PerSecond(i + 1)
		if p, err := codec.Plan(&l); err != nil || p.Machine.Limit() != l {
			t.Fatalf("%v: %v", l, err)
		}
	}
	if _, err := codec.Plan(&ratelimit.Limit{}); !errors.Is(err, ratelimit.ErrInvalidLimit) {
		t.Errorf("the zero limit: %v", err)
	}
}

// The arithmetic of the scripts ends where that of a share in memory does not.
func TestPlanRefusesLongShares(t *testing.T) {
	t.Parallel()
	codec, err := lua.NewCodec("rl", nil)
	if err != nil {
		t.Fatal(err)
	}
	for days, want := range map[int64]error{366: nil, 367: ratelimit.ErrInvalidLimit} {
		share, err := ratelimit.Share(ratelimit.PerDay(1), 1, days)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := codec.Plan(&share); !errors.Is(err, want) {
			t.Errorf("a share of %v: %v, want %v", share.Period, err, want)
		}
	}
}

func TestTakeAllRefusesSeveralHashTags(t *testing.T) {
	t.Parallel()
	codec, _ := lua.NewCodec("", nil)
	l := ratelimit.PerSecond(3)
	for _, keys := range [][2]string{{"a", "b"}, {"a", ratelimit.Key("b")}, {ratelimit.Key("a", "x"), ratelimit.Key("b", "x")}} {
		_, err := codec.TakeAll([]ratelimit.Request{{Key: keys[0], Limit: &l}, {Key: keys[1], Limit: &l}})
		if !errors.Is(err, ratelimit.ErrCrossSlot) {
			t.Errorf("%q: %v", keys, err)
		}
	}
	if _, err := codec.TakeAll([]ratelimit.Request{{Key: ratelimit.Key("a", "x"), Limit: &l}, {Key: "a", Limit: &l}}); err != nil {
		t.Errorf("keys of one hash tag: %v", err)
	}
}

// R56, R14: scripts name no key but those in KEYS, read the clock in one place, and turn numbers into text by %d alone.
func TestScriptsDeclareTheirKeys(t *testing.T) {
	t.Parallel()
	call := regexp.MustCompile(`p?call\('([A-Z]+)'(?:, ([^,)]+))?`)
	scripts := takeAllScripts(t)
	for name, s := range map[string]*lua.Script{
		"TokenBucket": lua.TokenBucket, "SlidingLog": lua.SlidingLog, "SlidingCounter": lua.SlidingCounter,
		"History": lua.History, "TakeAll": lua.TakeAll, "Reset": lua.Reset,
	} {
		scripts[name] = s
	}
	for name, s := range scripts {
		code := regexp.MustCompile(`--[^\n]*`).ReplaceAllString(s.Source, "")
		found := call.FindAllStringSubmatch(code, -1)
		if len(found) == 0 {
			t.Errorf("%s calls nothing", name)
		}
		for _, m := range found {
			if m[1] != "TIME" && m[2] != "key" && m[2] != "unpack(KEYS" {
				t.Errorf("%s: %s has a key that is not declared", name, m[0])
			}
		}
		if n := strings.Count(code, "'TIME'"); n > 1 {
			t.Errorf("%s reads the clock in %d places", name, n)
		}
		for _, bad := range []string{"tostring", "%.0f", "%.17g", "%s", "table.maxn", "redis.replicate_commands", "math.pow"} {
			if strings.Contains(code, bad) {
				t.Errorf("%s uses %s", name, bad)
			}
		}
		if strings.Contains(strings.ReplaceAll(code, "...", ""), "..") {
			t.Errorf("%s concatenates", name)
		}
	}
}

func TestResultRefusesOtherReplies(t *testing.T) {
	t.Parallel()
	bucket := plan(t, ratelimit.PerSecond(10))
	counter, log := ratelimit.PerSecond(10), ratelimit.PerSecond(10)
	counter.Algorithm, log.Algorithm = ratelimit.SlidingCounter, ratelimit.SlidingLog
	for _, c := range []struct {
		plan  *lua.Plan
		reply lua.Reply
	}{
		{bucket, lua.Reply{Int: math.MaxInt64}},
		{bucket, lua.Reply{Int: math.MinInt64}},
		{bucket, lua.Reply{Int: 10*100000 + 100000}},
		{bucket, lua.Reply{Text: "OK"}},
		{bucket, lua.Reply{Text: "1 2 3 4"}},
		{bucket, lua.Reply{Text: "1 2 3 4 5 6"}},
		{bucket, lua.Reply{Text: "2 1 0 4 5"}},
		{bucket, lua.Reply{Text: "1 1 0 11 0"}},
		{bucket, lua.Reply{Text: "1 1 0 -1 0"}},
		{bucket, lua.Reply{Text: "1 1 0 1 100000"}},
		{plan(t, counter), lua.Reply{Int: 0}},
		{plan(t, counter), lua.Reply{Int: -1}},
		{plan(t, counter), lua.Reply{Int: 11 * 5}},
		{plan(t, counter), lua.Reply{Int: 11*1000000 + 1}},
		{plan(t, counter), lua.Reply{Int: math.MaxInt64}},
		{plan(t, log), lua.Reply{Int: -1}},
		{plan(t, log), lua.Reply{Int: 1 << 23}},
		{bucket, lua.Reply{Text: "1 1 -1 1 0"}},
		{bucket, lua.Reply{Text: "1767225600000000 900000"}},
		{plan(t, counter), lua.Reply{Text: "1 1 0 2000000000 0"}},
		{plan(t, counter), lua.Reply{Text: "0 0 -1000000 10 0"}},
	} {
		if res, err := c.plan.Result(c.reply, 1); !errors.Is(err, ratelimit.ErrMisconfigured) || res != (ratelimit.Result{}) {
			t.Errorf("%+v: %+v, %v", c.reply, res, err)
		}
	}
}

// R53, R58, R59, R73, R74: which replies are an outage and which a mistake in the set-up, and that no text quotes a key.
func TestRefusedTellsOutagesFromMistakes(t *testing.T) {
	t.Parallel()
	const secret = "rl:{api-key-5ecret}"
	classes := map[error][]string{
		ratelimit.ErrStoreUnavailable: {
			"LOADING Redis is loading the dataset in memory", "BUSY Redis is busy running a script.", "READONLY You can't write against a read only replica.",
			"CLUSTERDOWN Hash slot not served", "MASTERDOWN Link with MASTER is down", "OOM command not allowed when used memory > 'maxmemory'.",
			"TRYAGAIN Multiple keys request during rehashing of slot", "MOVED 1 127.0.0.1:7000", "ASK 1 127.0.0.1:7000", "NOSCRIPT No matching script.",
			"ERR max number of clients reached", "NOREPLICAS Not enough good replicas to write.",
			"MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.",
			"ERR Error running script (call to f_0123456789abcdef): @user_script:12: @user_script: 12: -OOM command not allowed",
			"ERR Error running script (call to f_0123456789abcdef): @user_script:12: -READONLY You can't write against a read only replica.",
		},
		ratelimit.ErrCrossSlot: {"CROSSSLOT Keys in request don't hash to the same slot"},
		ratelimit.ErrMisconfigured: {
			"NOAUTH Authentication required.", "WRONGPASS invalid username-password pair", "NOPERM User default has no permissions to run the 'evalsha' command",
			"ERR unknown command 'EVALSHA', with args beginning with: 'abc' '1' '" + secret + "' ", "ERR user_script:1: attempt to compare nil with number",
			"ERR This Redis command is not allowed from script", "ERR Write commands not allowed after non deterministic commands.", "whatever",
		},
	}
	all := []error{ratelimit.ErrStoreUnavailable, ratelimit.ErrCrossSlot, ratelimit.ErrMisconfigured}
	for class, texts := range classes {
		for _, text := range texts {
			cause := errors.New(text)
			err := lua.Refused(cause)
			for _, other := range all {
				if errors.Is(err, other) != (other == class) {
					t.Errorf("%q is %v: %t", text, other, errors.Is(err, other))
				}
			}
			if !errors.Is(err, cause) || strings.Contains(err.Error(), "5ecret") {
				t.Errorf("%q becomes %q", text, err)
			}
		}
	}
	if err := lua.Refused(errors.New("ERR This Redis command is not allowed from script")); !strings.Contains(err.Error(), "Options.Clock") {
		t.Errorf("a server that refuses TIME: %v", err)
	}
	if err := lua.Unavailable(context.DeadlineExceeded); !errors.Is(err, ratelimit.ErrStoreUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// R17, R61: what the scripts are told can never make a TTL of 0 or none: the numbers of a spec are all above 0.
func TestSpecs(t *testing.T) {
	t.Parallel()
	spec := regexp.MustCompile(`^[1-9][0-9]*:[1-9][0-9]*:([1-9][0-9]*|log|win)$`)
	for _, rate := range []int64{1, 3, 7, 999999, 1e6, 2e6 + 1, 1e9} {
		for _, period := range []time.Duration{time.Millisecond, time.Second, time.Hour, 366 * 24 * time.Hour} {
			for a := range ratelimit.Algorithm(3) {
				l := ratelimit.Limit{Algorithm: a, Rate: rate, Period: period}
				if a == ratelimit.SlidingLog {
					l.Rate = min(rate, 100000)
				}
				if p := plan(t, l); !spec.MatchString(p.Spec) {
					t.Errorf("%v has spec %q", l, p.Spec)
				}
			}
		}
	}
}

// FuzzReply: no reply, of whatever server, makes the decoder panic or return what a Result cannot hold.
func FuzzReply(f *testing.F) {
	f.Add(int64(-5), "", uint8(0), int64(1))
	f.Add(int64(7), "", uint8(1), int64(1))
	f.Add(int64(11*999999+7), "", uint8(2), int64(1))
	f.Add(int64(0), "1 1 0 9 0", uint8(1), int64(1))
	f.Add(int64(0), "0 0 -123 10 456", uint8(2), int64(3))
	f.Add(int64(0), "1 9007199254740992 9007199254740992 9007199254740992 9007199254740992", uint8(2), int64(math.MaxInt64))
	f.Add(int64(0), "1767225600000000 900000", uint8(0), int64(1))
	f.Add(int64(0), "1 1 -9007199254740992 1000000000 1000000000", uint8(2), int64(1))
	f.Fuzz(func(t *testing.T, n int64, text string, algorithm uint8, cost int64) {
		l := ratelimit.Limit{Algorithm: ratelimit.Algorithm(algorithm % 3), Rate: 10, Period: time.Second}
		p := plan(t, l)
		res, err := p.Result(lua.Reply{Int: n, Text: text}, cost)
		if err != nil {
			if res != (ratelimit.Result{}) {
				t.Errorf("an error with %+v", res)
			}
			return
		}
		if res.Remaining < 0 || res.Remaining > res.Limit || res.RetryAfter < 0 || res.ResetAfter < 0 || res.Allowed && res.RetryAfter != 0 {
			t.Errorf("%+v", res)
		}
		codec, _ := lua.NewCodec("", nil)
		if cost < 0 {
			cost = 0
		}
		batch, err := codec.TakeAll([]ratelimit.Request{{Key: "k", Limit: &l, Cost: cost}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := batch.Results(text); err != nil && !errors.Is(err, ratelimit.ErrMisconfigured) {
			t.Errorf("%v", err)
		}
	})
}
