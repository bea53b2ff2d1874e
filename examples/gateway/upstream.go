package main

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// startUpstream returns u, or without one the address of a server of our own that says what it was asked.
func startUpstream(u *url.URL) (*url.URL, func(), error) {
	if u != nil {
		return u, func() {}, nil
	}
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return nil, nil, err
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(echo)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // until it is closed
	}()
	stop := func() {
		_ = server.Close()
		<-done
	}
	return &url.URL{Scheme: "http", Host: listener.Addr().String()}, stop, nil
}

func echo(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s for %s\n", r.Method, r.URL.Path, r.Header.Get("X-Tenant"))
}
