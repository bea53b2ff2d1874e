package redisserver

import "testing"

func TestSentinel(t *testing.T) {
	t.Parallel()
	s := Sentinel(t)
	if len(s.Addrs()) != 3 {
		t.Fatalf("sentinels at %v", s.Addrs())
	}
	first := s.Master()
	if first != s.Data[0] {
		t.Fatalf("the master is %s; want %s", first.Addr, s.Data[0].Addr)
	}
	if _, err := first.Do("SET", "k", "v"); err != nil {
		t.Fatal(err)
	}
	if n, err := first.Do("WAIT", "1", "5000"); n != int64(1) || err != nil {
		t.Fatalf("%v replicas have the write, %v", n, err)
	}
	second := s.Failover()
	if second == first || s.Master() != second {
		t.Fatalf("Failover from %s to %s", first.Addr, second.Addr)
	}
	if got, err := second.Do("GET", "k"); got != "v" || err != nil {
		t.Errorf("GET at the new master: %v, %v", got, err)
	}
	if got, err := second.Do("SET", "k", "w"); got != "OK" || err != nil {
		t.Errorf("SET at the new master: %v, %v", got, err)
	}
}

func TestSentinelCrash(t *testing.T) {
	t.Parallel()
	s := Sentinel(t)
	old := s.Master()
	old.Kill()
	if master := s.AwaitMaster(old); master != s.Data[1] {
		t.Errorf("the new master is %s; want %s", master.Addr, s.Data[1].Addr)
	}
}
