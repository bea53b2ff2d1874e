package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
)

// FailOpen is an Options.OnError that serves calls while the store is away, without any limit. It serves on nothing else:
// all other errors are answered as if OnError were nil.
func FailOpen(_ context.Context, _ string, err error) error {
	if errors.Is(err, ratelimit.ErrStoreUnavailable) {
		return nil
	}
	return failed(err)
}

// retryUnknown is how long to wait where nobody knows.
const retryUnknown = time.Second

// failed is the status of a call about which there is no decision. It does not say why, which is no business of clients.
func failed(err error) error {
	if errors.Is(err, httplimit.ErrNoKey) {
		return status.Error(codes.Unauthenticated, "ratelimit: the call does not say who is calling")
	}
	return unavailable(retryUnknown)
}

func unavailable(retry time.Duration) error {
	return withDetails(codes.Unavailable, "ratelimit: the call could not be checked against its limits", retryInfo(retry))
}

// denied is the status of a denial.
func denied(res ratelimit.Result) error {
	if res.Source == ratelimit.SourceFailClosed {
		return unavailable(res.RetryAfter)
	}
	name := res.Name
	if name == "" {
		name = "default"
	}
	quota := &errdetails.QuotaFailure_Violation{Subject: "limit:" + name, QuotaId: name, QuotaValue: res.Limit}
	failure := &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{quota}}
	if res.RetryAfter == ratelimit.Never {
		quota.Description = "the call costs more than the limit can ever hold: it does not help to wait"
		if res.Limit == 0 {
			quota.Description = "no calls of this kind are admitted"
		}
		return withDetails(codes.ResourceExhausted, fmt.Sprintf("ratelimit: limit %s: %s", name, quota.Description), failure)
	}
	quota.Description = "the limit has no room for the call"
	return withDetails(codes.ResourceExhausted, fmt.Sprintf("ratelimit: limit %s: %s, retry in %v", name, quota.Description, res.RetryAfter),
		retryInfo(res.RetryAfter), failure)
}

// retryInfo is exact, unlike retry-after. 0 would send the client straight back.
func retryInfo(d time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(max(d, time.Millisecond))}
}

func withDetails(code codes.Code, text string, details ...protoadapt.MessageV1) error {
	s := status.New(code, text)
	if full, err := s.WithDetails(details...); err == nil {
		s = full
	}
	return s.Err()
}

// contextError is the status of a call whose context has ended.
func contextError(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() }
