package lua

import (
	"strconv"
	"time"

	"github.com/sluicego/ratelimit"
)

// historyPage is how many entries one call of History returns at most.
const historyPage = 500

// totals wrap around at this number, as sliding_log.lua says.
const totals = 1 << 23

// HistoryArgs are the arguments of History for the entries later than after, in microseconds; 0 begins.
func (p *Plan) HistoryArgs(after int64, now string) []string {
	return []string{strconv.FormatInt(p.limit.Period.Microseconds(), 10), strconv.FormatInt(after, 10), now}
}

// AppendHistory appends what a reply of History holds. While more is true, the next call asks for what is later than
// after. A log that holds something else than numbers counts as unused.
func AppendHistory(entries []ratelimit.Entry, reply []string) (_ []ratelimit.Entry, after int64, more bool) {
	var before int64
	for i := 0; i+1 < len(reply); i += 2 {
		at, err1 := strconv.ParseInt(reply[i], 10, 64)
		total, err2 := strconv.ParseInt(reply[i+1], 10, 64)
		if err1 != nil || err2 != nil {
			return nil, 0, false
		}
		if i > 0 {
			entries = append(entries, ratelimit.Entry{Time: time.UnixMicro(at), Cost: (total - before) & (totals - 1)})
			after = at
		}
		before = total
	}
	return entries, after, len(reply) >= 2+2*historyPage
}
