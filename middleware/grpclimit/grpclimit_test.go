package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/grpclimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
)

// details are those of a status that these interceptors have.
func details(t *testing.T, err error) (retry *errdetails.RetryInfo, quota *errdetails.QuotaFailure) {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			retry = d
		case *errdetails.QuotaFailure:
			quota = d
		default:
			t.Errorf("detail %v", d)
		}
	}
	return retry, quota
}

// wantMD checks metadata in pairs of name and value; "" wants none.
func wantMD(t *testing.T, md metadata.MD, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := strings.Join(md.Get(pairs[i]), " | "); got != pairs[i+1] {
			t.Errorf("%s is %q, want %q", pairs[i], got, pairs[i+1])
		}
	}
}

func TestThirdOfTwoIsDenied(t *testing.T) {
	t.Parallel()
	for _, method := range []string{say, chat} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			e := &echo{}
			conn := serve(t, e, nil, limit{bucket(t, 2), grpclimit.Options{Key: httplimit.ByHeader("x-api-key")}})
			for _, want := range [][]string{
				{"x-ratelimit-limit", "2", "x-ratelimit-remaining", "1", "x-ratelimit-reset", "1767225630", "ratelimit-policy", `"default";q=2;w=60`, "ratelimit", `"default";r=1;t=30`, "retry-after", ""},
				{"x-ratelimit-remaining", "0", "x-ratelimit-reset", "1767225660", "retry-after", ""},
			} {
				a := call(t, conn, method, "x-api-key", "a")
				if a.err != nil {
					t.Fatal(a.err)
				}
				wantMD(t, a.header, want...)
			}
			a := call(t, conn, method, "x-api-key", "a")
			if status.Code(a.err) != codes.ResourceExhausted {
				t.Fatalf("third: %v", a.err)
			}
			wantMD(t, a.header, "x-ratelimit-limit", "2", "x-ratelimit-remaining", "0", "ratelimit", `"default";r=0;t=30`, "retry-after", "30")
			retry, quota := details(t, a.err)
			if retry.GetRetryDelay().AsDuration() != 30*time.Second {
				t.Errorf("retry %v, want 30s", retry)
			}
			if v := quota.GetViolations(); len(v) != 1 || v[0].Subject != "limit:default" || v[0].QuotaValue != 2 || v[0].Description == "" {
				t.Errorf("quota %v", quota)
			}
			if a := call(t, conn, method, "x-api-key", "b"); a.err != nil {
				t.Errorf("another key: %v", a.err)
			}
			a = call(t, conn, method)
			if status.Code(a.err) != codes.Unauthenticated {
				t.Errorf("without a key: %v", a.err)
			}
			wantMD(t, a.header, "x-ratelimit-limit", "")
			if e.served != 3 {
				t.Errorf("served %d calls, want 3", e.served)
			}
		})
	}
}

// TestR26Never: no wait helps, and none is asked for.
func TestR26Never(t *testing.T) {
	t.Parallel()
	cost := func(_ context.Context, method string, req any) int64 {
		if method == say {
			return int64(len(req.(*wrapperspb.StringValue).Value)) // hello
		}
		if req != nil {
			return 1
		}
		return 3
	}
	conn := serve(t, &echo{}, nil, limit{bucket(t, 4), grpclimit.Options{Cost: cost}})
	a := call(t, conn, say)
	retry, quota := details(t, a.err)
	if status.Code(a.err) != codes.ResourceExhausted || retry != nil || len(quota.GetViolations()) != 1 {
		t.Errorf("%v, %v, %v", a.err, retry, quota)
	}
	wantMD(t, a.header, "retry-after", "", "x-ratelimit-remaining", "", "x-ratelimit-limit", "4")
	a = call(t, conn, chat)
	wantMD(t, a.header, "x-ratelimit-remaining", "1")
}

// TestNoLimit: where none is held a denial is no matter of cost.
func TestNoLimit(t *testing.T) {
	t.Parallel()
	none := ratelimit.LimiterFunc(func(context.Context, string, int64) (ratelimit.Result, error) {
		return ratelimit.Result{RetryAfter: ratelimit.Never}, nil
	})
	a := call(t, serve(t, &echo{}, nil, limit{none, grpclimit.Options{}}), say)
	retry, quota := details(t, a.err)
	if status.Code(a.err) != codes.ResourceExhausted || retry != nil || len(quota.GetViolations()) != 1 || strings.Contains(a.err.Error(), "cost") {
		t.Errorf("%v, %v, %v", a.err, retry, quota)
	}
}

