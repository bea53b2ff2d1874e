package redisserver

import (
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// connect connects to a stub and sends commands of words, all in one write.
func connect(t *testing.T, addr string, commands ...string) *conn {
	t.Helper()
	c, err := dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	send(t, c, commands...)
	return c
}

func send(t *testing.T, c *conn, commands ...string) {
	t.Helper()
	var b []byte
	for _, command := range commands {
		b = appendCommand(b, strings.Fields(command))
	}
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, c *conn, want any) {
	t.Helper()
	if got, err := readReply(c.r); got != want || err != nil {
		t.Errorf("reply %v, %v; want %v", got, err, want)
	}
}

// quiet checks that nothing comes for a while. A late reply slips through at worst; no timing makes it fail wrongly.
func quiet(t *testing.T, c *conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	if b, err := c.r.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %q, %v; want nothing", b, err)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
}

func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	if err := poll(func() error {
		if f() {
			return nil
		}
		return errors.New(what)
	}); err != nil {
		t.Fatal(err)
	}
}

func echo(_ int, args []string) Reply { return Bulk(args[len(args)-1]) }

func TestStub(t *testing.T) {
	t.Parallel()
	seen := 0 // handlers run one at a time, so this needs no lock
	s := NewStub(t, func(conn int, args []string) Reply {
		seen++
		if args[0] == "CONN" {
			return Int(int64(conn))
		}
		return echo(conn, args)
	})
	a := connect(t, s.Addr, "HELLO 2", "PING", "evalsha abc 0 x", "EVALSHA abc 0 y", "conn")
	reply, err := readReply(a.r)
	if hello := pairs(reply); err != nil || hello["proto"] != "2" || hello["version"] == "" || hello["role"] != "master" {
		t.Errorf("HELLO: %v, %v", reply, err)
	}
	for _, want := range []any{"PONG", "x", "y", int64(1)} {
		expect(t, a, want)
	}
	b := connect(t, s.Addr, "CONN", "HELLO 4", "CLIENT MAINT_NOTIFICATIONS ON", "CLUSTER SLOTS", "CLIENT SETINFO LIB-NAME x")
	expect(t, b, int64(2))
	expect(t, b, ReplyError("NOPROTO unsupported protocol version"))
	expect(t, b, ReplyError("ERR Unknown subcommand or wrong number of arguments for 'MAINT_NOTIFICATIONS'. Try CLIENT HELP."))
	expect(t, b, ReplyError("ERR This instance has cluster support disabled"))
	expect(t, b, "OK")
	if got := [...]int{s.Count(), s.Count("evalsha"), s.Count("EVALSHA", "CONN"), s.Count("PING")}; got != [...]int{4, 2, 4, 1} {
		t.Errorf("counts %v", got)
	}
	if open, peak, accepted := s.Conns(); open != 2 || peak != 2 || accepted != 2 {
		t.Errorf("connections: %d, %d, %d; want 2 each", open, peak, accepted)
	}
	_ = a.Close()
	await(t, "one connection is left", func() bool { open, _, _ := s.Conns(); return open == 1 })
	if _, peak, accepted := s.Conns(); peak != 2 || accepted != 2 {
		t.Errorf("peak %d, accepted %d", peak, accepted)
	}
	s.Down()
	if seen != 4 {
		t.Errorf("the handler saw %d commands; want 4", seen)
	}
}

func TestStubHello3(t *testing.T) {
	t.Parallel()
	s := NewStub(t, echo)
	c := connect(t, s.Addr, "HELLO 3", "GET k")
	line, err := c.r.ReadString('\n')
	if line != "%7\r\n" || err != nil {
		t.Fatalf("HELLO 3 begins with %q, %v; want a map of 7", line, err)
	}
	m := make([]any, 14)
	for i := range m {
		if m[i], err = readReply(c.r); err != nil {
			t.Fatal(err)
		}
	}
	if hello := pairs(m); hello["proto"] != "3" || hello["version"] != stubVersion {
		t.Errorf("HELLO 3: %v", hello)
	}
	expect(t, c, "k")
}

func TestStubAfter(t *testing.T) {
	t.Parallel()
	ready := make(chan struct{})
	s := NewStub(t, func(_ int, args []string) Reply {
		if args[0] == "SLOW" {
			return Simple("slow").After(ready)
		}
		return Simple("fast")
	})
	c := connect(t, s.Addr, "FAST", "SLOW", "FAST")
	expect(t, c, "fast")
	await(t, "commands behind a slow reply are executed", func() bool { return s.Count("FAST") == 2 })
	quiet(t, c)
	close(ready)
	expect(t, c, "slow")
	expect(t, c, "fast")
}

