// Command grpc limits a server of gRPC, and is a client that keeps to what the server says: each API key may make two
// calls at once of each method, and one more every half minute. The service is gRPC's own health check.
//
//	go run ./examples/grpc
//
//	grpcurl -plaintext -v -H 'x-api-key: a' localhost:8080 grpc.health.v1.Health/Check    # OK, x-ratelimit-remaining: 1
//	grpcurl -plaintext -v -H 'x-api-key: a' localhost:8080 grpc.health.v1.Health/Check    # OK, x-ratelimit-remaining: 0
//	grpcurl -plaintext -v -H 'x-api-key: a' localhost:8080 grpc.health.v1.Health/Check    # ResourceExhausted, retry-after: 30
//	grpcurl -plaintext -v -H 'x-api-key: b' localhost:8080 grpc.health.v1.Health/Check    # OK, x-ratelimit-remaining: 1
//	grpcurl -plaintext -v localhost:8080 grpc.health.v1.Health/Check                      # Unauthenticated
//
// As a client it makes calls one after the other, and waits when it is told to:
//
//	go run ./examples/grpc -refill 2s
//	go run ./examples/grpc -call 5
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/examples/internal/program"
	"github.com/sluicego/ratelimit/middleware/grpclimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

func main() { program.Main(run) }

func run(ctx context.Context, args []string, ready func(address string)) error {
	flags := flag.NewFlagSet("grpc", flag.ContinueOnError)
	address := flags.String("addr", "localhost:8080", "listen on this `host:port`, or call it")
	calls := flags.Int("call", 0, "be a client that makes this many `calls`")
	burst := flags.Int64("burst", 2, "calls at once")
	refill := flags.Duration("refill", 30*time.Second, "one more after this time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *calls > 0 {
		return call(ctx, *address, *calls)
	}
	store := memstore.New(memstore.Options{})
	limiter, err := ratelimit.NewTokenBucket(store, ratelimit.Limit{Rate: 1, Period: *refill, Burst: *burst})
	if err != nil {
		return err
	}
	return serve(ctx, *address, limiter, ready)
}

func serve(ctx context.Context, address string, limiter ratelimit.Limiter, ready func(address string)) error {
	o := grpclimit.Options{
		Key: httplimit.Join(httplimit.ByHeader("x-api-key"), httplimit.ByPattern),
		// grpcurl asks by reflection what there is to call.
		Skip: func(_ context.Context, method string) bool {
			return method == "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
		},
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(limiter, o)),
		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(limiter, o)),
	)
	healthpb.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, server.Stop)()
	ready(listener.Addr().String())
	return server.Serve(listener)
}

func call(ctx context.Context, address string, calls int) error {
	client := &grpclimit.Client{}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(client.Unary()), grpc.WithChainStreamInterceptor(client.Stream()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx = metadata.AppendToOutgoingContext(ctx, "x-api-key", "client")
	start := time.Now()
	for i := range calls {
		if _, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
			return err
		}
		fmt.Printf("%6.2fs  call %d of %d\n", time.Since(start).Seconds(), i+1, calls)
	}
	return nil
}
