package httplimit

import (
	"context"
	"fmt"
	"net/http"
)

type costKey struct{}

// WithCost returns middleware that makes requests cost n units at every limiter further in whose Options.Cost is nil. 0
// is free: limits are looked at and reported. It panics if n is below 0.
//
//	mux.Handle("GET /search", limit(search))
//	mux.Handle("GET /export", httplimit.WithCost(5)(limit(export)))
func WithCost(n int64) func(http.Handler) http.Handler {
	if n < 0 {
		panic(fmt.Sprintf("httplimit: a cost of %d is below 0", n))
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), costKey{}, n)))
		})
	}
}

// ContextCost is what the innermost WithCost round r said, or 1 if there is none.
func ContextCost(r *http.Request) int64 {
	if n, ok := r.Context().Value(costKey{}).(int64); ok {
		return n
	}
	return 1
}

// CostByLength is an Options.Cost: one unit for each unit bytes of the request's body or part of them, at least one. A
// body of unknown length costs unknown units. It panics if unit is below 1 or unknown below 0.
func CostByLength(unit, unknown int64) func(*http.Request) int64 {
	if unit < 1 || unknown < 0 {
		panic(fmt.Sprintf("httplimit: a unit of %d bytes is below 1, or an unknown length's cost of %d below 0", unit, unknown))
	}
	return func(r *http.Request) int64 {
		if r.ContentLength < 0 {
			return unknown
		}
		return max(1, (r.ContentLength-1)/unit+1)
	}
}
