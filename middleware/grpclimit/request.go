package grpclimit

import (
	"context"
	"net/http"
	"net/url"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// A call is what the functions of Options are to know and a request does not hold.
type call struct {
	req any
	err error // what OnError said
}

type callKey struct{}

func callOf(r *http.Request) *call { return r.Context().Value(callKey{}).(*call) }

// newRequest is a call as the request that it is over HTTP/2.
func newRequest(ctx context.Context, method string, c *call) *http.Request {
	r := &http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: method}, Pattern: method, Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: make(http.Header), ContentLength: -1,
	}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		r.RemoteAddr = p.Addr.String()
	}
	md, _ := metadata.FromIncomingContext(ctx)
	for name, values := range md {
		if name == ":authority" && len(values) > 0 {
			r.Host = values[0]
		} else {
			r.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	return r.WithContext(context.WithValue(ctx, callKey{}, c))
}

// nowhere is a ResponseWriter for answers that are given as a status.
type nowhere struct{}

func (nowhere) Header() http.Header         { return make(http.Header) }
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) WriteHeader(int)             {}
