package redisserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	c := Cluster(t)
	if len(c.Nodes) != 3 || len(c.Addrs()) != 3 {
		t.Fatalf("%d nodes at %v", len(c.Nodes), c.Addrs())
	}
	for slot, want := range map[int]*Server{0: c.Nodes[0], 5460: c.Nodes[0], 5461: c.Nodes[1], 16383: c.Nodes[2]} {
		if got := c.Owner(slot); got != want {
			t.Errorf("slot %d is owned by %v; want %s", slot, got, want.Addr)
		}
	}

	const tag = "{user}"
	slot := c.Slot(tag)
	from, to := c.Owner(slot), c.AddNode()
	for i := range 150 {
		if _, err := from.Do("SET", fmt.Sprint(tag, i), "v", "PX", "600000"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := to.Do("GET", tag+"1"); err == nil || !strings.HasPrefix(err.Error(), "MOVED ") {
		t.Errorf("GET at another node: %v; want MOVED", err)
	}

	c.StartMove(slot, from, to)
	c.MoveKey(tag+"1", from, to)
	if _, err := from.Do("GET", tag+"1"); err == nil || !strings.HasPrefix(err.Error(), "ASK ") {
		t.Errorf("GET of a key that has left: %v; want ASK", err)
	}
	if _, err := from.Do("MGET", tag+"1", tag+"2"); err == nil || !strings.HasPrefix(err.Error(), "TRYAGAIN") {
		t.Errorf("MGET of a key that has left and one that has not: %v; want TRYAGAIN", err)
	}
	c.MoveKeys(slot, from, to)
	c.FinishMove(slot, from, to)

	if got := c.Owner(slot); got != to {
		t.Errorf("after the move the slot is owned by %v", got)
	}
	if n, err := to.Do("CLUSTER", "COUNTKEYSINSLOT", fmt.Sprint(slot)); n != int64(150) || err != nil {
		t.Errorf("%v keys after the move, %v; want 150", n, err)
	}
	if ttl, err := to.Do("PTTL", tag+"1"); err != nil || ttl.(int64) < 500_000 {
		t.Errorf("TTL after the move: %v, %v", ttl, err)
	}
	c.MoveSlot(slot, to, from)
	if got, err := from.Do("GET", tag+"149"); got != "v" || err != nil {
		t.Errorf("GET after the move back: %v, %v", got, err)
	}
	// A master without slots is still one, and moves in a row do not outrun the nodes' gossip.
	for range 5 {
		c.MoveSlot(slot, from, to)
		from, to = to, from
		for _, n := range c.Nodes {
			if _, err := n.Do("GET", tag); (err == nil) != (n == from) {
				t.Errorf("after a move to %s, GET at %s: %v", from.Addr, n.Addr, err)
			}
		}
	}
}

func TestClusterReplica(t *testing.T) {
	t.Parallel()
	c := Cluster(t)
	master := c.Nodes[0]
	replica := c.AddReplica(master)
	master.Kill()
	err := poll(func() error {
		if got := c.Owner(0); got != replica {
			return fmt.Errorf("slot 0 is owned by %v", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(c.Addrs(), replica.Addr) {
		t.Error("Addrs lacks the replica")
	}
}
