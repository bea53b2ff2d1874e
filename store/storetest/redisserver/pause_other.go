//go:build !unix

package redisserver

import "os"

// Pause skips the test: this system cannot stop a process.
func (s *Server) Pause() {
	s.tb.Helper()
	s.tb.Skip("no SIGSTOP on this system, CI or not; use a Unix")
}

// Resume ends a Pause.
func (s *Server) Resume() {}

func wake(*os.Process) {}
