package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/examples/internal/curl"
	"github.com/sluicego/ratelimit/rules"
	"github.com/sluicego/ratelimit/store/memstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

func TestCurl(t *testing.T) {
	if err := curl.Play("main.go", run, "-memory"); err != nil {
		t.Error(err)
	}
}

// TestMadeUpKeys: keys that nobody gave out are 401, and leave nothing in Redis.
func TestMadeUpKeys(t *testing.T) {
	redis := redisserver.Single(t)
	p := start(t, "-redis", redis.Addr)
	size := func() string {
		t.Helper()
		n, err := redis.Do("DBSIZE")
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(n)
	}
	for i := range 30 {
		res, err := order(p, fmt.Sprintf("made-up-%d", i), "")
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != http.StatusUnauthorized || res.Header.Get("WWW-Authenticate") == "" {
			t.Fatalf("%d, %v", res.StatusCode, res.Header)
		}
	}
	if n := size(); n != "0" {
		t.Errorf("keys that were made up left %s keys in Redis", n)
	}
	if res, err := order(p, "demo-a", ""); err != nil || res.StatusCode != http.StatusOK || size() != "1" {
		t.Errorf("%v, %v, %s keys", res, err, size())
	}
	p.stop()
}

// TestAlone: with neither Redis nor PostgreSQL a gateway starts, and limits by the default rule.
func TestAlone(t *testing.T) {
	const nobody = "127.0.0.1:1"
	p := start(t, "-redis", nobody, "-postgres", "postgres://"+nobody+"/limits")
	var ok, denied int
	for range 40 {
		res, err := order(p, "demo-a", "")
		switch {
		case err != nil:
			t.Fatal(err)
		case res.StatusCode == http.StatusOK:
			ok++
		case res.StatusCode == http.StatusTooManyRequests && res.Header.Get("Retry-After") != "":
			denied++
		}
	}
	if ok < 20 || denied == 0 || ok+denied != 40 {
		t.Errorf("%d admitted, %d denied", ok, denied)
	}
	if s := p.state(); s.Decisions.Fallback != 40 || s.RulesAge != "never loaded" || s.Listening {
		t.Errorf("%+v", s)
	}
	p.stop()
}

// TestShutdown: a request that has begun comes to its end.
func TestShutdown(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-release
		fmt.Fprint(w, "done")
	}))
	defer upstream.Close()
	p := start(t, "-memory", "-upstream", upstream.URL)
	got := make(chan string, 1)
	go func() {
		res, err := order(p, "demo-a", "")
		if err != nil {
			got <- err.Error()
			return
		}
		got <- res.Status
	}()
	<-begun
	if err := p.os.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	within(t, patience, "no new connections", func() bool {
		_, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + p.address)
		return err != nil
	})
	close(release)
	if status := <-got; status != "200 OK" {
		t.Error(status)
	}
	p.ended()
}

// TestAdmin: the kill switch, and why somebody is blocked.
func TestAdmin(t *testing.T) {
	p := start(t, "-memory")
	post := func(query string) int {
		t.Helper()
		res, err := client.Post("http://"+p.admin+"/enabled?"+query, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	burst := func() (ok int) {
		t.Helper()
		for range 50 {
			res, err := order(p, "demo-a", "")
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode == http.StatusOK {
				ok++
			}
		}
		return ok
	}
	if ok := burst(); ok == 50 {
		t.Error("no limit")
	}
	res, err := client.Get("http://" + p.admin + "/explain?tenant=shop-a&route=create-order")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || !strings.Contains(string(text), `"From": "default"`) || !strings.Contains(string(text), `"Limit": 20`) {
		t.Errorf("%v: %s", err, text)
	}
	if post("on=false") != http.StatusOK || p.state().Enabled {
		t.Error("limits still hold")
	}
	if ok := burst(); ok != 50 {
		t.Errorf("%d of 50 were admitted while limits are off", ok)
	}
	if post("on=true") != http.StatusOK || !p.state().Enabled || post("on=perhaps") != http.StatusBadRequest {
		t.Error("the switch does not work")
	}
	p.stop()
}

// TestProxy: the upstream learns the tenant and not the API key, and its own limits do not mix with the gateway's.
func TestProxy(t *testing.T) {
	t.Parallel()
	var got http.Header
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		w.Header().Set("X-RateLimit-Limit", "1")
		w.Header().Set("RateLimit", `"other";r=1;t=1`)
		w.WriteHeader(http.StatusTeapot)
	}))
	u, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	known, err := loadTenants("")
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := ratelimit.New(memstore.New(memstore.Options{}), ratelimit.PerSecond(5))
	if err != nil {
		t.Fatal(err)
	}
	h := guard(limiter, known)(proxy(u, known))
	serve := func() *http.Response {
		r := httptest.NewRequest(http.MethodGet, "/search?q=1", nil)
		r.Header.Set(apiKey, "demo-b")
		r.Header.Set("X-Tenant", "shop-a")
		r.Header.Set("X-Forwarded-For", "192.0.2.7")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	res := serve()
	if fmt.Sprint(res.Header["X-Ratelimit-Limit"]) != "[5]" || fmt.Sprint(res.Header["Ratelimit"]) != `["default";r=4;t=1]` || res.StatusCode != http.StatusTeapot {
		t.Errorf("%d, %v", res.StatusCode, res.Header)
	}
	if got.Get(apiKey) != "" || fmt.Sprint(got["X-Tenant"]) != "[shop-b]" || got.Get("X-Forwarded-For") != "192.0.2.1" {
		t.Errorf("the upstream saw %v", got)
	}
	upstream.Close()
	if res := serve(); res.StatusCode != http.StatusBadGateway {
		t.Errorf("%d without an upstream", res.StatusCode)
	}
}

