package main

import (
	"net"
	"net/http"
	"testing"

	"github.com/sluicego/ratelimit/examples/internal/curl"
	"github.com/sluicego/ratelimit/examples/internal/program"
)

func TestCurl(t *testing.T) {
	t.Parallel()
	if err := curl.Play("main.go", run); err != nil {
		t.Error(err)
	}
}

// TestFailClosed: without its Redis nobody logs in, and nobody is told of a quota.
func TestFailClosed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	address, stop, err := program.Start(run, "-redis", nobody)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	for range 30 { // past where the Fallback gives its primary up
		r, err := http.NewRequest(http.MethodPost, "http://"+address+"/login", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth("ann", "swordfish")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" || res.Header.Get("X-RateLimit-Remaining") != "" {
			t.Fatalf("%d with %v", res.StatusCode, res.Header)
		}
	}
}
