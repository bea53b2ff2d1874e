package ratelimit

import (
	"context"
	"errors"
	"fmt"
)

// A Verdict is how two decisions about one call compare.
type Verdict uint8

const (
	// ShadowAgrees means that both admit or both deny.
	ShadowAgrees Verdict = iota
	// ShadowWouldDeny is a call that was admitted and that the candidate denies.
	ShadowWouldDeny
	// ShadowWouldAllow is a call that was denied and that the candidate admits.
	ShadowWouldAllow
	// ShadowFailed is a candidate without a decision: it failed or panicked.
	ShadowFailed
)

var verdictNames = [...]string{
	ShadowAgrees: "agrees", ShadowWouldDeny: "would-deny", ShadowWouldAllow: "would-allow", ShadowFailed: "failed",
}

// String returns "agrees", "would-deny", "would-allow" or "failed".
func (v Verdict) String() string { return nameOf("Verdict", verdictNames[:], v) }

// MarshalText returns what String does, and an error for a value that is no Verdict.
func (v Verdict) MarshalText() ([]byte, error) {
	return marshalName(errName, "Verdict", verdictNames[:], v)
}

// UnmarshalText accepts the texts that String returns.
func (v *Verdict) UnmarshalText(text []byte) error {
	return unmarshalName(errName, "Verdict", verdictNames[:], v, text)
}

// A ShadowReport is one call as both limiters decided it.
type ShadowReport struct {
	Verdict   Verdict
	Key       string // as the call had it: it may be a secret or personal data
	Cost      int64
	Enforced  Result // what the caller got
	Candidate Result
	Err       error // why the candidate has no decision, in ShadowFailed alone
}

// Shadow returns enforced, and tries candidate on the same calls: a new policy on live traffic. After enforced has decided,
// and before the call returns, candidate is asked the same, and report is told how the two compare; where enforced fails,
// candidate is not asked. Whatever candidate does changes no decision: its errors and panics are only reported. A panic of
// report is dropped. A Tally counts the reports by rule.
//
// The limits of candidate have Names of their own, or the two spend from one state. candidate sees the caller's context,
// so that a slow one takes time of the call but no more than that allows. A refund goes to both, if they are Refunders.
//
// It is a Refunder and a Describer if enforced is. It panics if an argument is nil.
func Shadow(enforced, candidate Limiter, report func(ShadowReport)) Limiter {
	if enforced == nil || candidate == nil || report == nil {
		panic("ratelimit: Shadow: an argument is nil")
	}
	s := &shadow{enforced: enforced, candidate: candidate, report: report}
	describer, describes := enforced.(Describer)
	_, refunds := enforced.(Refunder)
	switch {
	case refunds && describes:
		return struct {
			Limiter
			Refunder
			Describer
		}{s, refundShadow{s}, describer}
	case refunds:
		return struct {
			Limiter
			Refunder
		}{s, refundShadow{s}}
	case describes:
		return struct {
			Limiter
			Describer
		}{s, describer}
	}
	return s
}

type shadow struct {
	enforced, candidate Limiter
	report              func(ShadowReport)
}

func (s *shadow) Allow(ctx context.Context, key string, cost int64) (Result, error) {
	res, err := s.enforced.Allow(ctx, key, cost)
	if err == nil {
		s.try(ctx, key, cost, res)
	}
	return res, err
}

func (s *shadow) try(ctx context.Context, key string, cost int64, enforced Result) {
	r := ShadowReport{Key: key, Cost: cost, Enforced: enforced}
	r.Candidate, r.Err = calmly(func() (Result, error) { return s.candidate.Allow(ctx, key, cost) })
	switch {
	case r.Err != nil:
		r.Verdict, r.Candidate = ShadowFailed, Result{}
	case enforced.Allowed && !r.Candidate.Allowed:
		r.Verdict = ShadowWouldDeny
	case !enforced.Allowed && r.Candidate.Allowed:
		r.Verdict = ShadowWouldAllow
	}
	_, _ = calmly(func() (Result, error) {
		s.report(r)
		return Result{}, nil
	})
}

var errPanic = errors.New("ratelimit: panic")

// calmly is f, and a panic is an error.
func calmly(f func() (Result, error)) (res Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errPanic, p)
		}
	}()
	return f()
}

type refundShadow struct{ *shadow }

func (s refundShadow) Refund(ctx context.Context, key string, n int64) (Result, error) {
	res, err := s.enforced.(Refunder).Refund(ctx, key, n)
	if c, ok := s.candidate.(Refunder); ok && err == nil {
		_, _ = calmly(func() (Result, error) { return c.Refund(ctx, key, n) })
	}
	return res, err
}