// TestGuard: who is shut out by a rule is not told to come back later; a preflight request has no API key, and is no exception.
func TestGuard(t *testing.T) {
	t.Parallel()
	set, err := rules.New(t.Context(), rules.Static(rules.Rule{Tenant: "shop-a", Mode: rules.DenyAll}), rules.Options{Default: defaultRule})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	known, err := loadTenants("")
	if err != nil {
		t.Fatal(err)
	}
	h := guard(set.Limiter(memstore.New(memstore.Options{})), known)(http.NotFoundHandler())
	for key, want := range map[string]int{"demo-a": http.StatusTooManyRequests, "demo-b": http.StatusNotFound, "": http.StatusUnauthorized} {
		r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
		r.Header.Set(apiKey, key)
		if key == "" {
			r.Method = http.MethodOptions
			r.Header.Set("Origin", "https://shop.example")
			r.Header.Set("Access-Control-Request-Method", http.MethodPost)
		}
		h.ServeHTTP(w, r)
		if w.Code != want || w.Header().Get("Retry-After") != "" {
			t.Errorf("%q: %d with %v; want %d", key, w.Code, w.Header(), want)
		}
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]string{
		"POST /orders":              "create-order",
		"POST /orders?a=b":          "create-order",
		"POST //orders":             "create-order",
		"POST /x/../orders":         "create-order",
		"GET /orders/7":             "get-order",
		"HEAD /orders/7":            "get-order",
		"GET /orders/7/items":       "default",
		"GET /orders":               "default",
		"DELETE /orders/7":          "default",
		"GET /made-up/by/somebody":  "default",
		"GET /search":               "search",
		"GET /%73earch":             "search",
		"OPTIONS /search":           "default",
		"POST /orders/":             "default",
		"GET /search/../../search/": "default",
	} {
		method, target, _ := strings.Cut(request, " ")
		if got := routes.of(httptest.NewRequest(method, target, nil)); got != want {
			t.Errorf("%s is %s; want %s", request, got, want)
		}
	}
}

func TestTenants(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tenants.json")
	for text, fine := range map[string]bool{`{"k": "shop-c"}`: true, `{"k": ""}`: false, `{"": "a"}`: false, `[]`: false} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		known, err := loadTenants(path)
		if (err == nil) != fine {
			t.Errorf("%s: %v", text, err)
		}
		if !fine {
			continue
		}
		for key, want := range map[string]string{"k": "shop-c", "demo-a": "", "": ""} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set(apiKey, key)
			if tenant, ok := known.of(r); tenant != want || ok != (want != "") {
				t.Errorf("%q is of %q, %v", key, tenant, ok)
			}
		}
	}
	if _, err := loadTenants(path + "-not"); err == nil {
		t.Error("a file that is not there is no error")
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{},
		{"-memory", "-redis", "x:1"},
		{"-memory", "y"},
		{"-memory", "-instances", "0"},
		{"-memory", "-upstream", "nowhere"},
		{"-memory", "-postgres", "postgres://a:b:c"},
		{"-redis", "x:1", "-budget", "2h"},
		{"-redis", "http://:secret@x:1"},
		{"-memory", "-tenants", "not-there"},
	} {
		err := run(t.Context(), args, func(string) { t.Errorf("%q listens", args) })
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: error %v", args, err)
		}
	}
}

// TestRedisURL: a Redis may want a user and a password.
func TestRedisURL(t *testing.T) {
	t.Parallel()
	c, err := parse([]string{"-redis", "redis://me:word@x:1/2"})
	if err != nil || c.redis.Addr != "x:1" || c.redis.Username != "me" || c.redis.Password != "word" || c.redis.DB != 2 {
		t.Errorf("%+v, %v", c.redis, err)
	}
}

// TestPorts: a port that is taken ends the program, whichever it is.
func TestPorts(t *testing.T) {
	t.Parallel()
	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	address := taken.Listener.Addr().String()
	for _, args := range [][]string{{"-addr", address}, {"-addr", "127.0.0.1:0", "-admin", address}} {
		ended := make(chan error, 1)
		go func() { ended <- run(t.Context(), append([]string{"-memory"}, args...), func(string) {}) }()
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%q: no error", args)
			}
		case <-time.After(patience):
			t.Fatalf("%q: it does not end", args)
		}
	}
}

// TestReadme: its curl lines are those that TestCurl plays.
func TestReadme(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(source)) {
		if command, ok := strings.CutPrefix(line, "//\tcurl"); ok && !strings.Contains(string(readme), "\ncurl"+command) {
			t.Errorf("README.md lacks curl%s", command)
		}
	}
}
