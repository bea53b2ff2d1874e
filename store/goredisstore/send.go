package goredisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// A node is where the calls of one queue go.
type node struct {
	one     func(ctx context.Context, cmd redis.Cmder) error
	pipe    func() redis.Pipeliner // nil: calls go one by one
	cluster *redis.ClusterClient   // that it belongs to, or nil
}

// send carries out calls, each once. What the server refused without running it is sent again where that helps: for the
// want of a script by EVAL, once, and to another node of a Cluster.
func (n *node) send(ctx context.Context, calls []*call) {
	n.exec(ctx, calls)
	var unknown, moved []*call
	for _, c := range calls {
		if c.noScript() && !c.left.Load() {
			c.again(c.source())
			unknown = append(unknown, c)
		}
	}
	if len(unknown) > 0 {
		n.exec(ctx, unknown)
	}
	if n.cluster == nil {
		return
	}
	lost := false
	for _, c := range calls {
		if elsewhere(c.cmd.Err()) && !c.left.Load() {
			moved = append(moved, c)
		}
		lost = lost || c.lost()
	}
	n.follow(ctx, moved)
	if lost {
		// A command that is not to be replayed does not make the client look for who has taken over, which it would
		// only do by itself a minute later.
		n.cluster.ReloadState(ctx)
	}
}

// exec sends calls once, together.
func (n *node) exec(ctx context.Context, calls []*call) {
	if len(calls) == 1 || n.pipe == nil {
		for _, c := range calls {
			c.err = n.one(ctx, c.cmd)
		}
		return
	}
	cmds := make([]redis.Cmder, len(calls))
	for i, c := range calls {
		cmds[i] = c.cmd
	}
	pipe := n.pipe()
	_ = pipe.BatchProcess(ctx, cmds...) // only queues them
	_, err := pipe.Exec(ctx)
	for _, c := range calls {
		c.err = err // counts where the commands were not told: no connection could be had
	}
}

// elsewhere tells the errors of a node that is not in charge, or not now. It did not run the script.
func elsewhere(err error) bool {
	if err == nil {
		return false
	}
	if _, ok := redis.IsMovedError(err); ok {
		return true
	}
	if _, ok := redis.IsAskError(err); ok {
		return true
	}
	return redis.IsTryAgainError(err) || redis.IsClusterDownError(err) || errors.Is(err, redis.ErrClosed)
}

// followers is how many redirected calls are in flight at a time.
const followers = 8

// follow sends calls again by way of the ClusterClient, each alone, so that none waits for a node it has nothing to do
// with.
func (n *node) follow(ctx context.Context, calls []*call) {
	if len(calls) == 1 {
		n.followOne(ctx, calls[0])
		return
	}
	var at atomic.Int64
	var wg sync.WaitGroup
	for range min(len(calls), followers) {
		wg.Go(func() {
			for i := at.Add(1); i <= int64(len(calls)); i = at.Add(1) {
				n.followOne(ctx, calls[i-1])
			}
		})
	}
	wg.Wait()
}

func (n *node) followOne(ctx context.Context, c *call) {
	defer func() {
		if p := recover(); p != nil {
			c.err = panicked(p)
		}
	}()
	c.again(c.cmd.Cmd.Args())
	c.err = n.cluster.Process(ctx, c.cmd)
	if c.noScript() && !c.left.Load() {
		c.again(c.source())
		c.err = n.cluster.Process(ctx, c.cmd)
	}
}
