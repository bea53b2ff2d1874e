package redisserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// SentinelServers is a master, its replica and three sentinels of a test.
type SentinelServers struct {
	// MasterName is the name by which the sentinels know the master.
	MasterName string
	// Data are the two servers that hold data. Which of them is master changes; see Master.
	Data []*Server
	// Sentinels watch Data.
	Sentinels []*Server

	tb testing.TB
}

// sentinelConf has a dead master replaced within about two seconds. Sentinels rewrite their file.
const sentinelConf = `sentinel monitor %[1]s %[2]s %[3]d 2
sentinel down-after-milliseconds %[1]s 500
sentinel failover-timeout %[1]s 5000
`

// Sentinel starts a master, a replica and three sentinels, and waits until the replica has caught up and the sentinels
// know the servers and each other.
func Sentinel(tb testing.TB) *SentinelServers {
	tb.Helper()
	s := &SentinelServers{MasterName: "mymaster", tb: tb}
	master := Single(tb)
	replica := Single(tb, "--replicaof", host+" "+strconv.Itoa(master.Port()))
	s.Data = []*Server{master, replica}
	s.await("replica", func() error { return synced(replica) })

	for range 3 {
		conf := filepath.Join(tb.TempDir(), "sentinel.conf")
		text := fmt.Sprintf(sentinelConf, s.MasterName, host, master.Port())
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			tb.Fatalf("redisserver: %v", err)
		}
		s.Sentinels = append(s.Sentinels, begin(tb, []string{conf, "--sentinel"}))
	}
	for _, n := range s.Sentinels {
		n.await()
		// Sentinels of Redis 7 and later can be told to look and to talk more often; the others take longer.
		_, _ = n.Do("SENTINEL", "DEBUG", "INFO-PERIOD", "200", "PUBLISH-PERIOD", "200", "ASK-PERIOD", "200")
	}
	s.await("sentinels", s.complete)
	return s
}

// complete returns nil once every sentinel knows both servers and the other sentinels, and the replica as one that may
// be promoted.
func (s *SentinelServers) complete() error {
	for _, n := range s.Sentinels {
		master, err := dict(n, "SENTINEL", "MASTER", s.MasterName)
		if err != nil {
			return err
		}
		if master["flags"] != "master" || master["num-slaves"] != "1" || master["num-other-sentinels"] != "2" {
			return fmt.Errorf("%s: master is %s with %s replicas, %s other sentinels", n.Addr,
				master["flags"], master["num-slaves"], master["num-other-sentinels"])
		}
		reply, err := n.Do("SENTINEL", "REPLICAS", s.MasterName)
		if err != nil {
			return err
		}
		list, _ := reply.([]any)
		for _, r := range list {
			if r := pairs(r); r["flags"] != "slave" || r["master-link-status"] != "ok" {
				return fmt.Errorf("%s: replica is %s, link %s", n.Addr, r["flags"], r["master-link-status"])
			}
		}
	}
	return nil
}

// Addrs returns the sentinels' addresses.
func (s *SentinelServers) Addrs() []string {
	addrs := make([]string, len(s.Sentinels))
	for i, n := range s.Sentinels {
		addrs[i] = n.Addr
	}
	return addrs
}

// Master returns the server that the sentinels name as master.
func (s *SentinelServers) Master() *Server {
	s.tb.Helper()
	var master *Server
	s.await("master", func() (err error) {
		master, err = s.agreed()
		return err
	})
	return master
}

// Failover has the sentinels promote the replica, waits until they agree and the new master takes writes, and returns
// it. The old master may take writes too for some seconds, until a sentinel makes it a replica.
func (s *SentinelServers) Failover() *Server {
	s.tb.Helper()
	old := s.Master()
	s.await("failover", func() error {
		_, err := s.Sentinels[0].Do("SENTINEL", "FAILOVER", s.MasterName)
		return err // NOGOODSLAVE and INPROG pass
	})
	return s.AwaitMaster(old)
}

// AwaitMaster waits until the sentinels have put another server in the place of old, which a test may have killed, and
// that one takes writes.
func (s *SentinelServers) AwaitMaster(old *Server) *Server {
	s.tb.Helper()
	var master *Server
	s.await("new master", func() (err error) {
		if master, err = s.agreed(); err != nil {
			return err
		}
		if master == old {
			return errors.New("the master is still the old one")
		}
		info, err := master.Info("replication")
		if err == nil && info["role"] != "master" {
			err = fmt.Errorf("the master's role is %s", info["role"])
		}
		return err
	})
	return master
}

// agreed returns the master that every sentinel that is up names.
func (s *SentinelServers) agreed() (*Server, error) {
	var addr string
	for _, n := range s.Sentinels {
		reply, err := n.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.MasterName)
		if err != nil {
			continue
		}
		pair, _ := reply.([]any)
		if len(pair) != 2 {
			return nil, fmt.Errorf("%s names no master", n.Addr)
		}
		named := net.JoinHostPort(text(pair[0]), text(pair[1]))
		if addr != "" && named != addr {
			return nil, fmt.Errorf("sentinels name both %s and %s", addr, named)
		}
		addr = named
	}
	for _, n := range s.Data {
		if n.Addr == addr {
			return n, nil
		}
	}
	return nil, fmt.Errorf("sentinels name %q, which is none of ours", addr)
}

func (s *SentinelServers) await(what string, f func() error) {
	s.tb.Helper()
	if err := poll(f); err != nil {
		s.tb.Fatalf("redisserver: sentinel: %s: %v", what, err)
	}
}

func dict(n *Server, args ...string) (map[string]string, error) {
	reply, err := n.Do(args...)
	return pairs(reply), err
}

// pairs makes a map of a reply that lists names and values in turn.
func pairs(reply any) map[string]string {
	list, _ := reply.([]any)
	m := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		m[text(list[i])] = text(list[i+1])
	}
	return m
}
