package httplimit

import (
	"net/netip"
	"strings"
)

// parseHop reads an address as servers and proxies write it: with a port or without, in brackets or not. The result has
// no zone, and is IPv4 if that was mapped into IPv6.
func parseHop(s string) (netip.Addr, bool) {
	if s = trimBlanks(s); s == "" {
		return netip.Addr{}, false
	}
	host, port := s, ""
	if s[0] == '[' {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return netip.Addr{}, false
		}
		host, port = s[1:end], s[end+1:]
		if strings.IndexByte(host, ':') < 0 {
			return netip.Addr{}, false
		}
	} else if i := strings.IndexByte(s, ':'); i >= 0 && strings.IndexByte(s[i+1:], ':') < 0 {
		host, port = s[:i], s[i:] // one colon: IPv4 and a port
	}
	if port != "" && (port[0] != ':' || !digits(port[1:]) && !obfuscated(port[1:])) {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, false
	}
	return a.WithZone("").Unmap(), true
}

// trimBlanks cuts spaces and tabs off both ends, several times as fast as strings.Trim.
func trimBlanks(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// digits tells whether s is of digits alone, or empty.
func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// obfuscated tells whether s is a port as RFC 7239 lets a proxy hide it: "_" and a name.
func obfuscated(s string) bool {
	if len(s) < 2 || s[0] != '_' {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// cutHop cuts the last address off a list such as that of X-Forwarded-For; more tells whether there are others.
func cutHop(list string) (rest, hop string, more bool) {
	i := strings.LastIndexByte(list, ',')
	if i < 0 {
		return "", list, false
	}
	return list[:i], list[i+1:], true
}

// cutElement cuts the last element off a Forwarded field. It looks for the comma from the right, so that an open quote
// further left, where anybody may write, hides nothing that a trusted proxy has written.
func cutElement(list string) (rest, element string, more bool) {
	quoted := false
	for i := len(list) - 1; i >= 0; i-- {
		switch {
		case list[i] == '"':
			quoted = !quoted
		case list[i] == ',' && !quoted:
			return list[:i], list[i+1:], true
		}
	}
	return "", list, false
}

// parseElement reads the address of a Forwarded element: the value of its one parameter "for". What is obfuscated, is
// unknown or has a backslash, which no address has, is no address.
func parseElement(element string) (a netip.Addr, ok bool) {
	if strings.IndexByte(element, '\\') >= 0 {
		return a, false
	}
	for more := true; more; {
		var pair string
		pair, element, more = cutPair(element)
		name, value, _ := strings.Cut(pair, "=")
		if !strings.EqualFold(trimBlanks(name), "for") {
			continue
		}
		if ok {
			return netip.Addr{}, false // twice
		}
		value = trimBlanks(value)
		if strings.HasPrefix(value, `"`) {
			if len(value) < 2 || value[len(value)-1] != '"' {
				return netip.Addr{}, false
			}
			value = value[1 : len(value)-1]
		}
		if a, ok = parseHop(value); !ok {
			return netip.Addr{}, false
		}
	}
	return a, ok
}

// cutPair cuts the first parameter off an element.
func cutPair(element string) (pair, rest string, more bool) {
	quoted := false
	for i := range len(element) {
		switch {
		case element[i] == '"':
			quoted = !quoted
		case element[i] == ';' && !quoted:
			return element[:i], element[i+1:], true
		}
	}
	return element, "", false
}
