// Package lua holds the Redis scripts that decide, and the one encoder of their arguments and decoder of their replies
// that every Redis store uses. It speaks to no server itself. README.md tells how the state looks in redis-cli.
package lua

import (
	"crypto/sha1" //nolint:gosec // the name of a script in Redis, not a secret
	_ "embed"
	"encoding/hex"

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
	TokenBucket    = newScript(prelude, tokenBucket, one("bucket"))
	SlidingLog     = newScript(prelude, slidingLog, one("log"))
	SlidingCounter = newScript(prelude, slidingCounter, one("counter"))
	History        = newScript(prelude, slidingLog, slidingLogHistory)
	TakeAll        = newScript(prelude, tokenBucket, slidingLog, slidingCounter, takeAll)
	Reset          = newScript(reset)
)

func newScript(parts ...string) *Script {
	var source string
	for _, p := range parts {
		source += p + "\n"
	}
	sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
	return &Script{Source: source, SHA1: hex.EncodeToString(sum[:])}
}

// one is the end of a script that makes a single decision.
func one(name string) string {
	return "local passed = ARGV[3] ~= '' and ARGV[3]\n" +
		"return finish_" + name + "(look_" + name +
		"(KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4] or 0), clock(passed), passed))"
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
