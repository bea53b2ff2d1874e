package rules_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/rules"
	"github.com/sluicego/ratelimit/store/memstore"
)

// Limits by tenant and route, with a default for everybody else.
func Example() {
	source := rules.Static(
		rules.Rule{Tenant: "shop-a", Route: "create-order", Limits: []ratelimit.Limit{{Rate: 100, Period: time.Second, Burst: 200}}},
		rules.Rule{Tier: "gold", Limits: []ratelimit.Limit{ratelimit.PerSecond(50).Named("second"), ratelimit.PerDay(10_000).Named("day")}},
	).WithTiers(map[string]string{"shop-b": "gold"})
	set, err := rules.New(context.Background(), source, rules.Options{
		Default: rules.Rule{Limits: []ratelimit.Limit{{Rate: 10, Period: time.Second, Burst: 20}}},
		OnError: func(err error) { slog.Error("rate limit rules", "err", err) },
	})
	if err != nil {
		panic(err)
	}
	defer set.Close()
	limiter := set.Limiter(memstore.New(memstore.Options{}))
	for _, tenant := range []string{"shop-a", "shop-b", "shop-c"} {
		res, err := limiter.Allow(context.Background(), ratelimit.Key(tenant, "create-order"), 1)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s %v %d %q\n", tenant, res.Allowed, res.Limit, res.Name)
	}
	// Output:
	// shop-a true 200 ""
	// shop-b true 50 "second"
	// shop-c true 20 ""
}

// Why is this tenant blocked?
func ExampleExplain() {
	source := rules.Static(rules.Rule{ID: "17", Tenant: "shop-a", Limits: []ratelimit.Limit{ratelimit.PerHour(1)}})
	set, err := rules.New(context.Background(), source, rules.Options{Default: rules.Rule{Mode: rules.DenyAll}})
	if err != nil {
		panic(err)
	}
	defer set.Close()
	store := memstore.New(memstore.Options{})
	if _, err := set.Limiter(store).Allow(context.Background(), ratelimit.Key("shop-a", "create-order"), 1); err != nil {
		panic(err)
	}
	e := rules.Explain(context.Background(), set, store, "shop-a", "create-order")
	fmt.Println("blocked:", e.Blocked, "by rule", e.Rule.ID, "of", e.From)
	for _, l := range e.Limits {
		fmt.Println(l.Limit, "has", l.Result.Remaining, "left")
	}
	// Output:
	// blocked: true by rule 17 of (tenant, *)
	// token-bucket 1 per 1h0m0s has 0 left
}
