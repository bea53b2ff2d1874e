package ratelimit_test

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
)

// R01, R19, R20, R127: whatever is no limit is refused, and the error names the field and the bound.
func TestValidate(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, c := range []struct {
		limit ratelimit.Limit
		text  string // "" accepts
	}{
		{ratelimit.PerSecond(1), ""},
		{ratelimit.PerSecond(1_000_000_000), ""},
		{tokens(1_000_000_000, 1, 366*day), ""},
		{tokens(1, 1_000_000_000, time.Millisecond), ""},
		{window(ratelimit.SlidingLog, 100_000, 366*day), ""},
		{window(ratelimit.SlidingCounter, 1_000_000_000, time.Millisecond), ""},
		{ratelimit.PerDay(5).Named("A.z_0-9"), ""},
		{ratelimit.Limit{Rate: 1, Period: time.Second, OnFailure: ratelimit.FailClosed}, ""},

		{ratelimit.Limit{}, "Rate 0 is outside 1 to 1000000000"},
		{ratelimit.PerSecond(-1), "Rate -1"},
		{ratelimit.PerSecond(1_000_000_001), "Rate 1000000001"},
		{window(ratelimit.SlidingLog, 100_001, time.Second), "Rate 100001 is outside 1 to 100000"},
		{window(ratelimit.SlidingCounter, 1_000_000_001, time.Second), "Rate"},
		{ratelimit.Limit{Rate: 1}, "Period 0s is outside 1ms to 366 days"},
		{tokens(0, 1, -time.Second), "Period -1s"},
		{tokens(0, 1, 999*time.Microsecond), "Period"},
		{tokens(0, 1, 366*day+time.Microsecond), "Period"},
		{tokens(0, 1, time.Second+1), "whole microseconds"},
		{tokens(-1, 1, time.Second), "Burst -1 is outside 0 to 1000000000"},
		{tokens(1_000_000_001, 1, time.Second), "Burst"},
		{ratelimit.Limit{Algorithm: ratelimit.SlidingLog, Rate: 1, Period: time.Second, Burst: 1}, "Burst 1 must be 0"},
		{ratelimit.Limit{Algorithm: ratelimit.SlidingCounter, Rate: 1, Period: time.Second, Burst: 1}, "Burst 1 must be 0"},
		{window(3, 1, time.Second), "Algorithm 3"},
		{ratelimit.Limit{Rate: 1, Period: time.Second, OnFailure: 4}, "OnFailure 4"},
		{ratelimit.PerSecond(1).Named("a b"), "Name"},
		{ratelimit.PerSecond(1).Named("a:b"), "Name"},
		{ratelimit.PerSecond(1).Named("é"), "Name"},
	} {
		err := c.limit.Validate()
		if c.text == "" {
			if err != nil {
				t.Errorf("%v: %v", c.limit, err)
			}
			continue
		}
		if !errors.Is(err, ratelimit.ErrInvalidLimit) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: error %v does not say %q", c.limit, err, c.text)
		}
		if m, merr := ratelimit.NewMachine(c.limit); m != nil || !errors.Is(merr, ratelimit.ErrInvalidLimit) {
			t.Errorf("%v: NewMachine gives %v, %v", c.limit, m, merr)
		}
	}
}

