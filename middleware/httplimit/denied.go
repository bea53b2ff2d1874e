package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/sluicego/ratelimit"
)

// quotaExceeded is the problem type of a denial, registered with IANA.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// deny answers a request that was denied, its header fields set.
func (g *Guard) deny(w http.ResponseWriter, r *http.Request, res ratelimit.Result) {
	answerEarly(w, r)
	if g.options.Denied != nil {
		rec := &recorder{ResponseWriter: w}
		if g.options.Denied(rec.writer(), r, res); rec.status != 0 {
			return
		}
	}
	if res.Source == ratelimit.SourceFailClosed {
		writeUnavailable(w, r, "The request could not be checked against its limits, which is required for it.")
		return
	}
	name := string(appendName(nil, res.Name))
	detail := fmt.Sprintf("The limit %s has no room for this request.", name)
	switch {
	case res.Limit == 0:
		detail = "No requests of this kind are admitted."
	case res.RetryAfter == ratelimit.Never:
		detail = fmt.Sprintf("This request costs more than the limit %s can ever hold: it does not help to wait.", name)
	case retrySeconds(&res) == 1:
		detail += " Try again in 1 second."
	default:
		detail += fmt.Sprintf(" Try again in %d seconds.", retrySeconds(&res))
	}
	writeProblem(w, r, http.StatusTooManyRequests, `"type":"`+quotaExceeded+`",`+
		`"title":"Request cannot be satisfied as assigned quota has been exceeded"`, detail, `,"violated-policies":["`+name+`"]`)
}

// writeUnavailable answers a request that nobody could decide about.
func writeUnavailable(w http.ResponseWriter, r *http.Request, detail string) {
	if h := w.Header(); len(h[retryField]) == 0 {
		h[retryField] = []string{"1"}
	}
	writeProblem(w, r, http.StatusServiceUnavailable, `"title":"Service Unavailable"`, detail, "")
}

// writeNoKey answers a request that does not say who is calling.
func writeNoKey(w http.ResponseWriter, r *http.Request, err error) {
	challenge, detail := "ApiKey", "It is not known who is calling."
	var header missingHeader
	if errors.As(err, &header) {
		challenge, detail = `ApiKey header="`+string(header)+`"`, "The header field "+string(header)+" is missing."
		if header == "Authorization" {
			challenge = "Bearer"
		}
	}
	if h := w.Header(); len(h["Www-Authenticate"]) == 0 {
		h["Www-Authenticate"] = []string{challenge}
	}
	writeProblem(w, r, http.StatusUnauthorized, `"title":"Unauthorized"`, detail, "")
}

// writeProblem writes a response of RFC 9457. Its members are texts of this package and names of limits and header
// fields, none of which needs an escape in JSON.
func writeProblem(w http.ResponseWriter, r *http.Request, status int, head, detail, tail string) {
	body := fmt.Sprintf(`{%s,"status":%d,"detail":"%s"%s}`+"\n", head, status, detail, tail)
	answerEarly(w, r)
	h := w.Header()
	h["Content-Type"] = []string{"application/problem+json"}
	h["Cache-Control"] = []string{"no-store"}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte(body)) // the client has hung up, and nobody is left to tell
	}
}

// answerEarly lets the response go before a request's body has come whose length is unknown: over HTTP/1 the server would
// first read up to 256 KiB of it to keep the connection, for as long as the client cares to take. A longer one it does
// not read, and a shorter one mostly is there already.
func answerEarly(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 && r.ContentLength < 0 {
		w.Header()["Connection"] = []string{"close"}
	}
}
