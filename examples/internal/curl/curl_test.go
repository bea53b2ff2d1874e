package curl

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluicego/ratelimit/examples/internal/program"
)

// TestPlay: a promise that is not kept is an error that names it.
func TestPlay(t *testing.T) {
	t.Parallel()
	run := func(ctx context.Context, args []string, ready func(string)) error {
		return program.Serve(ctx, args[1], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, _, _ := r.BasicAuth()
			w.Header().Set("Got", r.Method+" "+r.URL.Path+" "+r.Header.Get("A-Field")+" "+user)
			w.Header().Set("Retry-After", "28")
			w.WriteHeader(429)
		}), ready)
	}
	for line, wrong := range map[string]string{
		"curl -i -X POST -u ann:x -H 'A-Field: a b' localhost:8080/p   # 429, Got: POST /p a b ann, Retry-After: 30, no Other": "",
		"curl localhost:8080/   # 200":                  "200",
		"curl localhost:8080/   # 429, Got: nothing":    "Got: nothing",
		"curl localhost:8080/   # 429, no Got":          "no Got",
		"curl localhost:8080/   # 429, Retry-After: 27": "Retry-After: 27",
		"curl localhost:8080/   # 429, Retry-After: 40": "Retry-After: 40",
		"curl localhost:8080/":                          "not as promised",
		"curl -Z 1 localhost:8080/   # 429":             "-Z",
		"curl elsewhere/   # 429":                       "no URL",
		"curl -i":                                       "no URL",
		"wget localhost:8080/":                          "no curl lines",
	} {
		file := filepath.Join(t.TempDir(), "main.go")
		if err := os.WriteFile(file, []byte("//\t"+line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		err := Play(file, run)
		if wrong == "" && err != nil || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("%s: %v, want an error with %q", line, err, wrong)
		}
	}
}
