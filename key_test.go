package ratelimit_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluicego/ratelimit"
)

func TestKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		parts []string
		want  string
	}{
		{nil, ""},
		{[]string{"user-123"}, "{user-123}"},
		{[]string{"user-123", "search", "v1"}, "{user-123}:search:v1"},
		{[]string{"shop-a", "create-order"}, "{shop-a}:create-order"},
		{[]string{""}, "{%0}"},
		{[]string{"", ""}, "{%0}:%0"},
		{[]string{"%0"}, "{%250}"},
		{[]string{"a{b}c", "d:e", "50%"}, "{a%7Bb%7Dc}:d%3Ae:50%25"},
		{[]string{"\x00\xff", " "}, "{\x00\xff}: "},
	} {
		if got := ratelimit.Key(c.parts...); got != c.want {
			t.Errorf("Key(%q) is %q, want %q", c.parts, got, c.want)
		}
	}
}

func TestSplitKey(t *testing.T) {
	for _, c := range []struct {
		key, first, rest string
		ok               bool
	}{
		{"{a}", "a", "", true},
		{"{a}:b:c", "a", "b:c", true},
		{"{%0}:%0", "", "", true},
		{"{a%7Bb}:50%25", "a{b", "50%", true},
		{"", "", "", false},
		{"a", "", "", false},
		{"{}", "", "", false},
		{"{a", "", "", false},
		{"{a}b", "", "", false},
		{"{a}:", "", "", false},
		{"{a}:b:", "", "", false},
		{"{a:b}", "", "", false},
		{"{a}:{b}", "", "", false},
		{"{a%7b}", "", "", false},
		{"{a%}", "", "", false},
		{"{a%41}", "", "", false},
	} {
		first, rest, ok := ratelimit.SplitKey(c.key)
		if first != c.first || rest != c.rest || ok != c.ok {
			t.Errorf("SplitKey(%q) is %q, %q, %v", c.key, first, rest, ok)
		}
	}
	key := ratelimit.Key("user-123", "search", "v1")
	if n := testing.AllocsPerRun(100, func() { ratelimit.SplitKey(key) }); n != 0 {
		t.Errorf("SplitKey allocates %v times", n)
	}
}

// An address, the most usual part of a key with an escape, costs memstore no allocation.
func TestBareKeyOfAddressDoesNotAllocate(t *testing.T) {
	for _, part := range []string{"2001:db8::1", "192.0.2.1", "192.0.2.1:443", ""} {
		key := ratelimit.Key(part)
		if n := testing.AllocsPerRun(100, func() { ratelimit.BareKey(key) }); n != 0 {
			t.Errorf("BareKey(%q) allocates %v times", key, n)
		}
	}
}

// R55: different keys never meet in the form with a hash tag, and "abc" is Key("abc") in both forms.
func TestAppendKeyAndBareKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ key, tagged, bare string }{
		{"abc", "{abc}", "abc"},
		{"{abc}", "{abc}", "abc"},
		{"user:42", "{user:42}", "user:42"},
		{"{user%3A42}", "{user%3A42}", "{user%3A42}"},
		{"{%253A}", "{%253A}", "%3A"},
		{"{a}:b", "{a}:b", "{a}:b"},
		{"{a}b", "{%7Ba%7Db}", "{a}b"},
		{"{}", "{%7B%7D}", "{}"},
		{"}{", "{%7D%7B}", "}{"},
		{"{%7B%7D}", "{%7B%7D}", "{}"},
		{"{%0}", "{%0}", "{%0}"},
		{"%0", "{%250}", "%0"},
		{"{%250}", "{%250}", "%0"},
	} {
		if got := string(ratelimit.AppendKey([]byte("rl:"), c.key)); got != "rl:"+c.tagged {
			t.Errorf("AppendKey of %q is %q, want %q", c.key, got, c.tagged)
		}
		if got := ratelimit.BareKey(c.key); got != c.bare {
			t.Errorf("BareKey of %q is %q, want %q", c.key, got, c.bare)
		}
	}
}

func TestSameTag(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a", "a", true},
		{"a", ratelimit.Key("a"), true},
		{"a", ratelimit.Key("a", "x"), true},
		{ratelimit.Key("a", "x"), ratelimit.Key("a", "y", "z"), true},
		{"a{b", ratelimit.Key("a{b", "x"), true},
		{"a", "b", false},
		{"a:b", ratelimit.Key("a", "b"), false},
		{ratelimit.Key("a", "x"), ratelimit.Key("b", "x"), false},
	} {
		if got := ratelimit.SameTag(c.a, c.b); got != c.want {
			t.Errorf("SameTag(%q, %q) is %v", c.a, c.b, got)
		}
	}
}

// FuzzKey holds that Key tells different parts apart, that SplitKey undoes it, and that the two forms of a key agree on
// which keys are one. The fuzzer's texts are cut at 0x01 into parts.
func FuzzKey(f *testing.F) {
	for _, s := range []string{"a", "a\x01b", "a\x01b\x01c", "", "\x01", "{a}", "{a}:b", "%0", "a:b", "%25", "{", "}\x01{", "\x00\xff"} {
		f.Add(s, "a")
		f.Add("{a}", s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		p, q := strings.Split(a, "\x01"), strings.Split(b, "\x01")
		key := ratelimit.Key(p...)
		if same := key == ratelimit.Key(q...); same != slices.Equal(p, q) {
			t.Fatalf("the keys of %q and %q: same is %v", p, q, same)
		}
		first, rest, ok := ratelimit.SplitKey(key)
		if !ok || first != p[0] || rest != strings.Join(p[1:], ":") {
			t.Fatalf("SplitKey of Key(%q) is %q, %q, %v", p, first, rest, ok)
		}
		if end := strings.IndexByte(key, '}'); key[0] != '{' || end < 2 || strings.Count(key, "{") != 1 || strings.Count(key, "}") != 1 {
			t.Fatalf("the hash tag of %q is not its first part", key)
		}
		for _, pair := range [][2]string{{a, b}, {key, b}, {a, ratelimit.Key(q...)}, {key, ratelimit.Key(q...)}, {a, ratelimit.Key(a)}} {
			if pair[0] == "" || pair[1] == "" {
				continue // no key
			}
			x, y := string(ratelimit.AppendKey(nil, pair[0])), string(ratelimit.AppendKey(nil, pair[1]))
			if bare := ratelimit.BareKey(pair[0]) == ratelimit.BareKey(pair[1]); (x == y) != bare {
				t.Fatalf("%q and %q: tagged %q and %q, bare same is %v", pair[0], pair[1], x, y, bare)
			}
			if tags := tag(x) == tag(y); tags != ratelimit.SameTag(pair[0], pair[1]) {
				t.Fatalf("%q and %q: SameTag is %v, but tagged they are %q and %q", pair[0], pair[1], !tags, x, y)
			}
		}
	})
}

// tag is what Redis Cluster takes for the hash tag of a key.
func tag(key string) string {
	open := strings.IndexByte(key, '{')
	end := strings.IndexByte(key[open+1:], '}')
	return key[open+1 : open+1+end]
}
