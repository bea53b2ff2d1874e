package lua

import (
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/sluicego/ratelimit"
)

// mostWritten is how many decisions of a TakeAll are written out, in a script for just these kinds in this order. It is
// made when it is first needed. More decisions are made by TakeAll.
const mostWritten = 4

var written [5 * 5 * 5 * 5]atomic.Pointer[Script] // the digits of an index are kinds and 1

// kinds of decisions: of each Algorithm, and of evenBucket.
var kinds = [...]*steps{
	ratelimit.TokenBucket:    bucketSteps,
	ratelimit.SlidingLog:     logSteps,
	ratelimit.SlidingCounter: counterSteps,
	evenBucket: { // one number less to read
		names: "p, capacity", pattern: "(%d+):1:(%d+)",
		look: strings.Replace(bucketSteps.look, "r = r + 0\n", "local r = 1\n", 1), finish: bucketSteps.finish,
	},
}

// evenBucket is a token bucket whose token takes a whole number of microseconds to come back.
const evenBucket = 3

func (p *Plan) kind() int {
	if _, refill := p.Machine.Parts(); p.limit.Algorithm == ratelimit.TokenBucket && refill == 1 {
		return evenBucket
	}
	return int(p.limit.Algorithm)
}

// takeAllOf returns the script that makes one decision for each of plans, all or nothing.
func takeAllOf(plans []*Plan) *Script {
	if len(plans) > mostWritten {
		return TakeAll
	}
	index := 0
	for _, p := range plans {
		index = index*5 + p.kind() + 1
	}
	s := written[index].Load()
	if s == nil {
		of := make([]*steps, len(plans))
		for i, p := range plans {
			of[i] = kinds[p.kind()]
		}
		s = takeWritten(of)
		written[index].Store(s)
	}
	return s
}

// takeWritten is the script of decisions that are written out:
//
//	local spec1, p1, r1, capacity1, spec2, period2, rate2 = match(ARGV[1], …)
//	do
//	  local i, spec, p, r, capacity = 1, spec1, p1, r1, capacity1
//	  (look)
//	  do
//	    local i, spec, period, rate = 2, spec2, period2, rate2
//	    (look)
//	    (finish)
//	  end
//	  (finish)
//	end
func takeWritten(of []*steps) *Script {
	var seek, nest, names, pattern string
	for i := len(of) - 1; i >= 0; i-- {
		s, number := of[i], strconv.Itoa(i+1)
		numbered := strings.ReplaceAll("spec, "+s.names, ",", number+",") + number
		nest = "do\nlocal i, spec, " + s.names + " = " + number + ", " + numbered + "\n" + decide(s, nest) + "end\n"
		names, pattern, seek = ", "+numbered+names, " ("+s.pattern+")"+pattern, max(seek, s.seek)
	}
	parse := "local " + names[len(", "):] + " = match(ARGV[1], '" + pattern[len(" "):] + "')"
	return newScript(prelude, seek, clock("2"), cut(takeAll, "-- begin\n", "\n"), parse, nest, cut(takeAll, "-- end\n", ""))
}

// takeAny is the script of any decisions.
func takeAny() *Script {
	decisions := cut(takeAll, "-- any number\n", "\n")
	for name, s := range map[string]*steps{"(log)": logSteps, "(counter)": counterSteps, "(bucket)": bucketSteps} {
		decisions = put(decisions, name, "local "+s.names+" = a, b, c\n"+decide(s, "if i < n then decide(i + 1, after) end\n"))
	}
	return newScript(prelude, logSteps.seek, clock("2"), cut(takeAll, "-- begin\n", "\n"), decisions, cut(takeAll, "-- end\n", ""))
}

// decide is one decision with the next ones in it.
func decide(s *steps, next string) string {
	finish := strings.Replace(s.finish, "format('%d %d', now, left)", "format(stamp, left)", 1)
	return put(put(put(cut(takeAll, "-- decide\n", "\n"), "(look)", s.look), "(next)", next), "(finish)", finish)
}

// put replaces the line of text that is a comment of this name.
func put(text, name, by string) string {
	before, after, found := strings.Cut(text, "-- "+name+"\n")
	if !found {
		panic("ratelimit/lua: no place for a step")
	}
	return before + by + after
}
