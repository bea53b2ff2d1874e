package ratelimit_test

import (
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
	"github.com/sluicego/ratelimit/store/storetest"
)

// TestFallbackContract: over a healthy primary a Fallback is that store.
func TestFallbackContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Config{
		Traces: 30,
		New: func(t *testing.T, clock func() time.Time) ratelimit.Store {
			o := memstore.Options{Clock: clock}
			f, err := ratelimit.NewFallback(memstore.New(o), memstore.New(o), ratelimit.FallbackOptions{
				// So long that a busy machine does not make an outage.
				Timeout: time.Minute, Instances: func() int { return 3 },
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			return f
		},
	})
}
