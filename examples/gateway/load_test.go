package main

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// A call is one request and what came of it.
type call struct {
	id       string
	gateway  int
	sent     time.Time
	took     time.Duration
	status   int
	capacity int64 // of the limit that decided, as the client was told
	err      error
}

// A load sends requests at a steady rate to several gateways in turn, whether or not the ones before were answered.
type load struct {
	stopped chan struct{}
	sending sync.WaitGroup

	mu    sync.Mutex
	calls []call // that were answered
}

// send begins to send.
func send(gateways []*process, perSecond int) *load {
	l := &load{stopped: make(chan struct{})}
	began, pause := time.Now(), time.Second/time.Duration(perSecond)
	l.sending.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-l.stopped:
				return
			case <-time.After(time.Until(began.Add(time.Duration(i) * pause))):
			}
			l.sending.Go(func() { l.call(gateways, i) })
		}
	})
	return l
}

func (l *load) call(gateways []*process, i int) {
	c := call{id: strconv.Itoa(i), gateway: i % len(gateways), sent: time.Now()}
	res, err := order(gateways[c.gateway], "demo-a", c.id)
	c.took, c.err = time.Since(c.sent), err
	if err == nil {
		c.status = res.StatusCode
		c.capacity, _ = strconv.ParseInt(res.Header.Get("X-RateLimit-Limit"), 10, 64)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, c)
}

// order sends POST /orders.
func order(p *process, key, id string) (*http.Response, error) {
	r, err := http.NewRequest(http.MethodPost, "http://"+p.address+"/orders", nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set(apiKey, key)
	r.Header.Set("X-Request-Id", id)
	res, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, res.Body)
	res.Body.Close()
	return res, err
}

// stop ends the sending and returns all calls, in the order in which they were sent.
func (l *load) stop() []call {
	close(l.stopped)
	l.sending.Wait()
	return l.between(time.Time{}, time.Now())
}

// between returns the calls that were sent then, once they have all been answered.
func (l *load) between(from, to time.Time) (calls []call) {
	<-time.After(time.Until(to.Add(200 * time.Millisecond)))
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		if !c.sent.Before(from) && c.sent.Before(to) {
			calls = append(calls, c)
		}
	}
	slices.SortFunc(calls, func(a, b call) int { return a.sent.Compare(b.sent) })
	return calls
}

func admitted(calls []call) (n int) {
	for _, c := range calls {
		if c.status == http.StatusOK {
			n++
		}
	}
	return n
}

func of(gateway int, calls []call) []call {
	return slices.DeleteFunc(slices.Clone(calls), func(c call) bool { return c.gateway != gateway })
}

// near fails the test unless got is want, give or take 3 per cent and a unit of each gateway, and late more.
func near(tb testing.TB, what string, got int, want float64, late int64) {
	tb.Helper()
	if slack := 0.03*want + 3 + float64(late); math.Abs(float64(got)-want) > slack {
		tb.Errorf("%s: admitted %d; want %.1f, within %.1f", what, got, want, slack)
		return
	}
	tb.Logf("%s: admitted %d of %.1f; Redis was late for %d", what, got, want, late)
}

// An origin is an upstream that remembers which requests reached it.
type origin struct {
	*httptest.Server
	mu   sync.Mutex
	seen map[string]int // by id
}

func newOrigin(tb testing.TB) *origin {
	o := &origin{seen: map[string]int{}}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.seen[r.Header.Get("X-Request-Id")]++
		o.mu.Unlock()
		fmt.Fprint(w, r.Header.Get("X-Tenant"))
	}))
	tb.Cleanup(o.Close)
	return o
}

// times is how often a request reached it.
func (o *origin) times(id string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen[id]
}
