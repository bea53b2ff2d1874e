package httplimit_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluicego/ratelimit/middleware/httplimit"
)

var noPrefix netip.Prefix

func from(peer string, headers ...string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = peer
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// TestR106Peers: which peers are one client.
func TestR106Peers(t *testing.T) {
	t.Parallel()
	for peer, want := range map[string]string{
		"192.0.2.1:1234":                    "ip=192.0.2.1",
		"192.0.2.1":                         "ip=192.0.2.1", // other middleware leaves out the port
		"[::ffff:192.0.2.1]:80":             "ip=192.0.2.1",
		"[64:ff9b::192.0.2.1]:80":           "ip=192.0.2.1", // NAT64
		"[64:ff9b:1::192.0.2.1]:80":         "ip=64:ff9b:1::c000:201",
		"[2001:db8:1:2::1]:80":              "ip=2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::9]:80":         "ip=2001:db8:1:2::/64",
		"[2001:DB8:1:2:0:0:0:1]:80":         "ip=2001:db8:1:2::/64",
		"[2001:db8:1:3::1]:80":              "ip=2001:db8:1:3::/64",
		"[fe80::1%eth0]:80":                 "ip=fe80::/64",
		"[fe80::1%eth1]:80":                 "ip=fe80::/64",
		"2001:db8::1":                       "ip=2001:db8::/64",
		"[::ffff:192.0.2.1%eth0]:80":        "ip=192.0.2.1",
		"@":                                 "ip=unix",
		"":                                  "ip=unix",
		"/run/app.sock":                     "ip=unix",
		"192.0.2.999:80":                    "ip=unix",
		"[2001:db8:1:2:1.2.3.4.5]:80":       "ip=unix",
		strings.Repeat("9", 1<<16) + ":443": "ip=unix",
	} {
		if got := keyOf(t, httplimit.ByIP(), from(peer)); got != want {
			t.Errorf("peer %.40q: key %q, want %q", peer, got, want)
		}
	}
	for bits, want := range map[int]string{128: "ip=2001:db8:1:2::1", 48: "ip=2001:db8:1::/48", 1: "ip=::/1"} {
		if got := keyOf(t, httplimit.ByIP(httplimit.IPv6Prefix(bits)), from("[2001:db8:1:2::1]:80")); got != want {
			t.Errorf("/%d: key %q, want %q", bits, got, want)
		}
	}
}

func proxies() httplimit.IPOption {
	return httplimit.TrustedProxies(netip.MustParsePrefix("10.1.2.3/8"), netip.MustParsePrefix("2001:db8:ffff::/48"),
		netip.MustParsePrefix("::ffff:172.16.0.0/108"))
}

// TestForwarded: R107 and what else proxies write.
func TestForwarded(t *testing.T) {
	t.Parallel()
	xff := httplimit.ByIP(proxies())
	for _, c := range []struct {
		peer   string
		values []string
		want   string
	}{
		{"10.0.0.1:1", []string{"192.0.2.4:16587"}, "192.0.2.4"}, // R107
		{"10.0.0.1:1", []string{"192.0.2.4"}, "192.0.2.4"},
		{"10.0.0.1:1", []string{"[2001:db8::1]:443"}, "2001:db8::/64"},
		{"10.0.0.1:1", []string{"[2001:db8::1]"}, "2001:db8::/64"},
		{"10.0.0.1:1", []string{"2001:db8::1"}, "2001:db8::/64"},
		{"10.0.0.1:1", []string{" 192.0.2.4\t"}, "192.0.2.4"},
		{"10.0.0.1:1", []string{"192.0.2.4:"}, "192.0.2.4"},
		{"10.0.0.1:1", []string{"192.0.2.999"}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"host:80"}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"192.0.2.4:80x"}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"[192.0.2.4]:80"}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"[2001:db8::1"}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"[2001:db8::1]443"}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"::ffff:192.0.2.4"}, "192.0.2.4"},
		{"10.0.0.1:1", nil, "10.0.0.1"},
		{"10.0.0.1:1", []string{""}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"6.6.6.6, 192.0.2.4"}, "192.0.2.4"}, // from the right
		{"10.0.0.1:1", []string{"6.6.6.6, 192.0.2.4, 10.0.0.2"}, "192.0.2.4"},
		{"10.0.0.1:1", []string{"6.6.6.6", "192.0.2.4", "10.0.0.2"}, "192.0.2.4"},
		{"10.0.0.1:1", []string{"192.0.2.4,10.0.0.2,10.0.0.3"}, "192.0.2.4"},
		{"10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},              // nobody but proxies
		{"10.0.0.1:1", []string{"6.6.6.6, unknown, 10.0.0.2"}, "10.0.0.2"},      // the last good one
		{"10.0.0.1:1", []string{"6.6.6.6, , 10.0.0.2"}, "10.0.0.2"},             // a proxy that knew nobody
		{"10.0.0.1:1", []string{"192.0.2.4, "}, "10.0.0.1"},                     // likewise
		{"[::ffff:10.0.0.1]:1", []string{"192.0.2.4"}, "192.0.2.4"},             // a mapped peer
		{"172.16.9.9:1", []string{"192.0.2.4"}, "192.0.2.4"},                    // a mapped prefix
		{"[2001:db8:ffff::1%eth0]:1", []string{"192.0.2.4"}, "192.0.2.4"},       // a zone
		{"192.0.2.9:1", []string{"192.0.2.4"}, "192.0.2.9"},                     // not trusted
		{"11.0.0.1:1", []string{"10.0.0.1"}, "11.0.0.1"},                        // not trusted
		{"@", []string{"192.0.2.4"}, "unix"},                                    // not trusted
		{"10.0.0.1:1", []string{strings.Repeat("10.0.0.2,", 9999)}, "10.0.0.1"}, // ends with an empty one
		{"10.0.0.1:1", []string{"6.6.6.6" + strings.Repeat(",10.0.0.2", 64)}, "10.0.0.2"},
		{"10.0.0.1:1", []string{"6.6.6.6" + strings.Repeat(",10.0.0.2", 63)}, "6.6.6.6"},
	} {
		r := from(c.peer, "X-Real-IP: 7.7.7.7", "Forwarded: for=8.8.8.8")
		r.Header["X-Forwarded-For"] = c.values
		if got := keyOf(t, xff, r); got != "ip="+c.want {
			t.Errorf("%s: %.60q: key %q, want %q", c.peer, c.values, got, "ip="+c.want)
		}
	}
	rfc := httplimit.ByIP(proxies(), httplimit.AddressHeader("forwarded"))
	for _, c := range []struct{ value, want string }{
		{`for=192.0.2.4`, "192.0.2.4"},
		{`For="192.0.2.4:80"`, "192.0.2.4"},
		{`by=10.0.0.9; for=192.0.2.4 ;proto=https`, "192.0.2.4"},
		{`for="[2001:db8::1]:443"`, "2001:db8::/64"},
		{`for="[2001:db8::1]"`, "2001:db8::/64"},
		{`for="192.0.2.4:_gazonk"`, "192.0.2.4"}, // R107: the port is hidden, the address is not
		{`for="[2001:db8::1]:_a.b-9"`, "2001:db8::/64"},
		{`for="192.0.2.4:_"`, "10.0.0.1"},
		{`for="192.0.2.4:_a b"`, "10.0.0.1"},
		{`for="192.0.2.4:x"`, "10.0.0.1"},
		{`for=6.6.6.6, for=192.0.2.4;proto=http, for=10.0.0.2`, "192.0.2.4"},
		{`for=192.0.2.4;host="a,b;for=6.6.6.6"`, "192.0.2.4"},
		{`for="6.6.6.6, for=192.0.2.4`, "192.0.2.4"},  // half a quote on the left hides nothing
		{`x="6.6.6.6, for=192.0.2.4;x="`, "10.0.0.1"}, // the proxy's own half makes no address
		{`for=6.6.6.6;x=", for=192.0.2.4;host="a\"b"`, "10.0.0.1"},
		{`for=192.0.2.4;for=6.6.6.6`, "10.0.0.1"},
		{`for=unknown`, "10.0.0.1"},
		{`for=_hidden`, "10.0.0.1"},
		{`for=6.6.6.6, for=unknown, for=10.0.0.2`, "10.0.0.2"},
		{`for=6.6.6.6, proto=https`, "10.0.0.1"},
		{`for=`, "10.0.0.1"},
		{`for="`, "10.0.0.1"},
		{`for`, "10.0.0.1"},
		{``, "10.0.0.1"},
		{`192.0.2.4`, "10.0.0.1"},
	} {
		if got := keyOf(t, rfc, from("10.0.0.1:1", "X-Forwarded-For: 7.7.7.7", "Forwarded: "+c.value)); got != "ip="+c.want {
			t.Errorf("%s: key %q, want %q", c.value, got, "ip="+c.want)
		}
	}
}

