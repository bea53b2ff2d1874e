package ginlimit

import (
	"net/http"
	"net/netip"

	"github.com/sluicego/ratelimit/middleware/httplimit"
)

// unmatched stands for the pattern of requests that no route takes. No pattern of gin begins like that.
const unmatched = "unmatched"

// ByFullPath is the method and the pattern of the route, gin's FullPath, as httplimit.RouteKey has it. gin knows it in
// all middleware, of the engine, a group or a route. Requests that no route takes, whatever their path, are one key for
// each method, so that nobody makes up buckets by making up paths. Outside of gin it is httplimit.ByPattern.
//
// On its own it is one bucket for all callers of a route; httplimit.Join it with the caller's key.
func ByFullPath(r *http.Request) (string, error) {
	c := Context(r.Context())
	if c == nil {
		return httplimit.ByPattern(r)
	}
	if p := c.FullPath(); p != "" {
		return httplimit.RouteKey(r.Method, p), nil
	}
	return httplimit.RouteKey(r.Method, unmatched), nil
}

// ByClientIP is the client's address as gin has it, by Engine.SetTrustedProxies, RemoteIPHeaders and TrustedPlatform, in
// the form of httplimit.ByIP, of whose options IPv6Prefix is of use here. Where gin has none that is an address, the
// peer's own stands.
//
// Unless Engine.SetTrustedProxies was called, gin believes whatever X-Forwarded-For anybody sends, and whoever does may
// choose his bucket: call it, or use httplimit.ByIP, which trusts only the proxies that it is told of.
func ByClientIP(options ...httplimit.IPOption) httplimit.KeyFunc {
	byPeer := httplimit.ByIP(options...)
	return func(r *http.Request) (string, error) {
		client := http.Request{RemoteAddr: r.RemoteAddr}
		if c := Context(r.Context()); c != nil {
			if ip := c.ClientIP(); valid(ip) {
				client.RemoteAddr = ip
			}
		}
		return byPeer(&client)
	}
}

func valid(ip string) bool {
	_, err := netip.ParseAddr(ip)
	return err == nil
}
