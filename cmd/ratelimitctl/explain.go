package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/rules"
)

// explain tells which rule decides and, with -redis, how its limits stand.
func explain(ctx context.Context, c *call) error {
	if err := c.want(2, "a tenant and a route"); err != nil {
		return err
	}
	if c.rules == "" {
		return errors.New("say -rules, the source that the service loads")
	}
	set, err := c.openSet(ctx)
	if err != nil {
		return err
	}
	var store ratelimit.Store
	if c.redis != "" {
		var done func()
		if store, done, err = c.openStore(); err != nil {
			return err
		}
		defer done()
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e := rules.Explain(ctx, set, store, c.args[0], c.args[1])
	if e.From == "default" && c.limit.Rate == 0 {
		return errors.New("no rule of the source holds, and the service's own default is not known here: say it with -rate, -period and -burst")
	}

	v := struct {
		Tenant  string     `json:"tenant"`
		Route   string     `json:"route"`
		Tier    string     `json:"tier,omitempty"`
		Rule    *ruleView  `json:"rule"`
		From    string     `json:"from"`
		Mode    rules.Mode `json:"mode"`
		Blocked *bool      `json:"blocked"` // null if Redis was not asked, or did not tell
		Limits  []standing `json:"limits"`
	}{e.Tenant, e.Route, e.Tier, viewRule(&e.Rule), e.From, e.Mode, &e.Blocked, []standing{}}
	for _, l := range e.Limits {
		v.Limits = append(v.Limits, stand(l))
		if (store == nil || l.Error != "") && !e.Blocked {
			v.Blocked = nil
		}
	}
	return c.print(v, func(w io.Writer) {
		blocked := "not known"
		if v.Blocked != nil {
			blocked = map[bool]string{true: "yes", false: "no"}[*v.Blocked]
		}
		fmt.Fprintf(w, "tenant\t%s\nroute\t%s\ntier\t%s\n", v.Tenant, v.Route, cmp.Or(v.Tier, "none"))
		fmt.Fprintf(w, "rule\t%s, of %s\n\t%s\nmode\t%v\nblocked\t%s\n", e.Rule.ID, v.From, describe(&e.Rule), v.Mode, blocked)
		if store != nil && len(v.Limits) > 0 {
			fmt.Fprintln(w)
			printStandings(w, e.Limits)
		}
	})
}

// printStandings prints how limits stand, for people.
func printStandings(w io.Writer, limits []rules.LimitState) {
	fmt.Fprintln(w, "left\tof\tall back in\tkey\tlimit")
	for _, s := range limits {
		if s.Error != "" {
			fmt.Fprintf(w, "?\t%d\t?\t%s\t%v: %s\n", s.Limit.Capacity(), s.Key, s.Limit, s.Error)
			continue
		}
		fmt.Fprintf(w, "%d\t%d\t%v\t%s\t%v\n", s.Result.Remaining, s.Limit.Capacity(), s.Result.ResetAfter, s.Key, s.Limit)
	}
}
