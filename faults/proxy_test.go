package faults

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// echo starts a server that sends back what it reads, and counts nothing.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// say writes to c and returns what it reads within a while.
func say(c net.Conn, text string, within time.Duration) (string, error) {
	if _, err := c.Write([]byte(text)); err != nil {
		return "", err
	}
	return hear(c, within)
}

func hear(c net.Conn, within time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(within))
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	return string(buf[:n]), err
}

func TestProxy(t *testing.T) {
	t.Parallel()
	p := NewProxy(t, echo(t))
	c := dial(t, p.Addr)
	works := func(c net.Conn) {
		t.Helper()
		if got, err := say(c, "hello", patience); got != "hello" || err != nil {
			t.Errorf("heard %q, %v", got, err)
		}
	}
	works(c)

	p.Slow(60 * ms)
	start := time.Now()
	works(c)
	if d := time.Since(start); d < 60*ms {
		t.Errorf("a slow network took %v", d)
	}
	p.Slow(0)

	p.Silence()
	late := dial(t, p.Addr)
	for _, c := range []net.Conn{c, late} {
		if got, err := say(c, "a", 20*ms); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("heard %q, %v in silence", got, err)
		}
	}
	p.Speak()
	for _, c := range []net.Conn{c, late} {
		if got, err := hear(c, patience); got != "a" || err != nil {
			t.Errorf("heard %q, %v when it ended", got, err)
		}
	}

	p.CutReplies(true)
	if got, err := say(late, "b", patience); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("heard %q, %v where replies are cut", got, err)
	}
	p.CutReplies(false)
	works(c)

	p.Reset()
	if got, err := hear(c, patience); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("heard %q, %v after a reset", got, err)
	}

	c = dial(t, p.Addr)
	works(c)
	p.HalfClose()
	if got, err := hear(c, patience); err != io.EOF {
		t.Errorf("heard %q, %v after a half-close", got, err)
	}
	if _, err := c.Write([]byte("c")); err != nil {
		t.Errorf("a half-closed connection: %v", err)
	}

	c = dial(t, p.Addr)
	works(c)
	p.Strand()
	if got, err := say(c, "d", 20*ms); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("heard %q, %v on a stranded connection", got, err)
	}
	c = dial(t, p.Addr)
	works(c)
	if _, accepted := p.Conns(); accepted != 5 {
		t.Errorf("%d connections; want 5", accepted)
	}
}
