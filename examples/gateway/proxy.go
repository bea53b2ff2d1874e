package main

import (
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"
)

// ours are header fields that tell of the gateway's limits. What an upstream says of its own would be added to them.
var ours = []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit", "RateLimit-Policy"}

// proxy forwards requests to the upstream, with the tenant's name in place of its API key.
func proxy(upstream *url.URL, t tenants) http.Handler {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 256 // all connections are to one host
	transport.ResponseHeaderTimeout = 30 * time.Second             // an upstream that hangs is a 502
	return &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			r.SetXForwarded()
			tenant, _ := t.of(r.In)
			r.Out.Header.Set("X-Tenant", tenant)
			r.Out.Header.Del(apiKey)
		},
		ModifyResponse: func(res *http.Response) error {
			for _, field := range ours {
				res.Header.Del(field)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil { // else the client has gone
				slog.Error("gateway: upstream", "error", err)
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}
}