func TestLimitString(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit ratelimit.Limit
		want  string
	}{
		{ratelimit.PerSecond(10), "token-bucket 10 per 1s"},
		{ratelimit.PerMinute(10), "token-bucket 10 per 1m0s"},
		{ratelimit.PerHour(10), "token-bucket 10 per 1h0m0s"},
		{ratelimit.PerDay(10), "token-bucket 10 per 24h0m0s"},
		{tokens(20, 10, time.Minute).Named("login"), "login: token-bucket 10 per 1m0s, burst 20"},
		{window(ratelimit.SlidingLog, 5, time.Hour), "sliding-log 5 per 1h0m0s"},
		{ratelimit.Limit{Algorithm: 9, Rate: 1, Period: time.Second}, "Algorithm(9) 1 per 1s"},
		{ratelimit.Limit{Rate: 1, Period: time.Second, OnFailure: ratelimit.FailClosed}, "token-bucket 1 per 1s, on failure closed"},
	} {
		if got := c.limit.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	if n := ratelimit.PerSecond(7).Capacity(); n != 7 {
		t.Errorf("without Burst it is %d", n)
	}
	if n := tokens(3, 7, time.Second).Capacity(); n != 3 {
		t.Errorf("with a Burst of 3 it is %d", n)
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	want := ratelimit.Limit{Algorithm: ratelimit.SlidingCounter, Rate: 5, Period: time.Second, OnFailure: ratelimit.FailOpen}
	data, err := json.Marshal(want)
	if err != nil || !strings.Contains(string(data), `"Algorithm":"sliding-counter"`) || !strings.Contains(string(data), `"OnFailure":"open"`) {
		t.Fatalf("%s, %v", data, err)
	}
	var got ratelimit.Limit
	if err := json.Unmarshal(data, &got); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	roundTrip(t, ratelimit.TokenBucket, ratelimit.SlidingLog, ratelimit.SlidingCounter)
	roundTrip(t, ratelimit.FailDefault, ratelimit.FailLocal, ratelimit.FailOpen, ratelimit.FailClosed)
	roundTrip(t, ratelimit.BreakerClosed, ratelimit.BreakerHalfOpen, ratelimit.BreakerOpen)
	roundTrip(t, ratelimit.ShadowAgrees, ratelimit.ShadowWouldDeny, ratelimit.ShadowWouldAllow, ratelimit.ShadowFailed)
	roundTrip(t, ratelimit.SourceStore, ratelimit.SourceFallback, ratelimit.SourceLease, ratelimit.SourceDenyCache,
		ratelimit.SourceFailOpen, ratelimit.SourceFailClosed)
	if data, err := json.Marshal(ratelimit.Result{Source: ratelimit.SourceDenyCache}); err != nil || !strings.Contains(string(data), `"Source":"deny-cache"`) {
		t.Errorf("%s, %v", data, err)
	}
	mode := ratelimit.FailOpen
	if err := mode.UnmarshalText(nil); err != nil || mode != ratelimit.FailDefault {
		t.Errorf("the empty text is %v, %v", mode, err)
	}
	var a ratelimit.Algorithm
	for name, err := range map[string]error{
		"an unknown algorithm":      a.UnmarshalText([]byte("Token-Bucket")),
		"an unknown mode":           mode.UnmarshalText([]byte("closed ")),
		"no algorithm to write":     second(ratelimit.Algorithm(9).MarshalText()),
		"no mode to write":          second(ratelimit.FailureMode(9).MarshalText()),
		"R19 a number of 23 digits": json.Unmarshal([]byte(`{"Rate":98765432198765432198765}`), &got),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if got := ratelimit.FailureMode(9).String(); got != "FailureMode(9)" {
		t.Errorf("got %q", got)
	}
}

// roundTrip: a value is written to JSON as what it is called, and read back; the value after the last has no text.
func roundTrip[T interface {
	~uint8
	fmt.Stringer
	encoding.TextMarshaler
}](t *testing.T, values ...T,
) {
	t.Helper()
	for _, v := range values {
		var back T
		data, err := json.Marshal(v)
		if err != nil || string(data) != strconv.Quote(v.String()) || json.Unmarshal(data, &back) != nil || back != v {
			t.Errorf("%v: %s, %v, %v", v, data, err, back)
		}
	}
	unknown := values[len(values)-1] + 1
	if data, err := unknown.MarshalText(); err == nil {
		t.Errorf("%v is written as %q", unknown, data)
	}
	if err := json.Unmarshal([]byte(`"Unheard-of"`), &unknown); err == nil {
		t.Errorf("a text that no %T has is read as %v", unknown, unknown)
	}
}

func second(_ []byte, err error) error { return err }
