package ratelimit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The small types of this package are texts to people, in JSON and in configuration: what String says is what
// MarshalText writes and UnmarshalText reads.

// errName is a value without a name, or a name without a value.
var errName = errors.New("ratelimit: unknown value")

func nameOf[T ~uint8](kind string, names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(v))
}

func marshalName[T ~uint8](class error, kind string, names []string, v T) ([]byte, error) {
	if int(v) >= len(names) {
		return nil, fmt.Errorf("%w: unknown %s %d", class, kind, uint8(v))
	}
	return []byte(names[v]), nil
}

func unmarshalName[T ~uint8](class error, kind string, names []string, v *T, text []byte) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fmt.Errorf("%w: %s %.40q is none of %s", class, kind, text, strings.Join(names, ", "))
	}
	*v = T(i)
	return nil
}
