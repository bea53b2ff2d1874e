package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluicego/ratelimit/examples/internal/program"
)

// start runs the server and returns its address.
func start(t *testing.T, args ...string) string {
	t.Helper()
	address, stop, err := program.Start(run, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return address
}

// TestCalls makes the calls of the comment.
func TestCalls(t *testing.T) {
	t.Parallel()
	conn, err := grpc.NewClient(start(t), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, c := range []struct {
		key, remaining string
		code           codes.Code
	}{
		{"a", "1", codes.OK},
		{"a", "0", codes.OK},
		{"a", "0", codes.ResourceExhausted},
		{"b", "1", codes.OK},
		{"", "", codes.Unauthenticated},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if c.key != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "x-api-key", c.key)
		}
		var header metadata.MD
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Header(&header))
		cancel()
		if got := strings.Join(header["x-ratelimit-remaining"], ","); status.Code(err) != c.code || got != c.remaining {
			t.Errorf("key %q: %v, %q left, want %v, %q", c.key, err, got, c.code, c.remaining)
		}
		if retry := header["retry-after"]; (c.code == codes.ResourceExhausted) != (len(retry) == 1) {
			t.Errorf("key %q: retry-after %q", c.key, retry)
		}
	}
}

// TestClient is through with five calls when three have come back.
func TestClient(t *testing.T) {
	t.Parallel()
	const refill = 50 * time.Millisecond
	address := start(t, "-refill", refill.String())
	begin := time.Now()
	if err := run(t.Context(), []string{"-addr", address, "-call", "5"}, nil); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took < 3*refill {
		t.Errorf("took %v, want at least %v", took, 3*refill)
	}
}
