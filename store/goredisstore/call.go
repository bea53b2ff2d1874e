package goredisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/lua"
)

// A call is one script call on its way: what to send, who waits for it, and what came of it.
type call struct {
	script *lua.Script
	key    string
	args   []any // of EVALSHA
	cmd    *command
	err    error // at first why cmd was not carried out, where cmd itself does not say; in the end what the caller gets

	ctx  context.Context // the caller's
	done chan struct{}   // is sent one value when nothing more is done with the call
	left atomic.Bool     // the caller does not wait any more

	// Guarded by queue.mu.
	prev, next *call  // while it is queued
	batch      *batch // once it is not

	first command           // cmd, until there is another
	texts [usualArgs]string // of a take
}

// usualArgs are spec and cost.
const usualArgs = 2

// Pointers to texts become interfaces without an allocation, and go-redis writes what they point to.
var evalsha, eval any = "evalsha", "eval"

// takes are calls that are done, whose callers have read them, for further decisions. What go-redis has of one by then
// is nothing that it looks at again.
var takes = sync.Pool{New: func() any {
	c := &call{done: make(chan struct{}, 1)}
	c.args = []any{evalsha, nil, 1, &c.key, &c.texts[0], &c.texts[1]}
	c.begin()
	return c
}}

func newTake(plan *lua.Plan, key string, cost, extra int64, now string) *call {
	c := takes.Get().(*call)
	if texts := plan.AppendArgs(c.texts[:0], cost, extra, now); len(texts) > usualArgs {
		takes.Put(c)
		return newCall(plan.Script, []string{key}, texts)
	}
	c.script, c.key, c.args[1] = plan.Script, key, &plan.Script.SHA1
	return c
}

// reuse gives back what newTake returned, after it was carried out without an error.
func (c *call) reuse() {
	if c.cmd != &c.first || len(c.args) != 4+usualArgs {
		return
	}
	c.key, c.ctx, c.batch = "", nil, nil
	c.first.SetVal(nil)
	c.first.Cmd.SetErr(nil)
	c.first.whole = false
	takes.Put(c)
}

func newCall(script *lua.Script, keys, args []string) *call {
	c := &call{script: script, key: keys[0], args: make([]any, 3, 3+len(keys)+len(args)), done: make(chan struct{}, 1)}
	c.args[0], c.args[1], c.args[2] = evalsha, &script.SHA1, len(keys)
	for i := range keys {
		c.args = append(c.args, &keys[i])
	}
	for i := range args {
		c.args = append(c.args, &args[i])
	}
	c.begin()
	return c
}

func (c *call) begin() {
	c.first = newCommand(c, c.args)
	c.cmd = &c.first
}

// again makes c ready to be sent once more, which is right only after an error reply: the script did not run.
func (c *call) again(args []any) {
	cmd := newCommand(c, args)
	c.cmd, c.err = &cmd, nil
}

// wait blocks until c is done or ctx is, and tells which.
func (c *call) wait(ctx context.Context) (done bool) {
	if ctx.Done() == nil {
		<-c.done
		return true
	}
	select {
	case <-c.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// source is the arguments of EVAL.
func (c *call) source() []any {
	args := append([]any(nil), c.args...)
	args[0], args[1] = eval, &c.script.Source
	return args
}

// noScript tells whether the server asks for EVAL, which is sent once.
func (c *call) noScript() bool {
	err := c.cmd.Err()
	return err != nil && c.cmd.Cmd.Args()[0] == evalsha && isReply(err) && lua.NoScript(err.Error())
}

// lost tells whether no reply came.
func (c *call) lost() bool {
	if c.cmd.answered() {
		return false
	}
	err := c.cmd.Err()
	if err == nil {
		err = c.err
	}
	return err != nil && !isReply(err)
}

// settle reads what came of c; fail is what to say where neither a reply nor an error is there.
//
// go-redis puts the error that ended a pipeline on every command in it, on those as well whose replies it had read by
// then. Those were carried out, so the reply counts. No script of ours replies with nil.
func (c *call) settle(fail error) {
	switch err := c.cmd.Err(); {
	case c.cmd.answered():
		c.err = nil
	case err != nil:
		c.err = failure(err)
	case c.err != nil:
		c.err = failure(c.err)
	default:
		c.err = fail
	}
}

// reply is what came back, for lua to read; what is none of its replies becomes a text that it refuses.
func (c *call) reply() lua.Reply {
	switch v := c.cmd.Val().(type) {
	case int64:
		return lua.Reply{Int: v}
	case string:
		if v != "" {
			return lua.Reply{Text: v}
		}
	}
	return lua.Reply{Text: "?"}
}

// A command is what go-redis is given. It is never replayed.
type command struct {
	*redis.Cmd
	call  *call
	whole bool // a reply was read to its end
}

var _ redis.Cmder = (*command)(nil)

func newCommand(c *call, args []any) command {
	cmd := command{Cmd: redis.NewCmd(context.Background(), args...), call: c}
	cmd.SetFirstKeyPos(3) // and one key after the other, so that a ClusterClient need not ask the server about EVALSHA
	cmd.SetStepCount(1)
	return cmd
}

// NoRetry keeps go-redis from sending the command, or the pipeline it is in, a second time.
func (c *command) NoRetry() bool { return true }

// SetErr is called once the reply was read or could not be, and again with what ended the pipeline. A reply that broke off
// leaves a value too, an empty one.
func (c *command) SetErr(err error) {
	c.whole = c.whole || err == nil && c.Val() != nil
	c.Cmd.SetErr(err)
}

// answered tells whether there is a reply.
func (c *command) answered() bool {
	return c.Val() != nil && (c.whole || c.Err() == nil)
}

// Args is what go-redis writes. A command that waited for a connection until its caller had gone is not sent. A pipeline
// cannot be cut short any more by then, so something else goes in its place, a look that never writes.
func (c *command) Args() []any {
	if c.call.left.Load() {
		return []any{evalsha, lua.History.SHA1, 1, c.call.key, 1, 0, 0}
	}
	return c.Cmd.Args()
}

// failure is the error of this library for one of go-redis.
func failure(err error) error {
	switch {
	case errors.Is(err, errPanic):
		return err
	case isReply(err):
		return lua.Refused(err)
	default:
		return lua.Unavailable(err)
	}
}

// isReply tells an error that the server replied from one of the network or the client.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// errNothing is a client that neither carries a command out nor says why.
var errNothing = fmt.Errorf("%w: the client made no reply of a command", ratelimit.ErrMisconfigured)

// errPanic is a fault of the client's or of a hook of its, and no outage.
var errPanic = errors.New("goredisstore: the Redis client or a hook of it panicked")

// panicked turns what recover returned into an error. What may hold a key is left out of the text.
func panicked(p any) error {
	if err, ok := p.(runtime.Error); ok {
		return fmt.Errorf("%w: %w", errPanic, err)
	}
	return fmt.Errorf("%w with a %T", errPanic, p)
}
