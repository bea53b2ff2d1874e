package redisserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestSingle(t *testing.T) {
	t.Parallel()
	s := Single(t, "--maxmemory", "3mb")
	if got, err := s.Text("SET", "a key", "odd\r\n\x00value", "PX", "60000"); got != "OK" || err != nil {
		t.Fatalf("SET: %q, %v", got, err)
	}
	if got, err := s.Do("GET", "a key"); got != "odd\r\n\x00value" || err != nil {
		t.Errorf("GET: %q, %v", got, err)
	}
	if ttl, err := s.Do("PTTL", "a key"); err != nil || ttl.(int64) < 1 || ttl.(int64) > 60_000 {
		t.Errorf("PTTL: %v, %v", ttl, err)
	}
	if got, err := s.Do("GET", "no key"); got != nil || err != nil {
		t.Errorf("GET of nothing: %v, %v", got, err)
	}
	if got, err := s.Text("CONFIG", "GET", "maxmemory"); got != "maxmemory 3145728" || err != nil {
		t.Errorf("CONFIG GET: %q, %v", got, err)
	}
	_, err := s.Do("INCR", "a key")
	if e := ReplyError(""); !errors.As(err, &e) || !strings.HasPrefix(string(e), "ERR ") {
		t.Errorf("INCR: %v", err)
	}
	if got, err := s.Do("EVAL", "redis.call('SET', KEYS[1], 1) return {1, redis.error_reply('ERR BAD')}", "1", "k"); err != nil {
		t.Errorf("EVAL: %v", err)
	} else if list, _ := got.([]any); len(list) != 2 || list[0] != int64(1) || list[1] != ReplyError("ERR BAD") {
		t.Errorf("EVAL: %v", got)
	}
	if n, err := s.Calls("SET"); n != 2 || err != nil {
		t.Errorf("SET ran %d times, %v; want 2", n, err)
	}
	if n, err := s.Calls("PEXPIRE"); n != 0 || err != nil {
		t.Errorf("PEXPIRE ran %d times, %v; want 0", n, err)
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	s := Single(t)
	addr := s.Addr
	if _, err := s.Do("SET", "k", "v"); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	s.Kill()
	if _, err := s.Do("PING"); err == nil {
		t.Error("a killed server answers")
	}
	s.Restart()
	if got, err := s.Do("GET", "k"); got != nil || err != nil || s.Addr != addr {
		t.Errorf("after the restart at %s: %v, %v; want nothing at %s", s.Addr, got, err, addr)
	}
	pid := s.process().os.Pid
	s.Restart()
	if s.process().os.Pid == pid {
		t.Error("Restart left the old process")
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	s := Single(t)
	s.Pause()
	c, err := dial(s.Addr)
	if err != nil {
		t.Fatalf("the kernel should accept for a paused server: %v", err)
	}
	defer c.Close()
	if _, err := c.Write(appendCommand(nil, []string{"PING"})); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if reply, err := readReply(c.r); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a paused server answered %v, %v", reply, err)
	}
	s.Resume()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if reply, err := readReply(c.r); reply != "PONG" || err != nil {
		t.Errorf("after Resume: %v, %v", reply, err)
	}
	s.Pause() // Cleanup has to kill it all the same
}

func TestPassword(t *testing.T) {
	t.Parallel()
	s := Single(t, "--requirepass", "secret")
	if _, err := s.Do("GET", "k"); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("without a password: %v", err)
	}
	if got, err := s.Do("AUTH", "secret"); got != "OK" || err != nil {
		t.Errorf("AUTH: %v, %v", got, err)
	}
}

// A port may be taken between the look and the start, by a server that answers PING just as ours would.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	a := Single(t)
	b := &Server{tb: t, binary: a.binary, dir: t.TempDir(), args: a.args}
	t.Cleanup(b.Kill)
	b.launch(a.Port())
	b.await()
	if a.Addr == b.Addr {
		t.Fatalf("two servers at %s", a.Addr)
	}
	if _, err := b.Do("SET", "k", "v"); err != nil {
		t.Error(err)
	}
	if got, _ := a.Do("GET", "k"); got != nil {
		t.Error("b writes into a")
	}
}

func TestBadArgument(t *testing.T) {
	t.Parallel()
	find(t)
	if got := outcome(t, func(tb testing.TB) { Single(tb, "--no-such-thing", "1") }); !strings.HasPrefix(got, "fatal") ||
		!strings.Contains(got, "no-such-thing") {
		t.Errorf("outcome %q; want a failure that shows the server's log", got)
	}
}

func TestMissingServer(t *testing.T) {
	t.Setenv("REDIS_SERVER", "no-such-server")
	for ci, want := range map[string]string{"true": "fatal", "": "skip"} {
		t.Setenv("CI", ci)
		got := outcome(t, func(tb testing.TB) { Single(tb) })
		if !strings.HasPrefix(got, want) || !strings.Contains(got, "apt-get install redis-server redis-sentinel") {
			t.Errorf("CI=%q: %q; want %s and how to get it", ci, got, want)
		}
	}
}

func TestScript(t *testing.T) {
	script := filepath.Join(t.TempDir(), "server")
	text := fmt.Sprintf("#!/bin/sh\nexec %q \"$@\" --maxmemory 5mb\n", find(t))
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("REDIS_SERVER", script)
	if got, err := Single(t).Text("CONFIG", "GET", "maxmemory"); got != "maxmemory 5242880" || err != nil {
		t.Errorf("CONFIG GET: %q, %v", got, err)
	}
}

// A crash runs no Cleanup; the kernel ends the server then.
func TestOrphan(t *testing.T) {
	const crash = "REDISSERVER_TEST_CRASH"
	if os.Getenv(crash) != "" {
		fmt.Println("address", Single(t).Addr)
		panic("crash")
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends orphans, CI or not; run it on Linux")
	}
	find(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestOrphan$")
	cmd.Env = append(os.Environ(), crash+"=1")
	out, err := cmd.Output()
	_, rest, ok := strings.Cut(string(out), "address ")
	if err == nil || !ok {
		t.Fatalf("the child should start a server and crash: %v\n%s", err, out)
	}
	addr, _, _ := strings.Cut(rest, "\n")
	err = poll(func() error {
		c, err := dial(addr)
		if err != nil {
			return nil
		}
		_ = c.Close()
		return errors.New("the server outlives the test that crashed")
	})
	if err != nil {
		t.Error(err)
	}
}

// recorder is a testing.TB that records how the test would have ended.
type recorder struct {
	testing.TB
	end string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.stop("fatal: " + fmt.Sprintf(format, args...))
}

func (r *recorder) Skipf(format string, args ...any) { r.stop("skip: " + fmt.Sprintf(format, args...)) }

func (r *recorder) stop(end string) {
	r.end = end
	runtime.Goexit()
}

// outcome returns how a test that does f would end.
func outcome(t *testing.T, f func(testing.TB)) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r.end
}
