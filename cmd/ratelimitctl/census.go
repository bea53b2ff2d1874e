package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sluicego/ratelimit"
)

// A kind is the limit that a key is of, as far as the key tells.
type kind struct {
	Algorithm ratelimit.Algorithm `json:"algorithm"`
	Name      string              `json:"name,omitempty"`
}

// kindOf reads a key of Redis: prefix, algorithm, name, and the key of ratelimit, which begins with a brace.
func kindOf(prefix, key string) (k kind, ok bool) {
	head, _, ok := strings.Cut(key, "{")
	if !ok {
		return k, false
	}
	head, ok = strings.CutPrefix(head, prefix)
	if !ok {
		return k, false
	}
	algorithm, name, ok := strings.Cut(head, ":")
	switch algorithm {
	case "":
		k.Algorithm = ratelimit.TokenBucket
	case "-log":
		k.Algorithm = ratelimit.SlidingLog
	case "-win":
		k.Algorithm = ratelimit.SlidingCounter
	default:
		return k, false
	}
	if name != "" {
		if k.Name, ok = strings.CutSuffix(name, ":"); strings.Contains(k.Name, ":") {
			return k, false
		}
	}
	return k, ok
}

// A tally is what was counted of one kind.
type tally struct {
	asked, keys, withoutTTL int64
	measured, bytes         int64
	log                     bool
}

// measure tells whether the next key is to be measured.
func (t *tally) measure(sample int) bool {
	t.asked++
	return sample > 0 && (t.log || (t.asked-1)%int64(sample) == 0)
}

// estimate is the bytes of all keys, by those that were measured.
func (t *tally) estimate() int64 {
	if t.measured == 0 {
		return 0
	}
	return int64(float64(t.bytes) / float64(t.measured) * float64(t.keys))
}

// maxKinds bounds what is told apart. Names are a handful, or somebody makes them of keys.
const maxKinds = 1000

func newCensus(prefix string, o scanOptions) *census {
	return &census{prefix: prefix, o: o, kinds: map[kind]*tally{}}
}

func (c *census) of(k kind) *tally {
	if _, ok := c.kinds[k]; !ok && len(c.kinds) >= maxKinds {
		k.Name = "others"
	}
	if c.kinds[k] == nil {
		c.kinds[k] = &tally{log: k.Algorithm == ratelimit.SlidingLog}
	}
	return c.kinds[k]
}

// A largeKey is one of the largest.
type largeKey struct {
	kind
	Bytes int64   `json:"bytes"`
	TTL   float64 `json:"ttl"` // seconds; 0 is none
	Key   string  `json:"key,omitempty"`
}

// consider keeps a key if it is among the largest.
func (c *census) consider(k largeKey) {
	c.largest = append(c.largest, k)
	slices.SortFunc(c.largest, func(a, b largeKey) int { return cmp.Compare(b.Bytes, a.Bytes) })
	c.largest = c.largest[:min(len(c.largest), c.o.largest)]
}

// A censusView is what keys prints.
type censusView struct {
	count
	Kinds   []kindView `json:"kinds"`
	Largest []largeKey `json:"largest"`
}

type count struct {
	Keys       int64 `json:"keys"`
	WithoutTTL int64 `json:"without_ttl"`
	Measured   int64 `json:"measured"` // keys, of which Bytes is an estimate
	Bytes      int64 `json:"bytes"`
}

type kindView struct {
	kind
	count
}

func (c *census) result() censusView {
	v := censusView{Kinds: []kindView{}, Largest: []largeKey{}}
	for k, t := range c.kinds {
		n := count{t.keys, t.withoutTTL, t.measured, t.estimate()}
		v.Kinds = append(v.Kinds, kindView{k, n})
		v.Keys += n.Keys
		v.WithoutTTL += n.WithoutTTL
		v.Measured += n.Measured
		v.Bytes += n.Bytes
	}
	slices.SortFunc(v.Kinds, func(a, b kindView) int {
		return cmp.Or(cmp.Compare(a.Algorithm, b.Algorithm), cmp.Compare(a.Name, b.Name))
	})
	for _, k := range c.largest {
		if !c.o.showKeys {
			k.Key = ""
		}
		v.Largest = append(v.Largest, k)
	}
	return v
}

func printCensus(w io.Writer, v censusView) {
	fmt.Fprintln(w, "keys\tbytes\tmeasured\twithout TTL\tlimit")
	line := func(n count, what string) {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%s\n", n.Keys, n.Bytes, n.Measured, n.WithoutTTL, what)
	}
	for _, k := range v.Kinds {
		line(k.count, k.String())
	}
	line(v.count, "all")
	for i, k := range v.Largest {
		if i == 0 {
			fmt.Fprintln(w, "\nbytes\tTTL\tlimit\tlargest keys that were measured")
		}
		ttl := "none"
		if k.TTL > 0 {
			ttl = time.Duration(k.TTL * float64(time.Second)).String()
		}
		fmt.Fprintf(w, "%d\t%s\t%v\t%s\n", k.Bytes, ttl, k.kind, k.Key)
	}
}

func (k kind) String() string {
	if k.Name == "" {
		return k.Algorithm.String()
	}
	return k.Algorithm.String() + " " + k.Name
}
