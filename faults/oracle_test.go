package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

const ms = time.Millisecond

// admitted returns n admissions of cost 1 that each took from one moment to another.
func admitted(n int, l ratelimit.Limit, from, to time.Duration) (ds Decisions) {
	for range n {
		ds = append(ds, &Decision{
			Start: at(from), End: at(to), Key: "k", Limit: l, Cost: 1,
			Result: ratelimit.Result{Allowed: true, Limit: l.Capacity(), Taken: 1},
		})
	}
	return ds
}

func join(parts ...Decisions) (all Decisions) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func TestOracleAdmitted(t *testing.T) {
	bucket := ratelimit.Limit{Rate: 100, Period: time.Second, Burst: 20}
	log := ratelimit.Limit{Algorithm: ratelimit.SlidingLog, Rate: 20, Period: 200 * ms}
	counter := ratelimit.Limit{Algorithm: ratelimit.SlidingCounter, Rate: 20, Period: 200 * ms}
	gift := Gift{From: at(50 * ms), To: at(60 * ms), Units: 5}
	twice := Gift{From: at(0), To: at(150 * ms), Twice: true}
	elsewhere := admitted(20, bucket, 0, 1*ms)
	for i := range elsewhere {
		elsewhere[i].Key = "other"
	}
	denied := admitted(100, bucket, 0, 1*ms)
	for i := range denied {
		denied[i].Result = ratelimit.Result{Limit: 20, RetryAfter: ms}
	}
	for _, tt := range []struct {
		name  string
		all   Decisions
		gifts []Gift
		right bool
	}{
		{"nothing", nil, nil, true},
		{"a burst", admitted(20, bucket, 0, 1*ms), nil, true},
		{"one more than a burst", admitted(21, bucket, 0, 1*ms), nil, false},
		{"one more, which may have been later", join(admitted(20, bucket, 0, 1*ms), admitted(1, bucket, 0, 10*ms)), nil, true},
		{"a burst and the refill", join(admitted(20, bucket, 0, 0), admitted(10, bucket, 100*ms, 100*ms)), nil, true},
		{"a burst, the refill and one", join(admitted(20, bucket, 0, 0), admitted(11, bucket, 100*ms, 100*ms)), nil, false},
		{"in any order", join(admitted(11, bucket, 100*ms, 100*ms), admitted(20, bucket, 0, 0)), nil, false},
		{"in the midst of quiet", join(admitted(1, bucket, 0, 0), admitted(21, bucket, 900*ms, 900*ms), admitted(1, bucket, 5*time.Second, 5*time.Second)), nil, false},
		{"two keys", join(admitted(20, bucket, 0, 1*ms), elsewhere), nil, true},
		{"two limits", join(admitted(20, bucket, 0, 1*ms), admitted(20, log, 0, 1*ms)), nil, true},
		{"denials", join(admitted(20, bucket, 0, 1*ms), denied), nil, true},
		{"a window", join(admitted(10, log, 0, 0), admitted(10, log, 199*ms, 199*ms)), nil, true},
		{"one more than a window", join(admitted(10, log, 0, 0), admitted(11, log, 199*ms, 199*ms)), nil, false},
		{"two windows", join(admitted(20, log, 0, 0), admitted(20, log, 200*ms, 200*ms)), nil, true},
		{"two windows and one", join(admitted(20, log, 0, 0), admitted(20, log, 200*ms, 200*ms), admitted(1, log, 300*ms, 300*ms)), nil, false},
		{"two of a counter's windows", join(admitted(20, counter, 0, 0), admitted(20, counter, 1*ms, 1*ms)), nil, true},
		{"more than two", join(admitted(20, counter, 0, 0), admitted(21, counter, 1*ms, 1*ms)), nil, false},
		{"a gift", admitted(25, bucket, 55*ms, 55*ms), []Gift{gift}, true},
		{"more than a gift", admitted(26, bucket, 55*ms, 55*ms), []Gift{gift}, false},
		{"before a gift", admitted(25, bucket, 0, 40*ms), []Gift{gift}, false},
		{"after a gift", admitted(25, bucket, 61*ms, 61*ms), []Gift{gift}, false},
		{"a gift of a capacity", admitted(40, bucket, 55*ms, 55*ms), []Gift{{From: at(0), To: at(time.Second), Capacities: 1}}, true},
		{"more than it", admitted(42, bucket, 55*ms, 55*ms), []Gift{{From: at(0), To: at(time.Second), Capacities: 1}}, false},
		{"twice the limit", join(admitted(40, bucket, 50*ms, 50*ms), admitted(20, bucket, 150*ms, 150*ms)), []Gift{twice}, true},
		{"one more", join(admitted(40, bucket, 50*ms, 50*ms), admitted(21, bucket, 150*ms, 150*ms)), []Gift{twice}, false},
		{"twice for half of it", join(admitted(40, bucket, 50*ms, 50*ms), admitted(41, bucket, 250*ms, 250*ms)), []Gift{twice}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.all.Admitted(tt.gifts...); (err == nil) != tt.right {
				t.Errorf("verdict %v", err)
			}
		})
	}
}

