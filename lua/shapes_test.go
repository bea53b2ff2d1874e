package lua_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/lua"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

// limitOf draws a limit of one of four kinds: the three algorithms, and a bucket whose token takes whole microseconds.
func (d dice) limitOf(kind int) ratelimit.Limit {
	for {
		l := d.limit()
		if kind == 3 {
			const most = 366 * 86400 * 1e6
			l = ratelimit.Limit{Rate: 1 + d.Int64N(1000), Burst: []int64{0, 1 + d.Int64N(30), 1 + d.Int64N(1e9)}[d.IntN(3)]}
			l.Period = time.Duration(l.Rate*(1+d.Int64N([]int64{1e6, most / l.Rate}[d.IntN(2)]))) * time.Microsecond
			if l.Validate() == nil {
				return l
			}
		} else if m, err := ratelimit.NewMachine(l); err == nil && int(l.Algorithm) == kind {
			if _, refill := m.Parts(); kind != int(ratelimit.TokenBucket) || refill > 1 {
				return l
			}
		}
	}
}

// shapes yields what a TakeAll may consist of: one to four decisions of each kind in each order, and more of them.
func (d dice) shapes() iter.Seq[[]ratelimit.Limit] {
	return func(yield func([]ratelimit.Limit) bool) {
		for n := 1; n <= 4; n++ {
			for shape := range 1 << (2 * n) {
				limits := make([]ratelimit.Limit, n)
				for i := range limits {
					limits[i] = d.limitOf(shape >> (2 * i) & 3).Named(fmt.Sprint("l", i))
				}
				if !yield(limits) {
					return
				}
			}
		}
		for n := 5; n <= ratelimit.MaxTakeAll; n++ {
			limits := make([]ratelimit.Limit, n)
			for i := range limits {
				limits[i] = d.limitOf(d.IntN(4)).Named(fmt.Sprint("l", i))
			}
			if !yield(limits) {
				return
			}
		}
	}
}

func requests(limits []ratelimit.Limit) []ratelimit.Request {
	reqs := make([]ratelimit.Request, len(limits))
	for i := range limits {
		reqs[i] = ratelimit.Request{Key: "k", Limit: &limits[i], Cost: 1}
	}
	return reqs
}

// R56: every script that TakeAll may send, by what it consists of.
func takeAllScripts(t *testing.T) map[string]*lua.Script {
	t.Helper()
	codec, err := lua.NewCodec("", nil)
	if err != nil {
		t.Fatal(err)
	}
	scripts := make(map[string]*lua.Script)
	for limits := range (dice{rand.New(rand.NewPCG(1, 2))}).shapes() {
		batch, err := codec.TakeAll(requests(limits))
		if err != nil {
			t.Fatal(err)
		}
		scripts[batch.Script.SHA1] = batch.Script
	}
	return scripts
}

func TestEveryShapeAgreesWithMachines(t *testing.T) {
	t.Parallel()
	server := redisserver.Single(t)
	seed := rand.Uint64()
	d := dice{rand.New(rand.NewPCG(seed, 0))}
	run := make(map[string]bool)
	for limits := range d.shapes() {
		b := newBench(t, server)
		b.trace = append(b.trace, fmt.Sprintf("seed %d", seed))
		b.now = 1767225600000000 + d.Int64N(1e12)
		for range 10 {
			reqs := requests(limits)
			if d.IntN(3) == 0 {
				for i := range reqs {
					reqs[i].Cost, reqs[i].Extra = d.cost(limits[i])
					if d.IntN(2) == 0 {
						reqs[i].Cost = min(reqs[i].Cost, 1)
					}
				}
			}
			run[b.takeAll(reqs).SHA1] = true
			b.now = d.move(b.now, limits[d.IntN(len(limits))])
		}
	}
	if len(run) != 4+16+64+256+1 || !run[lua.TakeAll.SHA1] {
		t.Errorf("%d scripts have run, want one for each shape, and one for more decisions", len(run))
	}
}
