package httplimit

import (
	"errors"
	"net/http"

	"github.com/sluicego/ratelimit"
)

// FailOpen is an Options.OnError that serves requests while the store is away, without any limit. It serves on nothing
// else: a key that is missing, a store that refuses, a cost below zero are answered as if OnError were nil.
func FailOpen(_ http.ResponseWriter, _ *http.Request, err error) (serve bool) {
	return errors.Is(err, ratelimit.ErrStoreUnavailable)
}

// failClosed is OnError's default. It writes nothing, so that failed writes what is due.
func failClosed(http.ResponseWriter, *http.Request, error) bool { return false }

// failed answers a request about which there is no decision, or tells to serve it.
func (g *Guard) failed(w http.ResponseWriter, r *http.Request, err error) (serve bool) {
	noKey := errors.Is(err, ErrNoKey)
	if r.Context().Err() == nil {
		if !noKey {
			g.log(r.Context(), "no decision about a request", err)
		}
		rec := &recorder{ResponseWriter: w}
		if g.options.OnError(rec.writer(), r, err) {
			return true
		}
		if rec.status != 0 {
			return false
		}
	}
	if noKey {
		writeNoKey(w, r, err)
	} else {
		writeUnavailable(w, r, "The request could not be checked against its limits.")
	}
	return false
}
