package rules

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// A feed is a Source that tells its rules one by one, and the next time only what changed, so that neither a million of
// them nor ten changes among them cost more than they must.
type feed interface {
	// feed tells b all rules, after b.all, or what changed since the mark that an earlier call returned; since
	// is nil the first time.
	feed(ctx context.Context, since any, b *builder) (mark any, err error)
}

// ask is f.feed, and a panic is an error.
func ask(ctx context.Context, f feed, since any, b *builder) (mark any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the source panicked: %v", r)
		}
	}()
	return f.feed(ctx, since, b)
}

// whole is any Source as a feed.
type whole struct{ Source }

func (w whole) feed(ctx context.Context, _ any, b *builder) (any, error) {
	b.all()
	rules, err := w.Rules(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		b.put(r)
	}
	t, ok := w.Source.(TierSource)
	if !ok {
		return nil, nil
	}
	tiers, err := t.Tiers(ctx)
	for tenant, tier := range tiers {
		b.tier(tenant, tier)
	}
	return nil, err
}

// Static returns a Source of rules that stay as they are, for tests and for services without a database.
func Static(rules ...Rule) *StaticSource { return &StaticSource{rules: slices.Clone(rules)} }

// A StaticSource is what Static returns.
type StaticSource struct {
	rules []Rule
	tiers map[string]string
}

var _ TierSource = (*StaticSource)(nil)

// WithTiers returns the same rules with the tenants' tiers.
func (s *StaticSource) WithTiers(tiers map[string]string) *StaticSource {
	return &StaticSource{rules: s.rules, tiers: maps.Clone(tiers)}
}

// Rules returns the rules.
func (s *StaticSource) Rules(context.Context) ([]Rule, error) { return slices.Clone(s.rules), nil }

// Tiers returns the tiers.
func (s *StaticSource) Tiers(context.Context) (map[string]string, error) {
	return maps.Clone(s.tiers), nil
}
