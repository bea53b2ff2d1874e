package lua

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicego/ratelimit"
)

// A Codec turns requests into script calls for one store. It is safe for concurrent use.
type Codec struct {
	prefix string
	clock  func() time.Time
	last   atomic.Pointer[Plan]

	mu    sync.RWMutex
	plans map[ratelimit.Limit]*Plan
}

// NewCodec returns a Codec whose keys begin with prefix, [A-Za-z0-9_.-]+, "rl" if it is empty. A nil clock leaves the
// time to the server.
func NewCodec(prefix string, clock func() time.Time) (*Codec, error) {
	if prefix == "" {
		prefix = "rl"
	}
	if (ratelimit.Limit{Name: prefix, Rate: 1, Period: time.Second}).Validate() != nil {
		return nil, fmt.Errorf("ratelimit: Prefix %.40q has a byte outside [A-Za-z0-9_.-]", prefix)
	}
	if strings.HasSuffix(prefix, "-log") || strings.HasSuffix(prefix, "-win") {
		return nil, fmt.Errorf("ratelimit: Prefix %.40q ends in -log or -win, which tell algorithms apart", prefix)
	}
	return &Codec{prefix: prefix, clock: clock}, nil
}

// Now is the time to pass to a script: empty where the server's own time decides.
func (c *Codec) Now() string {
	if c.clock == nil {
		return ""
	}
	return strconv.FormatInt(min(max(c.clock().UnixMicro(), 0), 1<<53-1), 10)
}

// A Plan is what a script call needs to know of a limit, worked out once.
type Plan struct {
	Machine *ratelimit.Machine
	Script  *Script
	Spec    string // the script's first argument
	limit   ratelimit.Limit
	before  string // what stands before the key, "rl:" or "rl-log:name:"
}

// mostPlans bounds the memory of a service whose limits change all the time.
const mostPlans = 4096

// longest is the longest Period that the scripts' arithmetic holds for. A ratelimit.Share may be longer.
const longest = 366 * 24 * time.Hour

// Plan returns the plan of limit, or an error that is ErrInvalidLimit. It does not keep the pointer.
func (c *Codec) Plan(limit *ratelimit.Limit) (*Plan, error) {
	if p := c.last.Load(); p != nil && p.limit == *limit {
		return p, nil
	}
	c.mu.RLock()
	p := c.plans[*limit]
	c.mu.RUnlock()
	if p == nil {
		m, err := ratelimit.NewMachine(*limit)
		if err != nil {
			return nil, err
		}
		if limit.Period > longest {
			return nil, fmt.Errorf("%w: Period %v of a share is above 366 days, which Redis stores do not take", ratelimit.ErrInvalidLimit, limit.Period)
		}
		p = c.plan(m)
		c.mu.Lock()
		if c.plans == nil || len(c.plans) >= mostPlans {
			c.plans = make(map[ratelimit.Limit]*Plan)
		}
		c.plans[p.limit] = p
		c.mu.Unlock()
	}
	c.last.Store(p)
	return p, nil
}

func (c *Codec) plan(m *ratelimit.Machine) *Plan {
	limit := m.Limit()
	p := &Plan{Machine: m, Script: scriptOf(limit.Algorithm), limit: limit, before: c.prefix}
	switch limit.Algorithm {
	case ratelimit.SlidingLog:
		p.before += "-log"
		p.Spec = fmt.Sprintf("%d:%d:log", limit.Period.Microseconds(), limit.Rate)
	case ratelimit.SlidingCounter:
		p.before += "-win"
		p.Spec = fmt.Sprintf("%d:%d:win", limit.Period.Microseconds(), limit.Rate)
	default:
		parts, refill := m.Parts()
		p.Spec = fmt.Sprintf("%d:%d:%d", parts, refill, limit.Capacity())
	}
	p.before += ":"
	if limit.Name != "" {
		p.before += limit.Name + ":"
	}
	return p
}