// TestR109UnixSocket: a peer without an address is a shared key, or a proxy if that is said.
func TestR109UnixSocket(t *testing.T) {
	t.Parallel()
	for _, peer := range []string{"@", ""} {
		for _, c := range []struct {
			options []httplimit.IPOption
			headers []string
			want    string
		}{
			{nil, []string{"X-Forwarded-For: 192.0.2.4", "X-Real-IP: 192.0.2.5"}, "ip=unix"},
			{[]httplimit.IPOption{httplimit.TrustUnix()}, []string{"X-Forwarded-For: 6.6.6.6, 192.0.2.4"}, "ip=192.0.2.4"},
			{[]httplimit.IPOption{httplimit.TrustUnix(), httplimit.AddressHeader("X-Real-IP")}, []string{"X-Real-IP: 192.0.2.5"}, "ip=192.0.2.5"},
			{[]httplimit.IPOption{httplimit.TrustUnix()}, nil, "ip=unix"},
			{[]httplimit.IPOption{httplimit.TrustUnix()}, []string{"X-Forwarded-For: nobody"}, "ip=unix"},
			{[]httplimit.IPOption{httplimit.TrustUnix(), proxies()}, []string{"X-Forwarded-For: 192.0.2.4, 10.0.0.1"}, "ip=192.0.2.4"},
		} {
			if got := keyOf(t, httplimit.ByIP(c.options...), from(peer, c.headers...)); got != c.want {
				t.Errorf("%v: key %q, want %q", c.headers, got, c.want)
			}
		}
	}
	if got := keyOf(t, httplimit.ByIP(httplimit.TrustUnix()), from("192.0.2.1:1", "X-Forwarded-For: 192.0.2.4")); got != "ip=192.0.2.1" {
		t.Errorf("a peer with an address was trusted: key %q", got)
	}
}

