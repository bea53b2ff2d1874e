package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/rules"
)

// A ruleView is a rule as a file of rules has it.
type ruleView struct {
	ID             string      `json:"id"`
	Tenant         string      `json:"tenant"`
	Route          string      `json:"route"`
	Tier           string      `json:"tier,omitempty"`
	Limits         []limitView `json:"limits"`
	Cost           int64       `json:"cost"`
	Mode           rules.Mode  `json:"mode"`
	EnforcePercent int         `json:"enforce_percent"`
	Expires        *time.Time  `json:"expires,omitempty"`
}

type limitView struct {
	Name      string                `json:"name,omitempty"`
	Algorithm ratelimit.Algorithm   `json:"algorithm"`
	Rate      int64                 `json:"rate"`
	Period    string                `json:"period"`
	Burst     int64                 `json:"burst,omitempty"`
	OnFailure ratelimit.FailureMode `json:"on_failure"`
	Shared    bool                  `json:"shared,omitempty"`
}

func viewLimit(l ratelimit.Limit, shared bool) limitView {
	return limitView{l.Name, l.Algorithm, l.Rate, l.Period.String(), l.Burst, l.OnFailure, shared}
}

func viewRule(r *rules.Rule) *ruleView {
	if r == nil {
		return nil
	}
	v := &ruleView{
		ID: r.ID, Tenant: r.Tenant, Route: r.Route, Tier: r.Tier, Limits: []limitView{},
		Cost: r.Cost, Mode: r.Mode, EnforcePercent: r.EnforcePercent,
	}
	if !r.Expires.IsZero() {
		v.Expires = &r.Expires
	}
	for _, l := range r.Limits {
		v.Limits = append(v.Limits, viewLimit(l, false))
	}
	for _, l := range r.Shared {
		v.Limits = append(v.Limits, viewLimit(l, true))
	}
	return v
}

// describe is what a rule says, for people.
func describe(r *rules.Rule) string {
	var parts []string
	for _, l := range r.Limits {
		parts = append(parts, l.String())
	}
	for _, l := range r.Shared {
		parts = append(parts, l.String()+", over all routes")
	}
	if r.Cost > 1 {
		parts = append(parts, fmt.Sprintf("a call costs %d", r.Cost))
	}
	if r.Mode != rules.Enforce {
		parts = append(parts, r.Mode.String())
	}
	if r.EnforcePercent != 100 {
		parts = append(parts, fmt.Sprintf("for %d of a hundred tenants", r.EnforcePercent))
	}
	if !r.Expires.IsZero() {
		parts = append(parts, "until "+r.Expires.Format(time.RFC3339))
	}
	return strings.Join(parts, "; ")
}

// A standing is how a limit stands.
type standing struct {
	Limit      limitView `json:"limit"`
	Key        string    `json:"key"` // of ratelimit, before the prefix
	Capacity   int64     `json:"capacity"`
	Remaining  int64     `json:"remaining"`
	ResetAfter float64   `json:"reset_after"` // seconds
	Error      string    `json:"error,omitempty"`
}

func stand(s rules.LimitState) standing {
	return standing{
		Limit: viewLimit(s.Limit, s.Shared), Key: s.Key, Capacity: s.Limit.Capacity(),
		Remaining: s.Result.Remaining, ResetAfter: s.Result.ResetAfter.Seconds(), Error: s.Error,
	}
}
