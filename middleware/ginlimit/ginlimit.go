// Package ginlimit limits the handlers of gin, as httplimit does those of net/http: it has the same options and writes
// the same header fields and bodies.
//
//	limit := ginlimit.New(limiter, ginlimit.Options{Key: httplimit.ByHeader("X-Api-Key")})
//	router.Use(limit)                  // all routes,
//	router.GET("/search", limit, h)    // or one
package ginlimit

import (
	"bufio"
	"context"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
)

// Options are those of httplimit. Their functions get the request that gin has, and may ask Context for what else it
// knows; what Denied and OnError write by way of gin is as good as by the ResponseWriter.
//
// A nil Key is httplimit.ByIP without a trusted proxy, and not gin's own idea of the client's address: see ByClientIP.
type Options = httplimit.Options

// New returns middleware that asks limiter before each request, and aborts a denied one, so that no later handler runs.
// It panics if limiter is nil or an option is out of its bounds.
func New(limiter ratelimit.Limiter, o Options) gin.HandlerFunc {
	if denied := o.Denied; denied != nil {
		o.Denied = func(w http.ResponseWriter, r *http.Request, res ratelimit.Result) {
			c := Context(r.Context())
			c.Abort() // and so a Next in there runs nothing
			before := c.Writer.Status()
			denied(w, r, res)
			written(w, c, before)
		}
	}
	if onError := o.OnError; onError != nil {
		o.OnError = func(w http.ResponseWriter, r *http.Request, err error) (serve bool) {
			c := Context(r.Context())
			before := c.Writer.Status()
			if serve = onError(w, r, err); !serve {
				written(w, c, before)
			}
			return serve
		}
	}
	guard, refunds := httplimit.NewGuard(limiter, o), o.Refund != nil
	return func(c *gin.Context) {
		r := c.Request.WithContext(context.WithValue(c.Request.Context(), contextKey{}, c))
		d := guard.Decide(r, nil)
		switch {
		case !guard.Write(c.Writer, r, d):
			c.Abort()
		case refunds && !d.Skipped:
			rest(c, func(status int) { guard.Done(r, d, status) })
		}
	}
}

// written tells w of what was written round it. The status before that is 200, or 404 where there is no route.
func written(w http.ResponseWriter, c *gin.Context, before int) {
	if c.Writer.Written() || c.Writer.Status() != before {
		w.WriteHeader(c.Writer.Status())
	}
}

// rest runs the handlers that follow, and done with the status they leave, even if they panic.
func rest(c *gin.Context, done func(status int)) {
	w := &recorder{ResponseWriter: c.Writer}
	c.Writer = w
	panicked := true
	defer func() {
		c.Writer = w.ResponseWriter
		switch {
		case w.hijacked:
			done(http.StatusSwitchingProtocols)
		case panicked && !w.Written():
			done(http.StatusInternalServerError)
		default:
			done(w.Status())
		}
	}()
	c.Next()
	panicked = false
}

// A recorder is gin's ResponseWriter, which knows the status, but not whether the connection was taken over.
type recorder struct {
	gin.ResponseWriter
	hijacked bool
}

func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.ResponseWriter.Hijack()
	w.hijacked = err == nil
	return conn, rw, err
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type contextKey struct{}

// Context returns the gin.Context of a request, whose context ctx is, within the functions of Options; elsewhere nil.
//
//	httplimit.ByUser(func(ctx context.Context) string { return ginlimit.Context(ctx).GetString("user") })
func Context(ctx context.Context) *gin.Context {
	c, _ := ctx.Value(contextKey{}).(*gin.Context)
	return c
}

// WithCost makes requests cost n units at every limiter further in, as httplimit.WithCost does. It panics if n is below
// 0.
func WithCost(n int64) gin.HandlerFunc {
	with := httplimit.WithCost(n)
	return func(c *gin.Context) {
		with(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { c.Request = r })).ServeHTTP(c.Writer, c.Request)
	}
}
