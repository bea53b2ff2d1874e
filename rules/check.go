package rules

import (
	"errors"
	"fmt"

	"github.com/sluicego/ratelimit"
)

// A RuleError is one rule that could not be used, and was skipped.
type RuleError struct {
	ID    string // Rule.ID; "#3" for the third of a source that gives none
	Field string // the field, or the column, that is to blame; "" if that is not known
	Err   error
}

// Error names the rule by its ID and the field.
func (e *RuleError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("rules: rule %s: %v", e.ID, e.Err)
	}
	return fmt.Sprintf("rules: rule %s: %s: %v", e.ID, e.Field, e.Err)
}

// Unwrap returns Err.
func (e *RuleError) Unwrap() error { return e.Err }

// maxCost bounds Rule.Cost, as a Limit's own numbers are.
const maxCost = 1_000_000_000

// check puts what a rule leaves out in its place, and tells what is wrong with it.
func (r *Rule) check() *RuleError {
	blame := func(field, format string, args ...any) *RuleError {
		return &RuleError{ID: r.ID, Field: field, Err: fmt.Errorf(format, args...)}
	}
	if r.Tenant == "" {
		r.Tenant = Any
	}
	if r.Route == "" {
		r.Route = Any
	}
	if r.Invalid != nil {
		e := &RuleError{ID: r.ID, Err: r.Invalid}
		if known := (*RuleError)(nil); errors.As(r.Invalid, &known) {
			e.Field, e.Err = known.Field, known.Err
		}
		return e
	}
	if r.Cost == 0 {
		r.Cost = 1
	}
	if r.EnforcePercent == 0 {
		r.EnforcePercent = 100
	}
	switch {
	case r.Tier != "" && r.Tenant != Any:
		return blame("Tier", "a rule is for one tenant or for a tier, not for both")
	case int(r.Mode) >= len(modeNames):
		return blame("Mode", "unknown Mode %d", uint8(r.Mode))
	case r.EnforcePercent < 0 || r.EnforcePercent > 100:
		return blame("EnforcePercent", "%d is outside 0 to 100", r.EnforcePercent)
	case r.Cost < 0 || r.Cost > maxCost:
		return blame("Cost", "%d is outside 0 to %d", r.Cost, maxCost)
	}
	switch n := len(r.Limits) + len(r.Shared); {
	case n > ratelimit.MaxTakeAll:
		return blame("Limits", "%w: %d limits are above %d", ratelimit.ErrInvalidLimit, n, ratelimit.MaxTakeAll)
	case n == 0 && (r.Mode == Enforce || r.Mode == Shadow):
		return blame("Limits", "%w: there is none; a rule without is of Mode Off or DenyAll", ratelimit.ErrInvalidLimit)
	}
	for i := range r.Limits {
		if field, err := r.checkLimit("Limits", i, &r.Limits[i], r.Limits[:i]); err != nil {
			return blame(field, "%w", err)
		}
	}
	for i := range r.Shared {
		if field, err := r.checkLimit("Shared", i, &r.Shared[i], r.Limits, r.Shared[:i]); err != nil {
			return blame(field, "%w", err)
		}
	}
	return nil
}

// checkLimit checks one limit against itself, the cost and the limits before it.
func (r *Rule) checkLimit(list string, i int, l *ratelimit.Limit, before ...[]ratelimit.Limit) (field string, err error) {
	field = fmt.Sprintf("%s[%d]", list, i)
	if err := l.Validate(); err != nil {
		return field, err
	}
	if r.Cost > l.Capacity() {
		return "Cost", fmt.Errorf("%d is above the capacity %d of %s, so no call would ever fit", r.Cost, l.Capacity(), field)
	}
	for _, limits := range before {
		for j := range limits {
			if limits[j].Algorithm == l.Algorithm && limits[j].Name == l.Name {
				return field, fmt.Errorf("%w: two limits are a %v of Name %q", ratelimit.ErrInvalidLimit, l.Algorithm, l.Name)
			}
		}
	}
	return "", nil
}
