package lua

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluicego/ratelimit"
)

// A Batch is one call of TakeAll on its way: what to send, and how to read the answer.
type Batch struct {
	Keys []string
	Args []string

	merged ratelimit.Batch
	plans  []*Plan
}

// TakeAll prepares one call of the TakeAll script. Errors are those of invalid requests, and ErrCrossSlot where the
// keys' hash tags differ, which no Cluster could decide together.
func (c *Codec) TakeAll(reqs []ratelimit.Request) (*Batch, error) {
	merged, err := ratelimit.Merge(reqs)
	if err != nil {
		return nil, err
	}
	n := len(merged.Requests)
	b := &Batch{Keys: make([]string, n), Args: make([]string, 1, 1+3*n), merged: merged, plans: make([]*Plan, n)}
	b.Args[0] = c.Now()
	extra := false
	for i := range merged.Requests {
		r := &merged.Requests[i]
		if i > 0 && !ratelimit.SameTag(r.Key, merged.Requests[0].Key) {
			return nil, ratelimit.ErrCrossSlot
		}
		if b.plans[i], err = c.Plan(r.Limit); err != nil {
			return nil, err
		}
		b.Keys[i] = b.plans[i].Key(r.Key)
		b.Args = append(b.Args, b.plans[i].Spec, strconv.FormatInt(r.Cost, 10))
		extra = extra || r.Extra != 0
	}
	for i := 0; extra && i < n; i++ {
		b.Args = append(b.Args, strconv.FormatInt(merged.Requests[i].Extra, 10))
	}
	return b, nil
}

// Results decodes the reply of the TakeAll script into one Result for each request.
func (b *Batch) Results(text string) ([]ratelimit.Result, error) {
	results := make([]ratelimit.Result, len(b.plans))
	for i, p := range b.plans {
		part, rest, more := strings.Cut(text, ",")
		if part == "" || more != (i < len(b.plans)-1) {
			return nil, fmt.Errorf("%w (%d decisions)", errReply, len(b.plans))
		}
		reply := Reply{Text: part}
		if n, err := strconv.ParseInt(part, 10, 64); err == nil {
			reply = Reply{Int: n}
		}
		var err error
		if results[i], err = p.Result(reply, b.merged.Requests[i].Cost); err != nil {
			return nil, err
		}
		text = rest
	}
	return b.merged.Results(results), nil
}
