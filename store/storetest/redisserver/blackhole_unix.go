//go:build unix

package redisserver

import (
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// BlackHole returns an address where connecting neither succeeds nor fails: it listens, never accepts, and its backlog
// is full, so the kernel drops what asks for a connection.
func BlackHole(tb testing.TB) string {
	tb.Helper()
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		tb.Fatalf("redisserver: black hole: %v", os.NewSyscallError("socket", err))
	}
	tb.Cleanup(func() { _ = syscall.Close(fd) })
	// Connections that ended a while ago may still hold the port.
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		tb.Fatalf("redisserver: black hole: %v", os.NewSyscallError("setsockopt", err))
	}
	port := freePort(tb)
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		tb.Fatalf("redisserver: black hole: %v", os.NewSyscallError("bind", err))
	}
	if err := syscall.Listen(fd, 1); err != nil {
		tb.Fatalf("redisserver: black hole: %v", os.NewSyscallError("listen", err))
	}
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	for range 256 {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err == nil {
			tb.Cleanup(func() { _ = c.Close() })
			continue
		}
		if e, ok := err.(net.Error); !ok || !e.Timeout() {
			tb.Fatalf("redisserver: black hole: %v", err)
		}
		return addr
	}
	tb.Fatal("redisserver: black hole: the backlog never fills")
	return ""
}
