package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func bubble(t *testing.T, f func(*testing.T)) { synctest.Test(t, f) }

// A wire is a server that a Transport reaches without a network.
type wire struct {
	answers []*http.Response // the last is for all that follow
	got     []string         // bodies
	at      []time.Duration
	start   time.Time
	drained []*body
}

// A body knows whether it was read to its end and closed.
type body struct {
	io.Reader
	ended, closed bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	text := ""
	if r.Body != nil {
		b, _ := io.ReadAll(r.Body)
		text = string(b)
		r.Body.Close()
	}
	w.got, w.at = append(w.got, text), append(w.at, time.Since(w.start))
	res := *w.answers[min(len(w.got), len(w.answers))-1]
	b := &body{Reader: strings.NewReader("answer")}
	res.Body = b
	w.drained = append(w.drained, b)
	return &res, nil
}

func answer(status int, headers ...string) *http.Response {
	res := &http.Response{StatusCode: status, Header: http.Header{}}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		res.Header.Add(name, value)
	}
	return res
}

func newWire(answers ...*http.Response) *wire { return &wire{answers: answers, start: time.Now()} }

func TestTransportObeys(t *testing.T) {
	t.Parallel()
	ok := answer(200)
	for name, c := range map[string]struct {
		method string
		body   io.Reader
		first  *http.Response
		status int           // in the end
		sent   int           // requests
		wait   time.Duration // before the second request, the repeated one or the caller's next; up to an eighth more
	}{
		"seconds":                         {"GET", nil, answer(429, "Retry-After: 8"), 200, 2, 8 * time.Second},
		"date":                            {"GET", nil, answer(429, "Date: Thu, 01 Jan 2026 00:00:00 GMT", "Retry-After: Thu, 01 Jan 2026 00:00:16 GMT"), 200, 2, 16 * time.Second},
		"date without a clock":            {"GET", nil, answer(503, "Retry-After: Sat, 01 Jan 2000 00:00:24 GMT"), 200, 2, 24 * time.Second},
		"a date that has passed":          {"GET", nil, answer(429, "Retry-After: Sat, 01 Jan 1999 00:00:24 GMT"), 200, 2, 0},
		"draft":                           {"GET", nil, answer(429, `RateLimit: "a";r=5;t=60, "b";r=0;t=4`), 200, 2, 4 * time.Second},
		"Retry-After before draft":        {"GET", nil, answer(429, `RateLimit: "b";r=0;t=4`, "Retry-After: 2"), 200, 2, 2 * time.Second},
		"unreadable Retry-After":          {"GET", nil, answer(429, `RateLimit: "b";r=0;t=4`, "Retry-After: 1.5s"), 200, 2, 4 * time.Second},
		"503":                             {"GET", nil, answer(503, "Retry-After: 3"), 200, 2, 3 * time.Second},
		"body that can be had again":      {"POST", strings.NewReader("body"), answer(429, "Retry-After: 3"), 200, 2, 3 * time.Second},
		"body that cannot":                {"PUT", io.MultiReader(strings.NewReader("body")), answer(429, "Retry-After: 3"), 429, 1, 3 * time.Second},
		"503 of POST":                     {"POST", strings.NewReader("body"), answer(503, "Retry-After: 3"), 503, 1, 3 * time.Second},
		"429 that does not say":           {"GET", nil, answer(429), 429, 1, 0},
		"malformed":                       {"GET", nil, answer(429, `RateLimit: "b";r=0;t=-4`), 429, 1, 0},
		"out of a cache":                  {"GET", nil, answer(429, `RateLimit: "b";r=0;t=4`, "Age: 3"), 429, 1, 0},
		"longer than MaxWait":             {"GET", nil, answer(429, "Retry-After: 3600"), 429, 1, time.Minute},
		"longer than time":                {"GET", nil, answer(429, "Retry-After: 99999999999999999999999"), 429, 1, time.Minute},
		"served the last":                 {"GET", nil, answer(200, `RateLimit: "b";r=0;t=4`), 200, 1, 4 * time.Second},
		"served with others":              {"GET", nil, answer(200, `RateLimit: "b";r=1;t=4`), 200, 1, 0},
		"Retry-After on what is served":   {"GET", nil, answer(200, "Retry-After: 4"), 200, 1, 0},
		"another status, with a redirect": {"GET", nil, answer(302, "Retry-After: 4"), 302, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := newWire(c.first, ok)
				tr := &httplimit.Transport{Base: w}
				r, err := http.NewRequestWithContext(t.Context(), c.method, "http://example.com/", c.body)
				if err != nil {
					t.Fatal(err)
				}
				res, err := tr.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				if res.StatusCode != c.status || len(w.got) != c.sent {
					t.Fatalf("status %d after %d requests, want %d after %d", res.StatusCode, len(w.got), c.status, c.sent)
				}
				for i, b := range w.drained[:len(w.drained)-1] {
					if !b.ended || !b.closed {
						t.Errorf("response %d was dropped: read %v, closed %v", i, b.ended, b.closed)
					}
					if w.got[i+1] != w.got[i] {
						t.Errorf("body %q, then %q", w.got[i], w.got[i+1])
					}
				}
				if last := w.drained[len(w.drained)-1]; last.ended || last.closed {
					t.Error("the caller's response was read")
				}
				if c.sent == 1 {
					if _, err := tr.RoundTrip(httptest.NewRequest("GET", "http://example.com/", nil)); err != nil {
						t.Fatal(err)
					}
				}
				if d := w.at[1] - w.at[0]; d < c.wait || d > c.wait+c.wait/8 {
					t.Errorf("the second request came after %v, want %v", d, c.wait)
				}
				before := time.Now()
				if _, err := tr.RoundTrip(httptest.NewRequest("GET", "http://example.org/", nil)); err != nil || time.Since(before) != 0 {
					t.Errorf("another host waited for %v, error %v", time.Since(before), err)
				}
			})
		})
	}
}

