// Package httplimit limits HTTP handlers, and the clients of HTTP servers.
//
//	limiter, err := ratelimit.NewTokenBucket(store, ratelimit.PerMinute(100))
//	…
//	limit := httplimit.New(limiter, httplimit.Options{Key: httplimit.ByHeader("X-Api-Key")})
//	mux.Handle("GET /search", limit(search))
//
// New's result is middleware for net/http, and so for chi. Adapters for other frameworks are a few lines round a Guard.
// Transport is the other side: a client that keeps to limits.
//
// CORS middleware belongs outside a limiter, so that a browser may read the denial; X-RateLimit-Limit,
// X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit, RateLimit-Policy and Retry-After are what it should expose.
package httplimit

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/sluicego/ratelimit"
)

// Options are how requests are limited. The zero value is the default: one unit a request, by the peer's address.
type Options struct {
	// Key says whose units a request spends. Nil means ByIP() without a trusted proxy: behind a load balancer that is
	// one bucket for everybody, so name it with TrustedProxies.
	Key KeyFunc
	// Cost is how many units a request spends. Nil means ContextCost: what WithCost said, else 1. Below 0 is an error,
	// for OnError.
	Cost func(*http.Request) int64
	// Skip says which requests are not limited at all. Nil means Preflight: a browser asks on its own account.
	Skip func(*http.Request) bool
	// Headers are the header fields that tell the client where it stands. 0 means HeadersLegacy | HeadersDraft. A
	// denial has its Retry-After whatever they are.
	Headers Headers
	// ResetFormat is what X-RateLimit-Reset holds: ResetUnix unless set.
	ResetFormat ResetFormat
	// Denied writes the response to a request that is denied, in place of the problem body; header fields are set
	// already. If it writes nothing, the problem body is written. The handler does not run, whatever Denied does.
	// Result.Source is ratelimit.SourceFailClosed where the denial is for want of a store and not of room.
	Denied func(http.ResponseWriter, *http.Request, ratelimit.Result)
	// OnError is called when there is no decision: the Key failed, or the Limiter did. It says whether to serve the
	// request, and else writes the response; if it writes nothing, that is done for it, and header fields that it set
	// stay. Nil means 401 for ErrNoKey and 503 for all else. FailOpen serves during an outage. Before it is called the
	// error is logged, once a second at most, but for ErrNoKey. A request whose context has ended is answered with 503
	// without a word.
	//
	// To have no errors, and limits during an outage, give the Limiter a ratelimit.Fallback for a store.
	OnError func(http.ResponseWriter, *http.Request, error) (serve bool)
	// Refund says, once the handler has returned, how many of the units that the request spent it gets back: none if
	// nil. So only failures count, or only successes:
	//
	//	func(_ *http.Request, status int) int64 { if status < 400 { return 1 }; return 0 }
	//
	// The status is 200 if the handler wrote none, 500 if it panicked before that, 101 if it took over the connection.
	// The Limiter must be a ratelimit.Refunder. The response ends when the Limiter has answered, at most a second later.
	Refund func(r *http.Request, status int) int64
	// MaxWait holds a request that is denied up to this long for room, as ratelimit.Wait does, and denies it at once if
	// there cannot be room in time. 0 means none is held. It bounds the wait for room, not the store: one that has not
	// answered by then is asked once more, as if nothing were held.
	MaxWait time.Duration
	// Clock tells the time for X-RateLimit-Reset; it is read once a response. Nil means time.Now.
	Clock func() time.Time
	// Logger gets what OnError speaks of. Nil means slog.Default().
	Logger *slog.Logger
}

// New returns middleware that asks limiter before each request, and lets no denied one through. It panics if limiter is
// nil or an option is out of its bounds.
//
// Limiters may be nested: the header fields are then those of the tighter one. Units that an outer one spent stay spent
// when an inner one denies; where that matters, give ratelimit.New both limits. Their limits have Names of their own, or
// clients cannot tell which policy of RateLimit-Policy is which: one without a Name is called "default".
func New(limiter ratelimit.Limiter, o Options) func(http.Handler) http.Handler {
	return NewGuard(limiter, o).Handler
}

// Choose returns middleware that limits each request by the Guard that pick names, and not at all where it is nil: say
// one for callers who are signed in and one for everybody else.
func Choose(pick func(*http.Request) *Guard) func(http.Handler) http.Handler {
	if pick == nil {
		panic("httplimit: Choose of nil")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if g := pick(r); g != nil {
				g.serve(w, r, next)
			} else {
				next.ServeHTTP(w, r)
			}
		})
	}
}

// Preflight tells whether r is a browser's question whether a request of another origin is allowed.
func Preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

func (o *Options) validate(limiter ratelimit.Limiter) error {
	if limiter == nil {
		return errors.New("limiter is nil")
	}
	if o.Headers > HeadersNone {
		return fmt.Errorf("option Headers: %d is none of HeadersLegacy, HeadersDraft, both, HeadersNone", o.Headers)
	}
	if o.ResetFormat > ResetDelta {
		return fmt.Errorf("option ResetFormat: %d is none of ResetUnix, ResetDelta", o.ResetFormat)
	}
	if o.MaxWait < 0 {
		return fmt.Errorf("option MaxWait: %v is below 0", o.MaxWait)
	}
	if _, ok := limiter.(ratelimit.Refunder); o.Refund != nil && !ok {
		return fmt.Errorf("option Refund is set, and a %T is no ratelimit.Refunder", limiter)
	}
	return nil
}
