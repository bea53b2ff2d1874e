package ratelimit

import "time"

// A holding is what a Lease holds of one state, and what it knows of it. It is used with its shard locked.
type holding struct {
	limit Limit

	// Units come in batches, of which the older is spent first. A third one makes the first two one, as old as the older.
	old, fresh           int64
	oldUntil, freshUntil time.Duration
	claimed              int64 // under way with a call that may bring them back

	calls, asked int64         // since then, and the units they asked for
	since        time.Duration // when
	size         int64         // what that rate is worth holding

	remaining  int64 // in the store by its last answer; 0 also if there was none
	resetAfter time.Duration
	answered   time.Duration
	took       time.Duration // that answer

	flight *flight // the call that fetches more
	reset  bool    // what comes in is to be dropped
}

// A flight is a call of the store that brings more.
type flight struct{ done chan struct{} }

// leaseLeast is how many calls in MaxAge are worth a lease.
const leaseLeast = 8

func (h *holding) units() int64 { return h.old + h.fresh }

// resize makes size what calls ask for in half of maxAge, at most twice as much as before.
func (h *holding) resize(now time.Duration, most int64, maxAge time.Duration) {
	elapsed := now - h.since
	if h.calls < leaseLeast && 0 <= elapsed && elapsed < maxAge {
		return // too few to tell
	}
	ages := float64(elapsed) / float64(maxAge)
	switch {
	case float64(h.calls) < leaseLeast*ages || elapsed < 0:
		h.size = 0
	default:
		size := max(leaseLeast, 2*h.size)
		if worth := float64(h.asked) / 2; worth < float64(size)*ages {
			size = int64(worth / ages)
		}
		h.size = min(size, most)
	}
	h.calls, h.asked, h.since = 0, 0, now
}

// target is how much is worth holding now.
func (h *holding) target() int64 { return min(h.size, h.remaining/8) }

// ahead is how much to fetch now.
func (h *holding) ahead() int64 { return max(0, h.target()-h.units()-h.claimed) }

func (h *holding) launch() *flight {
	h.flight = &flight{make(chan struct{})}
	return h.flight
}

// lasts tells whether what is left outlasts half a call of the store at the pace of late.
func (h *holding) lasts(now time.Duration) bool {
	return float64(h.units())*float64(now-h.since) >= float64(h.asked)*float64(h.took)/2
}

// answer notes what the store said when it was asked at that time.
func (h *holding) answer(res *Result, err error, sent, now time.Duration) {
	if err != nil || res.Source != SourceStore {
		h.remaining = 0
		return
	}
	h.remaining, h.resetAfter, h.answered, h.took = res.Remaining, res.ResetAfter, sent, now-sent
}

// put adds units that may be spent until then.
func (h *holding) put(n int64, until time.Duration) {
	switch {
	case h.fresh > 0 && h.old > 0:
		h.old += h.fresh
	case h.fresh > 0:
		h.old, h.oldUntil = h.fresh, h.freshUntil
	}
	h.fresh, h.freshUntil = n, until
	if h.old > 0 && h.oldUntil > until { // put back
		h.oldUntil, h.freshUntil = until, h.oldUntil
		h.old, h.fresh = h.fresh, h.old
	}
}

// spend takes n of the units, of which there are so many.
func (h *holding) spend(n int64) {
	old := min(n, h.old)
	h.old -= old
	h.fresh -= n - old
}

// claim takes n units for a call that may bring them back, to be spent until then.
func (h *holding) claim(n int64) (units int64, until time.Duration) {
	until = h.freshUntil
	if h.old > 0 {
		until = h.oldUntil
	}
	h.spend(n)
	h.claimed += n
	return n, until
}

func (h *holding) takeAll() (n int64) {
	n, h.old, h.fresh = h.units(), 0, 0
	return n
}

// takeDead takes what was held for maxAge, or is from the future: the clock was set back.
func (h *holding) takeDead(now, maxAge time.Duration) (n int64) {
	if dead(now, h.oldUntil, maxAge) {
		n, h.old = h.old, 0
	}
	if dead(now, h.freshUntil, maxAge) {
		n, h.fresh = n+h.fresh, 0
	}
	return n
}

// dead allows for a caller who read the clock long before the units came.
func dead(now, until, maxAge time.Duration) bool { return now >= until || now < until-2*maxAge }

// result is an admission of n units from memory.
func (h *holding) result(now time.Duration, n int64) Result {
	most := h.limit.Capacity()
	return Result{
		Allowed: true, Limit: most, Remaining: min(most, h.remaining+h.units()), Taken: n, Name: h.limit.Name,
		ResetAfter: max(0, h.resetAfter-max(0, now-h.answered)), Source: SourceLease,
	}
}
