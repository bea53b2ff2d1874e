package lua

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluicego/ratelimit"
)

// A Batch is one call of TakeAll on its way: what to send, and how to read the answer.
type Batch struct {
	Script *Script
	Keys   []string
	Args   []string

	merged ratelimit.Batch
	plans  []*Plan
}

// TakeAll prepares one call of the script for reqs. Errors are those of invalid requests, and ErrCrossSlot where the
// keys' hash tags differ, which no Cluster could decide together.
func (c *Codec) TakeAll(reqs []ratelimit.Request) (*Batch, error) {
	merged, err := ratelimit.Merge(reqs)
	if err != nil {
		return nil, err
	}
	n := len(merged.Requests)
	b := &Batch{Keys: make([]string, n), merged: merged, plans: make([]*Plan, n)}
	if n == 0 {
		return b, nil
	}
	var space [256]byte
	specs, each := space[:0], false
	for i := range merged.Requests {
		r := &merged.Requests[i]
		if !ratelimit.SameTag(r.Key, merged.Requests[0].Key) {
			return nil, ratelimit.ErrCrossSlot
		}
		p, err := c.Plan(r.Limit)
		if err != nil {
			return nil, err
		}
		b.plans[i], b.Keys[i] = p, p.Key(r.Key)
		if i > 0 {
			specs = append(specs, ' ')
		}
		specs = append(specs, p.Spec...)
		each = each || r.Cost != 1 || r.Extra != 0
	}
	b.Script = takeAllOf(b.plans)
	b.Args = append(make([]string, 0, 2), string(specs))
	if now := c.Now(); now != "" || each {
		b.Args = append(b.Args, now)
	}
	for i := 0; each && i < n; i++ {
		r := &merged.Requests[i]
		b.Args = append(b.Args, strconv.FormatInt(r.Cost, 10), strconv.FormatInt(r.Extra, 10))
	}
	return b, nil
}

// Results decodes the reply of the script into one Result for each request.
func (b *Batch) Results(text string) ([]ratelimit.Result, error) {
	results := make([]ratelimit.Result, len(b.plans))
	for i, p := range b.plans {
		part, rest, more := strings.Cut(text, ",")
		if part == "" || more != (i < len(b.plans)-1) {
			return nil, fmt.Errorf("%w (%d decisions)", errReply, len(b.plans))
		}
		var err error
		if results[i], err = p.Result(replyIn(part, p.limit.Algorithm), b.merged.Requests[i].Cost); err != nil {
			return nil, err
		}
		text = rest
	}
	return b.merged.Results(results), nil
}

// replyIn reads one reply of several: an integer, the state of a bucket in its place, or a text.
func replyIn(text string, a ratelimit.Algorithm) Reply {
	at, number, state := strings.Cut(text, " ")
	if !state {
		number = text
	} else if _, err := strconv.ParseUint(at, 10, 64); err != nil || a != ratelimit.TokenBucket {
		return Reply{Text: text}
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		return Reply{Int: n}
	}
	return Reply{Text: text}
}
