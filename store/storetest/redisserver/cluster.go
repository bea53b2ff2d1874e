package redisserver

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const slots = 16_384

// ClusterServers is a Redis Cluster of a test.
type ClusterServers struct {
	// Nodes are the three masters that Cluster started, then those added since.
	Nodes []*Server

	tb testing.TB
}

// Cluster starts a Cluster of three masters that share the slots, and waits until every node says that it is whole.
func Cluster(tb testing.TB) *ClusterServers {
	tb.Helper()
	c := &ClusterServers{tb: tb}
	const masters = 3
	for range masters {
		c.Nodes = append(c.Nodes, begin(tb, clusterArgs()))
	}
	for i, n := range c.Nodes {
		n.await()
		// Different epochs from the start spare the nodes the time to settle which of them yields.
		c.do(n, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		add := []string{"CLUSTER", "ADDSLOTS"}
		for slot := i * slots / masters; slot < (i+1)*slots/masters; slot++ {
			add = append(add, strconv.Itoa(slot))
		}
		c.do(n, add...)
	}
	for _, n := range c.Nodes[1:] {
		c.meet(n)
	}
	c.settle()
	return c
}

func clusterArgs() []string {
	return []string{
		"--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0",
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000",
		"--cluster-announce-ip", host, // a node that nobody has met yet does not know its own
		"--cluster-allow-replica-migration", "no", // else a master whose last slot is moved turns into a replica
	}
}

// Addrs returns the nodes' addresses.
func (c *ClusterServers) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		addrs[i] = n.Addr
	}
	return addrs
}

// AddNode adds a master without slots and waits until every node knows it.
func (c *ClusterServers) AddNode() *Server {
	c.tb.Helper()
	n := begin(c.tb, clusterArgs())
	n.await()
	c.Nodes = append(c.Nodes, n)
	c.meet(n)
	c.settle()
	return n
}

// AddReplica adds a replica of master and waits until it has caught up.
func (c *ClusterServers) AddReplica(master *Server) *Server {
	c.tb.Helper()
	n := c.AddNode()
	c.do(n, "CLUSTER", "REPLICATE", c.id(master))
	c.await("replica", func() error { return synced(n) })
	return n
}

// Slot returns the slot of a key.
func (c *ClusterServers) Slot(key string) int {
	c.tb.Helper()
	n, _ := c.do(c.Nodes[0], "CLUSTER", "KEYSLOT", key).(int64)
	return int(n)
}

// Owner returns the master of a slot, as the first node that is up sees it, or nil if it has none.
func (c *ClusterServers) Owner(slot int) *Server {
	c.tb.Helper()
	for _, n := range c.Nodes {
		reply, err := n.Do("CLUSTER", "SLOTS")
		if err != nil {
			continue
		}
		ranges, _ := reply.([]any)
		for _, r := range ranges {
			r, _ := r.([]any) // first, last, [ip, port, id, …] of the master, then of replicas
			if first, last := r[0].(int64), r[1].(int64); int64(slot) < first || int64(slot) > last {
				continue
			}
			return c.byPort(r[2].([]any)[1].(int64))
		}
		return nil
	}
	return nil
}

func (c *ClusterServers) byPort(port int64) *Server {
	for _, n := range c.Nodes {
		if int64(n.Port()) == port {
			return n
		}
	}
	return nil
}

func (c *ClusterServers) meet(n *Server) {
	c.tb.Helper()
	c.do(c.Nodes[0], "CLUSTER", "MEET", host, strconv.Itoa(n.Port()))
}

// settle waits until every node knows every other, calls the Cluster whole, and agrees with the others.
func (c *ClusterServers) settle() {
	c.tb.Helper()
	c.await("settle", func() error {
		for _, n := range c.Nodes {
			text, err := n.Text("CLUSTER", "INFO")
			if err != nil {
				return err
			}
			info := fields(text)
			if info["cluster_state"] != "ok" || info["cluster_known_nodes"] != strconv.Itoa(len(c.Nodes)) {
				return fmt.Errorf("%s: state %s, knows %s nodes", n.Addr, info["cluster_state"], info["cluster_known_nodes"])
			}
		}
		return c.agree()
	})
}

// agree returns nil once all nodes that are up agree who owns what, and since which epoch. A node that takes a slot
// with an epoch behind one it has not heard of loses it again, and the slot's redirections then run in a circle.
func (c *ClusterServers) agree() error {
	var first string
	for _, n := range c.Nodes {
		text, err := n.Text("CLUSTER", "NODES")
		if err != nil {
			continue
		}
		var views []string
		for line := range strings.Lines(text) {
			// id address flags master ping pong epoch link slots…; slots on the move are in brackets
			f := strings.Fields(line)
			if len(f) < 8 || strings.Contains(f[2], "fail") {
				continue
			}
			slots, _, _ := strings.Cut(strings.Join(f[8:], " "), "[")
			views = append(views, f[0]+" "+f[6]+" "+strings.TrimSpace(slots))
		}
		slices.Sort(views)
		view := strings.Join(views, "\n")
		if first == "" {
			first = view
		}
		if view != first {
			return fmt.Errorf("%s sees\n%s\nand another node\n%s", n.Addr, view, first)
		}
	}
	return nil
}

func (c *ClusterServers) id(n *Server) string {
	c.tb.Helper()
	id, _ := c.do(n, "CLUSTER", "MYID").(string)
	return id
}

func (c *ClusterServers) do(n *Server, args ...string) any {
	c.tb.Helper()
	reply, err := n.Do(args...)
	if err != nil {
		c.tb.Fatalf("redisserver: %s %s: %v", args[0], args[1], err)
	}
	return reply
}

func (c *ClusterServers) await(what string, f func() error) {
	c.tb.Helper()
	if err := poll(f); err != nil {
		c.tb.Fatalf("redisserver: cluster: %s: %v", what, err)
	}
}

// synced returns nil once n is a replica that has caught up.
func synced(n *Server) error {
	info, err := n.Info("replication")
	if err != nil {
		return err
	}
	if info["role"] != "slave" || info["master_link_status"] != "up" {
		return fmt.Errorf("%s: role %s, link %s", n.Addr, info["role"], info["master_link_status"])
	}
	return nil
}
