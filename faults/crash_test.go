package faults

import (
	"os"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// A server that is killed and comes back with nothing of what it knew.
func TestKilled(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
		server := redisserver.Single(t)
		Outage{
			Connect: connect(Target{Addrs: []string{server.Addr}}),
			Break:   server.Kill, Lasts: 650 * time.Millisecond, Mend: server.Restart, Lost: 1,
		}.Run(t)
	})
}

// The promise at the defaults: with the server killed, five instances admit no more of a key in any second than its limit
// and five; two seconds after its return it decides again. FAULTS_LONG=1 has it last for a minute.
func TestKilledAtDefaults(t *testing.T) {
	t.Parallel()
	lasts := 1500 * time.Millisecond
	if os.Getenv("FAULTS_LONG") == "1" {
		lasts = time.Minute
	}
	each(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
		server := redisserver.Single(t)
		Outage{
			Connect: connect(Target{Addrs: []string{server.Addr}}),
			Options: ratelimit.FallbackOptions{OpenFor: time.Second},
			Break:   server.Kill, Lasts: lasts, Mend: server.Restart, Lost: 1,
		}.Run(t)
	})
}
