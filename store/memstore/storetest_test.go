package memstore_test

import (
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
	"github.com/sluicego/ratelimit/store/storetest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Config{
		New: func(_ *testing.T, clock func() time.Time) ratelimit.Store {
			return memstore.New(memstore.Options{Clock: clock})
		},
	})
}
