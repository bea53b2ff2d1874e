package redisserver

import (
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
)

// A process is a running program, owned by a goroutine that waits for its end.
type process struct {
	os   *os.Process
	done chan struct{} // closed once the process has ended
}

func launch(name string, args []string, dir, log string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel ties the child's life to the thread that started it, so that thread stays as long as it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
		dieWithParent(cmd)
		err := cmd.Start()
		p.os = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended does not matter
		}
	}()
	return p, <-started
}

// busOffset is the distance from a Cluster node's port to the one on which nodes talk to each other.
const busOffset = 10_000

// freePort returns a port that is free now, as is the one for a Cluster's bus. Both lie below the range from which
// systems take the ports of outgoing connections: a client that dials a dead server there may reach itself.
func freePort(tb testing.TB) int {
	tb.Helper()
	for range 200 {
		port := 10_000 + rand.IntN(busOffset)
		if free(port) && free(port+busOffset) {
			return port
		}
	}
	tb.Fatal("redisserver: no free port")
	return 0
}

func free(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	return err == nil && closeListener(l) == nil
}

// closeListener closes l at a moment when no process is being started: until its program runs, a child holds copies of
// all descriptors, and with them the port.
func closeListener(l net.Listener) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return l.Close()
}
