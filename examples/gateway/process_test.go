package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take that is bound to happen.
const patience = 30 * time.Second

// build makes the program, once for all tests.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "gateway")
	if err != nil {
		return "", err
	}
	built = dir
	path := filepath.Join(dir, "gateway")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

var built string // the folder, to be removed

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(built)
	os.Exit(code)
}

// A process is one gateway.
type process struct {
	tb             testing.TB
	address, admin string
	os             *os.Process
	done           chan error // how it ended

	mu  sync.Mutex
	log strings.Builder
}

// start starts a gateway and waits until it listens.
func start(tb testing.TB, args ...string) *process {
	tb.Helper()
	path, err := build()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(path, append([]string{"-addr", "127.0.0.1:0", "-admin", "127.0.0.1:0"}, args...)...)
	dieWithParent(cmd)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		tb.Fatal(err)
	}
	p := &process{tb: tb, done: make(chan error, 1)}
	started, ready := make(chan error, 1), make(chan struct{})
	go func() {
		// The kernel ties the child's life to the thread that started it, so that thread stays as long as it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		p.os = cmd.Process
		started <- err
		if err != nil {
			return
		}
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if p.read(lines.Text()) {
				close(ready)
			}
		}
		p.done <- cmd.Wait()
	}()
	if err := <-started; err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = p.os.Kill() // an error means that it has ended
		if tb.Failed() {
			tb.Logf("gateway %s:\n%s", p.address, p.logged())
		}
	})
	select {
	case <-ready:
	case <-time.After(patience):
		tb.Fatalf("it does not listen:\n%s", p.logged())
	}
	return p
}

// read takes a line of its log, and tells whether that is the last of those that say where it listens.
func (p *process) read(line string) (ready bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(&p.log, line)
	_, address, _ := strings.Cut(line, "address=")
	switch {
	case strings.Contains(line, "gateway: listening"):
		p.address = address
	case strings.Contains(line, "gateway: admin"):
		p.admin = address
		return true
	}
	return false
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// state asks how its limits stand.
func (p *process) state() (s state) {
	p.tb.Helper()
	res, err := client.Get("http://" + p.admin + "/state")
	if err != nil {
		p.tb.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
		p.tb.Fatal(err)
	}
	return s
}

// stop asks it to end, and fails the test if it does not end well.
func (p *process) stop() {
	p.tb.Helper()
	if err := p.os.Signal(syscall.SIGTERM); err != nil {
		p.tb.Fatal(err)
	}
	p.ended()
}

func (p *process) ended() {
	p.tb.Helper()
	select {
	case err := <-p.done:
		if err != nil {
			p.tb.Errorf("the gateway ended with %v", err)
		}
	case <-time.After(patience):
		p.tb.Error("the gateway does not end")
	}
}

var client = &http.Client{
	Timeout:   10 * time.Second,
	Transport: &http.Transport{MaxIdleConnsPerHost: 100},
}

// within waits until f is true, and fails the test after d.
func within(tb testing.TB, d time.Duration, what string, f func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(d); !f(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("%s: not within %v", what, d)
		}
	}
}
