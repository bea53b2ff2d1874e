package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"
)

// A server is a redis-server process of ours on a free loopback port, in a folder that is thrown away.
type server struct {
	addr, port, dir string
	process         *exec.Cmd
}

func newServer() (*server, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, errors.New("no redis-server on PATH; on Debian: apt-get install redis-server")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	dir, err := os.MkdirTemp("", "outage")
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return &server{addr: l.Addr().String(), port: port, dir: dir}, err
}

// start starts the server, empty, and returns when it answers.
func (s *server) start() error {
	s.process = exec.Command("redis-server", "--bind", "127.0.0.1", "--port", s.port, "--dir", s.dir, "--save", "", "--appendonly", "no")
	if err := s.process.Start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		conn, err := net.DialTimeout("tcp", s.addr, time.Second)
		if err == nil {
			return conn.Close()
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("redis-server does not answer on %s", s.addr)
}

// kill ends the server without a word, as kill -9 does.
func (s *server) kill() {
	if s.process != nil {
		_ = s.process.Process.Kill()
		_ = s.process.Wait()
		s.process = nil
	}
}

func (s *server) remove() {
	s.kill()
	_ = os.RemoveAll(s.dir)
}