// TestR116Errors: an outage is no quota.
func TestR116Errors(t *testing.T) {
	t.Parallel()
	saying := func(res ratelimit.Result, err error) ratelimit.Limiter {
		return ratelimit.LimiterFunc(func(context.Context, string, int64) (ratelimit.Result, error) { return res, err })
	}
	outage := fmt.Errorf("%w: %w", ratelimit.ErrStoreUnavailable, errors.New("dial tcp"))
	own := func(_ context.Context, method string, err error) error {
		return status.Errorf(codes.Aborted, "%s: %t", method, errors.Is(err, ratelimit.ErrStoreUnavailable))
	}
	for _, c := range []struct {
		name    string
		limiter ratelimit.Limiter
		onError func(context.Context, string, error) error
		code    codes.Code
		retry   time.Duration
	}{
		{"outage", saying(ratelimit.Result{}, outage), nil, codes.Unavailable, time.Second},
		{"outage, open", saying(ratelimit.Result{}, outage), grpclimit.FailOpen, codes.OK, 0},
		{"misconfigured, open", saying(ratelimit.Result{}, ratelimit.ErrMisconfigured), grpclimit.FailOpen, codes.Unavailable, time.Second},
		{"own", saying(ratelimit.Result{}, outage), own, codes.Aborted, 0},
		{"closed", saying(ratelimit.Result{Limit: 5, RetryAfter: 3 * time.Second, Source: ratelimit.SourceFailClosed}, nil), nil, codes.Unavailable, 3 * time.Second},
		{"open", saying(ratelimit.Result{Allowed: true, Limit: 5, Remaining: 5, Source: ratelimit.SourceFailOpen}, nil), nil, codes.OK, 0},
		{"at once", saying(ratelimit.Result{Limit: 5}, nil), nil, codes.ResourceExhausted, time.Millisecond},
	} {
		for _, method := range []string{say, chat} {
			e := &echo{}
			a := call(t, serve(t, e, nil, limit{c.limiter, grpclimit.Options{OnError: c.onError}}), method)
			retry, quota := details(t, a.err)
			if status.Code(a.err) != c.code || retry.GetRetryDelay().AsDuration() != c.retry || (quota != nil) != (c.code == codes.ResourceExhausted) {
				t.Errorf("%s: %v, retry %v, quota %v", c.name, a.err, retry, quota)
			}
			if strings.Contains(fmt.Sprint(a.err), "dial tcp") {
				t.Errorf("%s: %v tells of the store", c.name, a.err)
			}
			if (e.served == 1) != (c.code == codes.OK) {
				t.Errorf("%s: served %d", c.name, e.served)
			}
			if c.code != codes.ResourceExhausted {
				wantMD(t, a.header, "x-ratelimit-remaining", "", "ratelimit", "")
			}
		}
	}
}

// TestEndedCall: a call whose context has ended is not answered by OnError.
func TestEndedCall(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	limiter := ratelimit.LimiterFunc(func(ctx context.Context, _ string, _ int64) (ratelimit.Result, error) {
		cancel()
		return ratelimit.Result{}, ctx.Err()
	})
	onError := func(context.Context, string, error) error { t.Error("OnError is asked"); return nil }
	intercept := grpclimit.UnaryServerInterceptor(limiter, grpclimit.Options{OnError: onError})
	_, err := intercept(ctx, nil, &grpc.UnaryServerInfo{FullMethod: say}, func(context.Context, any) (any, error) {
		t.Error("served")
		return nil, nil
	})
	if status.Code(err) != codes.Canceled {
		t.Errorf("%v", err)
	}
}

// TestR100Nested: of two limiters the tighter one's fields stand, once, whichever is outside.
func TestR100Nested(t *testing.T) {
	t.Parallel()
	for _, outer := range []int64{100, 2} {
		for _, method := range []string{say, chat} {
			conn := serve(t, &echo{}, nil, limit{bucket(t, outer), grpclimit.Options{}}, limit{bucket(t, 102-outer), grpclimit.Options{}})
			for i, want := range []string{"1", "0", "0"} {
				a := call(t, conn, method)
				retry := ""
				if i == 2 {
					retry = "30"
				}
				wantMD(t, a.header, "x-ratelimit-limit", "2", "x-ratelimit-remaining", want, "retry-after", retry)
				if (i == 2) != (status.Code(a.err) == codes.ResourceExhausted) {
					t.Errorf("call %d: %v", i, a.err)
				}
			}
		}
	}
}

