package storetest

import (
	"errors"
	"strings"

	"github.com/sluicego/ratelimit"
)

// oddKeys are different keys that a careless store takes for one another, or chokes on.
func oddKeys() []string {
	long := strings.Repeat("k", 64<<10)
	return []string{
		"x", "X", " x", "x ", " ", "  ", "a b", "a\nb", "a\r\nb", "\x00", "x\x00", "\x00x", "\xff\xfe", "\xff", "\xef\xbf\xbd",
		"\u00e9", "e\u0301", "\U0001f600", "%s", "%d", "%", "%0", "%25", "%7B", "*", "?", "[x]", "]]", "--[[", "'", `"`, `\`, "0", "nil",
		"a{b}c", "{}", "}{", "{", "}", "a}b", "{{x}}", "{x", "x}", "{x}y", "{x}:", "{x}:{y}", "{x}y:z", "{}x",
		":", "x:", ":x", "x:y", "x::y", "n:x", "n:{x}", "rl:x", "rl:{x}", "-log", "x-log", "x-win",
		ratelimit.Key(""), ratelimit.Key("", ""), ratelimit.Key("x", ""), ratelimit.Key("", "x"), ratelimit.Key("x", "y"),
		ratelimit.Key("x", "y", "z"), ratelimit.Key("x:y"), ratelimit.Key("x", "y:z"), ratelimit.Key("x:y", "z"), ratelimit.Key("{x}"),
		ratelimit.Key("x", "{y}"), ratelimit.Key("{", "}"), ratelimit.Key("}", "{"), ratelimit.Key("%", "%"),
		ratelimit.Key("x", "%0"), ratelimit.Key("\x00", "\xff"), ratelimit.Key("user:42"), "user:42",
		long, long + "k", long[:len(long)-1] + "j", ratelimit.Key(long, "x"),
	}
}

var keyChecks = []check{
	{
		name: "R118 R55 odd keys are keys",
		rule: "Any bytes but none are a key, and no two different ones share a state: braces, spaces, NUL, 64 KB, invalid UTF-8, the separator.",
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(1000, 1, 366*24*h), logOf(1000, h), counter(1000, h).Named("n")} {
				keys := oddKeys()
				for i, key := range keys {
					if res := k.take(key, l, int64(i+1)); !res.Allowed || res.Remaining != 1000-int64(i+1) {
						k.Errorf("%v: key %.40q meets another: %+v", l, key, res)
					}
				}
				for i, key := range keys {
					if res := k.take(key, l, 0); res.Remaining != 1000-int64(i+1) {
						k.Errorf("%v: key %.40q met another: %d remain, want %d", l, key, res.Remaining, 1000-i-1)
					}
				}
			}
		},
	},
	{
		name: "a raw key is Key of itself",
		rule: `"x" and Key("x") are one key, which is "{x}".`,
		run: func(k *kit) {
			for _, l := range []ratelimit.Limit{bucket(10, 1, h), logOf(10, h), counter(10, h)} {
				for _, raw := range []string{"x", "x y", "\x00\xff", "user-42"} {
					k.admit(raw, l, 3, 1)
					k.admit(ratelimit.Key(raw), l, 3, 1)
					if res := k.take(raw, l, 0); res.Remaining != 4 {
						k.Errorf("%v: after 3 for %q and 3 for its Key %d remain", l, raw, res.Remaining)
					}
					if err := k.store.Reset(k.t.Context(), ratelimit.Key(raw), &l); err != nil {
						k.Fatalf("Reset: %v", err)
					}
					if res := k.take(raw, l, 0); res.Remaining != 10 {
						k.Errorf("%v: Reset of Key(%q) left %d", l, raw, res.Remaining)
					}
				}
			}
		},
	},
	{
		name: "names and keys do not run together",
		rule: "A limit's Name next to a key is never another Name next to another key.",
		run: func(k *kit) {
			type place struct{ name, key string }
			places := []place{
				{"", "n:x"},
				{"n", "x"},
				{"", "n"},
				{"n", "n"},
				{"n", "n:x"},
				{"n.n", "x"},
				{"n-log", "x"},
				{"-log", "x"},
				{"log", "x"},
				{"win", "x"},
				{"N", "x"},
				{"n", "x:"},
				{"", ratelimit.Key("n", "x")},
				{"n", ratelimit.Key("n", "x")},
				{"x", "n"},
			}
			for _, l := range []ratelimit.Limit{bucket(100, 1, h), logOf(100, h), counter(100, h)} {
				for i, p := range places {
					k.admit(p.key, l.Named(p.name), int64(i+1), 1)
				}
				for i, p := range places {
					if res := k.take(p.key, l.Named(p.name), 0); res.Remaining != 100-int64(i+1) {
						k.Errorf("%v of %+v met another: %d remain, want %d", l, p, res.Remaining, 99-i)
					}
				}
			}
		},
	},
	{
		name: "R53 hash tags",
		rule: "A TakeAll across hash tags is ErrCrossSlot where state lives in slots, and spends nothing; elsewhere it is a TakeAll.",
		run: func(k *kit) {
			l := bucket(10, 1, h)
			far := []ratelimit.Request{{Key: "a", Limit: &l, Cost: 1}, {Key: "b", Limit: &l, Cost: 1}}
			_, err := k.store.TakeAll(k.t.Context(), far)
			want := int64(9)
			switch {
			case k.c.HashTags:
				want = 10
				if !errors.Is(err, ratelimit.ErrCrossSlot) || errors.Is(err, ratelimit.ErrStoreUnavailable) {
					k.Errorf("across tags: %v, want ErrCrossSlot", err)
				}
			case err != nil:
				k.Errorf("across tags: %v", err)
			}
			for _, r := range far {
				if res := k.take(r.Key, l, 0); res.Remaining != want {
					k.Errorf("%d remain, want %d", res.Remaining, want)
				}
			}
			near := []ratelimit.Request{
				{Key: "t", Limit: &l, Cost: 1},
				{Key: ratelimit.Key("t", "a"), Limit: &l, Cost: 1},
				{Key: ratelimit.Key("t", "b", "c"), Limit: &l, Cost: 1},
				{Key: ratelimit.Key("t", ""), Limit: named(l, "n"), Cost: 1},
			}
			for _, res := range k.takeAll(near...) {
				if !res.Allowed || res.Remaining != 9 {
					k.Errorf("within a tag: %+v", res)
				}
			}
		},
	},
}
