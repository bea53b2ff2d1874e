// Package grpclimit limits the calls of gRPC servers, and those of clients.
//
//	o := grpclimit.Options{Key: httplimit.ByHeader("x-api-key")}
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(limiter, o)),
//		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(limiter, o)),
//	)
//
// A denial is ResourceExhausted with a google.rpc.RetryInfo, which is absent where waiting does not help, and a
// google.rpc.QuotaFailure. Where nobody could decide, because the store is away and the limit fails closed or has nobody
// to stand in, it is Unavailable with a RetryInfo. The header metadata of a call has what httplimit writes into header
// fields, a denial's too: x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, ratelimit, ratelimit-policy and
// retry-after. Where a handler of a unary call sends its header itself, they are in the trailer, but for the draft's two,
// which are allowed in none.
//
// Client is the other side: interceptors that wait for room, and come back when a server says so.
package grpclimit

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
)

// Options are how calls are limited. The zero value is the default: one unit a call, by the peer's address. A stream is
// one call, decided when it opens, whatever is sent over it.
type Options struct {
	// Key says whose units a call spends. It sees the call as the request that it is over HTTP/2, so httplimit's keys
	// are for gRPC as well: ByIP is the peer's address, or what a trusted proxy says in metadata; ByHeader is a value
	// of the metadata; ByPattern is the full method, for Join; ByUser has the call's context. Nil means httplimit.ByIP()
	// without a trusted proxy. A call without a key is Unauthenticated.
	Key httplimit.KeyFunc
	// Cost is how many units a call spends; req is nil for a stream. Nil means 1. Below 0 is an error, for OnError.
	Cost func(ctx context.Context, fullMethod string, req any) int64
	// Skip says which calls are not limited at all. Nil means none; health checks are a case for it.
	Skip func(ctx context.Context, fullMethod string) bool
	// Headers are the fields of the header metadata. 0 means those of both dialects. A denial has retry-after whatever
	// they are.
	Headers httplimit.Headers
	// ResetFormat is what x-ratelimit-reset holds: the Unix time unless set.
	ResetFormat httplimit.ResetFormat
	// OnError is called when there is no decision: the Key failed, or the Limiter did. The call is served if it returns
	// nil, and else fails with what it returns. Nil means Unauthenticated for httplimit.ErrNoKey and Unavailable for all
	// else; FailOpen serves during an outage. Before it is called the error is logged, once a second at most, but for
	// httplimit.ErrNoKey. It is not called once the call's context has ended.
	OnError func(ctx context.Context, fullMethod string, err error) error
	// MaxWait holds a call that is denied up to this long for room, and denies it at once if there cannot be room in
	// time. 0 means none is held.
	MaxWait time.Duration
	// Clock tells the time for x-ratelimit-reset. Nil means time.Now.
	Clock func() time.Time
	// Logger gets what OnError speaks of. Nil means slog.Default().
	Logger *slog.Logger
}

// UnaryServerInterceptor returns an interceptor that asks limiter before each call, and lets no denied one through. It
// panics if limiter is nil or an option is out of its bounds.
//
// Interceptors may be chained: the metadata is then that of the tighter limiter. Units that an outer one spent stay spent
// when an inner one denies; where that matters, give ratelimit.New both limits.
func UnaryServerInterceptor(limiter ratelimit.Limiter, o Options) grpc.UnaryServerInterceptor {
	guard := newGuard(limiter, o)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		ctx, t, first := telling(ctx)
		if first {
			defer t.tell(
				func(md metadata.MD) error { return grpc.SetHeader(ctx, md) },
				func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) },
			)
		}
		if err := admit(ctx, guard, info.FullMethod, req, t); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
}

// StreamServerInterceptor is UnaryServerInterceptor for streams.
func StreamServerInterceptor(limiter ratelimit.Limiter, o Options) grpc.StreamServerInterceptor {
	guard := newGuard(limiter, o)
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, t, first := telling(ss.Context())
		if first {
			stream := &serverStream{ServerStream: ss, ctx: ctx, told: t}
			defer stream.tell()
			ss = stream
		}
		if err := admit(ctx, guard, info.FullMethod, nil, t); err != nil {
			return err
		}
		return handler(srv, ss)
	}
}

// newGuard returns httplimit's Guard, for calls in the form that newRequest gives them.
func newGuard(limiter ratelimit.Limiter, o Options) *httplimit.Guard {
	h := httplimit.Options{
		Key: o.Key, Headers: o.Headers, ResetFormat: o.ResetFormat, MaxWait: o.MaxWait, Clock: o.Clock, Logger: o.Logger,
		OnError: func(_ http.ResponseWriter, r *http.Request, err error) (serve bool) {
			c := callOf(r)
			if o.OnError == nil {
				c.err = failed(err)
			} else {
				c.err = o.OnError(r.Context(), r.Pattern, err)
			}
			return c.err == nil
		},
	}
	if o.Cost != nil {
		h.Cost = func(r *http.Request) int64 { return o.Cost(r.Context(), r.Pattern, callOf(r).req) }
	}
	if o.Skip != nil {
		h.Skip = func(r *http.Request) bool { return o.Skip(r.Context(), r.Pattern) }
	}
	return httplimit.NewGuard(limiter, h)
}

// admit returns nil for a call that is to be served, and notes in t where its client stands.
func admit(ctx context.Context, guard *httplimit.Guard, method string, req any, t *told) error {
	c := &call{req: req}
	r := newRequest(ctx, method, c)
	d := guard.Decide(r, nil)
	switch {
	case d.Skipped:
		return nil
	case d.Err != nil:
		if guard.Write(nowhere{}, r, d) {
			return nil
		}
		if c.err == nil { // ctx has ended, and OnError was not asked
			c.err = contextError(ctx)
		}
		return c.err
	}
	guard.SetHeaders(t.fields, d)
	if d.Result.Allowed {
		return nil
	}
	return denied(d.Result)
}