func TestTransportHeedsDeadlines(t *testing.T) {
	t.Parallel()
	within := func(t *testing.T, tr *httplimit.Transport, d time.Duration) (*http.Response, error, bool) {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		start, b := time.Now(), &body{Reader: strings.NewReader("body")}
		r, _ := http.NewRequestWithContext(ctx, "POST", "http://example.com/", b)
		res, err := tr.RoundTrip(r)
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v", took)
		}
		return res, err, b.closed
	}
	t.Run("refused", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			w := newWire(answer(429, "Retry-After: 10"))
			tr := &httplimit.Transport{Base: w}
			if res, err, _ := within(t, tr, 5*time.Second); err != nil || res.StatusCode != 429 {
				t.Errorf("%v, error %v", res, err)
			}
			res, err, closed := within(t, tr, 5*time.Second)
			if res != nil || !errors.Is(err, ratelimit.ErrDeadline) || !errors.Is(err, context.DeadlineExceeded) || !closed || len(w.got) != 1 {
				t.Errorf("%v, error %v, body closed %v, %d requests", res, err, closed, len(w.got))
			}
		})
	})
	t.Run("spent", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			w := newWire(answer(200, `RateLimit: "a";r=0;t=10`))
			tr := &httplimit.Transport{Base: w}
			for range 3 { // nothing has been refused: the server decides
				if res, err, _ := within(t, tr, 5*time.Second); err != nil || res.StatusCode != 200 {
					t.Errorf("%v, error %v", res, err)
				}
			}
		})
	})
	t.Run("limiter", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			w := newWire(answer(200))
			l, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{}), ratelimit.PerMinute(1))
			if err != nil {
				t.Fatal(err)
			}
			tr := &httplimit.Transport{Base: w, Limiter: l}
			if _, err, _ := within(t, tr, time.Second); err != nil {
				t.Error(err)
			}
			if _, err, closed := within(t, tr, time.Second); !errors.Is(err, ratelimit.ErrDeadline) || !closed {
				t.Errorf("error %v, body closed %v", err, closed)
			}
			if len(w.got) != 1 {
				t.Errorf("%d requests", len(w.got))
			}
		})
	})
	t.Run("cancelled", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			tr := &httplimit.Transport{Base: newWire(answer(429, "Retry-After: 10"))}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			r, _ := http.NewRequestWithContext(ctx, "GET", "http://example.com/", nil)
			if _, err := tr.RoundTrip(r); err != context.Canceled {
				t.Errorf("error %v", err)
			}
		})
	})
}