// ResetKeys returns the keys for the Reset script, or an error that is ErrInvalidLimit, which no limits are too, or
// ErrInvalidKey.
func (c *Codec) ResetKeys(key string, limits []*ratelimit.Limit) ([]string, error) {
	if len(limits) == 0 {
		return nil, fmt.Errorf("%w: none to reset", ratelimit.ErrInvalidLimit)
	}
	keys := make([]string, len(limits))
	for i, l := range limits {
		if err := (&ratelimit.Request{Key: key, Limit: l}).Validate(); err != nil {
			return nil, err
		}
		p, err := c.Plan(l)
		if err != nil {
			return nil, err
		}
		keys[i] = p.Key(key)
	}
	return keys, nil
}

// Key returns the Redis key of the plan's state for a key of the caller's.
func (p *Plan) Key(key string) string {
	var space [128]byte
	return string(ratelimit.AppendKey(append(space[:0], p.before...), key))
}

// MaxArgs is how many arguments AppendArgs appends at most.
const MaxArgs = 4

// AppendArgs appends the arguments of Script for one decision; now comes from Codec.Now.
func (p *Plan) AppendArgs(args []string, cost, extra int64, now string) []string {
	args = append(args, p.Spec, strconv.FormatInt(cost, 10))
	if now != "" || extra != 0 {
		args = append(args, now)
	}
	if extra != 0 {
		args = append(args, strconv.FormatInt(extra, 10))
	}
	return args
}

// A Reply is what a script returned: an integer, or a text that is not empty.
type Reply struct {
	Int  int64
	Text string
}

// Result decodes the reply of Script for the cost that was asked for. A reply that no script of this package gives is
// ErrMisconfigured.
func (p *Plan) Result(r Reply, cost int64) (ratelimit.Result, error) {
	o, ok := ratelimit.Outcome{}, false
	if r.Text != "" {
		o, ok = p.unusual(r.Text)
	} else {
		o, ok = p.usual(r.Int, cost)
	}
	if !ok {
		return ratelimit.Result{}, errReply
	}
	return p.Machine.Report(o, cost), nil
}

// usual reads an integer reply, and tells whether it is one.
func (p *Plan) usual(n, cost int64) (o ratelimit.Outcome, ok bool) {
	o = ratelimit.Outcome{Allowed: true, Taken: cost}
	switch p.limit.Algorithm {
	case ratelimit.SlidingLog:
		o.Units = n
		return o, 0 <= n && n < totals
	case ratelimit.SlidingCounter: // what the window before still counts for is counted as spent in this one
		o.At, o.Units = -n/(p.limit.Rate+1), n%(p.limit.Rate+1)
		return o, n > 0 && o.Units > 0 && -o.At < p.limit.Period.Microseconds()
	default:
		if n < 0 {
			o.Allowed, o.Taken, n = false, 0, -1-n
		}
		perToken, _ := p.Machine.Parts()
		o.Units, o.Part = n/perToken, n%perToken
		return o, o.Units <= p.limit.Capacity()
	}
}

var errReply = fmt.Errorf("%w: a reply of another script", ratelimit.ErrMisconfigured)

// unusual reads a text reply, five numbers, and tells whether it is one.
func (p *Plan) unusual(text string) (o ratelimit.Outcome, ok bool) {
	var n [5]int64
	for i := range n {
		field, rest, more := strings.Cut(text, " ")
		var err error
		if n[i], err = strconv.ParseInt(field, 10, 64); err != nil || more != (i < len(n)-1) {
			return o, false
		}
		text = rest
	}
	o = ratelimit.Outcome{Allowed: n[0] == 1, Taken: n[1], At: n[2], Units: n[3], Part: n[4]}
	const most = 1 << 53
	if n[0]&^1 != 0 || max(o.Taken, -o.Taken, o.At, -o.At) > most || min(o.Units, o.Part) < 0 || max(o.Units, o.Part) > most {
		return o, false
	}
	switch p.limit.Algorithm {
	case ratelimit.SlidingLog:
		o.Wait, o.Part = o.Part, 0
		return o, true
	case ratelimit.SlidingCounter:
		return o, max(o.Units, o.Part) <= 1e9 && -o.At < p.limit.Period.Microseconds()
	default:
		perToken, _ := p.Machine.Parts()
		return o, o.Units <= p.limit.Capacity() && o.Part < perToken && o.At >= 0
	}
}
