package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/grpclimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// refusal is a status with a RetryInfo, or without one if retry is below 0.
func refusal(code codes.Code, retry time.Duration) error {
	s := status.New(code, "refused")
	if retry >= 0 {
		s, _ = s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(retry)})
	}
	return s.Err()
}

// A script is a server that gives these answers, then nil, and notes when it was called.
type script struct {
	conn    *grpc.ClientConn
	answers []error
	calls   []time.Duration
	start   time.Time
}

// newScript is for a bubble; the connection is never used, but for its target.
func newScript(t *testing.T, answers ...error) *script {
	conn, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &script{conn: conn, answers: answers, start: time.Now()}
}

func (s *script) invoke(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
	return s.answer()
}

func (s *script) answer() error {
	s.calls = append(s.calls, time.Since(s.start))
	if len(s.answers) == 0 {
		return nil
	}
	err := s.answers[0]
	s.answers = s.answers[1:]
	return err
}

func (s *script) open(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return stream{s}, s.answer()
}

// A stream fails at its first message with the next answer.
type stream struct{ s *script }

func (s stream) RecvMsg(any) error { return s.s.answer() }

func (s *script) unary(ctx context.Context, c *grpclimit.Client, method string) error {
	return c.Unary()(ctx, method, nil, nil, s.conn, s.invoke)
}

func (s *script) wantCalls(t *testing.T, earliest ...time.Duration) {
	t.Helper()
	if len(s.calls) != len(earliest) {
		t.Errorf("calls at %v, want %v", s.calls, earliest)
		return
	}
	for i, at := range earliest { // each wait may be an eighth longer
		if s.calls[i] < at || s.calls[i] > at+at/4 {
			t.Errorf("calls at %v, want %v", s.calls, earliest)
		}
	}
}

// TestClientRetries: what was refused is called again when the server said so, and not before.
func TestClientRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t, refusal(codes.ResourceExhausted, 10*time.Second), refusal(codes.ResourceExhausted, 10*time.Second))
		if err := s.unary(t.Context(), &grpclimit.Client{}, say); err != nil {
			t.Error(err)
		}
		s.wantCalls(t, 0, 10*time.Second, 20*time.Second)
	})
}

func TestClientGivesUp(t *testing.T) {
	never := refusal(codes.ResourceExhausted, -1)
	for _, c := range []struct {
		name    string
		client  *grpclimit.Client
		answer  error
		timeout time.Duration
		calls   int
	}{
		{"two retries", &grpclimit.Client{}, refusal(codes.ResourceExhausted, time.Second), time.Hour, 3},
		{"no retries", &grpclimit.Client{Retries: -1}, refusal(codes.ResourceExhausted, time.Second), time.Hour, 1},
		{"longer than MaxWait", &grpclimit.Client{MaxWait: time.Second}, refusal(codes.ResourceExhausted, 2*time.Second), time.Hour, 1},
		{"longer than the deadline", &grpclimit.Client{}, refusal(codes.ResourceExhausted, 10*time.Second), 10 * time.Second, 1},
		{"maybe half done", &grpclimit.Client{}, refusal(codes.Unavailable, time.Second), time.Hour, 1},
		{"never", &grpclimit.Client{}, never, time.Hour, 1},
		{"not found", &grpclimit.Client{}, refusal(codes.NotFound, time.Second), time.Hour, 1},
		{"no status", &grpclimit.Client{}, errors.New("oh"), time.Hour, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(t, c.answer, c.answer, c.answer, c.answer)
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				defer cancel()
				if err := s.unary(ctx, c.client, say); !errors.Is(err, c.answer) || len(s.calls) != c.calls {
					t.Errorf("%v after %d calls, want %v after %d", err, len(s.calls), c.answer, c.calls)
				}
			})
		})
	}
}

// TestClientHoldsBack: the next call of the method waits as well, unless it has no time for that; other methods do not.
func TestClientHoldsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &grpclimit.Client{}
		s := newScript(t, refusal(codes.Unavailable, 30*time.Second))
		if err := s.unary(t.Context(), c, say); status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		err := s.unary(ctx, c, say)
		if status.Code(err) != codes.DeadlineExceeded || !errors.Is(err, ratelimit.ErrDeadline) {
			t.Errorf("without the time: %v", err)
		}
		if err := s.unary(ctx, c, "/test.Echo/Other"); err != nil {
			t.Error(err)
		}
		s.wantCalls(t, 0, 0)
		if err := s.unary(t.Context(), c, say); err != nil {
			t.Error(err)
		}
		s.wantCalls(t, 0, 0, 30*time.Second)
	})
}

