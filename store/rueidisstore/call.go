package rueidisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluicego/ratelimit/lua"
)

// A call is one script call: what to send, and what came back. It is reused.
type call struct {
	script *lua.Script
	keys   []string
	args   []string

	client rueidis.Client
	cmd    rueidis.Completed
	lane   lane
	trip   *trip
	msg    rueidis.RedisMessage
	err    error
	done   chan struct{} // gets a value when msg and err are there and the caller is still waiting
	travel func()        // the method, made a func once, since a go statement would make one each time

	keySpace [1]string
	argSpace [lua.MaxArgs]string
}

var calls sync.Pool

func newCall(script *lua.Script) *call {
	c, _ := calls.Get().(*call)
	if c == nil {
		c = &call{done: make(chan struct{}, 1)}
		c.travel = c.away
	}
	c.script, c.keys, c.args = script, c.keySpace[:0], c.argSpace[:0]
	return c
}

// end gives the call back for reuse and returns its outcome.
func (c *call) end() (rueidis.RedisMessage, error) {
	msg, err := c.msg, c.err
	c.keySpace, c.argSpace = [1]string{}, [lua.MaxArgs]string{}
	c.keys, c.args, c.client, c.cmd, c.trip = nil, nil, nil, rueidis.Completed{}, nil
	c.msg, c.err = rueidis.RedisMessage{}, nil
	calls.Put(c)
	return msg, err
}

// run makes the call and returns the reply, or ctx's error as soon as ctx is done. It has c afterwards.
//
// rueidis itself does not always return then: it waits for another caller's dial, for a place in its ring, and for
// a lone command's reply up to the deadline only, and then closes the connection that others use. So where ctx can
// end, the call travels in a goroutine of its own, under a context that does not end, and only the caller leaves.
// The lanes bound those goroutines, and rueidis ends them by Dialer.Timeout and ConnWriteTimeout.
func (s *Store) run(ctx context.Context, c *call) (rueidis.RedisMessage, error) {
	l, err := s.connected()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		c.err = err
		return c.end()
	}
	c.client, c.cmd = l.client, c.command(l.client)
	c.lane = l.lane(c.cmd.Slot())
	ended := ctx.Done()
	select {
	case c.lane <- struct{}{}:
	default:
		select {
		case c.lane <- struct{}{}:
		case <-ended:
			c.err = ctx.Err()
			return c.end()
		}
	}
	if ended == nil {
		c.send(ctx)
	} else {
		t := &trip{Context: ctx}
		c.trip = t
		go c.travel()
		select {
		case <-c.done:
		case <-ended:
			if t.leave() {
				return rueidis.RedisMessage{}, ctx.Err()
			}
			<-c.done
		}
	}
	if c.err != nil {
		c.err = classify(c.err)
	}
	return c.end()
}

// away is the goroutine of a call whose caller may leave.
func (c *call) away() {
	defer func() { // even if a hook of the client's ends this goroutine
		if c.trip.arrive() {
			c.done <- struct{}{}
		} else {
			_, _ = c.end()
		}
	}()
	c.send(c.trip)
}

// send sends EVALSHA, and EVAL once if the server does not know the script. It leaves the lane.
func (c *call) send(ctx context.Context) {
	c.err = errGone
	defer func() {
		if p := recover(); p != nil {
			c.err = panicked(p)
		}
		<-c.lane
	}()
	c.msg, c.err = c.client.Do(ctx, c.cmd).ToMessage()
	if refused, ok := rueidis.IsRedisErr(c.err); ok && lua.NoScript(refused.Error()) && ctx.Err() == nil {
		cmd := c.client.B().Eval().Script(c.script.Source).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
		c.msg, c.err = c.client.Do(ctx, cmd).ToMessage()
	}
}

func (c *call) command(client rueidis.Client) rueidis.Completed {
	return client.B().Evalsha().Sha1(c.script.SHA1).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
}

// A trip is the context of a call that travels alone: the caller's values, but no end, for rueidis would free the
// caller's place in the ring no sooner. Err tells rueidis, which asks before it sends and before it follows a
// redirection, that the caller has left.
type trip struct {
	context.Context
	state atomic.Uint32
}

const (
	left    = 1
	arrived = 2
)

func (t *trip) leave() bool  { return t.state.CompareAndSwap(0, left) }
func (t *trip) arrive() bool { return t.state.CompareAndSwap(0, arrived) }

func (t *trip) Deadline() (time.Time, bool) { return time.Time{}, false }
func (t *trip) Done() <-chan struct{}       { return nil }

func (t *trip) Err() error {
	if t.state.Load() == left {
		return context.Canceled
	}
	return nil
}
