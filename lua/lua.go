// Package lua holds the Redis scripts that decide, and the one encoder of their arguments and decoder of their replies
// that every Redis store uses. It speaks to no server itself. README.md tells how the state looks in redis-cli.
package lua

import (
	"crypto/sha1" // the name of a script in Redis, not a secret
	_ "embed"
	"encoding/hex"
	"strings"

	"github.com/sluicego/ratelimit"
)

var (
	//go:embed prelude.lua
	prelude string
	//go:embed muldiv.lua
	muldiv string
	//go:embed token_bucket.lua
	tokenBucket string
	//go:embed sliding_log.lua
	slidingLog string
	//go:embed sliding_counter.lua
	slidingCounter string
	//go:embed sliding_log_history.lua
	slidingLogHistory string
	//go:embed take_all.lua
	takeAll string
	//go:embed reset.lua
	reset string
)

// A Script is the source of a script and its name for EVALSHA. Every script takes at least one key, and touches none
// but those it is given.
type Script struct {
	Source string
	SHA1   string // of Source, in lower-case hex
}

// The scripts. Each file in this folder opens with its keys, arguments, reply and state.
var (
	TokenBucket    = single(bucketSteps)
	SlidingLog     = single(logSteps)
	SlidingCounter = single(counterSteps)
	History        = newScript(prelude, logSteps.seek, "local key = KEYS[1]", clock("3"), slidingLogHistory)
	TakeAll        = takeAny()
	Reset          = newScript(reset)
)

func newScript(parts ...string) *Script {
	source := strings.ReplaceAll(strings.Join(parts, "\n"), "-- muldiv\n", muldiv)
	sum := sha1.Sum([]byte(source))
	return &Script{Source: source, SHA1: hex.EncodeToString(sum[:])}
}

// steps are what an algorithm's file consists of. A script is steps, put together as text: in Redis a Lua function costs
// more to create than most of what it does.
type steps struct {
	names, pattern string // what it reads of a spec
	seek           string // only a log has it
	look, finish   string
}

var bucketSteps, logSteps, counterSteps = stepsIn(tokenBucket), stepsIn(slidingLog), stepsIn(slidingCounter)

func stepsIn(file string) *steps {
	s := new(steps)
	if strings.Contains(file, "\n-- seek\n") {
		s.seek = cut(file, "-- seek\n", "-- look at ")
	}
	head, look, _ := strings.Cut(cut(file, "-- look at ", "-- finish\n"), "\n")
	s.names, s.pattern, _ = strings.Cut(head, " in ")
	s.look, s.finish = look, cut(file, "-- finish\n", "")
	return s
}

// cut returns what stands in file between two beginnings of lines.
func cut(file, from, to string) string {
	_, text, found := strings.Cut(file, "\n"+from)
	if to != "" && found {
		text, _, found = strings.Cut(text, "\n"+to)
	}
	if !found {
		panic("ratelimit/lua: a step is missing")
	}
	return text + "\n"
}

// clock sets now, and passed, whether the caller's clock decides: from the argument at that index.
func clock(index string) string {
	return `local given, now = ARGV[` + index + `]
local passed = given and given ~= ''
if passed then
  now = given + 0
else
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end`
}

// single is the script of one decision.
func single(s *steps) *Script {
	return newScript(prelude, s.seek,
		clock("3"),
		"local key, spec, cost, extra, reply, text, stored, seen, since = KEYS[1], ARGV[1], ARGV[2] + 0, given and ARGV[4] and ARGV[4] + 0",
		"local "+s.names+" = match(spec, '"+s.pattern+"')",
		s.look, s.finish, "return text or reply")
}

func scriptOf(a ratelimit.Algorithm) *Script {
	switch a {
	case ratelimit.SlidingLog:
		return SlidingLog
	case ratelimit.SlidingCounter:
		return SlidingCounter
	default:
		return TokenBucket
	}
}
