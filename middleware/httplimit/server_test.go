package httplimit_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// onServer limits h to n a day on a server of HTTP/1 or 2, with a Refund that tells of statuses.
func onServer(t *testing.T, http2 bool, n int64, h http.HandlerFunc, before ...func(*httptest.Server)) (s *httptest.Server, limiter *ratelimit.StoreLimiter, statuses chan int) {
	t.Helper()
	limiter, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{}), ratelimit.PerDay(n))
	if err != nil {
		t.Fatal(err)
	}
	statuses = make(chan int, 100)
	refund := func(_ *http.Request, status int) int64 {
		statuses <- status
		if status < 400 {
			return 1
		}
		return 0
	}
	s = httptest.NewUnstartedServer(httplimit.New(limiter, httplimit.Options{Refund: refund})(h))
	s.EnableHTTP2 = http2
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	for _, f := range before {
		f(s)
	}
	if http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s, limiter, statuses
}

func protocols(t *testing.T, f func(t *testing.T, http2 bool)) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			t.Parallel()
			f(t, http2)
		})
	}
}

func left(t *testing.T, l *ratelimit.StoreLimiter) int64 {
	t.Helper()
	res, err := l.Peek(t.Context(), "ip=127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return res.Remaining
}

func send(t *testing.T, s *httptest.Server, method, path string, body io.Reader) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// TestWriterIsTheServers: a handler finds on the writer what the server gives it, with Refund and without.
func TestWriterIsTheServers(t *testing.T) {
	t.Parallel()
	shape := func(w http.ResponseWriter) string {
		_, f := w.(http.Flusher)
		_, h := w.(http.Hijacker)
		_, r := w.(io.ReaderFrom)
		_, p := w.(http.Pusher)
		return fmt.Sprintf("flusher %v, hijacker %v, readerFrom %v, pusher %v", f, h, r, p)
	}
	protocols(t, func(t *testing.T, http2 bool) {
		var outside string
		s, _, _ := onServer(t, http2, 10, func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			if err := c.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Error(err)
			}
			if err := c.Flush(); err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(w, shape(w))
		}, func(s *httptest.Server) {
			limited := s.Config.Handler
			s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				outside = shape(w)
				limited.ServeHTTP(w, r)
			})
		})
		res := send(t, s, "GET", "/", nil)
		if got := text(t, res); got != outside || http2 != (res.ProtoMajor == 2) {
			t.Errorf("HTTP/%d: inside %s, outside %s", res.ProtoMajor, got, outside)
		}
		want(t, res, 200, "x-ratelimit-limit", "10", "X-RateLimit-Remaining", "9", "RateLimit-Policy", `"default";q=10;w=86400`)
	})
}

// TestUpgrade: a connection that is taken over, as a WebSocket's is.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	s, l, statuses := onServer(t, false, 2, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		_, _ = rw.WriteString("echo " + line)
		_ = rw.Flush()
	})
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("%v, error %v", res, err)
	}
	if n := left(t, l); n != 1 {
		t.Errorf("%d left while the connection lasts, want 1", n)
	}
	_, _ = io.WriteString(conn, "hello\n")
	if line, err := r.ReadString('\n'); line != "echo hello\n" {
		t.Errorf("line %q, error %v", line, err)
	}
	if status := <-statuses; status != 101 {
		t.Errorf("status %d, want 101", status)
	}
	eventually(t, func() bool { return left(t, l) == 2 })
}

// eventually polls until the server is through with what the client has seen the end of.
func eventually(t *testing.T, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); {
		if time.Now().After(end) {
			t.Fatal("it never came to be")
		}
		<-time.After(time.Millisecond)
	}
}

// TestR109UnixListener: peers of a server on a Unix socket are one key, or who their proxy says.
func TestR109UnixListener(t *testing.T) {
	t.Parallel()
	for left, key := range map[string]httplimit.KeyFunc{
		"987": httplimit.ByIP(),
		"998": httplimit.ByIP(httplimit.TrustUnix()), // the third is the first again
	} {
		l, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{}), ratelimit.PerDay(10))
		if err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		s := &httptest.Server{Listener: listener, Config: &http.Server{
			Handler: httplimit.New(l, httplimit.Options{Key: key})(http.HandlerFunc(serveNothing)),
		}}
		s.Start()
		client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("unix", listener.Addr().String())
		}}}
		got := ""
		for _, from := range []string{"192.0.2.1", "192.0.2.2", "6.6.6.6, 192.0.2.1"} {
			r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://socket/", nil)
			r.Header.Set("X-Forwarded-For", from)
			res, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			got += res.Header.Get("X-RateLimit-Remaining")
		}
		if got != left {
			t.Errorf("%s left, want %s", got, left)
		}
		client.CloseIdleConnections()
		s.Close()
	}
}

// TestServerSentEvents: each event arrives when it is flushed.
func TestServerSentEvents(t *testing.T) {
	t.Parallel()
	protocols(t, func(t *testing.T, http2 bool) {
		more := make(chan bool)
		s, _, statuses := onServer(t, http2, 2, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 3 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				w.(http.Flusher).Flush()
				<-more
			}
		})
		r := bufio.NewReader(send(t, s, "GET", "/", nil).Body)
		for i := range 3 {
			line, err := r.ReadString('\n')
			if line != fmt.Sprintf("data: %d\n", i) {
				t.Fatalf("line %q, error %v", line, err)
			}
			_, _ = r.ReadString('\n')
			more <- true
		}
		if status := <-statuses; status != 200 {
			t.Errorf("status %d", status)
		}
	})
}

