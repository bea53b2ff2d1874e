package storetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/sluicego/ratelimit"
)

const traceSteps = 120

var traceChecks = []check{
	{
		name: "random traces are those of the exact model",
		rule: "The same history gives the same Results, field for field: time forward and back, costs, extras, give-backs, limits that change, resets, several limits.",
		run: func(k *kit) {
			seed := k.c.Seed
			if seed == 0 {
				seed = rand.Uint64()
			}
			traces := k.c.Traces
			if traces == 0 {
				traces = 150
			}
			for i := range traces {
				k.renew()
				t := newTrace(seed, uint64(i))
				for range traceSteps {
					if wrong := t.step(k); wrong != "" {
						k.Fatalf("trace %d of seed %d: the last steps of %d\n%s\n%s", i, seed, len(t.log), strings.Join(t.log[max(0, len(t.log)-12):], "\n"), wrong)
					}
				}
			}
		},
	},
}

// A trace is a random history of a few keys of one tenant under a few limits.
type trace struct {
	random *rand.Rand
	model  *model
	now    int64
	keys   []string
	limits []*ratelimit.Limit
	wait   time.Duration // of the last denial
	log    []string
}

func newTrace(seed, n uint64) *trace {
	t := &trace{random: rand.New(rand.NewPCG(seed, n)), model: newModel()}
	years := []int{2001, 2025, 2026, 2100, 2200}
	t.now = time.Date(years[n%5], 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro() + t.random.Int64N(int64(24*h/us))
	t.keys = []string{ratelimit.Key("tenant", "a"), ratelimit.Key("tenant", "b")}[:1+t.random.IntN(2)]
	for i := range 1 + t.random.IntN(3) {
		l := anyLimit(t.random).Named([]string{"", "x", "y"}[i])
		t.limits = append(t.limits, &l)
	}
	return t
}

// step makes one step in the store and the model, and tells what is wrong.
func (t *trace) step(k *kit) (wrong string) {
	t.pass()
	k.clock.set(time.UnixMicro(t.now))
	switch n := t.random.IntN(100); {
	case n < 6:
		t.change()
		return ""
	case n < 9:
		key, l := t.pick()
		t.note("Reset %s %v", key, l)
		t.model.reset(key, l)
		if err := k.store.Reset(k.t.Context(), key, l); err != nil {
			return fmt.Sprintf("Reset: %v", err)
		}
		return ""
	case n < 22:
		return t.several(k)
	default:
		key, l := t.pick()
		req := t.request(key, l)
		t.note("Take %s %v, cost %d, extra %d", key, l, req.Cost, req.Extra)
		got, err := k.store.Take(k.t.Context(), req)
		if err != nil {
			return fmt.Sprintf("Take: %v", err)
		}
		return t.judge([]ratelimit.Request{req}, []ratelimit.Result{got})
	}
}

func (t *trace) note(format string, args ...any) {
	t.log = append(t.log, time.UnixMicro(t.now).UTC().Format("2006-01-02T15:04:05.000000 ")+fmt.Sprintf(format, args...))
}

func (t *trace) pick() (string, *ratelimit.Limit) {
	return t.keys[t.random.IntN(len(t.keys))], t.limits[t.random.IntN(len(t.limits))]
}

// several decides over some of the states, each once or twice.
func (t *trace) several(k *kit) string {
	var once, asked []ratelimit.Request
	for _, key := range t.keys {
		for _, l := range t.limits {
			if t.random.IntN(3) == 0 {
				continue
			}
			r := t.request(key, l)
			if t.random.IntN(2) == 0 { // let most of them pass
				r.Cost = min(r.Cost, 1)
			}
			once = append(once, r)
			if r.Cost > 1 && r.Cost <= l.Capacity() && t.random.IntN(3) == 0 {
				first := r
				first.Cost, first.Extra = r.Cost/2, r.Extra/2
				r.Cost -= first.Cost
				r.Extra -= first.Extra
				asked = append(asked, first)
			}
			asked = append(asked, r)
		}
	}
	if len(once) == 0 || len(once) == 1 && once[0].Cost > once[0].Limit.Capacity() {
		return "" // alone, a store may deny it with or without a look, and only a look heals a clock set back
	}
	for _, r := range asked {
		t.note("TakeAll %s %v, cost %d, extra %d", r.Key, r.Limit, r.Cost, r.Extra)
	}
	got, err := k.store.TakeAll(k.t.Context(), asked)
	if err != nil || len(got) != len(asked) {
		return fmt.Sprintf("TakeAll: %d results, %v", len(got), err)
	}
	// Requests of one state share a decision: they have to agree in all but Taken, and their Taken adds up.
	var sums []ratelimit.Result
	for i, r := range asked {
		if i > 0 && r.Key == asked[i-1].Key && r.Limit == asked[i-1].Limit {
			last := &sums[len(sums)-1]
			twin := got[i]
			twin.Taken = last.Taken
			if twin != *last {
				return fmt.Sprintf("one state, two decisions:\n%+v\n%+v", got[i-1], got[i])
			}
			if first := asked[i-1]; got[i].Allowed && got[i-1].Taken != first.Cost+min(first.Extra, got[i-1].Taken+got[i].Taken-first.Cost-r.Cost) {
				return fmt.Sprintf("the extra of the first comes first: %+v, %+v", got[i-1], got[i])
			}
			last.Taken += got[i].Taken
			continue
		}
		sums = append(sums, got[i])
	}
	return t.judge(once, sums)
}

// judge compares with the model.
func (t *trace) judge(reqs []ratelimit.Request, got []ratelimit.Result) string {
	before := make([][]*account, len(reqs))
	for i, r := range reqs {
		before[i] = t.model.find(r.Key, r.Limit)
	}
	want, right := t.model.judge(reqs, t.now, got)
	if !right {
		wrong := ""
		for i := range reqs {
			if got[i] != want[i] {
				wrong += fmt.Sprintf("result %d\n got %+v\nwant %+v\nstate %v\n", i, got[i], want[i], before[i])
			}
		}
		return wrong
	}
	for _, res := range got {
		if !res.Allowed && res.RetryAfter > 0 && res.RetryAfter != ratelimit.Never {
			t.wait = res.RetryAfter
		}
	}
	return ""
}

// pass lets time pass, now and then backwards; it stays between 2000 and 2250.
func (t *trace) pass() {
	l := t.limits[t.random.IntN(len(t.limits))]
	period := l.Period.Microseconds()
	d := int64(0)
	switch t.random.IntN(16) {
	case 0, 1:
		d = t.wait.Microseconds()
	case 2:
		d = max(0, t.wait.Microseconds()-1)
	case 3:
		d = 1
	case 4:
		d = t.random.Int64N(1 + period/l.Rate)
	case 5, 6:
		d = t.random.Int64N(period)
	case 7:
		d = t.random.Int64N(3 * period)
	case 8:
		d = period - t.now%period // the next window
	case 9:
		d = -t.random.Int64N(period)
	case 10:
		if t.random.IntN(3) == 0 {
			d = -t.random.Int64N(4*period + 4*int64(m/us))
		}
	}
	if next := t.now + d; next > 946_684_800_000_000 && next < 8_835_000_000_000_000 && d < 20*366*24*int64(h/us) {
		t.now = next
	}
}

// change replaces a limit by another of its name, mostly near it.
func (t *trace) change() {
	i := t.random.IntN(len(t.limits))
	l := *t.limits[i]
	switch t.random.IntN(5) {
	case 0:
		l = anyLimit(t.random).Named(l.Name)
	case 1:
		l.Rate = max(1, l.Rate/2)
	case 2:
		l.Rate = min(100_000, l.Rate*2)
	case 3:
		l.Period = max(ms, (l.Period / 2).Truncate(us))
	case 4:
		if l.Algorithm == ratelimit.TokenBucket {
			l.Burst = 1 + t.random.Int64N(2*min(l.Capacity(), 500_000_000))
		}
	}
	t.limits[i] = &l
	t.note("limit %d is %v", i, l)
}

// request draws costs around what there is.
func (t *trace) request(key string, l *ratelimit.Limit) ratelimit.Request {
	r := ratelimit.Request{Key: key, Limit: l, Cost: 1}
	room := t.model.room(key, l, t.now)
	switch n := t.random.IntN(20); {
	case n < 5:
	case n < 7:
		r.Cost = 0
	case n < 10:
		r.Cost = room
	case n < 12:
		r.Cost = room + 1
	case n < 14:
		r.Cost = 1 + t.random.Int64N(l.Capacity())
	case n < 15:
		r.Cost = min(l.Capacity(), 1+t.random.Int64N(10))
	case n < 16:
		r.Cost = l.Capacity()
	case n < 17:
		r.Cost = []int64{l.Capacity() + 1, math.MaxInt64}[t.random.IntN(2)]
	default:
		r.Cost = []int64{-1, -1 - t.random.Int64N(l.Capacity()), -l.Capacity() - 1, math.MinInt64}[t.random.IntN(4)]
	}
	if r.Cost >= 0 && t.random.IntN(6) == 0 {
		r.Extra = []int64{1, 1 + t.random.Int64N(l.Capacity()), l.Capacity(), math.MaxInt64}[t.random.IntN(4)]
	}
	return r
}

// String is an account in the report of a trace.
func (a *account) String() string {
	switch {
	case a == nil:
		return "unused"
	case a.limit.Algorithm == ratelimit.SlidingLog:
		return fmt.Sprintf("{%v: %v, at %d}", a.limit, a.spends, a.at)
	case a.limit.Algorithm == ratelimit.SlidingCounter:
		return fmt.Sprintf("{%v: %d, before it %d, window of %d}", a.limit, a.current, a.previous, a.at)
	default:
		return fmt.Sprintf("{%v: %v at %d}", a.limit, a.tokens, a.at)
	}
}
