package faults

import (
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// What a network does between a fleet and a server that is well.
func TestNetwork(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]struct {
		outage     Outage
		harm, mend func(p *Proxy)
	}{
		"silent": {
			Outage{Away: Wholly, Lasts: 650 * time.Millisecond},
			(*Proxy).Silence,
			(*Proxy).Speak,
		},
		"slower than the budget": {
			Outage{Away: Wholly, Lasts: 650 * time.Millisecond},
			func(p *Proxy) { p.Slow(3 * timeout) },
			func(p *Proxy) { p.Slow(0) },
		},
		"slow, within the budget": {
			Outage{Away: Not, Lasts: 650 * time.Millisecond, Options: ratelimit.FallbackOptions{Timeout: 500 * time.Millisecond}},
			func(p *Proxy) { p.Slow(50 * time.Millisecond) },
			func(p *Proxy) { p.Slow(0) },
		},
		"reset after the write": {
			Outage{Away: Wholly, Lasts: 650 * time.Millisecond},
			func(p *Proxy) { p.CutReplies(true) },
			func(p *Proxy) { p.CutReplies(false) },
		},
		// Connections that end once cost their decisions no more than that: clients connect anew.
		"reset once":       {Outage{Away: Partly}, (*Proxy).Reset, nil},
		"half-closed once": {Outage{Away: Partly}, (*Proxy).HalfClose, nil},
		// A peer that is gone without a word: until the client's own time-out nothing comes.
		"stranded once": {Outage{Away: Partly}, (*Proxy).Strand, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
				proxy := NewProxy(t, redisserver.Single(t).Addr)
				outage := o.outage
				outage.Connect = connect(Target{Addrs: []string{proxy.Addr}})
				outage.Break = func() { o.harm(proxy) }
				if o.mend != nil {
					outage.Mend = func() { o.mend(proxy) }
				}
				outage.Run(t)
			})
		})
	}
}
