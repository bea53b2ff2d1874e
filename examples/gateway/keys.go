package main

import (
	"net/http"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/middleware/httplimit"
)

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

// denied answers tenants who are shut out altogether, by a rule of mode deny-all: waiting does not help them. All else is
// httplimit's to answer.
func denied(w http.ResponseWriter, _ *http.Request, res ratelimit.Result) {
	if res.Limit == 0 && res.RetryAfter == ratelimit.Never {
		http.Error(w, "Access is suspended.", http.StatusForbidden)
	}
}