func TestStubDrop(t *testing.T) {
	t.Parallel()
	s := NewStub(t, func(_ int, args []string) Reply {
		switch args[0] {
		case "DROP":
			return Drop()
		case "LAST":
			return Int(1).ThenClose()
		case "HALF":
			return Bulk("0123456789").Half().ThenClose()
		}
		return Int(0)
	})
	for _, name := range []string{"DROP", "LAST", "HALF"} {
		c := connect(t, s.Addr, "GET a", name, "SET a 1")
		got, err := io.ReadAll(c.r)
		want := ":0\r\n" + map[string]string{"LAST": ":1\r\n", "HALF": "$10\r\n012"}[name]
		if string(got) != want || err != nil {
			t.Errorf("%s: read %q, %v; want %q and the end", name, got, err, want)
		}
		if s.Count(name) != 1 {
			t.Errorf("%s was executed %d times", name, s.Count(name))
		}
	}
	if s.Count("SET") != 0 {
		t.Error("a command behind a drop was executed")
	}
	await(t, "no connection is left", func() bool { open, _, _ := s.Conns(); return open == 0 })
}

func TestStubStuck(t *testing.T) {
	t.Parallel()
	s := NewStub(t, func(_ int, args []string) Reply {
		switch args[0] {
		case "NEVER":
			return Reply{}
		case "HALF":
			return Bulk("0123456789").Half()
		case "DROP":
			return Drop().After(make(chan struct{}))
		}
		return Int(0)
	})
	never := connect(t, s.Addr, "GET a", "NEVER", "GET a")
	expect(t, never, int64(0))
	quiet(t, never)
	half := connect(t, s.Addr, "HALF", "GET a")
	b := make([]byte, 8)
	if _, err := io.ReadFull(half.r, b); string(b) != "$10\r\n012" || err != nil {
		t.Errorf("half a reply: %q, %v", b, err)
	}
	quiet(t, half)
	drop := connect(t, s.Addr, "DROP")
	quiet(t, drop)
	await(t, "commands behind a stuck reply are executed", func() bool { return s.Count("GET") == 3 })
	s.Down() // has to end though replies are waiting
	if open, _, _ := s.Conns(); open != 0 {
		t.Errorf("%d connections after Down", open)
	}
}

func TestStubDownUp(t *testing.T) {
	t.Parallel()
	s := NewStub(t, echo)
	c := connect(t, s.Addr, "GET k")
	expect(t, c, "k")
	s.Down()
	if _, err := c.r.ReadByte(); err == nil {
		t.Error("a connection outlives Down")
	}
	if c, err := net.Dial("tcp", s.Addr); err == nil {
		_ = c.Close()
		t.Error("a stub that is down accepts")
	}
	s.Up()
	expect(t, connect(t, s.Addr, "GET k"), "k")
	if s.Count("GET") != 2 {
		t.Errorf("%d GETs; want 2", s.Count("GET"))
	}
}

func TestSilent(t *testing.T) {
	t.Parallel()
	s := NewSilent(t)
	c := connect(t, s.Addr, "HELLO 3", "PING")
	await(t, "it reads", func() bool { return s.Count("PING") == 1 })
	quiet(t, c)
}

func TestBlackHole(t *testing.T) {
	t.Parallel()
	c, err := net.DialTimeout("tcp", BlackHole(t), 50*time.Millisecond)
	if err == nil {
		_ = c.Close()
		t.Fatal("a black hole accepts")
	}
	if e := net.Error(nil); !errors.As(err, &e) || !e.Timeout() {
		t.Errorf("dial: %v; want a timeout", err)
	}
}

func TestReplies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reply Reply
		want  string
	}{
		{Simple("OK"), "+OK\r\n"},
		{Error("NOSCRIPT gone"), "-NOSCRIPT gone\r\n"},
		{Int(-7), ":-7\r\n"},
		{Nil(), "$-1\r\n"},
		{Array(Int(1), Bulk("a\r\n"), Array()), "*3\r\n:1\r\n$3\r\na\r\n\r\n*0\r\n"},
		{Raw("anything"), "anything"},
	} {
		if tt.reply.raw != tt.want {
			t.Errorf("%q; want %q", tt.reply.raw, tt.want)
		}
	}
	got := ClusterSlots("127.0.0.1:7001", "127.0.0.1:7002").raw
	if !strings.Contains(got, ":0\r\n:8191\r\n") || !strings.Contains(got, ":8192\r\n:"+strconv.Itoa(slots-1)+"\r\n") ||
		!strings.Contains(got, ":7002\r\n") {
		t.Errorf("CLUSTER SLOTS: %q", got)
	}
}
