package lua_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/lua"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// A bench runs scripts on a real server and the Machine beside them, on the same clock.
type bench struct {
	t      *testing.T
	server *redisserver.Server
	codec  *lua.Codec
	now    int64
	states map[string]*ratelimit.State
	trace  []string
}

func newBench(t *testing.T, server *redisserver.Server) *bench {
	b := &bench{t: t, server: server, states: make(map[string]*ratelimit.State)}
	codec, err := lua.NewCodec("", func() time.Time { return time.UnixMicro(b.now) })
	if err != nil {
		t.Fatal(err)
	}
	b.codec = codec
	if _, err := server.Do("FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) eval(s *lua.Script, keys, args []string) any {
	b.t.Helper()
	reply, err := b.server.Do(slices.Concat([]string{"EVAL", s.Source, fmt.Sprint(len(keys))}, keys, args)...)
	if err != nil {
		b.t.Fatalf("%v\n%s", err, strings.Join(b.trace, "\n"))
	}
	return reply
}

func (b *bench) state(key string) *ratelimit.State {
	if b.states[key] == nil {
		b.states[key] = &ratelimit.State{}
	}
	return b.states[key]
}

func (b *bench) note(what string, r ratelimit.Request) {
	b.trace = append(b.trace, fmt.Sprintf("%s at %d: %q %v cost %d extra %d", what, b.now, r.Key, *r.Limit, r.Cost, r.Extra))
}

// take makes one decision on both sides.
func (b *bench) take(r ratelimit.Request) {
	b.t.Helper()
	b.note("take", r)
	p, err := b.codec.Plan(r.Limit)
	if err != nil {
		b.t.Fatal(err)
	}
	key := p.Key(r.Key)
	want, _ := p.Machine.Take(b.state(key), b.now, r.Cost, r.Extra)
	raw := b.eval(p.Script, []string{key}, p.AppendArgs(nil, r.Cost, r.Extra, b.codec.Now()))
	reply := lua.Reply{}
	switch raw := raw.(type) {
	case int64:
		reply.Int = raw
	case string:
		reply.Text = raw
	}
	got, err := p.Result(reply, r.Cost)
	if err != nil || got != want {
		b.t.Fatalf("reply %v, %v\nscript  %+v\nmachine %+v\n%s", raw, err, got, want, strings.Join(b.trace, "\n"))
	}
}

// takeAll makes several decisions together on both sides, and returns the script that made them.
func (b *bench) takeAll(reqs []ratelimit.Request) *lua.Script {
	b.t.Helper()
	for _, r := range reqs {
		b.note("take all", r)
	}
	batch, err := b.codec.TakeAll(reqs)
	if err != nil {
		b.t.Fatal(err)
	}
	merged, err := ratelimit.Merge(reqs)
	if err != nil {
		b.t.Fatal(err)
	}
	steps := make([]ratelimit.Step, len(merged.Requests))
	for i, r := range merged.Requests {
		p, err := b.codec.Plan(r.Limit)
		if err != nil {
			b.t.Fatal(err)
		}
		steps[i] = ratelimit.Step{Machine: p.Machine, State: b.state(p.Key(r.Key)), Cost: r.Cost, Extra: r.Extra}
	}
	decided := make([]ratelimit.Result, len(steps))
	ratelimit.StepAll(b.now, steps, decided)
	want := merged.Results(decided)
	raw := b.eval(batch.Script, batch.Keys, batch.Args)
	text, _ := raw.(string)
	got, err := batch.Results(text)
	if err != nil || !slices.Equal(got, want) {
		b.t.Fatalf("reply %v, %v\nscript  %+v\nmachine %+v\n%s", raw, err, got, want, strings.Join(b.trace, "\n"))
	}
	return batch.Script
}

// A dice draws limits, costs and moves of the clock.
type dice struct{ *rand.Rand }

func (d dice) limit() ratelimit.Limit {
	l := ratelimit.Limit{Algorithm: ratelimit.Algorithm(d.IntN(3)), Rate: 1 + d.Int64N(1e9)}
	switch d.IntN(3) {
	case 0:
		l.Rate, l.Period = 1+d.Int64N(20), time.Duration(1+d.Int64N(100))*time.Second
	case 1:
		l.Period = time.Millisecond + time.Duration(d.Int64N(31e9))*time.Microsecond
	default:
		l.Period = time.Millisecond + time.Duration(d.Int64N(366*86400*1e6-1000))*time.Microsecond
	}
	switch l.Algorithm {
	case ratelimit.SlidingLog:
		l.Rate = 1 + l.Rate%100000
	case ratelimit.TokenBucket:
		l.Burst = []int64{0, 1 + d.Int64N(30), 1 + d.Int64N(1e9)}[d.IntN(3)]
	}
	return l
}

func (d dice) cost(l ratelimit.Limit) (cost, extra int64) {
	most := l.Capacity()
	cost = []int64{0, 1, 1, 1, 2, 1 + d.Int64N(most), most, most + 1, -1, -1 - d.Int64N(most+1), most/2 + 1}[d.IntN(11)]
	if cost >= 0 && d.IntN(5) == 0 {
		extra = 1 + d.Int64N(most+5)
	}
	return cost, extra
}

func (d dice) move(now int64, l ratelimit.Limit) int64 {
	period := l.Period.Microseconds()
	switch d.IntN(9) {
	case 0:
		now += d.Int64N(2*period + 1)
	case 1:
		now += d.Int64N(1000)
	case 2, 3:
		now += period / l.Rate
	case 4:
		now -= d.Int64N(period/2 + 1)
	case 5:
		if d.IntN(8) == 0 {
			now -= d.Int64N(3*period + 200e6) // set back, perhaps
		}
	}
	return max(now, 0)
}

func TestScriptsAgreeWithMachines(t *testing.T) {
	t.Parallel()
	server := redisserver.Single(t)
	seed := rand.Uint64()
	for trace := range uint64(400) {
		d := dice{rand.New(rand.NewPCG(seed, trace))}
		b := newBench(t, server)
		b.trace = append(b.trace, fmt.Sprintf("seed %d, %d", seed, trace))
		b.now = 1767225600000000 + d.Int64N(1e12)
		limits := []ratelimit.Limit{d.limit(), d.limit().Named("b"), d.limit().Named("c")}
		for range 60 {
			i := d.IntN(len(limits))
			if d.IntN(12) == 0 {
				limits[i] = d.limit().Named(limits[i].Name)
			}
			b.now = d.move(b.now, limits[i])
			limit := limits[i]
			cost, extra := d.cost(limit)
			if cost <= limit.Capacity() && d.IntN(4) > 0 {
				b.take(ratelimit.Request{Key: "k", Limit: &limit, Cost: cost, Extra: extra})
				continue
			}
			var reqs []ratelimit.Request
			for _, l := range limits {
				cost, extra := d.cost(l)
				if d.IntN(2) == 0 {
					cost = min(cost, 1)
				}
				reqs = append(reqs, ratelimit.Request{Key: "k", Limit: &l, Cost: cost, Extra: extra})
			}
			b.takeAll(reqs)
		}
	}
}

// A full log that aged out whole is searched and trimmed once, not entry by entry.
func TestAgedLogIsTrimmedInFewSteps(t *testing.T) {
	t.Parallel()
	b := newBench(t, redisserver.Single(t))
	limit := ratelimit.Limit{Algorithm: ratelimit.SlidingLog, Rate: 5000, Period: time.Minute}
	b.now = 1767225600000000
	for range 5000 {
		b.now += 10000
		b.take(ratelimit.Request{Key: "k", Limit: &limit, Cost: 1})
	}
	commands := func() (n int64) {
		t.Helper()
		for _, name := range []string{"lrange", "llen", "ltrim", "lpop", "rpush", "del", "pexpire", "lset"} {
			calls, err := b.server.Calls(name)
			if err != nil {
				t.Fatal(err)
			}
			n += calls
		}
		return n
	}
	for _, then := range []int64{35e6, 20e6, 100e6} { // half of it aged out, nearly all, all
		before := commands()
		b.now += then
		b.take(ratelimit.Request{Key: "k", Limit: &limit, Cost: 1})
		if n := commands() - before; n > 40 {
			t.Errorf("%d commands for one decision on a log that aged", n)
		}
	}
}

func TestHistoryPages(t *testing.T) {
	t.Parallel()
	b := newBench(t, redisserver.Single(t))
	limit := ratelimit.Limit{Algorithm: ratelimit.SlidingLog, Rate: 5000, Period: time.Minute}
	b.now = 1767225600000000
	for i := range int64(1200) {
		b.now += 100000
		b.take(ratelimit.Request{Key: "k", Limit: &limit, Cost: 1 + i%3})
	}
	p, err := b.codec.Plan(&limit)
	if err != nil {
		t.Fatal(err)
	}
	want, err := p.Machine.History(b.state(p.Key("k")), b.now)
	if err != nil {
		t.Fatal(err)
	}
	var got []ratelimit.Entry
	calls := 0
	for after, more := int64(0), true; more; calls++ {
		list, _ := b.eval(lua.History, []string{p.Key("k")}, p.HistoryArgs(after, b.codec.Now())).([]any)
		texts := make([]string, len(list))
		for i, v := range list {
			texts[i] = v.(string)
		}
		got, after, more = lua.AppendHistory(got, texts)
	}
	if n := b.eval(lua.Reset, []string{p.Key("k")}, nil); n != int64(1) {
		t.Errorf("reset of one log forgot %v", n)
	}
	if !slices.Equal(got, want) || len(want) != 600 || calls != 2 {
		t.Errorf("%d entries in %d calls, want the %d that the machine has in 2", len(got), calls, len(want))
	}
}

// Where time ends, sums with a time in them are no longer exact, and differences still are.
func TestScriptsAgreeAtTheEndOfTime(t *testing.T) {
	t.Parallel()
	b := newBench(t, redisserver.Single(t))
	for _, now := range []int64{0, 1<<53 - 4, 1<<53 - 1} {
		b.now = now
		for algorithm := range ratelimit.Algorithm(3) {
			limit := ratelimit.Limit{Algorithm: algorithm, Rate: 3, Period: 7001 * time.Microsecond}
			for range 3 {
				b.take(ratelimit.Request{Key: fmt.Sprint(now), Limit: &limit, Cost: 2})
			}
		}
	}
}
