package redisserver

import "strconv"

// MoveSlot moves a slot and its keys from one master to another, as a resharding does.
func (c *ClusterServers) MoveSlot(slot int, from, to *Server) {
	c.tb.Helper()
	c.StartMove(slot, from, to)
	c.MoveKeys(slot, from, to)
	c.FinishMove(slot, from, to)
}

// StartMove begins to move a slot: from here on, from answers ASK for keys it does not hold, and TRYAGAIN where it
// holds some of a command's keys.
func (c *ClusterServers) StartMove(slot int, from, to *Server) {
	c.tb.Helper()
	c.do(to, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "IMPORTING", c.id(from))
	c.do(from, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "MIGRATING", c.id(to))
}

// MoveKeys moves the keys of a slot whose move has started. It may be called again for keys written since.
func (c *ClusterServers) MoveKeys(slot int, from, to *Server) {
	c.tb.Helper()
	for {
		keys, _ := c.do(from, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), "100").([]any)
		if len(keys) == 0 {
			return
		}
		for _, key := range keys {
			c.MoveKey(key.(string), from, to)
		}
	}
}

// MoveKey moves one key of a slot whose move has started.
func (c *ClusterServers) MoveKey(key string, from, to *Server) {
	c.tb.Helper()
	c.do(from, "MIGRATE", host, strconv.Itoa(to.Port()), key, "0", "5000")
}

// FinishMove gives the slot to its new owner, tells every node, and waits until they agree.
func (c *ClusterServers) FinishMove(slot int, from, to *Server) {
	c.tb.Helper()
	id := c.id(to)
	told := append([]*Server{to, from}, c.Nodes...) // the new owner first, so that at no time nobody owns it
	for i, n := range told {
		if i > 1 && (n == to || n == from) {
			continue
		}
		if info, err := n.Info("replication"); err != nil || info["role"] == "slave" {
			continue // a replica learns it from its master, a dead node when it is back
		}
		c.do(n, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "NODE", id)
	}
	c.await("move", c.agree)
}
