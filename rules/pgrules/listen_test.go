package pgrules

import (
	"testing"
	"time"

	"github.com/sluicego/ratelimit/rules"
)

// TestListen: a change holds within a second in each of three sets, none of which polls; the connection comes back after
// an outage, and what was changed meanwhile holds.
func TestListen(t *testing.T) {
	t.Parallel()
	b := withSchema(t)
	b.exec(insert + "('a', 'r', 1, 1)")
	var sets []*rules.Set
	var listeners []*Listener
	var told errs
	for range 3 {
		set := newSet(t, rules.SQL(b.open()), rules.Options{})
		l, err := Listen(b.url, set, Options{MaxPause: 200 * time.Millisecond, Check: 500 * time.Millisecond, OnError: told.add})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.Close)
		sets, listeners = append(sets, set), append(listeners, l)
	}
	all := func(want int64) func() bool {
		return func() bool {
			for i, s := range sets {
				if burst(s, "a", "r") != want || !listeners[i].Listening() {
					return false
				}
			}
			return true
		}
	}
	within(t, 10*time.Second, "listening", all(1))
	for n := int64(2); n < 5; n++ {
		b.exec("UPDATE rate_limit_rule SET capacity = capacity + 1")
		within(t, time.Second, "update", all(n))
	}
	b.exec("DELETE FROM rate_limit_rule")
	within(t, time.Second, "delete", all(7))
	b.exec("INSERT INTO rate_limit_rule (tier, route_id, capacity, refill_per_second) VALUES ('gold', '*', 50, 1)")
	b.exec("INSERT INTO rate_limit_tenant VALUES ('a', 'gold')")
	within(t, time.Second, "tier", all(50))
	b.exec("TRUNCATE rate_limit_tenant")
	within(t, time.Second, "truncate", all(7))
	if got := told.take(); got != "[]" {
		t.Error(got)
	}

	within(t, 10*time.Second, "quiet connections that were asked whether they live", all(7))
	b.server.Kill()
	within(t, 10*time.Second, "noticed", func() bool {
		return !listeners[0].Listening() && !listeners[1].Listening() && !listeners[2].Listening()
	})
	if got := told.take(); got == "[]" {
		t.Error("nobody was told")
	}
	b.server.Restart()
	b.server.Psql("postgres", insert+"('a', 'r', 3, 1)")
	within(t, 10*time.Second, "back", all(3))
	b.server.Psql("postgres", "UPDATE rate_limit_rule SET capacity = 4")
	within(t, time.Second, "update", all(4))
}

// TestQuiet: a connection on which nothing comes for many checks is kept, and works then.
func TestQuiet(t *testing.T) {
	t.Parallel()
	b := withSchema(t)
	set := b.set(rules.Options{})
	var told errs
	l, err := Listen(b.url, set, Options{Check: 20 * time.Millisecond, OnError: told.add})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	within(t, 10*time.Second, "listening", l.Listening)
	var checks int
	within(t, 10*time.Second, "many checks", func() bool { checks++; return checks > 60 })
	b.exec(insert + "('a', 'r', 4, 1)")
	within(t, time.Second, "insert", func() bool { return burst(set, "a", "r") == 4 })
	if got := told.take(); got != "[]" {
		t.Error(got)
	}
}

// TestClose: a listener ends at once, connected or not.
func TestClose(t *testing.T) {
	t.Parallel()
	b := withSchema(t)
	set := b.set(rules.Options{})
	for _, url := range []string{b.url, "postgres://127.0.0.1:1/x"} {
		l, err := Listen(url, set, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if url == b.url {
			within(t, 10*time.Second, "listening", l.Listening)
		}
		begun := time.Now()
		l.Close()
		l.Close()
		if d := time.Since(begun); d > 5*time.Second || l.Listening() {
			t.Errorf("%s: Close took %v", url, d)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	set := newSet(t, rules.Static(), rules.Options{})
	if _, err := Listen("postgres://a:b:c", set, Options{}); err == nil {
		t.Error("a broken URL is no error")
	}
	if _, err := Listen("", nil, Options{}); err == nil {
		t.Error("no Refresher is no error")
	}
	if _, err := Listen("", set, Options{Check: -1}); err == nil {
		t.Error("a negative Check is no error")
	}
}
