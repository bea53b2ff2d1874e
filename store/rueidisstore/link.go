package rueidisstore

import "github.com/redis/rueidis"

// A link is a client and the lanes to its servers.
type link struct {
	client rueidis.Client
	lanes  []lane
}

// A lane bounds the calls under way to one part of the slots: a value in it is a place taken.
//
// A call keeps its place until rueidis has its reply, even if its caller has left, so that calls which wait for a
// silent server are few. They never fill rueidis's ring of 1,024 commands a connection, where further commands, the
// application's own too, would wait without regard to their contexts. And in a Cluster, where a silent master owns
// a range of slots, they leave the places of the other slots alone.
type lane chan struct{}

const (
	places       = 128 // of a single server: enough to keep it busy
	clusterLanes = 16  // each for a range of 1,024 slots
	lanePlaces   = 32  // of each
	slots        = 16_384
)

func newLink(client rueidis.Client) *link {
	n, size := 1, places
	if client.Mode() == rueidis.ClientModeCluster {
		n, size = clusterLanes, lanePlaces
	}
	l := &link{client: client, lanes: make([]lane, n)}
	for i := range l.lanes {
		l.lanes[i] = make(lane, size)
	}
	return l
}

// lane returns the lane of a command's slot, whose upper bits rueidis uses for marks of its own.
func (l *link) lane(slot uint16) lane {
	return l.lanes[int(slot%slots)*len(l.lanes)/slots]
}

// drain waits until no call is under way.
func (l *link) drain() {
	for _, lane := range l.lanes {
		for range cap(lane) {
			lane <- struct{}{}
		}
		for range cap(lane) {
			<-lane
		}
	}
}
