package ratelimit

import (
	"maps"
	"sync"
)

// A Tally counts ShadowReports by rule: the Name of the limit that decided for the candidate, or for the enforced limiter where
// the candidate failed. Its zero value is ready, its Report is an argument of Shadow. It is safe for concurrent use.
// It keeps up to 1,000 Names; those that come later are counted together, under "".
type Tally struct {
	mu     sync.Mutex
	counts map[string]ShadowCounts
}

// ShadowCounts are how many calls compared how.
type ShadowCounts struct{ Agrees, WouldDeny, WouldAllow, Failed uint64 }

const maxTally = 1000

// Report counts r.
func (t *Tally) Report(r ShadowReport) {
	name := r.Candidate.Name
	if r.Verdict == ShadowFailed {
		name = r.Enforced.Name
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c, known := t.counts[name]
	if !known && len(t.counts) >= maxTally {
		name = ""
		c = t.counts[name]
	}
	switch r.Verdict {
	case ShadowAgrees:
		c.Agrees++
	case ShadowWouldDeny:
		c.WouldDeny++
	case ShadowWouldAllow:
		c.WouldAllow++
	case ShadowFailed:
		c.Failed++
	}
	if t.counts == nil {
		t.counts = map[string]ShadowCounts{}
	}
	t.counts[name] = c
}

// Counts returns the counts so far, for the caller to keep.
func (t *Tally) Counts() map[string]ShadowCounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}
