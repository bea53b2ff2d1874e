package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/rules"
)

// limits are those that the arguments name: of the rule that holds for a tenant and a route, or the one of the flags.
func (c *call) limits(ctx context.Context) ([]rules.LimitState, error) {
	switch {
	case c.rules != "":
		if err := c.want(2, "a tenant and a route"); err != nil {
			return nil, err
		}
		set, err := c.openSet(ctx)
		if err != nil {
			return nil, err
		}
		limits := rules.Explain(ctx, set, nil, c.args[0], c.args[1]).Limits
		if len(limits) == 0 {
			return nil, errors.New("the rule that holds has no limits; see explain")
		}
		return limits, nil
	case c.limit.Rate == 0:
		return nil, errors.New("say -rules, or a limit with -rate, -period and -burst")
	case len(c.args) == 0:
		return nil, errors.New("say the parts of the key")
	}
	return []rules.LimitState{{Limit: c.limit, Key: ratelimit.Key(c.args...)}}, nil
}

// peek tells what is left.
func peek(ctx context.Context, c *call) error {
	limits, err := c.limits(ctx)
	if err != nil {
		return err
	}
	store, done, err := c.openStore()
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	v := make([]standing, len(limits))
	for i := range limits {
		l := &limits[i]
		if l.Result, err = store.Take(ctx, ratelimit.Request{Key: l.Key, Limit: &l.Limit}); err != nil {
			return err
		}
		v[i] = stand(*l)
	}
	return c.print(v, func(w io.Writer) { printStandings(w, limits) })
}

// reset forgets what was spent.
func reset(ctx context.Context, c *call) error {
	limits, err := c.limits(ctx)
	if err != nil {
		return err
	}
	store, done, err := c.openStore()
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type forgotten struct {
		Limit limitView `json:"limit"`
		Key   string    `json:"key"`
	}
	v := make([]forgotten, len(limits))
	for i := range limits {
		l := &limits[i]
		if err := store.Reset(ctx, l.Key, &l.Limit); err != nil {
			return err
		}
		v[i] = forgotten{viewLimit(l.Limit, l.Shared), l.Key}
	}
	return c.print(v, func(w io.Writer) {
		for _, l := range limits {
			fmt.Fprintf(w, "reset\t%s\t%v\n", l.Key, l.Limit)
		}
	})
}