// TestDownload: large bodies, through ReadFrom where there is one.
func TestDownload(t *testing.T) {
	t.Parallel()
	protocols(t, func(t *testing.T, http2 bool) {
		const size = 8 << 20
		s, l, statuses := onServer(t, http2, 2, func(w http.ResponseWriter, _ *http.Request) {
			if n, err := io.Copy(w, io.LimitReader(zeros{}, size)); n != size || err != nil {
				t.Errorf("%d bytes, error %v", n, err)
			}
		})
		n, err := io.Copy(io.Discard, send(t, s, "GET", "/", nil).Body)
		if n != size || err != nil {
			t.Errorf("%d bytes, error %v", n, err)
		}
		if status := <-statuses; status != 200 {
			t.Errorf("status %d", status)
		}
		eventually(t, func() bool { return left(t, l) == 2 })
	})
}

// TestDownloadOfNothing: who copies nothing has not answered yet.
func TestDownloadOfNothing(t *testing.T) {
	t.Parallel()
	protocols(t, func(t *testing.T, http2 bool) {
		s, _, statuses := onServer(t, http2, 2, func(w http.ResponseWriter, _ *http.Request) {
			if n, err := io.Copy(w, iotest.ErrReader(io.ErrUnexpectedEOF)); n != 0 || err == nil {
				t.Errorf("%d bytes, error %v", n, err)
			}
			http.Error(w, "no answer from further in", http.StatusBadGateway)
		})
		want(t, send(t, s, "GET", "/", nil), 502)
		if status := <-statuses; status != 502 {
			t.Errorf("status %d, want 502", status)
		}
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// TestPanics: what the handler spent before it panicked is settled, and the panic goes on to the server.
func TestPanics(t *testing.T) {
	t.Parallel()
	protocols(t, func(t *testing.T, http2 bool) {
		for _, c := range []struct {
			before func(http.ResponseWriter)
			status int
		}{
			{func(http.ResponseWriter) {}, 500},
			{func(w http.ResponseWriter) { w.WriteHeader(204) }, 204},
			{func(w http.ResponseWriter) { w.WriteHeader(103) }, 500},
		} {
			s, _, statuses := onServer(t, http2, 10, func(w http.ResponseWriter, _ *http.Request) {
				c.before(w)
				panic(http.ErrAbortHandler)
			})
			r, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL, nil) // not repeated by the client
			if res, err := s.Client().Do(r); err == nil {
				res.Body.Close()
			}
			if status := <-statuses; status != c.status {
				t.Errorf("status %d, want %d", status, c.status)
			}
		}
	})
}

// TestHangUp: a client that goes away gets its units back all the same.
func TestHangUp(t *testing.T) {
	t.Parallel()
	protocols(t, func(t *testing.T, http2 bool) {
		started := make(chan bool)
		s, l, statuses := onServer(t, http2, 5, func(_ http.ResponseWriter, r *http.Request) {
			started <- true
			<-r.Context().Done()
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-started
			cancel()
		}()
		r, _ := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
		if _, err := s.Client().Do(r); err == nil {
			t.Error("no error")
		}
		if status := <-statuses; status != 200 {
			t.Errorf("status %d", status)
		}
		eventually(t, func() bool { return left(t, l) == 5 })
	})
}

// TestDenialBeforeTheBody: a denial does not wait for the request's body, and the connection lives on if it can.
func TestDenialBeforeTheBody(t *testing.T) {
	t.Parallel()
	protocols(t, func(t *testing.T, http2 bool) {
		var conns atomic.Int32
		s, _, _ := onServer(t, http2, 1, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, func(s *httptest.Server) {
			s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					conns.Add(1)
				}
			}
		})
		want(t, send(t, s, "POST", "/", strings.NewReader("x")), 500)
		body, w := io.Pipe() // nobody ever writes
		res := send(t, s, "POST", "/", body)
		want(t, res, 429, "Retry-After", "86400")
		w.Close()
		for range 20 {
			res := send(t, s, "POST", "/", strings.NewReader("a body that nobody reads"))
			want(t, res, 429)
			_ = text(t, res)
		}
		if n := conns.Load(); http2 && n > 1 || n > 2 { // HTTP/1 gives the one up whose body never came
			t.Errorf("%d connections", n)
		}
		large := send(t, s, "POST", "/", io.LimitReader(zeros{}, 1<<40))
		want(t, large, 429)
	})
}

// TestNothingSuperfluous: no status is written twice. R115.
func TestR115NothingSuperfluous(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var lines strings.Builder
	limiter, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{}), ratelimit.PerDay(1))
	if err != nil {
		t.Fatal(err)
	}
	o := httplimit.Options{Denied: func(w http.ResponseWriter, r *http.Request, _ ratelimit.Result) {
		if r.URL.Path == "/own" {
			http.Error(w, "own", http.StatusTooManyRequests)
		}
	}}
	s := httptest.NewUnstartedServer(httplimit.New(limiter, o)(http.HandlerFunc(serveNothing)))
	s.Config.ErrorLog = log.New(writerFunc(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return lines.Write(b)
	}), "", 0)
	s.Start()
	want(t, send(t, s, "GET", "/", nil), 200)
	want(t, send(t, s, "GET", "/", nil), 429, "Content-Type", "application/problem+json")
	want(t, send(t, s, "GET", "/own", nil), 429, "Content-Type", "text/plain; charset=utf-8")
	want(t, send(t, s, "HEAD", "/", nil), 429)
	s.Close()
	mu.Lock()
	defer mu.Unlock()
	if lines.Len() > 0 {
		t.Errorf("the server says %s", lines.String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
