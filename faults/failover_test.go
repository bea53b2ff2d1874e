package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// A master that dies and is replaced by its replica, which may lack what it was last told.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
		servers := redisserver.Sentinel(t)
		master := servers.Master()
		Outage{
			Connect: connect(Target{Addrs: servers.Addrs(), MasterName: servers.MasterName}),
			Break:   master.Kill, Lasts: 800 * time.Millisecond, Lost: 1,
			Mend: func() { servers.AwaitMaster(master) },
		}.Run(t)
	})
}

// A master of a Cluster that dies: other masters' keys are still theirs, and its own are its replica's then.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
		servers := redisserver.Cluster(t)
		slot := servers.Slot("{a}")
		master := servers.Owner(slot)
		servers.AddReplica(master)
		for _, n := range servers.Nodes {
			run(t, n, "CONFIG", "SET", "cluster-node-timeout", "1000")
		}
		Outage{
			Connect: connect(Target{Addrs: servers.Addrs(), Cluster: true}),
			Away:    Partly,
			Break:   master.Kill, Lasts: 800 * time.Millisecond, Lost: 1,
			Mend: func() {
				if err := Poll(patience, func() error {
					if owner := servers.Owner(slot); owner == nil || owner == master {
						return errors.New("the slots have no new master")
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			},
		}.Run(t)
	})
}

// R76: slots that move from master to master under load, with decisions of one key and of several limits together: no
// more than the limit is admitted, and hardly anything without the store.
func TestSlotsMove(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
		servers := redisserver.Cluster(t)
		Outage{
			Connect: connect(Target{Addrs: servers.Addrs(), Cluster: true}),
			Away:    Not,
			Lasts:   200 * time.Millisecond,
			Break: func() {
				for _, key := range []string{"{a}", "{b}", "{a}", "{d}", "{a}"} {
					slot := servers.Slot(key)
					from := servers.Owner(slot)
					to := servers.Nodes[0]
					if to == from {
						to = servers.Nodes[1]
					}
					servers.MoveSlot(slot, from, to)
				}
			},
		}.Run(t)
	})
}
