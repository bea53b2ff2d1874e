// Package rules holds limits that change while a service runs: per tenant and route, from a table, a file or any other
// Source, looked up without a lock and without an allocation.
//
//	set, err := rules.New(ctx, rules.SQL(db), rules.Options{
//		Default: rules.Rule{Limits: []ratelimit.Limit{{Rate: 10, Period: time.Second, Burst: 20}}},
//		OnError: func(err error) { slog.Error("rate limit rules", "err", err) },
//	})
//	…
//	defer set.Close()
//	limiter := set.Limiter(store)
//	res, err := limiter.Allow(ctx, ratelimit.Key(tenant, route), 1)
//
// Of the rules that fit a tenant and a route, one decides: that of (tenant, route), else (tenant, *), (tier, route),
// (tier, *), (*, route), (*, *), and last Options.Default. The decision never waits for the source: a set keeps the last
// rules that it could load.
package rules

import (
	"context"
	"fmt"
	"time"

	"github.com/sluicego/ratelimit"
)

// Any is the Tenant or Route of a rule that holds for all of them.
const Any = "*"

// A Rule says what one tenant may spend on one route.
type Rule struct {
	// Tenant is whose calls the rule is for. "" is read as Any.
	Tenant string
	// Route is which calls it is for. "" is read as Any: each route then has the Limits to itself. A limit over all
	// routes together stands in Shared.
	Route string
	// Limits hold for a tenant on a route: their key is ratelimit.Key(tenant, route). All of Limits and Shared, up to
	// ratelimit.MaxTakeAll, must have room for a call, which then spends from all, and else from none.
	Limits []ratelimit.Limit
	// Cost is what one call spends; 0 means 1.
	Cost int64
	// Mode is Enforce unless set.
	Mode Mode
	// Tier makes it a rule for the tenants of that tier. Tenant is Any then.
	Tier string

	// Shared limits hold for a tenant over all routes whose rules have them: their key is ratelimit.Key(tenant). They
	// are of other Names than Limits, or of another Algorithm. Give the same Shared limit to each of these rules.
	Shared []ratelimit.Limit
	// EnforcePercent is for how many of a hundred tenants Enforce holds, the others being in Shadow; 0 means 100. A
	// hash of the tenant says who, the same in every process and for every rule, and who is in at 10 stays in at 20.
	EnforcePercent int
	// Expires is when the rule ceases to be, and the next in precedence decides. The zero time is never.
	Expires time.Time
	// ID names the rule to people, such as the id of its row.
	ID string
	// Invalid is set by a Source that could not read the rest: why, a *RuleError if a field is to blame. The set
	// reports it, and keeps the rule that it had for the same Tenant, Route and Tier.
	Invalid error
}

// A Source is where rules come from.
type Source interface {
	// Rules returns all rules, for the caller to keep. One that cannot be read comes with Invalid set; an error means
	// that nothing could be loaded. It returns soon after ctx is done: Set.Close waits for it.
	Rules(ctx context.Context) ([]Rule, error)
}

// A TierSource is a Source that knows the tenants' tiers.
type TierSource interface {
	Source
	// Tiers returns the tier of each tenant that has one, for the caller to keep.
	Tiers(ctx context.Context) (map[string]string, error)
}

// Mode is what becomes of a rule's decisions.
type Mode uint8

const (
	// Enforce denies what there is no room for. It is the zero value.
	Enforce Mode = iota
	// Shadow decides and spends as Enforce would, reports to Options.OnShadow, and admits everything.
	Shadow
	// Off admits everything and asks no store.
	Off
	// DenyAll denies everything, calls of cost 0 too, with RetryAfter Never, and asks no store.
	DenyAll
)

var modeNames = [...]string{Enforce: "enforce", Shadow: "shadow", Off: "off", DenyAll: "deny-all"}

// String returns "enforce", "shadow", "off" or "deny-all".
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// MarshalText returns what String does, and an error for a value that is no Mode.
func (m Mode) MarshalText() ([]byte, error) {
	if int(m) >= len(modeNames) {
		return nil, fmt.Errorf("rules: unknown Mode %d", uint8(m))
	}
	return []byte(m.String()), nil
}

// UnmarshalText accepts the texts that String returns, and the empty text for Enforce.
func (m *Mode) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*m = Enforce
		return nil
	}
	for i, name := range modeNames {
		if string(text) == name {
			*m = Mode(i)
			return nil
		}
	}
	return fmt.Errorf("rules: Mode %.40q is none of enforce, shadow, off, deny-all", text)
}
