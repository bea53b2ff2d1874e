// Package rueidisstore is a ratelimit.Store on Redis over rueidis: one round trip a decision, written to the
// connection together with those of other callers by rueidis itself.
//
// It sends nothing but EVALSHA and EVAL, at least one key each, through the caller's client: a single server, Sentinel,
// a Cluster. rueidis never sends those twice after a lost reply, whatever ClientOption.DisableRetry says, and follows
// redirections, which servers answer in place of executing. One option undoes that: with ClientOption.ConnLifetime
// set, rueidis repeats what has no reply a second after a connection's time was up, if the caller still waits. Leave it
// at 0 where a debit must not run twice while the server hangs.
package rueidisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/lua"
)

// Options are how a Store is built; the zero value is the default.
type Options struct {
	// Prefix begins every Redis key: [A-Za-z0-9_.-]+, "rl" if it is empty.
	Prefix string
	// Clock tells the time in place of the Redis server's TIME: for replays, tests, and servers that refuse TIME in
	// scripts. It is called by many goroutines at once. A key then lives a minute at least.
	Clock func() time.Time
}

// A Store decides in Redis. It is safe for concurrent use.
type Store struct {
	codec *lua.Codec
	link  *link // nil if lazy is not
	lazy  *lazy
}

var (
	_ ratelimit.Store     = (*Store)(nil)
	_ ratelimit.Historian = (*Store)(nil)
)

// New returns a Store over client, which stays the caller's: there is nothing to close. It asks the server nothing.
// A nil client or a Prefix with other bytes is an error.
func New(client rueidis.Client, o Options) (*Store, error) {
	if client == nil {
		return nil, errors.New("rueidisstore: client is nil")
	}
	codec, err := lua.NewCodec(o.Prefix, o.Clock)
	if err != nil {
		return nil, err
	}
	return &Store{codec: codec, link: newLink(client)}, nil
}

// Take decides req. It returns with ctx's error within a millisecond of ctx being done, whatever the server does, and
// it is then unknown whether the units were spent. ErrStoreUnavailable is an outage, ErrMisconfigured a server that
// answers but refuses.
func (s *Store) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	if err := req.Validate(); err != nil {
		return ratelimit.Result{}, err
	}
	plan, err := s.codec.Plan(req.Limit)
	if err != nil {
		return ratelimit.Result{}, err
	}
	if req.Cost > req.Limit.Capacity() { // Never, whatever the state, which stays as it is
		return plan.Machine.Report(ratelimit.Outcome{}, req.Cost), ctx.Err()
	}
	c := newCall(plan.Script)
	c.keys = append(c.keys, plan.Key(req.Key))
	c.args = plan.AppendArgs(c.args, req.Cost, req.Extra, s.codec.Now())
	msg, err := s.run(ctx, c)
	if err != nil {
		return ratelimit.Result{}, err
	}
	return plan.Result(replyOf(&msg), req.Cost)
}

// TakeAll decides reqs together in one script. Requests whose keys differ in their hash tag are ErrCrossSlot, on a
// single server too.
func (s *Store) TakeAll(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
	batch, err := s.codec.TakeAll(reqs)
	if err != nil {
		return nil, err
	}
	if len(batch.Keys) == 0 {
		return []ratelimit.Result{}, ctx.Err()
	}
	c := newCall(batch.Script)
	c.keys, c.args = batch.Keys, batch.Args
	msg, err := s.run(ctx, c)
	if err != nil {
		return nil, err
	}
	return batch.Results(replyOf(&msg).Text)
}

// Reset forgets what key has spent under limits.
func (s *Store) Reset(ctx context.Context, key string, limits ...*ratelimit.Limit) error {
	keys, err := s.codec.ResetKeys(key, limits)
	if err != nil {
		return err
	}
	c := newCall(lua.Reset)
	c.keys = keys
	_, err = s.run(ctx, c)
	return err
}

// replyOf returns what a script replied. What none of ours replies becomes a text that none of ours does.
func replyOf(msg *rueidis.RedisMessage) lua.Reply {
	if msg.IsInt64() {
		n, _ := msg.ToInt64()
		return lua.Reply{Int: n}
	}
	if text, err := msg.ToString(); err == nil && text != "" {
		return lua.Reply{Text: text}
	}
	return lua.Reply{Text: "?"}
}
