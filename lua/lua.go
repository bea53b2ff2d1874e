// Package lua holds the Redis scripts that decide, and the one encoder of their arguments and decoder of their replies
// that every Redis store uses. It speaks to no server itself. README.md tells how the state looks in redis-cli.
package lua

import (
	"crypto/sha1" // the name of a script in Redis, not a secret
	_ "embed"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/sluicego/ratelimit"
)

var (
	//go:embed prelude.lua
	prelude string
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
	TokenBucket    = newScript(prelude, one, clock("3"), look(tokenBucket), finish(tokenBucket), "return reply")
	SlidingLog     = newScript(prelude, seek(slidingLog), one, clock("3"), look(slidingLog), finish(slidingLog), "return reply")
	SlidingCounter = newScript(prelude, one, clock("3"), look(slidingCounter), finish(slidingCounter), "return reply")
	History        = newScript(prelude, seek(slidingLog), "local key = KEYS[1]", clock("3"), slidingLogHistory)
	TakeAll        = newScript(prelude, seek(slidingLog), clock("1"), together())
	Reset          = newScript(reset)
)

func newScript(parts ...string) *Script {
	source := strings.Join(parts, "\n")
	sum := sha1.Sum([]byte(source))
	return &Script{Source: source, SHA1: hex.EncodeToString(sum[:])}
}

// A script is its steps, put together as text: in Redis a Lua function costs more to create than most of what it does.
const one = "local reply, key, spec, cost, extra = nil, KEYS[1], ARGV[1], ARGV[2] + 0, ARGV[4] and ARGV[4] + 0"

// clock sets passed and now from the argument at that index.
func clock(index string) string {
	return `local passed, now = ARGV[` + index + `] or '', nil
if passed ~= '' then
  now = passed + 0
else
  passed = false
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end`
}

// together is take_all.lua with the steps of the algorithms in their places.
func together() string {
	script := takeAll
	for name, algorithm := range map[string]string{
		"token_bucket": tokenBucket, "sliding_log": slidingLog, "sliding_counter": slidingCounter,
	} {
		carried, _, _ := strings.Cut(step(algorithm, with, ""), "\n")
		script = strings.Replace(script, "-- look "+name+"\n",
			look(algorithm)+"all, saved[i] = all and fits, { kind, cost, extra, "+carried+" }\n", 1)
		script = strings.Replace(script, "-- finish "+name+"\n",
			"local "+carried+" = unpack(state, 4, "+strconv.Itoa(4+strings.Count(carried, ","))+")\n"+finish(algorithm), 1)
	}
	return script
}

const with = "-- finish with "

func seek(algorithm string) string { return step(algorithm, "-- seek\n", "-- look\n") }
func look(algorithm string) string { return step(algorithm, "-- look\n", with) }

func finish(algorithm string) string {
	_, text, _ := strings.Cut(step(algorithm, with, ""), "\n")
	return text
}

// step cuts out of an algorithm's file what stands between two lines.
func step(algorithm, from, to string) string {
	_, text, found := strings.Cut(algorithm, "\n"+from)
	if to != "" && found {
		text, _, found = strings.Cut(text, "\n"+to)
	}
	if !found {
		panic("ratelimit/lua: a step is missing")
	}
	return text + "\n"
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
