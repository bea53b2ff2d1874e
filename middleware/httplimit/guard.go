package httplimit

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sluicego/ratelimit"
)

// A Guard is New's middleware in pieces, for frameworks with handlers of their own. It is safe for concurrent use.
//
//	d := guard.Decide(r, nil)
//	if !guard.Write(w, r, d) {
//		return // answered
//	}
//	next(w, r)
//	guard.Done(r, d, status) // only for Refund
type Guard struct {
	limiter  ratelimit.Limiter
	options  Options
	policies policyCache
	logged   atomic.Int64 // when an error was last logged, in Unix nanoseconds
}

// A Decision is what was decided about one request.
type Decision struct {
	Skipped bool   // it is not limited
	Key     string // whose units it spends,
	Cost    int64  // and how many
	Result  ratelimit.Result
	Err     error // why there is no Result
}

// NewGuard returns a Guard. It panics if limiter is nil or an option is out of its bounds.
func NewGuard(limiter ratelimit.Limiter, o Options) *Guard {
	if err := o.validate(limiter); err != nil {
		panic("httplimit: " + err.Error())
	}
	if o.Key == nil {
		o.Key = ByIP()
	}
	if o.Cost == nil {
		o.Cost = ContextCost
	}
	if o.Skip == nil {
		o.Skip = Preflight
	}
	if o.Headers == 0 {
		o.Headers = HeadersLegacy | HeadersDraft
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.OnError == nil {
		o.OnError = failClosed
	}
	g := &Guard{limiter: limiter, options: o}
	g.policies.init(limiter)
	return g
}

// Handler returns next, limited.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
}

func (g *Guard) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	d := g.Decide(r, nil)
	if !g.Write(w, r, d) {
		return
	}
	if g.options.Refund == nil || d.Skipped {
		next.ServeHTTP(w, r)
		return
	}
	rec, panicked := &recorder{ResponseWriter: w}, true
	defer func() {
		if panicked {
			rec.wrote(http.StatusInternalServerError)
		}
		g.Done(r, d, rec.status)
	}()
	next.ServeHTTP(rec.writer(), r)
	panicked = false
}

// Decide makes the decision for r and writes nothing. A nil key means Options.Key; adapters whose keys need more than
// the request pass their own.
func (g *Guard) Decide(r *http.Request, key KeyFunc) (d Decision) {
	if g.options.Skip(r) {
		d.Skipped = true
		return d
	}
	if key == nil {
		key = g.options.Key
	}
	if d.Key, d.Err = key(r); d.Err != nil {
		return d
	}
	if d.Key == "" {
		d.Err = ErrNoKey
		return d
	}
	d.Key = bounded(d.Key)
	d.Cost = g.options.Cost(r)
	if g.options.MaxWait > 0 {
		d.Result, d.Err = g.wait(r.Context(), d.Key, d.Cost)
	} else {
		d.Result, d.Err = g.limiter.Allow(r.Context(), d.Key, d.Cost)
	}
	return d
}

// fresh is how old a denial may be that is told as it is: Retry-After is in whole seconds, rounded up.
const fresh = 50 * time.Millisecond

func (g *Guard) wait(ctx context.Context, key string, cost int64) (ratelimit.Result, error) {
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, g.options.MaxWait)
	defer cancel()
	res, err := ratelimit.Wait(limited, g.limiter, key, cost)
	late := errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ratelimit.ErrStoreUnavailable)
	if ctx.Err() != nil || !late && !errors.Is(err, ratelimit.ErrNever) {
		return res, err
	}
	if res.RetryAfter == 0 || time.Since(start) > fresh { // the store has not answered, or long ago
		return g.limiter.Allow(ctx, key, cost)
	}
	return res, nil
}

// Write sets the header fields that tell of d, and reports whether to serve the request. If not, the response has been
// written and nothing else must be.
func (g *Guard) Write(w http.ResponseWriter, r *http.Request, d Decision) (serve bool) {
	switch {
	case d.Skipped:
		return true
	case d.Err != nil:
		return g.failed(w, r, d.Err)
	}
	g.SetHeaders(w.Header(), d)
	if !d.Result.Allowed {
		g.deny(w, r, d.Result)
	}
	return d.Result.Allowed
}

// refundTimeout is how long giving units back may hold the end of a response.
const refundTimeout = time.Second

// Done gives back what Options.Refund says, now that the response to r has this status; 0 means none was written.
func (g *Guard) Done(r *http.Request, d Decision, status int) {
	if g.options.Refund == nil || d.Skipped || d.Err != nil || d.Result.Taken < 1 || d.Result.Source == ratelimit.SourceFailOpen {
		return
	}
	if status == 0 {
		status = http.StatusOK
	}
	n := min(g.options.Refund(r, status), d.Result.Taken)
	if n < 1 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), refundTimeout) // who hung up gets it back, too
	defer cancel()
	if _, err := g.limiter.(ratelimit.Refunder).Refund(ctx, d.Key, n); err != nil {
		g.log(r.Context(), "units could not be given back", err)
	}
}

// log logs err, once a second at most.
func (g *Guard) log(ctx context.Context, what string, err error) {
	now, last := time.Now().UnixNano(), g.logged.Load()
	if last != 0 && now-last < int64(time.Second) && now >= last || !g.logged.CompareAndSwap(last, now) {
		return
	}
	logger := g.options.Logger
	if logger == nil {
		logger = slog.Default()
	}
	hint := "a limiter over a ratelimit.Fallback goes on limiting while its store is away"
	if !errors.Is(err, ratelimit.ErrStoreUnavailable) {
		hint = "this is no outage: waiting does not help"
	}
	logger.ErrorContext(ctx, "httplimit: "+what, "error", err, "hint", hint)
}