// TestWarnsOnce is not parallel: it looks at the default logger.
func TestWarnsOnce(t *testing.T) {
	var log bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(old)
	for _, c := range []struct {
		k    httplimit.KeyFunc
		r    *http.Request
		want string
	}{
		{httplimit.ByIP(), from("192.0.2.1:1", "X-Forwarded-For: 192.0.2.4"), "TrustedProxies"},
		{httplimit.ByIP(), from("192.0.2.1:1", "Forwarded: for=192.0.2.4"), "TrustedProxies"},
		{httplimit.ByIP(), from("@"), "TrustUnix"},
		{httplimit.ByIP(), from("192.0.2.1:1"), ""},
		{httplimit.ByIP(proxies()), from("10.0.0.1:1", "X-Forwarded-For: 192.0.2.4"), ""},
		{httplimit.ByIP(httplimit.TrustUnix()), from("@", "X-Forwarded-For: 192.0.2.4"), ""},
	} {
		log.Reset()
		for range 3 {
			keyOf(t, c.k, c.r)
		}
		n := strings.Count(log.String(), "level=WARN")
		if c.want == "" && n != 0 || c.want != "" && (n != 1 || !strings.Contains(log.String(), c.want)) {
			t.Errorf("%s %v: log %q", c.r.RemoteAddr, c.r.Header, &log)
		}
		if strings.Contains(log.String(), "192.0.2") {
			t.Errorf("the log tells who called: %s", &log)
		}
	}
}

// FuzzForwarded: no address reading panics, and no peer that is not trusted changes its key by anything it sends; behind
// a proxy, nothing left of the address that the proxy wrote does.
func FuzzForwarded(f *testing.F) {
	for _, s := range []string{"192.0.2.4", `for="[2001:db8::1]:80"`, `for="x, for=6.6.6.6`, `a;x="\"`, "[::1]:80", ",,,", "fe80::1%eth0", `";,=`} {
		f.Add("192.0.2.1:80", s, s)
	}
	plain, xff := httplimit.ByIP(), httplimit.ByIP(proxies())
	rfc := httplimit.ByIP(proxies(), httplimit.AddressHeader("Forwarded"))
	f.Fuzz(func(t *testing.T, peer, a, b string) {
		r := from("192.0.2.1:80")
		r.Header["X-Forwarded-For"] = []string{a, b}
		r.Header["Forwarded"] = []string{b, a}
		r.Header["X-Real-Ip"] = []string{a}
		for _, k := range []httplimit.KeyFunc{plain, xff, rfc} {
			if got := keyOf(t, k, r); got != "ip=192.0.2.1" {
				t.Fatalf("key %q", got)
			}
		}
		r.RemoteAddr = "10.0.0.1:80"
		r.Header["X-Forwarded-For"] = []string{a + ", " + "192.0.2.7"}
		r.Header["Forwarded"] = []string{a + `,for="192.0.2.7:80";proto=http`}
		for _, k := range []httplimit.KeyFunc{xff, rfc} {
			if got := keyOf(t, k, r); got != "ip=192.0.2.7" {
				t.Fatalf("behind a proxy: key %q of %q", got, a)
			}
		}
		r.RemoteAddr = peer
		for _, k := range []httplimit.KeyFunc{plain, xff, rfc} {
			if got := keyOf(t, k, r); !strings.HasPrefix(got, "ip=") || len(got) > 64 {
				t.Fatalf("peer %q: key %q", peer, got)
			}
		}
	})
}
