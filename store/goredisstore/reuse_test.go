package goredisstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// What a decision leaves behind is used again, but not while its batch is on the way: everybody gets the reply to his own
// key, though others leave in the middle.
func TestOwnReply(t *testing.T) {
	limit := ratelimit.PerSecond(1_000_000) // a token is one part, so the reply is what remains
	eachClient(t, func() handler {
		return func(_ int, args []string) redisserver.Reply {
			var number int
			_, _ = fmt.Sscanf(args[3], "rl:{%d}", &number)
			return redisserver.Int(int64(number))
		}
	}, func(t *testing.T, _ *redisserver.Stub, s *goredisstore.Store) {
		var callers sync.WaitGroup
		for caller := range 64 {
			callers.Go(func() {
				for i := range 100 {
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if i%3 == 0 {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(i*10)*time.Microsecond)
					}
					number := int64(caller*1000 + i)
					res, err := s.Take(ctx, ratelimit.Request{Key: fmt.Sprint(number), Limit: &limit, Cost: 1})
					cancel()
					if err != nil && !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					} else if err == nil && res.Remaining != number {
						t.Errorf("key %d was told what is left of %d", number, res.Remaining)
					}
				}
			})
		}
		callers.Wait()
	})
}
