package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// A recorder is a ResponseWriter that remembers the status. It stands between a handler and the server only where
// somebody has to know the status.
type recorder struct {
	http.ResponseWriter
	status int // 0: nothing has been written
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		r.wrote(status)
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	r.wrote(http.StatusOK)
	return r.ResponseWriter.Write(b)
}

// wrote notes the status, which is the first that is written.
func (r *recorder) wrote(status int) {
	if r.status == 0 {
		r.status = status
	}
}

// What a ResponseWriter may also be. Each is a part of the writer that handlers get, if the server's has it.
type (
	flusher    struct{ r *recorder }
	hijacker   struct{ r *recorder }
	readerFrom struct{ r *recorder }
	pusher     struct{ r *recorder }
)

func (f flusher) Flush() { _ = f.FlushError() }

func (f flusher) FlushError() error {
	f.r.wrote(http.StatusOK)
	return http.NewResponseController(f.r.ResponseWriter).Flush()
}

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := h.r.ResponseWriter.(http.Hijacker).Hijack()
	if err == nil {
		h.r.wrote(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

func (f readerFrom) ReadFrom(src io.Reader) (int64, error) {
	n, err := f.r.ResponseWriter.(io.ReaderFrom).ReadFrom(src)
	if n > 0 { // what copies nothing writes no status
		f.r.wrote(http.StatusOK)
	}
	return n, err
}

func (p pusher) Push(target string, o *http.PushOptions) error {
	return p.r.ResponseWriter.(http.Pusher).Push(target, o)
}

// writer is r as a handler gets it: with the optional interfaces that the writer under it has, and no others.
func (r *recorder) writer() http.ResponseWriter {
	const flush, hijack, read, push = 1, 2, 4, 8
	has := 0
	if _, ok := r.ResponseWriter.(http.Flusher); ok {
		has |= flush
	}
	if _, ok := r.ResponseWriter.(http.Hijacker); ok {
		has |= hijack
	}
	if _, ok := r.ResponseWriter.(io.ReaderFrom); ok {
		has |= read
	}
	if _, ok := r.ResponseWriter.(http.Pusher); ok {
		has |= push
	}
	f, h, rf, p := flusher{r}, hijacker{r}, readerFrom{r}, pusher{r}
	switch has {
	case flush:
		return struct {
			*recorder
			flusher
		}{r, f}
	case hijack:
		return struct {
			*recorder
			hijacker
		}{r, h}
	case flush | hijack:
		return struct {
			*recorder
			flusher
			hijacker
		}{r, f, h}
	case read:
		return struct {
			*recorder
			readerFrom
		}{r, rf}
	case flush | read:
		return struct {
			*recorder
			flusher
			readerFrom
		}{r, f, rf}
	case hijack | read:
		return struct {
			*recorder
			hijacker
			readerFrom
		}{r, h, rf}
	case flush | hijack | read: // HTTP/1
		return struct {
			*recorder
			flusher
			hijacker
			readerFrom
		}{r, f, h, rf}
	case push:
		return struct {
			*recorder
			pusher
		}{r, p}
	case flush | push: // HTTP/2
		return struct {
			*recorder
			flusher
			pusher
		}{r, f, p}
	case hijack | push:
		return struct {
			*recorder
			hijacker
			pusher
		}{r, h, p}
	case flush | hijack | push:
		return struct {
			*recorder
			flusher
			hijacker
			pusher
		}{r, f, h, p}
	case read | push:
		return struct {
			*recorder
			readerFrom
			pusher
		}{r, rf, p}
	case flush | read | push:
		return struct {
			*recorder
			flusher
			readerFrom
			pusher
		}{r, f, rf, p}
	case hijack | read | push:
		return struct {
			*recorder
			hijacker
			readerFrom
			pusher
		}{r, h, rf, p}
	case flush | hijack | read | push:
		return struct {
			*recorder
			flusher
			hijacker
			readerFrom
			pusher
		}{r, f, h, rf, p}
	}
	return r
}
