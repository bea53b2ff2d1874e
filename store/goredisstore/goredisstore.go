// Package goredisstore is a ratelimit.Store on Redis over go-redis v9: any client of its, single, Sentinel, Cluster or
// Ring, with whatever options.
//
// Decisions that are made at the same time are written to the connection together. A lone decision goes out alone and at
// once; one that arrives while others are on their way joins the next batch. A Cluster has such a queue for each master, a
// Ring for each shard.
//
// No debit runs twice: nothing is sent again once a reply may have been lost, whatever MaxRetries says. Only EVALSHA and
// EVAL are ever sent.
//
// Behind a server that hangs nothing piles up, however many callers come and go: at most 4 batches are on their way to it,
// or with NoBatch as many decisions as the client's PoolSize, and the client dials as often at a time as its pool is large.
// Callers leave with their contexts. When the server goes on, so does the store, at once; a connection that hangs for good
// is given up after the client's ReadTimeout, and one that is being made after its DialTimeout, DialerRetries times.
package goredisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/lua"
)

// A Client is what a Store needs of a redis.UniversalClient. Decisions are batched over a *redis.Client, which those of
// Sentinel are too, a *redis.ClusterClient and a *redis.Ring; a client of any other type is given them one by one.
//
// Hooks of a ClusterClient or a Ring do not see what is batched, for that goes to the nodes; hooks that are added to the
// nodes, by OnNewNode, see all. A command that has been carried out is used again, so a hook looks at one only while it is
// called.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Options are how a Store is built; the zero value is the default.
type Options struct {
	// Prefix begins every Redis key: [A-Za-z0-9_.-]+, "rl" if it is empty.
	Prefix string
	// Clock tells the time. Nil, which is best, is the Redis server's own TIME, for that is one clock for everybody. It is
	// called by many goroutines at once.
	Clock func() time.Time
	// NoBatch sends every decision by itself, each over a connection of its own for a whole round trip. Without it a few
	// connections are enough for any load. As many are on their way at a time as the client's PoolSize, for each server; to
	// a client of a type that the store does not know, 10 for each CPU. The others wait their turn, or leave.
	NoBatch bool
}

// A Store keeps the state of limits in Redis. It is safe for concurrent use. It has nothing to close: its goroutines live
// only while there are decisions to be made, and up to 40 ms longer. The client is the caller's.
type Store struct {
	codec  *lua.Codec
	router router
}

var (
	_ ratelimit.Store     = (*Store)(nil)
	_ ratelimit.Historian = (*Store)(nil)
)

// New returns a Store over client. It asks nothing of the server, which may be down.
func New(client Client, o Options) (*Store, error) {
	codec, err := lua.NewCodec(o.Prefix, o.Clock)
	if err != nil {
		return nil, err
	}
	r, err := newRouter(client, o.NoBatch)
	if err != nil {
		return nil, err
	}
	return &Store{codec: codec, router: r}, nil
}

// Take decides req in one round trip.
func (s *Store) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	if err := ended(ctx); err != nil {
		return ratelimit.Result{}, err
	}
	if err := req.Validate(); err != nil {
		return ratelimit.Result{}, err
	}
	plan, err := s.codec.Plan(req.Limit)
	if err != nil {
		return ratelimit.Result{}, err
	}
	if req.Cost > req.Limit.Capacity() {
		return plan.Machine.Report(ratelimit.Outcome{}, req.Cost), nil
	}
	c := newTake(plan, plan.Key(req.Key), req.Cost, req.Extra, s.codec.Now())
	if err := s.do(ctx, c); err != nil {
		return ratelimit.Result{}, err
	}
	reply := c.reply()
	c.reuse()
	return plan.Result(reply, req.Cost)
}

// TakeAll decides all of reqs in one round trip. Keys of different hash tags are ErrCrossSlot, on a single server too.
func (s *Store) TakeAll(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
	if err := ended(ctx); err != nil {
		return nil, err
	}
	batch, err := s.codec.TakeAll(reqs)
	if err != nil || len(reqs) == 0 {
		return nil, err
	}
	c := newCall(batch.Script, batch.Keys, batch.Args)
	if err := s.do(ctx, c); err != nil {
		return nil, err
	}
	return batch.Results(c.reply().Text)
}

// Reset forgets what key has spent under these limits.
func (s *Store) Reset(ctx context.Context, key string, limits ...*ratelimit.Limit) error {
	if err := ended(ctx); err != nil {
		return err
	}
	keys, err := s.codec.ResetKeys(key, limits)
	if err != nil {
		return err
	}
	return s.do(ctx, newCall(lua.Reset, keys, nil))
}

// do carries out c, whose first key tells where.
func (s *Store) do(ctx context.Context, c *call) error {
	q, err := s.router.queue(ctx, c.key)
	if err != nil {
		return failure(err)
	}
	return q.do(ctx, c)
}

// ended returns the error of a caller who has gone, and nil of one who has not.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != err {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
