package faults

import (
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// run has the server execute a command.
func run(t *testing.T, server *redisserver.Server, args ...string) {
	t.Helper()
	if _, err := server.Do(args...); err != nil {
		t.Errorf("%v: %v", args, err)
	}
}

// What an operator does to a server that goes on to answer.
func TestOperated(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]struct {
		outage     Outage
		harm, mend []string
	}{
		"SCRIPT FLUSH": {Outage{Away: Not, Lasts: 200 * time.Millisecond}, []string{"SCRIPT", "FLUSH"}, nil},
		"FLUSHALL":     {Outage{Away: Not, Lasts: 200 * time.Millisecond, Lost: 1}, []string{"FLUSHALL"}, nil},
		// R73: with noeviction, which is the default, a script fails at its first write that may take memory. One that
		// makes room by its first may go on.
		"maxmemory": {
			Outage{Away: Partly, Lasts: 650 * time.Millisecond},
			[]string{"CONFIG", "SET", "maxmemory", "1"},
			[]string{"CONFIG", "SET", "maxmemory", "0"},
		},
		// READONLY: a failover that this client was not told of.
		"demoted": {
			Outage{Away: Wholly, Lasts: 650 * time.Millisecond},
			[]string{"REPLICAOF", "127.0.0.1", "1"},
			[]string{"REPLICAOF", "NO", "ONE"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
				server := redisserver.Single(t)
				outage := o.outage
				outage.Connect = connect(Target{Addrs: []string{server.Addr}})
				outage.Break = func() { run(t, server, o.harm...) }
				if o.mend != nil {
					outage.Mend = func() { run(t, server, o.mend...) }
				}
				f := outage.Run(t)
				if n, err := f.Mistakes(); n > 0 {
					t.Errorf("told of %d mistakes in the set-up, such as %v", n, err)
				}
			})
		})
	}
}
