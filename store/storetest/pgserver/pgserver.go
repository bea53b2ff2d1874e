// Package pgserver starts real PostgreSQL servers for tests, as processes on loopback ports with folders of their own
// that end with the test. It needs no driver.
//
// The programs initdb, postgres and psql are those of PATH, or of the newest /usr/lib/postgresql/*/bin. A test that wants
// a server where there is none is skipped, and fails if CI is "true".
package pgserver

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	host  = "127.0.0.1"
	admin = "postgres"
	// patience is how long anything may take that is bound to happen. It is only ever spent in full by a failure.
	patience = 30 * time.Second
)

// A Server is one PostgreSQL of a test. Its methods report a failure to that test, and are not for several goroutines.
type Server struct {
	// Addr is host:port. It stays the same over Restart.
	Addr string

	tb   testing.TB
	bin  string
	dir  string
	proc *os.Process
	done chan struct{} // closed once proc has ended
}

// Start makes a new database cluster that trusts everybody on loopback, starts its server and waits until it answers.
// settings are of postgresql.conf, such as "fsync=off", which is set already.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	s := &Server{tb: tb, bin: find(tb)}
	dir, err := os.MkdirTemp("", "pgserver") // tb.TempDir lies in a folder that only its owner may enter
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.dir = dir
	if uid, gid, ok := unprivileged(); ok {
		if err := os.Chown(dir, uid, gid); err != nil {
			tb.Fatal(err)
		}
	}
	initdb := s.command("initdb", "-D", s.data(), "-U", admin, "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
	if out, err := initdb.CombinedOutput(); err != nil {
		tb.Fatalf("pgserver: initdb: %v\n%s", err, out)
	}
	conf := strings.Join(append([]string{
		"listen_addresses='" + host + "'", "unix_socket_directories=''", "fsync=off",
		"full_page_writes=off", "shared_buffers=64MB", "max_connections=100", "timezone='UTC'",
	}, settings...), "\n") + "\n"
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	_, err = f.WriteString(conf)
	if err := errors.Join(err, f.Close()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Kill)
	for range 5 {
		s.Addr = net.JoinHostPort(host, strconv.Itoa(freePort(tb)))
		if err = s.launch(); err == nil {
			return s
		}
		s.Kill()
	}
	tb.Fatalf("pgserver: %v\n%s", err, s.Log())
	return nil
}

// Need skips the test, or fails it where CI is "true", if there is no PostgreSQL, as Start does.
func Need(tb testing.TB) {
	tb.Helper()
	find(tb)
}

func find(tb testing.TB) string {
	tb.Helper()
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(dirs, func(a, b string) int {
		x, _ := strconv.Atoi(filepath.Base(filepath.Dir(a)))
		y, _ := strconv.Atoi(filepath.Base(filepath.Dir(b)))
		return y - x
	})
	if path, err := exec.LookPath("postgres"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil { // initdb and psql lie beside the program itself
			dirs = append([]string{filepath.Dir(real)}, dirs...)
		}
	}
	for _, dir := range dirs {
		_, err1 := os.Stat(filepath.Join(dir, "initdb"))
		_, err2 := os.Stat(filepath.Join(dir, "psql"))
		if err1 == nil && err2 == nil {
			return dir
		}
	}
	const advice = "no postgres with initdb and psql beside it; get them with apt-get install postgresql, or brew install postgresql"
	if os.Getenv("CI") == "true" {
		tb.Fatal(advice)
	}
	tb.Skip(advice + " (fails where CI is true)")
	return ""
}

// URL is how a driver names a database of the server: "postgres" is there from the start.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", admin, s.Addr, database)
}

// Database makes an empty database and returns its URL.
func (s *Server) Database(name string) string {
	s.tb.Helper()
	s.Psql("postgres", "CREATE DATABASE "+name)
	return s.URL(name)
}

// Psql has psql run statements, each line of output a row, and fails the test if one fails.
func (s *Server) Psql(database, statements string) string {
	s.tb.Helper()
	out, err := s.TryPsql(database, statements)
	if err != nil {
		s.tb.Fatalf("pgserver: psql: %v\n%s", err, out)
	}
	return out
}

// TryPsql is Psql for statements that may fail.
func (s *Server) TryPsql(database, statements string) (string, error) {
	cmd := exec.Command(filepath.Join(s.bin, "psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-f", "-", s.URL(database))
	cmd.Stdin = strings.NewReader(statements)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// Kill ends the server at once, with all connections, and waits until it is gone. Killing a dead server is nothing.
func (s *Server) Kill() {
	if s.proc == nil {
		return
	}
	if s.proc.Signal(syscall.SIGQUIT) != nil { // an immediate shutdown; SIGKILL would leave children that hold the folder
		_ = s.proc.Kill()
	}
	select {
	case <-s.done:
	case <-time.After(patience):
		_ = s.proc.Kill()
		<-s.done
	}
}

// Restart kills the server if it runs and starts it again on the same port. It has what was committed.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	if err := s.launch(); err != nil {
		s.tb.Fatalf("pgserver: restart: %v\n%s", err, s.Log())
	}
}

// Log is what the server has written so far.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.log())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }
func (s *Server) log() string  { return filepath.Join(s.dir, "log") }

// command is a program of PostgreSQL, which refuses to run as root.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	prepare(cmd)
	return cmd
}

// launch starts the server and waits until it answers.
func (s *Server) launch() error {
	_, port, _ := net.SplitHostPort(s.Addr)
	out, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	done, started := make(chan struct{}), make(chan error, 1)
	cmd := s.command("postgres", "-D", s.data(), "-p", port)
	cmd.Stdout, cmd.Stderr = out, out
	go func() {
		// The kernel ties the child's life to the thread that started it, so that thread stays as long as it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended does not matter
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.proc, s.done = cmd.Process, done
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		select {
		case <-done:
			return errors.New("the server ended")
		default:
		}
		if s.ours() {
			if _, err = s.TryPsql("postgres", "SELECT 1"); err == nil {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no answer in %v: %w", patience, err)
		}
	}
}

// ours tells whether our own server, and not another one on its port, is ready: it says so in its folder.
func (s *Server) ours() bool {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	lines := bytes.Split(text, []byte("\n"))
	return err == nil && len(lines) > 7 && string(bytes.TrimSpace(lines[0])) == strconv.Itoa(s.proc.Pid) &&
		string(bytes.TrimSpace(lines[7])) == "ready"
}

func freePort(tb testing.TB) int {
	tb.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
