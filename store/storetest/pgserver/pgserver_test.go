package pgserver

import "testing"

// TestServer: what was committed is there after a crash, on the same port.
func TestServer(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Database("a")
	s.Psql("a", "CREATE TABLE t (n int); INSERT INTO t VALUES (1), (2)")
	addr := s.Addr
	s.Kill()
	if out, err := s.TryPsql("a", "SELECT 1"); err == nil {
		t.Fatalf("a dead server answers %q", out)
	}
	s.Restart()
	if got := s.Psql("a", "SELECT n FROM t ORDER BY n"); got != "1\n2" || s.Addr != addr {
		t.Errorf("%q at %s; want 1 and 2 at %s", got, s.Addr, addr)
	}
	if out, err := s.TryPsql("a", "SELECT nonsense"); err == nil {
		t.Errorf("nonsense gave %q", out)
	}
}
