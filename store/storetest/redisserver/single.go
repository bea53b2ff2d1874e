// Package redisserver starts real Redis servers for tests, as processes on loopback ports that end with the test, and
// stub servers that break the protocol's promises on purpose. It needs no client library: tests look into a server
// with Server.Do.
//
// The program is redis-server, or what the environment variable REDIS_SERVER names: valkey-server, for instance, or a
// script that turns redis-server's arguments into those of another server and then execs it. A test that wants one
// where there is none is skipped, and fails if CI is "true".
package redisserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	host = "127.0.0.1"
	// patience is how long anything may take that is bound to happen. It is only ever spent in full by a failure.
	patience = 30 * time.Second
)

// A Server is one Redis process of a test. Its methods report a failure to that test.
type Server struct {
	// Addr is host:port. It stays the same over Restart.
	Addr string

	tb     testing.TB
	binary string
	dir    string
	args   []string

	mu   sync.Mutex // guards what follows
	proc *process
	conn *conn
}

// Single starts a server that keeps nothing on disk and waits until it answers. args are more of redis-server's own,
// such as "--maxmemory", "1mb", and win over the ones set here.
func Single(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s := begin(tb, append([]string{
		"--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0",
	}, args...))
	s.await()
	return s
}

// begin starts a server without waiting for it.
func begin(tb testing.TB, args []string) *Server {
	tb.Helper()
	s := &Server{tb: tb, binary: find(tb), dir: tb.TempDir(), args: args}
	tb.Cleanup(s.Kill)
	s.launch(freePort(tb))
	return s
}

// Need skips the test, or fails it where CI is "true", if there is no redis-server. Single, Cluster and Sentinel do so too; a
// test that calls them in a sync.Once or on another goroutine, where a test cannot be skipped, calls Need first.
func Need(tb testing.TB) {
	tb.Helper()
	find(tb)
}

func find(tb testing.TB) string {
	tb.Helper()
	name := os.Getenv("REDIS_SERVER")
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	const advice = "%v; get it with apt-get install redis-server redis-sentinel, or brew install redis"
	if os.Getenv("CI") == "true" {
		tb.Fatalf(advice, err)
	}
	tb.Skipf(advice+" (fails where CI is true)", err)
	return ""
}

func (s *Server) launch(port int) {
	s.tb.Helper()
	s.Addr = net.JoinHostPort(host, strconv.Itoa(port))
	args := []string{"--port", strconv.Itoa(port), "--bind", host, "--dir", s.dir}
	if len(s.args) > 0 && !strings.HasPrefix(s.args[0], "--") { // a configuration file comes first
		args = append([]string{s.args[0]}, append(args, s.args[1:]...)...)
	} else {
		args = append(args, s.args...)
	}
	proc, err := launch(s.binary, args, s.dir, s.logFile())
	if err != nil {
		s.tb.Fatalf("redisserver: start: %v", err)
	}
	s.mu.Lock()
	s.proc = proc
	s.mu.Unlock()
}

// await waits until the server answers. Where another process took the port between the look and the start, it tries
// other ports.
func (s *Server) await() {
	s.tb.Helper()
	for range 5 {
		err := s.answers()
		if err == nil {
			return
		}
		if !errors.Is(err, errEnded) || !s.portTaken() {
			s.tb.Fatalf("redisserver: %s: %v\n%s", s.Addr, err, s.Log())
		}
		s.hangUp()
		s.launch(freePort(s.tb))
	}
	s.tb.Fatalf("redisserver: found no free port\n%s", s.Log())
}

var (
	errEnded    = errors.New("the server ended")
	errStranger = errors.New("another server answers at this port")
)

// answers waits until our own process, and not another one on its port, answers PING.
func (s *Server) answers() error {
	done := s.process().done
	return poll(func() error {
		select {
		case <-done:
			return fatal{errEnded}
		default:
		}
		_, err := s.Do("PING")
		var refused ReplyError
		if errors.As(err, &refused) && !strings.HasPrefix(string(refused), "LOADING") {
			err = nil // it wants a password, say: it is up
		}
		if err != nil {
			return err
		}
		info, err := s.Info("server")
		if err != nil && !errors.As(err, &refused) {
			return err
		}
		if id, ok := info["process_id"]; ok && id != strconv.Itoa(s.process().os.Pid) {
			return errStranger // it has our port, so ours ends soon
		}
		return nil
	})
}

func (s *Server) portTaken() bool { return strings.Contains(s.Log(), "already in use") }

// Signal sends sig to the process. A server stopped by SIGSTOP is woken before it is killed.
func (s *Server) Signal(sig os.Signal) {
	s.tb.Helper()
	if err := s.process().os.Signal(sig); err != nil {
		s.tb.Errorf("redisserver: signal %v: %v", sig, err)
	}
}

// Kill ends the process at once, as a crash does, and waits until it is gone. Killing a dead server is nothing.
func (s *Server) Kill() {
	s.hangUp()
	if p := s.process(); p != nil {
		wake(p.os)
		_ = p.os.Kill() // an error means that it is dead
		<-p.done
	}
}

// Restart kills the process if it runs and starts it again on the same port. What it held is lost, unless args had it
// saved.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	s.launch(s.Port())
	if err := s.answers(); err != nil {
		s.tb.Fatalf("redisserver: %s: restart: %v\n%s", s.Addr, err, s.Log())
	}
}

// Port is the port in Addr.
func (s *Server) Port() int {
	_, port, _ := net.SplitHostPort(s.Addr)
	n, _ := strconv.Atoi(port)
	return n
}

// Log is what the server has written so far.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "log") }

func (s *Server) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// fatal is an error that poll does not wait out.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// poll calls f until it returns nil or a fatal error, or patience ends.
func poll(f func() error) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		err := f()
		if err == nil || errors.As(err, new(fatal)) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("gave up after %v: %w", patience, err)
		}
	}
}
