package main

import (
	"net/http"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
)

// guard lets through what there is room for.
func guard(limiter ratelimit.Limiter, t tenants) func(http.Handler) http.Handler {
	return httplimit.New(limiter, httplimit.Options{
		Key:  keys(t, routes),
		Skip: func(*http.Request) bool { return false }, // browsers' preflight requests, which have no API key, get no further
	})
}

// keys says whose limit a request spends from. Without an API key that we gave out there is none, and the answer is 401:
// keys that somebody makes up get no buckets.
func keys(t tenants, routes routeTable) httplimit.KeyFunc {
	return func(r *http.Request) (string, error) {
		tenant, ok := t.of(r)
		if !ok {
			return "", httplimit.ErrNoKey
		}
		return ratelimit.Key(tenant, routes.of(r)), nil
	}
}