// A fleet whose instances do not know of each other gives each key several times over, and that is seen.
func TestOracleSeesUnsharedLimits(t *testing.T) {
	t.Parallel()
	stub := redisserver.NewSilent(t)
	client := Clients["go-redis"]
	f := NewFleet(t, func() (ratelimit.Store, func()) { return client(t, Target{Addrs: []string{stub.Addr}}) },
		ratelimit.FallbackOptions{Instances: func() int { return 1 }})
	start := time.Now()
	f.Load()
	if err := Poll(patience, func() error {
		if err := f.All().Admitted(Gift{From: start, To: time.Now(), Units: Instances}); err == nil {
			return errors.New("five times the limit passes")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestOracleAnswered(t *testing.T) {
	good := admitted(3, ratelimit.PerSecond(10), 0, 5*ms)
	if err := good.Answered(5*ms, new(Stalls)); err != nil {
		t.Error(err)
	}
	if err := good.Answered(5*ms-1, new(Stalls)); err == nil {
		t.Error("a late answer passes")
	}
	good[1].Err = errors.New("lost")
	if err := good.Answered(time.Hour, new(Stalls)); err == nil {
		t.Error("an error passes")
	}
}

func TestOracleDenied(t *testing.T) {
	log := ratelimit.Limit{Algorithm: ratelimit.SlidingLog, Rate: 20, Period: 200 * ms}
	denial := &Decision{Start: at(200 * ms), End: at(210 * ms), Key: "k", Limit: log, Cost: 2, Result: ratelimit.Result{Limit: 20, RetryAfter: ms}}
	lost := admitted(1, log, 150*ms, 250*ms)
	lost[0].Result.Source = ratelimit.SourceFallback
	for _, tt := range []struct {
		name  string
		all   Decisions
		right bool
	}{
		{"full", admitted(19, log, 10*ms, 20*ms), true},
		{"room", admitted(18, log, 10*ms, 20*ms), false},
		{"long ago", join(admitted(10, log, -20*ms, -1*ms), admitted(18, log, 10*ms, 20*ms)), false},
		{"perhaps not so long ago", join(admitted(1, log, -20*ms, 0), admitted(18, log, 10*ms, 20*ms)), true},
		{"perhaps before", join(admitted(18, log, 10*ms, 20*ms), admitted(1, log, 210*ms, 300*ms)), true},
		{"later", join(admitted(18, log, 10*ms, 20*ms), admitted(1, log, 211*ms, 300*ms)), false},
		{"not the store's", join(admitted(18, log, 10*ms, 20*ms), lost), true},
	} {
		if err := join(tt.all, Decisions{denial}).Denied(denial.End); (err == nil) != tt.right {
			t.Errorf("%s: verdict %v", tt.name, err)
		}
	}
	if err := (Decisions{denial}).Denied(denial.Start); err != nil {
		t.Errorf("a denial after the end: %v", err)
	}
}

func TestStalls(t *testing.T) {
	var s Stalls
	for _, p := range []span{{at(0), at(10 * ms)}, {at(20 * ms), at(30 * ms)}, {at(25 * ms), at(40 * ms)}, {at(50 * ms), at(51 * ms)}} {
		s.all.add(p)
	}
	for _, tt := range []struct{ from, to, want time.Duration }{
		{0, 100 * ms, 31 * ms},
		{5 * ms, 22 * ms, 7 * ms},
		{10 * ms, 20 * ms, 0},
		{26 * ms, 29 * ms, 3 * ms},
		{51 * ms, 60 * ms, 0},
	} {
		if got := s.Within(at(tt.from), at(tt.to)); got != tt.want {
			t.Errorf("from %v to %v %v are stalled; want %v", tt.from, tt.to, got, tt.want)
		}
	}
	late := admitted(1, ratelimit.PerSecond(10), 5*ms, 35*ms) // 5 ms and 15 ms of it stalled
	if err := late.Answered(10*ms, &s); err != nil {
		t.Error(err)
	}
	if err := late.Answered(10*ms-1, &s); err == nil {
		t.Error("a caller is excused by more than the stalls")
	}
}

func TestOracleSane(t *testing.T) {
	for _, tt := range []struct {
		res   ratelimit.Result
		right bool
	}{
		{ratelimit.Result{Allowed: true, Limit: 10, Remaining: 9, Taken: 1, ResetAfter: 1}, true},
		{ratelimit.Result{Limit: 10, RetryAfter: 1, ResetAfter: 1}, true},
		{ratelimit.Result{Limit: 10, RetryAfter: ratelimit.Never}, true},
		{ratelimit.Result{Allowed: true, Limit: 2, Taken: 1}, false}, // a share's, not the rule's
		{ratelimit.Result{Allowed: true, Limit: 10, Remaining: -1, Taken: 1}, false},
		{ratelimit.Result{Allowed: true, Limit: 10, Remaining: 11, Taken: 1}, false},
		{ratelimit.Result{Allowed: true, Limit: 10}, false},
		{ratelimit.Result{Limit: 10, RetryAfter: 1, Taken: 1}, false},
		{ratelimit.Result{Allowed: true, Limit: 10, Taken: 1, RetryAfter: 1}, false},
		{ratelimit.Result{Limit: 10}, false},
		{ratelimit.Result{Limit: 10, RetryAfter: -1}, false},
		{ratelimit.Result{Limit: 10, RetryAfter: 1, ResetAfter: -1}, false},
		{ratelimit.Result{}, false},
	} {
		if err := (Decisions{{Limit: ratelimit.PerSecond(10), Cost: 1, Result: tt.res}}).Sane(); (err == nil) != tt.right {
			t.Errorf("%+v: verdict %v", tt.res, err)
		}
	}
}

func TestOracleBack(t *testing.T) {
	// two instances decide once a millisecond each, locally until some moment
	history := func(until ...time.Duration) (all Decisions) {
		for n := range 100 {
			for i, u := range until {
				d := &Decision{Instance: i, Start: at(time.Duration(n) * ms)}
				if d.Start.Before(at(u)) {
					d.Result.Source = ratelimit.SourceFallback
				}
				all = append(all, d)
			}
		}
		return all
	}
	if got, err := history(10*ms, 30*ms).Back(at(0), 2); err != nil || !got.Equal(at(30*ms)) {
		t.Errorf("back at %v, %v", got, err)
	}
	if got, err := history(0, 0).Back(at(50*ms), 2); err != nil || !got.Equal(at(50*ms)) {
		t.Errorf("back at %v, %v; want when it was asked for", got, err)
	}
	relapse := history(10*ms, 10*ms)
	for i := range relapse {
		if relapse[i].Start.Equal(at(15 * ms)) {
			relapse[i].Result.Source = ratelimit.SourceFallback
		}
	}
	if got, err := relapse.Back(at(0), 2); err != nil || !got.Equal(at(16*ms)) {
		t.Errorf("back at %v, %v after a relapse", got, err)
	}
	for name, h := range map[string]Decisions{
		"nobody":           nil,
		"one of two":       history(10*ms, 100*ms),
		"too short a row":  history(10*ms, 91*ms),
		"one more of them": history(10 * ms),
	} {
		if got, err := h.Back(at(0), 2); err == nil {
			t.Errorf("%s: back at %v", name, got)
		}
	}
}

func TestP99(t *testing.T) {
	var all Decisions
	for i := range 1000 {
		all = append(all, &Decision{Start: t0, End: at(time.Duration(999-i) * ms)})
	}
	if got := all.P99(); got != 989*ms {
		t.Errorf("p99 of 0 to 999 ms is %v", got)
	}
	if got := Decisions(nil).P99(); got != 0 {
		t.Errorf("p99 of nothing is %v", got)
	}
}
