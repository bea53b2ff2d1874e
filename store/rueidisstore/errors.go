package rueidisstore

import (
	"errors"
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
	}
	return lua.Unavailable(err)
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