func TestTransportWaitsForRoom(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		w := newWire(answer(200))
		l, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{}), ratelimit.PerMinute(6))
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &httplimit.Transport{Base: w, Limiter: l}}
		for range 8 {
			res, err := client.Get("http://example.com/")
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
		}
		if w.at[5] != 0 || w.at[6] != 10*time.Second || w.at[7] != 20*time.Second {
			t.Errorf("requests at %v", w.at)
		}
		if _, err := client.Get("http://example.org/"); err != nil || w.at[8] != w.at[7] {
			t.Errorf("another host waited; error %v", err)
		}
		client.Transport = &httplimit.Transport{Base: w, Limiter: l, Key: httplimit.ByHeader("X-Api-Key")}
		if _, err := client.Get("http://example.com/"); !errors.Is(err, httplimit.ErrNoKey) {
			t.Errorf("error %v", err)
		}
	})
}

// TestTransportHearsWhileItWaits: a refusal that comes while a request waits for room holds it back, too.
func TestTransportHearsWhileItWaits(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		w := newWire(answer(200), answer(429, "Retry-After: 40"), answer(200))
		l, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{}), ratelimit.Limit{Rate: 6, Period: time.Minute, Burst: 1})
		if err != nil {
			t.Fatal(err)
		}
		tr := &httplimit.Transport{Base: w, Limiter: l, Key: httplimit.ByHeader("X-User"), Retries: -1}
		send := func(user string) {
			r := withHeader("X-User", user)
			r.URL.Scheme, r.URL.Host = "http", "example.com"
			if _, err := tr.RoundTrip(r); err != nil {
				t.Error(err)
			}
		}
		send("a")
		time.AfterFunc(5*time.Second, func() { send("b") })
		send("a")
		if w.at[1] != 5*time.Second || w.at[2] < 45*time.Second {
			t.Errorf("requests at %v", w.at)
		}
	})
}

func TestTransportGivesUp(t *testing.T) {
	t.Parallel()
	for retries, sent := range map[int]int{0: 3, 5: 6, -1: 1} {
		bubble(t, func(t *testing.T) {
			w := newWire(answer(429, "Retry-After: 1"))
			tr := &httplimit.Transport{Base: w, Retries: retries}
			res, err := tr.RoundTrip(httptest.NewRequest("GET", "http://example.com/", nil))
			if err != nil || res.StatusCode != 429 || len(w.got) != sent {
				t.Errorf("%d retries: %d requests, want %d; error %v", retries, len(w.got), sent, err)
			}
		})
	}
}

// TestTransportAndServer is both sides of this package over a real connection.
func TestTransportAndServer(t *testing.T) {
	t.Parallel()
	l, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{}), ratelimit.PerSecond(2))
	if err != nil {
		t.Fatal(err)
	}
	served := 0
	s := httptest.NewServer(httplimit.New(l, httplimit.Options{})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); !bytes.Equal(b, []byte("body")) {
			t.Errorf("body %q", b)
		}
		served++
	})))
	defer s.Close()
	client := &http.Client{Transport: &httplimit.Transport{}}
	for range 4 {
		res, err := client.Post(s.URL, "text/plain", strings.NewReader("body"))
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("%v, error %v", res, err)
		}
		res.Body.Close()
	}
	if served != 4 {
		t.Errorf("served %d", served)
	}
}

