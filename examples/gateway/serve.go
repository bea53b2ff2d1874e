package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// A server is a handler and where it listens.
type server struct {
	address string
	handler http.Handler
	ready   func(address string) // is told where that is
}

// drain is how long requests that are being served may take to the end.
const drain = 20 * time.Second

// serve serves until ctx is done, or a server fails, and lets requests that have begun come to their end.
func serve(ctx context.Context, servers ...server) (err error) {
	ended := make(chan error, len(servers))
	running := make([]*http.Server, 0, len(servers))
	for _, s := range servers {
		listener, e := net.Listen("tcp", s.address)
		if e != nil {
			ended <- e
			break
		}
		h := &http.Server{Handler: s.handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
		running = append(running, h)
		go func() { ended <- h.Serve(listener) }()
		s.ready(listener.Addr().String())
	}
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	for _, h := range running {
		err = errors.Join(err, h.Shutdown(ending))
	}
	return err
}
