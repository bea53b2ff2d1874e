//go:build unix

package redisserver

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// Pause stops the process as SIGSTOP does: it keeps its connections, the kernel goes on accepting more, and nothing is
// answered. Pause returns once the process stands still, where the system lets us see that.
func (s *Server) Pause() {
	s.tb.Helper()
	s.Signal(syscall.SIGSTOP)
	stat := fmt.Sprintf("/proc/%d/stat", s.process().os.Pid)
	err := poll(func() error {
		text, err := os.ReadFile(stat)
		if err != nil {
			return nil
		}
		// pid (name) state …; the name may hold anything.
		if after := text[bytes.LastIndexByte(text, ')')+1:]; !bytes.HasPrefix(after, []byte(" T")) {
			return fmt.Errorf("not stopped yet: %.4s", after)
		}
		return nil
	})
	if err != nil {
		s.tb.Errorf("redisserver: pause: %v", err)
	}
}

// Resume ends a Pause.
func (s *Server) Resume() {
	s.tb.Helper()
	s.Signal(syscall.SIGCONT)
}

func wake(p *os.Process) { _ = p.Signal(syscall.SIGCONT) }
