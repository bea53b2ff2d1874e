package httplimit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/sluicego/ratelimit"
)

// A Transport is an http.RoundTripper that keeps to limits: its own, and those that servers tell of. The zero value is
// of use. Set its fields before its first request; then it is safe for concurrent use.
//
// It waits for room in Limiter before a request is sent. A response of 429 or 503 with Retry-After, or else with a
// RateLimit that has nothing left, holds back all requests to that host for as long as it says, and a random part of
// that, up to an eighth, so that they do not all come at once. Then the request is repeated if it can be: it has no
// body or a GetBody, and was refused and not half done, as by a 429, or is of an idempotent method or with an
// Idempotency-Key. Any other response whose RateLimit has nothing left holds the next requests back as well.
//
// It heeds the deadline of a request, such as http.Client.Timeout's. A wait that would pass it is not begun: the
// response goes to the caller as it is; or the error is ratelimit.ErrDeadline where nothing has been sent; or, where
// the server has refused nothing yet, the request is sent and the server decides.
type Transport struct {
	// Base sends the requests. Nil means http.DefaultTransport.
	Base http.RoundTripper
	// Limiter is what is allowed to be sent. Nil means whatever the servers admit.
	Limiter ratelimit.Limiter
	// Key says from whose units a request is sent. Nil means by scheme and host.
	Key KeyFunc
	// MaxWait is the longest that a server may hold requests back. 0 means a minute. A response that wants more goes
	// to the caller, and requests are held back for MaxWait all the same.
	MaxWait time.Duration
	// Retries is how often a request is repeated at most. 0 means 2, below 0 never.
	Retries int

	mu    sync.Mutex
	hosts map[string]pause
}

// A pause is until when a host wants to be left alone: after it refused a request, or has served the last of a quota.
type pause struct{ refused, spent time.Time }

const (
	defaultMaxWait = time.Minute
	defaultRetries = 2
	maxHosts       = 1024 // that are remembered to want to be left alone
	maxDrain       = 64 << 10
)

// RoundTrip sends r when there is room, and returns the last response to it.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base, retries := t.base(), t.Retries
	if retries == 0 {
		retries = defaultRetries
	}
	sent, last := r, (*http.Response)(nil)
	for attempt := 0; ; attempt++ {
		err := t.await(r)
		if err != nil {
			closeBody(sent)
			if last != nil && r.Context().Err() == nil {
				return last, nil
			}
		}
		if last != nil {
			_ = last.Body.Close()
		}
		if err != nil {
			return nil, err
		}
		res, err := base.RoundTrip(sent)
		if err != nil {
			return nil, err
		}
		wait, refused, ok := asked(res)
		if !ok {
			return res, nil
		}
		t.hold(r, min(wait, t.maxWait()), refused)
		if !refused {
			return res, nil
		}
		if attempt >= retries || wait > t.maxWait() || late(r.Context(), wait) || !replayable(r, res.StatusCode) {
			return res, nil
		}
		again := r.Clone(r.Context())
		if r.GetBody != nil {
			if again.Body, err = r.GetBody(); err != nil {
				return res, nil
			}
		}
		setAside(res)
		sent, last = again, res
	}
}

// CloseIdleConnections closes those of Base, if it can: http.Client.CloseIdleConnections comes here.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// setAside reads the body of res into memory, which leaves its connection to others, for as long as it may be what the
// caller gets after all. A body of unknown length stays where it is: it may have no end.
func setAside(res *http.Response) {
	if res.ContentLength < 0 || res.ContentLength > maxDrain {
		return
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, maxDrain))
	_ = res.Body.Close()
	res.Body = &aside{*bytes.NewReader(b), err}
}

// An aside is a body that was read, until err if there was one.
type aside struct {
	read bytes.Reader
	err  error
}

func (a *aside) Read(p []byte) (int, error) {
	n, err := a.read.Read(p)
	if err != nil && a.err != nil {
		err = a.err
	}
	return n, err
}

func (*aside) Close() error { return nil }

func (t *Transport) maxWait() time.Duration {
	if t.MaxWait > 0 {
		return t.MaxWait
	}
	return defaultMaxWait
}

// await waits until r may be sent.
func (t *Transport) await(r *http.Request) error {
	ctx := r.Context()
	if err := t.leaveAlone(ctx, r); err != nil {
		return err
	}
	if t.Limiter == nil {
		return nil
	}
	key := t.Key
	if key == nil {
		key = byHost
	}
	k, err := key(r)
	if err == nil && k == "" {
		err = ErrNoKey
	}
	if err != nil {
		return err
	}
	if _, err := ratelimit.Wait(ctx, t.Limiter, bounded(k), 1); err != nil {
		return err
	}
	return t.leaveAlone(ctx, r) // what may have been said meanwhile
}

// leaveAlone waits for as long as r's host wants to be left alone.
func (t *Transport) leaveAlone(ctx context.Context, r *http.Request) error {
	for {
		t.mu.Lock()
		p := t.hosts[hostOf(r)]
		t.mu.Unlock()
		wait := time.Until(p.refused)
		if late(ctx, wait) && wait > 0 {
			return fmt.Errorf("httplimit: the server wants to be left alone for %v: %w", wait.Round(time.Millisecond), ratelimit.ErrDeadline)
		}
		if spent := time.Until(p.spent); !late(ctx, spent) {
			wait = max(wait, spent)
		}
		if wait <= 0 {
			return ctx.Err()
		}
		spread := wait / 8
		if deadline, ok := ctx.Deadline(); ok {
			spread = min(spread, time.Until(deadline)-wait)
		}
		if spread > 0 {
			wait += rand.N(spread)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// hold remembers that r's host wants to be left alone.
func (t *Transport) hold(r *http.Request, wait time.Duration, refused bool) {
	now, host := time.Now(), hostOf(r)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hosts == nil {
		t.hosts = make(map[string]pause)
	}
	if len(t.hosts) >= maxHosts {
		for h, p := range t.hosts {
			if len(t.hosts) >= maxHosts || now.After(p.refused) && now.After(p.spent) { // any, if need be: it will say so again
				delete(t.hosts, h)
			}
		}
	}
	p, until := t.hosts[host], now.Add(wait)
	if refused && until.After(p.refused) {
		p.refused = until
	}
	if !refused && until.After(p.spent) {
		p.spent = until
	}
	t.hosts[host] = p
}

func byHost(r *http.Request) (string, error) { return kind("host", hostOf(r)), nil }

func hostOf(r *http.Request) string { return r.URL.Scheme + "://" + r.URL.Host }

// late tells whether ctx ends before wait is over.
func late(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) <= wait
}

// replayable tells whether r may be sent again after such a response.
func replayable(r *http.Request, status int) bool {
	if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return false
	}
	if status == http.StatusTooManyRequests || r.Header["Idempotency-Key"] != nil || r.Header["X-Idempotency-Key"] != nil {
		return true
	}
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}
