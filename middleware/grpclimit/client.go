package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluicego/ratelimit"
)

// A Client makes the calls of gRPC clients keep to limits: its own, and those that servers tell of. The zero value is of
// use. Set its fields before its first call; then it is safe for concurrent use, by any number of connections.
//
//	c := &grpclimit.Client{Limiter: limiter}
//	conn, err := grpc.NewClient(target,
//		grpc.WithChainUnaryInterceptor(c.Unary()), grpc.WithChainStreamInterceptor(c.Stream()), …)
//
// It waits for room in Limiter before a call is made. A call that fails with ResourceExhausted or Unavailable and a
// google.rpc.RetryInfo holds back all calls of its method to that target for as long as it says, and a random part of
// that, up to an eighth, so that they do not all come at once. Then, if it was ResourceExhausted and not a stream, the
// call is made again; a call that ended as Unavailable may have been half done, so whether to repeat it is the caller's to
// say.
//
// It heeds the deadline of a call. A wait that would pass it is not begun: the call fails at once, with the server's own
// status, or with DeadlineExceeded, which is ratelimit.ErrDeadline as well.
type Client struct {
	// Limiter is what is allowed to be called. Nil means whatever the servers admit.
	Limiter ratelimit.Limiter
	// Key says from whose units a call is made. Nil means by target.
	Key func(ctx context.Context, target, fullMethod string) string
	// MaxWait is the longest that a server may hold calls back. 0 means a minute. A status that wants more goes to the
	// caller, and calls are held back for MaxWait all the same.
	MaxWait time.Duration
	// Retries is how often a call is repeated at most. 0 means 2, below 0 never.
	Retries int

	mu   sync.Mutex
	held map[string]time.Time
}

const (
	defaultMaxWait = time.Minute
	defaultRetries = 2
	maxHeld        = 1024 // methods that are remembered to be held back
)

// Unary returns the interceptor for unary calls.
func (c *Client) Unary() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		retries := c.Retries
		if retries == 0 {
			retries = defaultRetries
		}
		for attempt := 0; ; attempt++ {
			if err := c.await(ctx, cc.Target(), method); err != nil {
				return err
			}
			err := invoke(ctx, method, req, reply, cc, o...)
			wait, asked := c.heed(err, cc.Target(), method)
			if !asked || attempt >= retries || status.Code(err) != codes.ResourceExhausted || wait > c.maxWait() || late(ctx, wait) {
				return err
			}
		}
	}
}

// Stream returns the interceptor for streams, which waits before one is opened.
func (c *Client) Stream() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
		if err := c.await(ctx, cc.Target(), method); err != nil {
			return nil, err
		}
		s, err := open(ctx, desc, cc, method, o...)
		if err != nil {
			c.heed(err, cc.Target(), method)
			return nil, err
		}
		return &clientStream{s, func(err error) { c.heed(err, cc.Target(), method) }}, nil
	}
}

// A clientStream looks at how it ends.
type clientStream struct {
	grpc.ClientStream
	ended func(error)
}

func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil {
		s.ended(err)
	}
	return err
}

func (c *Client) maxWait() time.Duration {
	if c.MaxWait > 0 {
		return c.MaxWait
	}
	return defaultMaxWait
}

// await waits until a call may be made.
func (c *Client) await(ctx context.Context, target, method string) error {
	err := c.leaveAlone(ctx, target+method)
	if err == nil && c.Limiter != nil {
		key := target
		if c.Key != nil {
			key = c.Key(ctx, target, method)
		}
		if _, err = ratelimit.Wait(ctx, c.Limiter, key, 1); err == nil {
			err = c.leaveAlone(ctx, target+method) // what may have been said meanwhile
		}
	}
	if err != nil {
		return waitError{err}
	}
	return nil
}

// leaveAlone waits for as long as place is held back.
func (c *Client) leaveAlone(ctx context.Context, place string) error {
	for {
		c.mu.Lock()
		wait := time.Until(c.held[place])
		c.mu.Unlock()
		if wait <= 0 {
			return ctx.Err()
		}
		if late(ctx, wait) {
			return fmt.Errorf("grpclimit: the server wants to be left alone for %v: %w", wait.Round(time.Millisecond), ratelimit.ErrDeadline)
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

// heed holds calls back if err asks for it, and returns for how long it does; asked is false where nothing is held back.
func (c *Client) heed(err error, target, method string) (wait time.Duration, asked bool) {
	if wait, asked = retryDelay(err); !asked {
		return 0, false
	}
	now, place := time.Now(), target+method
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held = make(map[string]time.Time)
	}
	if len(c.held) >= maxHeld {
		for p, until := range c.held {
			if !until.After(now) {
				delete(c.held, p)
			}
		}
	}
	until := now.Add(min(wait, c.maxWait()))
	before, known := c.held[place]
	if !known && len(c.held) >= maxHeld {
		return wait, false // or the call would be made again at once
	}
	if until.After(before) {
		c.held[place] = until
	}
	return wait, true
}

// retryDelay is the RetryInfo of a call that was refused.
func retryDelay(err error) (wait time.Duration, ok bool) {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.ResourceExhausted && s.Code() != codes.Unavailable {
		return 0, false
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok && info.GetRetryDelay().CheckValid() == nil {
			return max(0, info.GetRetryDelay().AsDuration()), true
		}
	}
	return 0, false
}

// late tells whether ctx ends within wait.
func late(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) <= wait
}

// A waitError is why a call was not made, with a status.
type waitError struct{ error }

func (e waitError) Unwrap() error { return e.error }

// GRPCStatus is for status.FromError.
func (e waitError) GRPCStatus() *status.Status {
	code := codes.Internal
	switch {
	case errors.Is(e.error, context.DeadlineExceeded): // ratelimit.ErrDeadline is that, too
		code = codes.DeadlineExceeded
	case errors.Is(e.error, context.Canceled):
		code = codes.Canceled
	case errors.Is(e.error, ratelimit.ErrNever):
		code = codes.ResourceExhausted
	case errors.Is(e.error, ratelimit.ErrStoreUnavailable):
		code = codes.Unavailable
	}
	return status.New(code, e.Error())
}