// TestHandlersMetadata: what handlers send stands beside what limiters tell.
func TestHandlersMetadata(t *testing.T) {
	t.Parallel()
	own := metadata.Pairs("own", "1")
	e := &echo{
		say:  func(ctx context.Context) error { return grpc.SetHeader(ctx, own) },
		chat: func(ss grpc.ServerStream) error { return ss.SendHeader(own) },
	}
	conn := serve(t, e, nil, limit{bucket(t, 100), grpclimit.Options{}})
	wantMD(t, call(t, conn, say).header, "own", "1", "x-ratelimit-remaining", "99")
	wantMD(t, call(t, conn, chat).header, "own", "1", "x-ratelimit-remaining", "98")
	// Headers that are gone before the end of a unary call leave the trailer.
	e.say = func(ctx context.Context) error { return grpc.SendHeader(ctx, own) }
	a := call(t, conn, say)
	wantMD(t, a.header, "own", "1", "x-ratelimit-remaining", "")
	// The draft wants its fields nowhere in a trailer.
	wantMD(t, a.trailer, "x-ratelimit-remaining", "97", "ratelimit", "", "ratelimit-policy", "")
	// A stream without a message.
	e.chat = func(grpc.ServerStream) error { return status.Error(codes.NotFound, "") }
	wantMD(t, call(t, conn, chat).header, "x-ratelimit-remaining", "96")
}

// TestKeys: httplimit's keys see a call as the request that it is.
func TestKeys(t *testing.T) {
	t.Parallel()
	var keys []string
	limiter := ratelimit.LimiterFunc(func(_ context.Context, key string, _ int64) (ratelimit.Result, error) {
		keys = append(keys, key)
		return ratelimit.Result{Allowed: true}, nil
	})
	proxy := httplimit.ByIP(httplimit.TrustedProxies(netip.MustParsePrefix("127.0.0.0/8")))
	long := strings.Repeat("x", 5000)
	for _, c := range []struct {
		key     httplimit.KeyFunc
		want    string
		hasPart bool
	}{
		{nil, "ip=127.0.0.1", false},
		{proxy, "ip=2001:db8::/64", false},
		{httplimit.ByHeader("X-API-Key"), "X-Api-Key=a", false},
		{httplimit.ByPattern, "route=POST " + say, false},
		{httplimit.Join(httplimit.ByPattern, httplimit.ByHeader("x-api-key")), ratelimit.Key("X-Api-Key=a", "route=POST "+say), false},
		{httplimit.ByHeader("long"), "Long#", true},
	} {
		keys = nil
		conn := serve(t, &echo{}, nil, limit{limiter, grpclimit.Options{Key: c.key}})
		if a := call(t, conn, say, "x-api-key", "a", "x-forwarded-for", "192.0.2.1, 2001:db8::7", "long", long); a.err != nil {
			t.Error(a.err)
		}
		if len(keys) != 1 || keys[0] != c.want && (!c.hasPart || !strings.HasPrefix(keys[0], c.want) || len(keys[0]) > 100) {
			t.Errorf("key %q, want %q", keys, c.want)
		}
	}
}

func TestSkip(t *testing.T) {
	t.Parallel()
	e := &echo{}
	skip := func(_ context.Context, method string) bool { return method == chat }
	conn := serve(t, e, nil, limit{bucket(t, 1), grpclimit.Options{Skip: skip}})
	var got []codes.Code
	for _, method := range []string{chat, say, say, chat} {
		a := call(t, conn, method)
		got = append(got, status.Code(a.err))
		if method == chat {
			wantMD(t, a.header, "x-ratelimit-limit", "")
		}
	}
	if want := []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted, codes.OK}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRefusesOptions(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(){
		"limiter": func() { grpclimit.UnaryServerInterceptor(nil, grpclimit.Options{}) },
		"MaxWait": func() { grpclimit.StreamServerInterceptor(bucket(t, 1), grpclimit.Options{MaxWait: -1}) },
	} {
		func() {
			defer func() {
				if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), name) {
					t.Errorf("%s: panic %v", name, r)
				}
			}()
			f()
		}()
	}
}
