package memstore

import (
	"strings"
	"sync"

	"github.com/sluicego/ratelimit"
)

// machines are the limits this store has met, ready to run, so that the states of a million keys under one limit share
// one Machine.
type machines struct {
	mu      sync.RWMutex
	byLimit map[ratelimit.Limit]*ratelimit.Machine
}

// maxMachines bounds the cache against callers who make a limit for every key. States keep the Machines they need.
const maxMachines = 4096

// get returns the Machine of limit, or an error that is ErrInvalidLimit.
func (c *machines) get(limit *ratelimit.Limit) (*ratelimit.Machine, error) {
	c.mu.RLock()
	m := c.byLimit[*limit]
	c.mu.RUnlock()
	if m != nil {
		return m, nil
	}
	own := *limit
	own.Name = strings.Clone(own.Name)
	m, err := ratelimit.NewMachine(own)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.byLimit[own]; known != nil {
		return known, nil
	}
	if c.byLimit == nil || len(c.byLimit) >= maxMachines {
		c.byLimit = make(map[ratelimit.Limit]*ratelimit.Machine)
	}
	c.byLimit[own] = m
	return m, nil
}
