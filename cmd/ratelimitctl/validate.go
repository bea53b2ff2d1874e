package main

import (
	"context"
	"fmt"
	"io"
)

// validate tells what a service would make of a source.
func validate(ctx context.Context, c *call) error {
	if err := c.want(1, "a source"); err != nil {
		return err
	}
	_, report, err := load(ctx, c.args[0])
	if err != nil {
		return err
	}
	type bad struct {
		ID    string `json:"id"`
		Field string `json:"field,omitempty"`
		Error string `json:"error"`
	}
	v := struct {
		Rules  int      `json:"rules"`
		Tiers  int      `json:"tenants_with_tier"`
		Bad    []bad    `json:"bad"`
		Adrift []string `json:"tiers_without_rule"`
	}{len(report.Rules), len(report.Tiers), []bad{}, append([]string{}, report.Adrift...)}
	for _, e := range report.Bad {
		v.Bad = append(v.Bad, bad{e.ID, e.Field, e.Err.Error()})
	}
	err = c.print(v, func(w io.Writer) {
		fmt.Fprintf(w, "%d good rules, %d bad; %d tenants have a tier\n", v.Rules, len(v.Bad), v.Tiers)
		for _, e := range report.Bad {
			fmt.Fprintln(w, e)
		}
		for _, tier := range v.Adrift {
			fmt.Fprintf(w, "tier %s has tenants and no rule: they are as without one\n", tier)
		}
	})
	if err == nil && len(v.Bad) > 0 {
		err = errFound
	}
	return err
}
