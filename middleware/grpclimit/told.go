package grpclimit

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// told is what a call's client is told, by all limiters round its handler. gRPC adds metadata up and takes nothing back,
// so it waits until the last of them has spoken, and goes out before the first message, or at the end.
type told struct {
	fields http.Header
	once   sync.Once
}

type toldKey struct{}

// telling returns the told of a call, and whether it is new, and the caller's to send.
func telling(ctx context.Context) (_ context.Context, t *told, first bool) {
	if t, ok := ctx.Value(toldKey{}).(*told); ok {
		return ctx, t, false
	}
	t = &told{fields: make(http.Header)}
	return context.WithValue(ctx, toldKey{}, t), t, true
}

// tell sends what there is, once: as header, or where a handler has sent that already, as trailer.
func (t *told) tell(header func(metadata.MD) error, trailer func(metadata.MD)) {
	t.once.Do(func() {
		if len(t.fields) == 0 {
			return
		}
		md := make(metadata.MD, len(t.fields))
		for name, values := range t.fields {
			md[strings.ToLower(name)] = values
		}
		if header(md) != nil {
			delete(md, "ratelimit") // which the draft allows in no trailer
			delete(md, "ratelimit-policy")
			trailer(md)
		}
	})
}

// A serverStream tells before it sends.
type serverStream struct {
	grpc.ServerStream
	ctx  context.Context
	told *told
}

func (s *serverStream) tell() { s.told.tell(s.ServerStream.SetHeader, s.ServerStream.SetTrailer) }

func (s *serverStream) Context() context.Context { return s.ctx }

func (s *serverStream) SendHeader(md metadata.MD) error {
	s.tell()
	return s.ServerStream.SendHeader(md)
}

func (s *serverStream) SendMsg(m any) error {
	s.tell()
	return s.ServerStream.SendMsg(m)
}
