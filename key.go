package ratelimit

import "strings"

// Key joins parts into one key. The first part becomes the Redis hash tag, so all keys of one client live on one node
// and may be decided together, and clients spread over the nodes: Key("user-123", "search", "v1") is
// "{user-123}:search:v1". Put the client first: a first part that everyone shares, such as a version or a route, puts
// all traffic on one node.
//
// Braces, colons and percent signs inside parts are escaped, and an empty part has an escape of its own, so different
// parts never make the same key. Key() is "", which every Store refuses with ErrInvalidKey.
//
// A raw key, one that Key did not make, stands for itself as a whole: "abc" is the same key as Key("abc"). A raw key
// that happens to have the shape of Key's result is taken as that key, so user input always goes through Key.
func Key(parts ...string) string {
	if len(parts) == 0 {
		return ""
	}
	size := 2
	for _, p := range parts {
		size += len(p) + 1
	}
	b := make([]byte, 0, size)
	b = append(b, '{')
	b = appendPart(b, parts[0], partEscapes)
	b = append(b, '}')
	for _, p := range parts[1:] {
		b = append(b, ':')
		b = appendPart(b, p, partEscapes)
	}
	return string(b)
}

// SplitKey undoes Key: first is the first part, rest the others joined by colons; ok tells whether key has the shape
// of Key's result. It allocates only where something was escaped.
func SplitKey(key string) (first, rest string, ok bool) {
	tag, tail, ok := shape(key)
	if !ok {
		return "", "", false
	}
	return unescape(tag), unescape(tail), true
}

// AppendKey appends to b the form of key that has a hash tag, for stores that need one: a result of Key as it is, any
// other key wrapped in braces as a whole. Different keys never append the same bytes, but for "abc" and Key("abc"),
// which are the same key.
func AppendKey(b []byte, key string) []byte {
	if _, _, ok := shape(key); ok {
		return append(b, key...)
	}
	b = append(b, '{')
	b = appendPart(b, key, wrapEscapes)
	return append(b, '}')
}

// BareKey returns the form of key that stores without hash tags keep: Key("abc") and "abc" are both "abc", every other
// key is itself. It allocates only where a brace or a percent sign was escaped.
func BareKey(key string) string {
	if key == "" || key[0] != '{' || key[len(key)-1] != '}' {
		return key
	}
	tag, tail, ok := shape(key)
	if !ok || tail != "" || tag == emptyPart || strings.Contains(tag, colon) {
		return key // a raw key of what it stands for is another key
	}
	bare := unescape(tag)
	if _, _, shaped := shape(bare); shaped {
		return key // likewise
	}
	return bare
}

// SameTag tells whether two keys share their hash tag, so that a Redis Cluster can decide them together.
func SameTag(a, b string) bool { return hashTag(a) == hashTag(b) }

func hashTag(key string) string {
	if tag, _, ok := shape(key); ok {
		return tag
	}
	if strings.ContainsAny(key, wrapEscapes) {
		return string(appendPart(nil, key, wrapEscapes))
	}
	return key
}

const (
	partEscapes = "{}%:" // what a part of a key may not hold as it is
	wrapEscapes = "{}%"  // a raw key wrapped as a whole keeps its colons, which no part has
	emptyPart   = "%0"
	colon       = "%3A" // can stand in a part for nothing else: the percent sign of any other is escaped
)

func appendPart(b []byte, part, escapes string) []byte {
	if part == "" {
		return append(b, emptyPart...)
	}
	for {
		i := strings.IndexAny(part, escapes)
		if i < 0 {
			return append(b, part...)
		}
		const hex = "0123456789ABCDEF"
		b = append(b, part[:i]...)
		b = append(b, '%', hex[part[i]>>4], hex[part[i]&15])
		part = part[i+1:]
	}
}

// shape cuts a result of Key into what its braces hold and what follows "}:", both still escaped.
func shape(key string) (tag, tail string, ok bool) {
	if key == "" || key[0] != '{' {
		return "", "", false
	}
	end := strings.IndexByte(key, '}')
	if end < 0 || !escaped(key[1:end]) {
		return "", "", false
	}
	tag, tail = key[1:end], key[end+1:]
	if tail == "" {
		return tag, "", true
	}
	if tail[0] != ':' {
		return "", "", false
	}
	tail = tail[1:]
	for part := range strings.SplitSeq(tail, ":") {
		if !escaped(part) {
			return "", "", false
		}
	}
	return tag, tail, true
}

// escaped tells whether s is what appendPart writes for some part: no byte that needed an escape, and every percent
// sign followed by one of its escapes.
func escaped(s string) bool {
	if s == "" || s == emptyPart {
		return s == emptyPart
	}
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '{', '}', ':':
			return false
		case '%':
			if _, ok := escapeAt(s, i); !ok {
				return false
			}
			i += 2
		}
	}
	return true
}

func escapeAt(s string, i int) (c byte, ok bool) {
	if len(s) < i+3 {
		return 0, false
	}
	switch s[i : i+3] {
	case "%7B":
		return '{', true
	case "%7D":
		return '}', true
	case "%3A":
		return ':', true
	case "%25":
		return '%', true
	}
	return 0, false
}

func unescape(s string) string {
	i := strings.IndexByte(s, '%')
	if i < 0 {
		return s
	}
	b := append(make([]byte, 0, len(s)), s[:i]...)
	for ; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if c, ok := escapeAt(s, i); ok {
			b = append(b, c)
			i += 2
		} else {
			i++ // an empty part
		}
	}
	return string(b)
}
