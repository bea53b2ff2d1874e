// Package chilimit keys limits by the route patterns of chi. The middleware itself is httplimit's, which chi takes as it
// stands:
//
//	limit := httplimit.New(limiter, httplimit.Options{
//		Key: httplimit.Join(httplimit.ByHeader("X-Api-Key"), chilimit.ByRoutePattern()),
//	})
//	r.Use(limit)
package chilimit

import (
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/sluicego/ratelimit/middleware/httplimit"
)

// unmatched stands for the pattern of requests that no route takes. No pattern of chi begins like that.
const unmatched = "unmatched"

// ByRoutePattern is the method and the whole pattern of the route that will serve the request, as httplimit.RouteKey has
// it: "/items/{id}" under whatever it is mounted on. chi itself has the whole pattern only once it has routed; so from a
// router's Use, a Group, a sub-router or round a Mount, what is still to come is looked up in the routes ahead. The key of
// a route is the same wherever the limiter stands.
//
// Requests that no route takes, whatever their path, are one key for each method, so that nobody makes up buckets by
// making up paths. Middleware that changes how chi routes, such as StripSlashes, CleanPath or an override of the method,
// belongs outside the limiter, or it sees another route. What is mounted and is no chi router is one route. Outside of any
// chi router this is httplimit.ByPattern.
//
// On its own it is one bucket for all callers of a route; Join it with the caller's key. What it returns remembers which
// routers are mounted where, so routers must be complete when they begin to serve.
func ByRoutePattern() httplimit.KeyFunc {
	var m mounts
	return func(r *http.Request) (string, error) {
		rctx := chi.RouteContext(r.Context())
		if rctx == nil || rctx.Routes == nil {
			return httplimit.ByPattern(r)
		}
		method := rctx.RouteMethod
		if method == "" {
			method = r.Method
		}
		patterns, ok := m.patterns(rctx, method, r)
		if !ok && method == http.MethodHead { // which chi's GetHead, further in, may make a GET
			patterns, ok = m.patterns(rctx, http.MethodGet, r)
		}
		if !ok {
			return httplimit.RouteKey(method, unmatched), nil
		}
		return httplimit.RouteKey(method, join(patterns)), nil
	}
}

// join is the pattern that those of a chain of routers make together, in one spelling.
func join(patterns []string) string {
	p := (&chi.Context{RoutePatterns: patterns}).RoutePattern()
	for strings.Contains(p, "//") {
		p = strings.ReplaceAll(p, "//", "/")
	}
	return p
}

// mounts are the routers that are mounted on a *chi.Mux, by pattern. chi lists them at the price of all of its routes.
type mounts struct{ byMux sync.Map }

// patterns are those of all routers between the root and the handler: the ones that have been passed, then the ones ahead.
func (m *mounts) patterns(rctx *chi.Context, method string, r *http.Request) (patterns []string, ok bool) {
	patterns = rctx.RoutePatterns[:len(rctx.RoutePatterns):len(rctx.RoutePatterns)]
	router := m.descend(rctx.Routes, patterns)
	for path := nextPath(rctx, r); router != nil; path = "/" {
		ahead := chi.NewRouteContext()
		if !router.Match(ahead, method, path) || len(ahead.RoutePatterns) == 0 {
			return nil, false
		}
		patterns = append(patterns, ahead.RoutePatterns...)
		router = m.descend(router, ahead.RoutePatterns) // not nil where a mount's own path stands for the "/" in it
	}
	return patterns, true
}

// nextPath is what the router reads that is next to route.
func nextPath(rctx *chi.Context, r *http.Request) string {
	if len(rctx.RoutePatterns) > 0 { // in a mount or round it
		if last := len(rctx.URLParams.Keys) - 1; !strings.HasSuffix(rctx.RoutePatterns[len(rctx.RoutePatterns)-1], "*") {
			return "/"
		} else if last >= 0 && rctx.URLParams.Keys[last] == "*" && rctx.URLParams.Values[last] != "" {
			return "/" + rctx.URLParams.Values[last] // round it: chi has not cut it off yet
		}
	}
	for _, path := range [...]string{rctx.RoutePath, r.URL.RawPath, r.URL.Path} {
		if path != "" {
			return path
		}
	}
	return "/"
}

// descend returns the router that is reached over patterns, or nil if what is reached is no router.
func (m *mounts) descend(router chi.Routes, patterns []string) chi.Routes {
	for _, p := range patterns {
		if router = m.of(router)[p]; router == nil {
			return nil
		}
	}
	return router
}

func (m *mounts) of(router chi.Routes) map[string]chi.Routes {
	mux, ok := router.(*chi.Mux)
	if !ok {
		return mounted(router)
	}
	known, ok := m.byMux.Load(mux)
	if !ok {
		known, _ = m.byMux.LoadOrStore(mux, mounted(mux))
	}
	return known.(map[string]chi.Routes)
}

// mounted lists the routers mounted on router. One that is mounted on "/api" answers for "/api", "/api/" and "/api/*",
// unless the first two have routes of their own.
func mounted(router chi.Routes) map[string]chi.Routes {
	all, own := make(map[string]chi.Routes), make(map[string]chi.Routes)
	for _, route := range router.Routes() {
		if own[route.Pattern] = route.SubRoutes; route.SubRoutes != nil {
			slash := strings.TrimSuffix(route.Pattern, "*")
			all[slash], all[strings.TrimSuffix(slash, "/")] = route.SubRoutes, route.SubRoutes
		}
	}
	maps.Copy(all, own)
	return all
}
