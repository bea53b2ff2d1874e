package grpclimit_test

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/grpclimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

const (
	say  = "/test.Echo/Say"
	chat = "/test.Echo/Chat"
)

// An echo is a service that says what it hears, with a method of one message and one of many.
type echo struct {
	served int
	say    func(ctx context.Context) error // called by Say, if set
	chat   func(ss grpc.ServerStream) error
}

var echoDesc = grpc.ServiceDesc{
	ServiceName: "test.Echo", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Say", Handler: func(srv any, ctx context.Context, decode func(any) error, limit grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.StringValue)
		if err := decode(in); err != nil {
			return nil, err
		}
		return limit(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: say}, func(ctx context.Context, req any) (any, error) {
			e := srv.(*echo)
			e.served++
			if e.say != nil {
				if err := e.say(ctx); err != nil {
					return nil, err
				}
			}
			return req, nil
		})
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Chat", ServerStreams: true, ClientStreams: true, Handler: func(srv any, ss grpc.ServerStream) error {
		e := srv.(*echo)
		e.served++
		if e.chat != nil {
			return e.chat(ss)
		}
		for in := new(wrapperspb.StringValue); ; {
			if err := ss.RecvMsg(in); err != nil {
				return nil
			}
			if err := ss.SendMsg(in); err != nil {
				return err
			}
		}
	}}},
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func clock() time.Time { return epoch }

// bucket is a limiter of n a minute whose time stands still.
func bucket(t testing.TB, n int64) *ratelimit.StoreLimiter {
	t.Helper()
	limiter, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{Clock: clock}), ratelimit.PerMinute(n))
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

// A limit is one interceptor of a server.
type limit struct {
	ratelimit.Limiter
	grpclimit.Options
}

// serve runs e behind limits, outermost first, and returns a connection to it.
func serve(t *testing.T, e *echo, client []grpc.DialOption, limits ...limit) *grpc.ClientConn {
	t.Helper()
	var unary []grpc.UnaryServerInterceptor
	var stream []grpc.StreamServerInterceptor
	for _, l := range limits {
		l.Options.Clock, l.Options.Logger = clock, slog.New(slog.DiscardHandler)
		unary = append(unary, grpclimit.UnaryServerInterceptor(l.Limiter, l.Options))
		stream = append(stream, grpclimit.StreamServerInterceptor(l.Limiter, l.Options))
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(stream...))
	server.RegisterService(&echoDesc, e)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	conn, err := grpc.NewClient(listener.Addr().String(), append(client, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		<-done
	})
	return conn
}

// An answer is how a call ended.
type answer struct {
	header, trailer metadata.MD
	err             error
}

// call makes a call of either method, with metadata in pairs.
func call(t *testing.T, conn *grpc.ClientConn, method string, pairs ...string) (a answer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), pairs...), 10*time.Second)
	defer cancel()
	hello, out := wrapperspb.String("hello"), new(wrapperspb.StringValue)
	if method == say {
		a.err = conn.Invoke(ctx, say, hello, out, grpc.Header(&a.header), grpc.Trailer(&a.trailer))
	} else {
		stream, err := conn.NewStream(ctx, &echoDesc.Streams[0], chat)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.SendMsg(hello); err == nil {
			_ = stream.CloseSend()
		}
		a.err = stream.RecvMsg(out)
		if a.header, err = stream.Header(); err != nil {
			t.Log(err)
		}
		a.trailer = stream.Trailer()
	}
	if a.err == nil && out.Value != "hello" {
		t.Errorf("%s: got %q back", method, out.Value)
	}
	return a
}
