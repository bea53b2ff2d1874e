// Package redishooks gives storetest a look into Redis servers, for every store that keeps its state there by the scripts
// of package lua. It needs no client library.
package redishooks

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/lua"
	"github.com/sluicego/ratelimit/store/storetest"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// Hooks look into the servers of a test.
type Hooks struct {
	// Masters returns the servers that hold the keys: one, or those of a Cluster.
	Masters func() []*redisserver.Server
	// Prefix returns the Prefix that a store was built with.
	Prefix func(ratelimit.Store) string
}

// Fill sets the functions of c that look into a server.
func (h *Hooks) Fill(c *storetest.Config) {
	c.HashTags = true
	c.TTL, c.Persist, c.Writes, c.Corruptions = h.TTL, h.Persist, h.Writes, h.Corruptions()
}

// Key returns the Redis key of a state.
func (h *Hooks) Key(t *testing.T, s ratelimit.Store, key string, limit *ratelimit.Limit) string {
	t.Helper()
	codec, err := lua.NewCodec(h.Prefix(s), nil)
	if err != nil {
		t.Fatalf("redishooks: %v", err)
	}
	plan, err := codec.Plan(limit)
	if err != nil {
		t.Fatalf("redishooks: %v", err)
	}
	return plan.Key(key)
}

// Do runs a command on the master that holds its key.
func (h *Hooks) Do(t *testing.T, args ...string) any {
	t.Helper()
	for _, m := range h.Masters() {
		reply, err := m.Do(args...)
		var refused redisserver.ReplyError
		if errors.As(err, &refused) && strings.HasPrefix(string(refused), "MOVED") {
			continue
		}
		if err != nil {
			t.Fatalf("redishooks: %s: %v", args[0], err)
		}
		return reply
	}
	t.Fatalf("redishooks: %s: no master holds the key", args[0])
	return nil
}

// TTL is storetest.Config.TTL.
func (h *Hooks) TTL(t *testing.T, s ratelimit.Store, key string, limit *ratelimit.Limit) time.Duration {
	t.Helper()
	ms, _ := h.Do(t, "PTTL", h.Key(t, s, key, limit)).(int64)
	switch ms {
	case -2:
		return -1
	case -1:
		return 0
	default:
		return max(time.Duration(ms)*time.Millisecond, time.Microsecond)
	}
}

// Persist is storetest.Config.Persist.
func (h *Hooks) Persist(t *testing.T, s ratelimit.Store, key string, limit *ratelimit.Limit) {
	t.Helper()
	h.Do(t, "PERSIST", h.Key(t, s, key, limit))
}

// writing are the commands that a script for rate limits could write with.
var writing = strings.Fields(`
	append copy decr decrby del expire expireat getdel getex getset hdel hincrby hincrbyfloat hmset hset hsetnx incr incrby
	incrbyfloat linsert lmove lpop lpush lpushx lrem lset ltrim mset msetnx persist pexpire pexpireat psetex rename restore
	rpop rpoplpush rpush rpushx sadd set setex setnx setrange spop srem unlink xadd xtrim zadd zincrby zpopmin zpopmax zrem
	zremrangebyrank zremrangebyscore`)

// Writes is storetest.Config.Writes.
func (h *Hooks) Writes(t *testing.T, _ ratelimit.Store) (n int64) {
	t.Helper()
	for _, m := range h.Masters() {
		info, err := m.Info("commandstats")
		if err != nil {
			t.Fatalf("redishooks: INFO: %v", err)
		}
		for _, command := range writing {
			calls, _, _ := strings.Cut(strings.TrimPrefix(info["cmdstat_"+command], "calls="), ",")
			if c, err := strconv.ParseInt(calls, 10, 64); err == nil {
				n += c
			}
		}
	}
	return n
}