// TestClientIsBounded: of more methods than it remembers the last are not held back, until others are through.
func TestClientIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const remembered = 1024
		c := &grpclimit.Client{}
		refused := refusal(codes.Unavailable, 10*time.Second)
		s := newScript(t)
		refuse := func(method string) {
			s.answers = []error{refused}
			if err := s.unary(t.Context(), c, method); !errors.Is(err, refused) {
				t.Fatal(err)
			}
		}
		took := func(method string) time.Duration {
			start := time.Now()
			if err := s.unary(t.Context(), c, method); err != nil {
				t.Fatal(err)
			}
			return time.Since(start)
		}
		for i := range remembered {
			refuse(fmt.Sprint("/", i))
		}
		refuse("/one more")
		if d := took("/one more"); d != 0 {
			t.Errorf("held back for %v", d)
		}
		if d := took("/0"); d < 10*time.Second {
			t.Errorf("held back for %v, want 10s", d)
		}
		refuse("/one more")
		if d := took("/one more"); d < 10*time.Second {
			t.Errorf("held back for %v, want 10s", d)
		}
	})
}

// TestClientStream: a stream that is refused holds back the next, and is not opened again.
func TestClientStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &grpclimit.Client{}
		s := newScript(t, nil, refusal(codes.ResourceExhausted, 10*time.Second), refusal(codes.ResourceExhausted, 10*time.Second))
		open := func() (grpc.ClientStream, error) {
			return c.Stream()(t.Context(), &grpc.StreamDesc{}, s.conn, chat, s.open)
		}
		st, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if err := st.RecvMsg(nil); status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
		if _, err := open(); status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
		if _, err := open(); err != nil {
			t.Error(err)
		}
		s.wantCalls(t, 0, 0, 10*time.Second, 20*time.Second)
	})
}

func newBucket(t *testing.T, limit ratelimit.Limit) ratelimit.Limiter {
	limiter, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{}), limit)
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

// TestClientLimiter: calls wait for the client's own limit, by target or by whatever Key says.
func TestClientLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t)
		c := &grpclimit.Client{Limiter: newBucket(t, ratelimit.Limit{Rate: 1, Period: 10 * time.Second})}
		for range 3 {
			if err := s.unary(t.Context(), c, say); err != nil {
				t.Error(err)
			}
		}
		s.wantCalls(t, 0, 10*time.Second, 20*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.unary(ctx, c, say); status.Code(err) != codes.DeadlineExceeded || !errors.Is(err, ratelimit.ErrDeadline) {
			t.Errorf("without the time: %v", err)
		}
		c.Key = func(_ context.Context, target, method string) string { return ratelimit.Key(target, method) }
		s.calls, s.start = nil, time.Now()
		for _, method := range []string{"/a", "/b", "/b"} {
			if err := s.unary(t.Context(), c, method); err != nil {
				t.Error(err)
			}
		}
		s.wantCalls(t, 0, 0, 10*time.Second)
	})
}

// TestClientErrors: an error of the client's own has a status, and is what it was.
func TestClientErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		code codes.Code
	}{
		{fmt.Errorf("%w: refused", ratelimit.ErrStoreUnavailable), codes.Unavailable},
		{ratelimit.ErrInvalidKey, codes.Internal},
		{ratelimit.ErrNever, codes.ResourceExhausted},
		{context.Canceled, codes.Canceled},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(t)
			limiter := ratelimit.LimiterFunc(func(context.Context, string, int64) (ratelimit.Result, error) { return ratelimit.Result{}, c.err })
			err := s.unary(t.Context(), &grpclimit.Client{Limiter: limiter}, say)
			if status.Code(err) != c.code || !errors.Is(err, c.err) || len(s.calls) > 0 {
				t.Errorf("%v, want code %v; %d calls", err, c.code, len(s.calls))
			}
		})
	}
}

// TestClientAndServer: a client that is told to wait by these server interceptors gets through.
func TestClientAndServer(t *testing.T) {
	t.Parallel()
	limiter := newBucket(t, ratelimit.Limit{Rate: 1, Period: 50 * time.Millisecond})
	c := &grpclimit.Client{}
	client := []grpc.DialOption{grpc.WithUnaryInterceptor(c.Unary()), grpc.WithStreamInterceptor(c.Stream())}
	e := &echo{}
	conn := serve(t, e, client, limit{limiter, grpclimit.Options{}})
	for i := range 5 {
		if a := call(t, conn, say); a.err != nil {
			t.Errorf("call %d: %v", i, a.err)
		}
	}
	if e.served != 5 {
		t.Errorf("served %d, want 5", e.served)
	}
}

func (stream) Header() (metadata.MD, error) { return nil, nil }
func (stream) Trailer() metadata.MD         { return nil }
func (stream) CloseSend() error             { return nil }
func (stream) Context() context.Context     { return context.Background() }
func (stream) SendMsg(any) error            { return nil }

// TestClientRepeatsNothingAtOnce: a call that nothing would hold back is not made again.
func TestClientRepeatsNothingAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newScript(t), &grpclimit.Client{}
		for i := range 1024 { // all that it remembers
			s.answers = []error{refusal(codes.Unavailable, 10*time.Second)}
			if err := s.unary(t.Context(), c, fmt.Sprint("/", i)); err == nil {
				t.Fatal("no error")
			}
		}
		s.calls, s.answers = nil, []error{refusal(codes.ResourceExhausted, 10*time.Second)}
		if err := s.unary(t.Context(), c, say); status.Code(err) != codes.ResourceExhausted || len(s.calls) != 1 {
			t.Errorf("calls at %v, error %v", s.calls, err)
		}
	})
}
