package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/sluicego/ratelimit/rules"
)

// A change is one difference: Old is nil for a new rule, New for one that goes.
type change struct {
	Tenant string    `json:"tenant"`
	Route  string    `json:"route"`
	Tier   string    `json:"tier,omitempty"`
	Old    *ruleView `json:"old"`
	New    *ruleView `json:"new"`
}

// A tierChange is a tenant whose tier differs; "" is none.
type tierChange struct {
	Tenant string `json:"tenant"`
	Old    string `json:"old"`
	New    string `json:"new"`
}

// diff tells what would change from one source to another.
func diff(ctx context.Context, c *call) error {
	if err := c.want(2, "two sources"); err != nil {
		return err
	}
	var all [2][]rules.Rule
	var reports [2]rules.Report
	for i, name := range c.args {
		var err error
		if all[i], reports[i], err = load(ctx, name); err != nil {
			return err
		}
		if n := len(reports[i].Bad); n > 0 {
			fmt.Fprintf(c.errs, "%d bad rules of the %s source are left out, and change nothing; see validate\n", n, [...]string{"old", "new"}[i])
		}
	}
	changes := rules.Diff(all[0], all[1])
	v := struct {
		Rules []change     `json:"rules"`
		Tiers []tierChange `json:"tiers"`
	}{[]change{}, diffTiers(reports[0].Tiers, reports[1].Tiers)}
	for _, ch := range changes {
		v.Rules = append(v.Rules, change{ch.Tenant, ch.Route, ch.Tier, viewRule(ch.Old), viewRule(ch.New)})
	}
	err := c.print(v, func(w io.Writer) {
		for _, ch := range changes {
			who := ch.Tenant
			if ch.Tier != "" {
				who = "tier " + ch.Tier
			}
			if ch.Old != nil {
				fmt.Fprintf(w, "- %s\t%s\t%s\n", who, ch.Route, describe(ch.Old))
			}
			if ch.New != nil {
				fmt.Fprintf(w, "+ %s\t%s\t%s\n", who, ch.Route, describe(ch.New))
			}
		}
		for _, t := range v.Tiers {
			fmt.Fprintf(w, "~ %s\ttier\t%s -> %s\n", t.Tenant, cmp.Or(t.Old, "none"), cmp.Or(t.New, "none"))
		}
	})
	if err == nil && len(v.Rules)+len(v.Tiers) > 0 {
		err = errFound
	}
	return err
}

func diffTiers(old, new map[string]string) []tierChange {
	changes := []tierChange{}
	all := maps.Clone(old)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, new)
	for _, tenant := range slices.Sorted(maps.Keys(all)) {
		if old[tenant] != new[tenant] {
			changes = append(changes, tierChange{tenant, old[tenant], new[tenant]})
		}
	}
	return changes
}