// FuzzTransport: no header field makes a client panic, wait longer than MaxWait, or come back before it may.
func FuzzTransport(f *testing.F) {
	for _, s := range []string{"5", "-1", "1e9", "Thu, 01 Jan 2026 00:00:00 GMT", `"a";r=0;t=5`, `"a\";r=0";r=0;t=3, "b"`, `;;;=`, `"`, "999999999999999999999"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, retry, draft string) {
		bubble(t, func(t *testing.T) {
			first := answer(429)
			first.Header["Retry-After"], first.Header["Ratelimit"] = []string{retry}, []string{draft}
			w := newWire(first, answer(200))
			tr := &httplimit.Transport{Base: w}
			if _, err := tr.RoundTrip(httptest.NewRequest("GET", "http://example.com/", nil)); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(w.start); d > time.Minute+time.Minute/8 {
				t.Fatalf("it waited for %v", d)
			}
		})
	})
}

// TestTransportKeepsTheRefusal: if there is no room to repeat a request before its deadline, what the server said of it
// is the answer, and can be read.
func TestTransportKeepsTheRefusal(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		w := newWire(answer(429, "Retry-After: 1"))
		l, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{}), ratelimit.PerMinute(1))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r, _ := http.NewRequestWithContext(ctx, "POST", "http://example.com/", strings.NewReader("body"))
		res, err := (&httplimit.Transport{Base: w, Limiter: l}).RoundTrip(r)
		if err != nil || res.StatusCode != 429 || len(w.got) != 1 {
			t.Fatalf("%v after %d requests, error %v", res, len(w.got), err)
		}
		if got := text(t, res); got != "answer" || !w.drained[0].closed { // the connection is free meanwhile
			t.Errorf("body %q, the server's own closed %v", got, w.drained[0].closed)
		}
		again := newWire(answer(429, "Retry-After: 3"))
		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, leave)
		r, _ = http.NewRequestWithContext(gone, "GET", "http://example.com/", nil)
		if _, err := (&httplimit.Transport{Base: again}).RoundTrip(r); err != context.Canceled || !again.drained[0].closed {
			t.Errorf("error %v, the response closed %v", err, again.drained[0].closed)
		}
	})
}

// TestTransportDoesNotReadOn: a refusal whose body has no end is not waited for.
func TestTransportDoesNotReadOn(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		endless, sent := &body{Reader: drip{}}, 0
		tr := &httplimit.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) {
			if sent++; sent > 1 {
				return answer(200), nil
			}
			res := answer(429, "Retry-After: 8")
			res.Body, res.ContentLength = endless, -1
			return res, nil
		})}
		start := time.Now()
		res, err := tr.RoundTrip(httptest.NewRequest("GET", "http://example.com/", nil))
		if d := time.Since(start); err != nil || res.StatusCode != 200 || d > 9*time.Second || !endless.closed {
			t.Errorf("%v after %v, error %v, closed %v", res, d, err, endless.closed)
		}
	})
}

// TestTransportCloseIdleConnections: what a Client says of idle connections reaches the Base that has them.
func TestTransportCloseIdleConnections(t *testing.T) {
	t.Parallel()
	base := &idle{}
	(&http.Client{Transport: &httplimit.Transport{Base: base}}).CloseIdleConnections()
	if !base.closed {
		t.Error("the connections of Base are not closed")
	}
	(&http.Client{Transport: &httplimit.Transport{Base: roundTripper(nil)}}).CloseIdleConnections() // has none, and no method
}

// An idle is a RoundTripper with connections to close.
type idle struct {
	roundTripper
	closed bool
}

func (i *idle) CloseIdleConnections() { i.closed = true }

// A drip gives a byte a second.
type drip struct{}

func (drip) Read(p []byte) (int, error) {
	<-time.After(time.Second)
	return 1, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
