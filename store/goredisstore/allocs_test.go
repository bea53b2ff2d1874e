//go:build !race

package goredisstore_test

import (
	"context"
	"testing"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// A lone decision allocates what the client does for a command, the key's text and a batch.
func TestAllocations(t *testing.T) {
	s := over(t, at(t, redisserver.Single(t).Addr), goredisstore.Options{})
	limit := ratelimit.PerSecond(1_000_000)
	ending, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, ctx := range map[string]context.Context{"endless": context.Background(), "ending": ending} {
		per := testing.AllocsPerRun(1000, func() {
			if _, err := s.Take(ctx, ratelimit.Request{Key: "user-1", Limit: &limit, Cost: 1}); err != nil {
				t.Error(err)
			}
		})
		if per > 8 {
			t.Errorf("%s context: %v allocations a decision", name, per)
		}
		t.Logf("%s context: %v allocations a decision", name, per)
	}
}
