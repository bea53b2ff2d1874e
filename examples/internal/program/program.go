// Package program is what the servers among the examples have in common, and none of it is about limits.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

// A Run is a server: it listens, calls ready with its address, and serves until ctx is done.
type Run func(ctx context.Context, args []string, ready func(address string)) error

// Main runs a program with its arguments until it is interrupted.
func Main(run Run) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], func(address string) { fmt.Println("listening on", address) })
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}

// shutdown is how long requests that are being served may take to the end.
const shutdown = 5 * time.Second

// Serve serves h on address until ctx is done.
func Serve(ctx context.Context, address string, h http.Handler, ready func(address string)) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	ready(listener.Addr().String())
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdown)
	defer cancel()
	return server.Shutdown(ending)
}

// Start runs a program in the background, on a free port of this machine, until stop is called, which returns its error.
func Start(run Run, args ...string) (address string, stop func() error, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- run(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), func(address string) { ready <- address })
	}()
	select {
	case address = <-ready:
		return address, func() error { cancel(); return <-done }, nil
	case err := <-done:
		cancel()
		return "", nil, err
	}
}
