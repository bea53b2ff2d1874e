package rueidisstore

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/redis/rueidis"

	"github.com/sluicego/ratelimit/lua"
)

// classify wraps an error of rueidis in the one of ratelimit that it is.
func classify(err error) error {
	var reply *rueidis.RedisError
	switch {
	case errors.As(err, &reply):
		return lua.Refused(refusal{reply})
	case errors.Is(err, rueidis.ErrNoCache): // the server lacks what the client's options ask for
		return lua.Refused(err)
	case errors.Is(err, errPanic), errors.Is(err, errGone):
		return err
	}
	return lua.Unavailable(err)
}

// errPanic is a fault of the client's or of a hook of its, and no outage. errGone is one that ended the goroutine.
var (
	errPanic = errors.New("rueidisstore: the Redis client or a hook of it panicked")
	errGone  = errors.New("rueidisstore: a hook of the Redis client ended the goroutine")
)

// panicked turns what recover returned into an error. What may hold a key is left out of the text.
func panicked(p any) error {
	if err, ok := p.(runtime.Error); ok {
		return fmt.Errorf("%w: %w", errPanic, err)
	}
	return fmt.Errorf("%w with a %T", errPanic, p)
}

// A refusal is an error reply with the code "ERR" again, which rueidis takes off.
type refusal struct{ reply *rueidis.RedisError }

func (r refusal) Unwrap() error { return r.reply }

func (r refusal) Error() string {
	text := r.reply.Error()
	code, _, _ := strings.Cut(text, " ")
	if r.reply.IsNil() || code == strings.ToUpper(code) {
		return text
	}
	return "ERR " + text
}
