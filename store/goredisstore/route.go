package goredisstore

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// A router finds the queue of a Redis key. It does no I/O.
type router interface {
	queue(ctx context.Context, key string) (*queue, error)
}

var errNilClient = errors.New("goredisstore: client is nil")

func newRouter(client Client, noBatch bool) (router, error) {
	switch c := client.(type) {
	case nil:
		return nil, errNilClient
	case *redis.Client:
		if c == nil {
			return nil, errNilClient
		}
		n := &node{one: c.Process, pipe: c.Pipeline}
		return one{newQueue(n.send, noBatch, c.Options().PoolSize)}, nil
	case *redis.ClusterClient:
		if c == nil {
			return nil, errNilClient
		}
		r := &cluster{client: c, nodes: nodes{noBatch: noBatch, pool: c.Options().PoolSize}}
		r.nodes.node = func(client *redis.Client) *node {
			return &node{one: c.Process, pipe: client.Pipeline, cluster: c}
		}
		r.lobby = newQueue(r.open, noBatch, c.Options().PoolSize)
		return r, nil
	case *redis.Ring:
		if c == nil {
			return nil, errNilClient
		}
		r := &ring{client: c, nodes: nodes{noBatch: noBatch, pool: c.Options().PoolSize}}
		r.nodes.node = func(client *redis.Client) *node { return &node{one: client.Process, pipe: client.Pipeline} }
		return r, nil
	default:
		n := &node{one: c.Process}
		q := newQueue(n.send, true, places*runtime.GOMAXPROCS(0))
		q.batches = nil // no worker stays: it may be a fake in a test that waits for every goroutine
		return one{q}, nil
	}
}

// places, for each CPU, are what a client of an unknown type gets; go-redis's pools have as many by default.
const places = 10

// newQueue returns a queue of batches, or of single calls over as many connections as there are.
func newQueue(send func(context.Context, []*call), noBatch bool, pool int) *queue {
	q := &queue{send: send, most: batchMost, eager: batchEager, limit: batchLimit}
	if noBatch {
		q.most, q.eager, q.limit = 1, max(pool, 1), max(pool, 1)
	}
	q.batches = make(chan *batch, min(q.limit, mostParked))
	return q
}

// one is the router where there is one server.
type one struct{ q *queue }

func (o one) queue(context.Context, string) (*queue, error) { return o.q, nil }

// ring is the router of a Ring's shards.
type ring struct {
	client *redis.Ring
	nodes  nodes
}

func (r *ring) queue(_ context.Context, key string) (*queue, error) {
	client, err := r.client.GetShardClientForKey(key)
	if err != nil {
		return nil, err
	}
	return r.nodes.queue(client), nil
}

// cluster is the router of a Cluster's masters. Until the client has once learnt who they are, which takes I/O, calls
// meet in a lobby.
type cluster struct {
	client *redis.ClusterClient
	nodes  nodes
	lobby  *queue
	known  atomic.Bool
}

func (r *cluster) queue(ctx context.Context, key string) (*queue, error) {
	if !r.known.Load() {
		return r.lobby, nil
	}
	return r.master(ctx, key)
}

func (r *cluster) master(ctx context.Context, key string) (*queue, error) {
	client, err := r.client.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	return r.nodes.queue(client), nil
}

// open sends what met in the lobby to the masters it belongs to.
func (r *cluster) open(ctx context.Context, calls []*call) {
	groups := make(map[*queue][]*call)
	for i, c := range calls {
		q, err := r.master(ctx, c.key)
		if err != nil {
			for _, c := range calls[i:] {
				c.err = err
			}
			break
		}
		r.known.Store(true)
		groups[q] = append(groups[q], c)
	}
	var wg sync.WaitGroup
	for q, group := range groups {
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					for _, c := range group {
						c.err = panicked(p)
					}
				}
			}()
			q.send(ctx, group)
		})
	}
	wg.Wait()
}

// nodes are the queues of the servers behind one client.
type nodes struct {
	node    func(*redis.Client) *node
	noBatch bool
	pool    int

	queues sync.Map // *redis.Client to *queue
	mu     sync.Mutex
	count  int
	sweep  int // the count at which queues are looked through
}

const firstSweep = 64

func (n *nodes) queue(client *redis.Client) *queue {
	if q, ok := n.queues.Load(client); ok {
		return q.(*queue)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	q, found := n.queues.LoadOrStore(client, newQueue(n.node(client).send, n.noBatch, n.pool))
	if !found {
		n.count++
		n.clean()
	}
	return q.(*queue)
}

// clean forgets idle queues when there are many, for servers come and go. One that is needed again is made again.
func (n *nodes) clean() {
	if n.count < max(n.sweep, firstSweep) {
		return
	}
	n.queues.Range(func(client, q any) bool {
		if q.(*queue).idle() {
			n.queues.Delete(client)
			n.count--
		}
		return true
	})
	n.sweep = 2 * n.count
}
