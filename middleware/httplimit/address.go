package httplimit

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
)

// An IPOption is how ByIP finds the client's address.
type IPOption func(*byIP)

type byIP struct {
	trusted   []netip.Prefix
	trustUnix bool
	header    string // in canonical form
	bits      int    // of an IPv6 address
	warned    atomic.Bool
}

// TrustedProxies are the peers whose word about where a request came from is taken: the addresses of the load balancers
// and proxies in front, and of nobody else. It panics if a prefix is not valid.
func TrustedProxies(prefixes ...netip.Prefix) IPOption {
	var trusted []netip.Prefix
	for _, p := range prefixes {
		if !p.IsValid() {
			panic("httplimit: a trusted proxy's prefix is not valid")
		}
		if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
		}
		trusted = append(trusted, p.Masked())
	}
	return func(b *byIP) { b.trusted = append(b.trusted, trusted...) }
}

// TrustUnix takes the word of peers on a Unix socket, who have no address.
func TrustUnix() IPOption { return func(b *byIP) { b.trustUnix = true } }

// AddressHeader is the header field in which trusted proxies say where a request came from: X-Forwarded-For unless set;
// Forwarded, of RFC 7239; or one with a single address, such as X-Real-IP or CF-Connecting-IP. Only this one is read, so
// choose the one that the proxies write: a field that they pass on as it came is the client's to fill. It panics if name
// is no name of a header field.
func AddressHeader(name string) IPOption {
	if !token(name) {
		panic("httplimit: AddressHeader of what is no name of a header field")
	}
	return func(b *byIP) { b.header = http.CanonicalHeaderKey(name) }
}

// IPv6Prefix is how many bits of an IPv6 address are one client: 64 unless set, which is what one subscriber gets. It
// panics outside 1 to 128.
func IPv6Prefix(bits int) IPOption {
	if bits < 1 || bits > 128 {
		panic(fmt.Sprintf("httplimit: an IPv6 prefix of %d bits is outside 1 to 128", bits))
	}
	return func(b *byIP) { b.bits = bits }
}

// ByIP is the client's address: that of the peer, unless the peer is trusted. Then the addresses that the proxies noted
// are read from the last to the first, and the first that is not trusted is the client's. Where one cannot be read, the
// last good one stands. So nobody can choose an address for himself, whatever he sends.
//
// IPv4 addresses are whole, IPv6 addresses /64 unless IPv6Prefix says otherwise, without their zone. An IPv4 address
// that is mapped into IPv6, or translated by NAT64 (64:ff9b::/96), is that IPv4 address; an address of a network's own
// NAT64 (64:ff9b:1::/48) is kept whole. Peers without an address, on a Unix socket, are all one key, "ip=unix".
//
// A peer that is not trusted and yet sends X-Forwarded-For or Forwarded is warned of once, through slog: it may be a
// load balancer that TrustedProxies does not name, and then all its clients share one bucket.
func ByIP(options ...IPOption) KeyFunc {
	b := &byIP{header: xForwardedFor, bits: 64}
	for _, o := range options {
		o(b)
	}
	return b.key
}

const (
	xForwardedFor = "X-Forwarded-For"
	forwarded     = "Forwarded"
	unixKey       = "ip=unix"
)

func (b *byIP) key(r *http.Request) (string, error) {
	peer, ok := parseHop(r.RemoteAddr)
	trusted := b.trustUnix
	if ok {
		trusted = b.trusts(peer)
	}
	if !trusted {
		if !b.warned.Load() && (!ok || r.Header[xForwardedFor] != nil || r.Header[forwarded] != nil) {
			b.warn(ok)
		}
		if !ok {
			return unixKey, nil
		}
		return b.name(peer), nil
	}
	client, found := b.walk(r.Header[b.header], peer)
	if !found && !ok {
		return unixKey, nil
	}
	return b.name(client), nil
}

func (b *byIP) trusts(a netip.Addr) bool {
	for _, p := range b.trusted {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func (b *byIP) warn(address bool) {
	if b.warned.Swap(true) {
		return
	}
	if !address {
		slog.Warn("httplimit: peers without an address share one bucket; if they are a proxy on a Unix socket, use TrustUnix")
		return
	}
	slog.Warn("httplimit: a peer that is not trusted says for whom it forwards; if it is a load balancer, name it with " +
		"TrustedProxies, for all its clients share one bucket")
}

// maxHops is how many addresses are read: nobody has more proxies, but a header field has room for thousands.
const maxHops = 64

// walk returns the last address in values, from the right, that a trusted proxy vouches for, beginning with last, whose
// own word is trusted.
func (b *byIP) walk(values []string, last netip.Addr) (client netip.Addr, found bool) {
	cut, parse := cutHop, parseHop
	if b.header == forwarded {
		cut, parse = cutElement, parseElement
	}
	hops := 0
	for i := len(values) - 1; i >= 0; i-- {
		for rest, more := values[i], true; more; {
			var hop string
			if rest, hop, more = cut(rest); hops == maxHops {
				return last, found
			}
			hops++
			addr, ok := parse(hop)
			if !ok {
				return last, found
			}
			last, found = addr, true
			if !b.trusts(addr) {
				return last, true
			}
		}
	}
	return last, found
}

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")
)

// name is the key of an address.
func (b *byIP) name(a netip.Addr) string {
	var room [64]byte
	buf := append(room[:0], "ip="...)
	switch {
	case nat64.Contains(a):
		sixteen := a.As16()
		a = netip.AddrFrom4([4]byte(sixteen[12:]))
	case a.Is6() && b.bits < 128 && !localNAT64.Contains(a):
		p, _ := a.Prefix(b.bits) // within the bounds of an IPv6 address
		return string(p.AppendTo(buf))
	}
	return string(a.AppendTo(buf))
}
