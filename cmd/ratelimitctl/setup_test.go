package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
)

func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(m.Run())
}

// ctl runs a command line, which must end with code, and returns what it prints.
func ctl(t *testing.T, code int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if got := run(t.Context(), args, &out, &errs); got != code {
		t.Fatalf("%q: exit code %d; want %d\n%s%s", args, got, code, &out, &errs)
	}
	return out.String() + errs.String()
}

// has fails the test unless text has each of want, in that order.
func has(t *testing.T, text string, want ...string) {
	t.Helper()
	rest := text
	for _, w := range want {
		_, after, ok := strings.Cut(rest, w)
		if !ok {
			t.Errorf("no %q, or not in this order, in\n%s", w, text)
			return
		}
		rest = after
	}
}

// decode reads what -o json printed, all of whose fields v knows.
func decode(t *testing.T, text string, v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newStore(t *testing.T, o *redis.UniversalOptions) ratelimit.Store {
	t.Helper()
	client := redis.NewUniversalClient(o)
	t.Cleanup(func() { _ = client.Close() })
	store, err := goredisstore.New(client, goredisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func spend(t *testing.T, store ratelimit.Store, key string, limit ratelimit.Limit, n int64) {
	t.Helper()
	res, err := store.Take(t.Context(), ratelimit.Request{Key: key, Limit: &limit, Cost: n})
	if err != nil || !res.Allowed {
		t.Fatalf("%+v, %v", res, err)
	}
}
