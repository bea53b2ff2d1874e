package lua

import (
	"strings"

	"github.com/sluicego/ratelimit"
)

// A failure is a driver's error under one of ratelimit's. Its text is cut where a server quotes arguments, for those
// carry the key.
type failure struct {
	class error
	text  string
	err   error
}

func (f *failure) Error() string   { return f.class.Error() + ": " + f.text }
func (f *failure) Unwrap() []error { return []error{f.class, f.err} }

// Unavailable wraps an error of the network or the driver in ErrStoreUnavailable.
func Unavailable(err error) error {
	return &failure{class: ratelimit.ErrStoreUnavailable, text: err.Error(), err: err}
}

// outages are the codes of error replies that pass by themselves or with the server's repair.
var outages = []string{
	"LOADING", "BUSY", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "OOM", "TRYAGAIN", "MOVED", "ASK", "NOSCRIPT",
	"NOREPLICAS", "MISCONF", "UNKILLABLE", "NOTBUSY", "ERR max number of clients",
}

// Refused wraps an error reply of the server: in ErrStoreUnavailable if it is an outage, in ErrCrossSlot, or in
// ErrMisconfigured, which is all the rest.
func Refused(err error) error {
	text, _, _ := strings.Cut(err.Error(), ", with args")
	text, _, _ = strings.Cut(text, "\n")
	f := &failure{class: ratelimit.ErrMisconfigured, text: text, err: err}
	// Before Redis 7 an error inside a script was quoted in one about the script.
	inner := text
	if _, after, ok := strings.Cut(text, "user_script:"); ok && strings.HasPrefix(text, "ERR Error running script") {
		inner = strings.TrimLeft(after, "0123456789: @_abcdefghijklmnopqrstuvwxyz-")
	}
	if strings.HasPrefix(inner, "CROSSSLOT") {
		f.class = ratelimit.ErrCrossSlot
	}
	for _, code := range outages {
		if strings.HasPrefix(inner, code) {
			f.class = ratelimit.ErrStoreUnavailable
		}
	}
	if strings.Contains(text, "deterministic") || strings.Contains(text, "not allowed from script") {
		f.text += " (this server refuses TIME in scripts that write: set Options.Clock)"
	}
	return f
}

// NoScript tells whether an error reply asks for EVAL in place of EVALSHA.
func NoScript(text string) bool { return strings.HasPrefix(text, "NOSCRIPT") }
