package benchmarks

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/rules"
	"github.com/sluicego/ratelimit/store/memstore"
)

const (
	ruleTenants = 100_000
	ruleRoutes  = 5
)

// A pair is what a rule is looked up by. The texts are the caller's own, as those of a request are.
type pair struct{ tenant, route string }

// pairs returns a million look-ups over all rules, by Zipf's law or evenly.
func pairs(zipf bool) []pair {
	r := rand.New(rand.NewPCG(1, 2))
	z := rand.NewZipf(r, 1.1, 1, ruleTenants-1)
	list := make([]pair, 1<<20)
	for i := range list {
		tenant := r.Uint64N(ruleTenants)
		if zipf {
			tenant = z.Uint64()
		}
		list[i] = pair{tenantName(tenant), routeName(r.Uint64N(ruleRoutes))}
	}
	return list
}

func tenantName(i uint64) string { return fmt.Sprintf("tenant-%06d", i) }
func routeName(i uint64) string  { return fmt.Sprintf("route-%d", i) }

func manyRules() []rules.Rule {
	var list []rules.Rule
	for i := range ruleTenants * ruleRoutes {
		plan := int64(i%7 + 1)
		list = append(list, rules.Rule{
			ID: fmt.Sprint(i), Tenant: tenantName(uint64(i / ruleRoutes)), Route: routeName(uint64(i % ruleRoutes)),
			Limits: []ratelimit.Limit{{Rate: 100 * plan, Period: time.Second, Burst: 200 * plan}},
		})
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// BenchmarkRules is one look-up among 500,000 rules, beside a bare map of as many, and a whole decision.
func BenchmarkRules(b *testing.B) {
	list := manyRules()
	set, err := rules.New(b.Context(), rules.Static(list...), rules.Options{Default: rules.Rule{Mode: rules.DenyAll}})
	if err != nil {
		b.Fatal(err)
	}
	defer set.Close()
	bare := make(map[pair]*rules.Rule, len(list))
	for i := range list {
		bare[pair{list[i].Tenant, list[i].Route}] = &list[i]
	}
	limiter := set.Limiter(memstore.New(memstore.Options{}))
	for _, dist := range []string{"zipf", "uniform"} {
		asked := pairs(dist == "zipf")
		keys := make([]string, len(asked))
		for i, p := range asked {
			keys[i] = ratelimit.Key(p.tenant, p.route)
		}
		b.Run(dist+"/find", func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				p := asked[i&(len(asked)-1)]
				if _, ok := set.Find(p.tenant, p.route); !ok {
					b.Fatal("no rule")
				}
			}
		})
		b.Run(dist+"/limits", func(b *testing.B) {
			b.ReportAllocs()
			describer := limiter.(ratelimit.Describer)
			for i := 0; b.Loop(); i++ {
				if len(describer.LimitsFor(keys[i&(len(keys)-1)])) != 1 {
					b.Fatal("no rule")
				}
			}
		})
		b.Run(dist+"/map", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if bare[asked[i&(len(asked)-1)]] == nil {
					b.Fatal("no rule")
				}
			}
		})
		b.Run(dist+"/allow", func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := limiter.Allow(b.Context(), keys[i&(len(keys)-1)], 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
