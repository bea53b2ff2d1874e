package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit/store/goredisstore"
)

// scanOptions are how politely keys are counted.
type scanOptions struct {
	count    int64
	pause    time.Duration
	sample   int
	largest  int
	showKeys bool
}

func (c *call) keysFlags() {
	c.flags.Int64Var(&c.scan.count, "count", 100, "how many keys to ask for at a time")
	c.flags.DurationVar(&c.scan.pause, "pause", 10*time.Millisecond, "how long to leave the server alone after each time")
	c.flags.IntVar(&c.scan.sample, "sample", 10, "measure one key in so many, but each sliding log, which alone can be large; 0 measures none")
	c.flags.IntVar(&c.scan.largest, "largest", 5, "how many of the largest keys to tell of")
	c.flags.BoolVar(&c.scan.showKeys, "show-keys", false, "tell their names too, which may be secrets or personal data")
}

// keys counts what a store keeps in Redis, and measures a sample of it.
func keys(ctx context.Context, c *call) error {
	if err := c.want(0, "none"); err != nil {
		return err
	}
	if o := c.scan; o.count < 1 || o.pause < 0 || o.sample < 0 || o.largest < 0 {
		return fmt.Errorf("-count %d is below 1, or -pause %v, -sample %d or -largest %d below 0", o.count, o.pause, o.sample, o.largest)
	}
	client, err := c.openRedis()
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := goredisstore.New(client, goredisstore.Options{Prefix: c.prefix}); err != nil {
		return err // the prefix
	}
	all := newCensus(c.prefix, c.scan)
	if cluster, ok := client.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return all.scan(ctx, node) })
	} else {
		err = all.scan(ctx, client)
	}
	if err != nil {
		return err
	}
	v := all.result()
	return c.print(v, func(w io.Writer) { printCensus(w, v) })
}

// A census is what was counted so far. Nodes of a Cluster are scanned at the same time.
type census struct {
	prefix string
	o      scanOptions

	mu      sync.Mutex
	kinds   map[kind]*tally
	largest []largeKey
}

// scan goes over a server's keys once. Each is counted, but twice where the server makes its table larger meanwhile, and
// not at all if it comes later or expires.
func (c *census) scan(ctx context.Context, node redis.Cmdable) error {
	for cursor := uint64(0); ; {
		page, next, err := node.Scan(ctx, cursor, c.prefix+"*", c.o.count).Result()
		if err != nil {
			return err
		}
		if err := c.look(ctx, node, page); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
		select {
		case <-time.After(c.o.pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look asks for the TTL of each key of a page, and the size of some, in one round trip.
func (c *census) look(ctx context.Context, node redis.Cmdable, page []string) error {
	type ask struct {
		key  string
		kind kind
		ttl  *redis.DurationCmd
		size *redis.IntCmd
	}
	var asks []ask
	pipe := node.Pipeline()
	c.mu.Lock()
	for _, key := range page {
		k, ok := kindOf(c.prefix, key)
		if !ok {
			continue
		}
		a := ask{key: key, kind: k, ttl: pipe.PTTL(ctx, key)}
		if c.of(k).measure(c.o.sample) {
			a.size = pipe.MemoryUsage(ctx, key)
		}
		asks = append(asks, a)
	}
	c.mu.Unlock()
	if len(asks) == 0 {
		return nil
	}
	if _, err := pipe.Exec(ctx); err != nil && err != redis.Nil { // a key that is gone has no size
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range asks {
		ttl := a.ttl.Val()
		if ttl == -2 {
			continue // it is gone
		}
		t := c.of(a.kind)
		t.keys++
		if ttl == -1 {
			t.withoutTTL++
		}
		if a.size != nil {
			if err := a.size.Err(); err == redis.Nil {
				continue
			} else if err != nil {
				return err
			}
			t.measured++
			t.bytes += a.size.Val()
			c.consider(largeKey{a.kind, a.size.Val(), max(0, ttl.Seconds()), a.key})
		}
	}
	return nil
}
