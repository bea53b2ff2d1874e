package httplimit

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Parts of a ResponseWriter, each of which notes that it was called.
type (
	flushes struct{ calls *[]string }
	hijacks struct{ calls *[]string }
	reads   struct{ calls *[]string }
	pushes  struct{ calls *[]string }
)

func (f flushes) Flush() { *f.calls = append(*f.calls, "flush") }
func (h hijacks) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	*h.calls = append(*h.calls, "hijack")
	return nil, nil, nil
}

func (r reads) ReadFrom(io.Reader) (int64, error) {
	*r.calls = append(*r.calls, "read")
	return 0, nil
}

func (p pushes) Push(string, *http.PushOptions) error {
	*p.calls = append(*p.calls, "push")
	return nil
}

// only hides what a ResponseRecorder has beside the three methods of a ResponseWriter.
type only struct{ http.ResponseWriter }

// TestWriterKeepsWhatThereIs: each of the sixteen sets of optional interfaces, as a handler sees it.
func TestWriterKeepsWhatThereIs(t *testing.T) {
	t.Parallel()
	var calls []string
	w := only{httptest.NewRecorder()}
	f, h, r, p := flushes{&calls}, hijacks{&calls}, reads{&calls}, pushes{&calls}
	for set, under := range []http.ResponseWriter{
		w,
		struct {
			only
			flushes
		}{w, f},
		struct {
			only
			hijacks
		}{w, h},
		struct {
			only
			flushes
			hijacks
		}{w, f, h},
		struct {
			only
			reads
		}{w, r},
		struct {
			only
			flushes
			reads
		}{w, f, r},
		struct {
			only
			hijacks
			reads
		}{w, h, r},
		struct {
			only
			flushes
			hijacks
			reads
		}{w, f, h, r},
		struct {
			only
			pushes
		}{w, p},
		struct {
			only
			flushes
			pushes
		}{w, f, p},
		struct {
			only
			hijacks
			pushes
		}{w, h, p},
		struct {
			only
			flushes
			hijacks
			pushes
		}{w, f, h, p},
		struct {
			only
			reads
			pushes
		}{w, r, p},
		struct {
			only
			flushes
			reads
			pushes
		}{w, f, r, p},
		struct {
			only
			hijacks
			reads
			pushes
		}{w, h, r, p},
		struct {
			only
			flushes
			hijacks
			reads
			pushes
		}{w, f, h, r, p},
	} {
		calls = nil
		var want []string
		rec := &recorder{ResponseWriter: under}
		got := rec.writer()
		if u, ok := got.(interface{ Unwrap() http.ResponseWriter }); !ok || u.Unwrap() != under {
			t.Errorf("set %d does not unwrap", set)
		}
		if f, ok := got.(http.Flusher); ok {
			f.Flush()
		}
		if h, ok := got.(http.Hijacker); ok {
			_, _, _ = h.Hijack()
		}
		if r, ok := got.(io.ReaderFrom); ok {
			_, _ = r.ReadFrom(strings.NewReader(""))
		}
		if p, ok := got.(http.Pusher); ok {
			_ = p.Push("/", nil)
		}
		for i, name := range []string{"flush", "hijack", "read", "push"} {
			if set>>i&1 != 0 {
				want = append(want, name)
			}
		}
		if fmt.Sprint(calls) != fmt.Sprint(want) {
			t.Errorf("set %d: calls %v, want %v", set, calls, want)
		}
	}
}

func TestRecorderStatus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f    func(http.ResponseWriter)
		want int
	}{
		"nothing":       {func(http.ResponseWriter) {}, 0},
		"write":         {func(w http.ResponseWriter) { _, _ = w.Write(nil) }, 200},
		"status":        {func(w http.ResponseWriter) { w.WriteHeader(404) }, 404},
		"the first":     {func(w http.ResponseWriter) { w.WriteHeader(404); w.WriteHeader(500) }, 404},
		"early hints":   {func(w http.ResponseWriter) { w.WriteHeader(103); w.WriteHeader(404) }, 404},
		"upgrade":       {func(w http.ResponseWriter) { w.WriteHeader(101) }, 101},
		"flush":         {func(w http.ResponseWriter) { w.(http.Flusher).Flush(); w.WriteHeader(404) }, 200},
		"by controller": {func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }, 200},
	} {
		rec := &recorder{ResponseWriter: httptest.NewRecorder()}
		c.f(rec.writer())
		if rec.status != c.want {
			t.Errorf("%s: status %d, want %d", name, rec.status, c.want)
		}
	}
}
