package faults

import (
	"runtime"
	"sync"
	"time"
)

// A gate lets fleets in as the machine can bear them, so that what they measure is the library and not each other.
type gate struct {
	mu     sync.Mutex
	inside int
	last   time.Time // when one was let in
}

const (
	// few fleets are let in whatever the machine does.
	few = 2
	// apart is how long after another a further one is let in, and only if no stall was long for a glance.
	apart  = 100 * time.Millisecond
	glance = 4 * apart
)

// enter waits until there is room for one more.
func (g *gate) enter() {
	for !g.admits() {
		<-time.After(apart / 10)
	}
}

func (g *gate) admits() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.inside >= few && (g.inside >= 5*runtime.GOMAXPROCS(0) || now.Sub(g.last) < apart || machine.Long(now.Add(-glance), now) > 0) {
		return false
	}
	g.inside++
	g.last = now
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
}
