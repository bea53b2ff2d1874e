package main

import (
	"strings"
	"testing"

	"github.com/sluicego/ratelimit/rules"
	"github.com/sluicego/ratelimit/store/storetest/pgserver"
)

const good = `{"rules": [
	{"id": "1", "tenant": "shop-a", "route": "create-order", "limits": [{"rate": 100, "period": "1s", "burst": 200}]},
	{"id": "2", "tier": "gold", "cost": 2, "limits": [{"rate": 10, "period": "1m"}, {"name": "all", "rate": 50, "period": "1m", "shared": true}]},
	{"id": "3", "tenant": "shop-x", "mode": "deny-all"}
], "tenants": {"shop-b": "gold"}}`

const changed = `{"rules": [
	{"tenant": "shop-a", "route": "create-order", "limits": [{"rate": 10, "period": "1s", "burst": 50}]},
	{"tier": "gold", "cost": 2, "limits": [{"rate": 10, "period": "1m"}, {"name": "all", "rate": 50, "period": "1m", "shared": true}]},
	{"tenant": "shop-c", "mode": "off"},
	{"tenant": "shop-d", "limits": [{"rate": 0, "period": "1s"}]}
], "tenants": {"shop-b": "silver"}}`

func TestValidate(t *testing.T) {
	t.Parallel()
	has(t, ctl(t, 0, "validate", file(t, "good.json", good)), "3 good rules, 0 bad; 1 tenants have a tier")
	bad := file(t, "changed.json", changed)
	has(t, ctl(t, 1, "validate", bad), "3 good rules, 1 bad", "rules[3]", "limits[0]", "tier silver has tenants and no rule")
	var v struct {
		Rules  int                 `json:"rules"`
		Tiers  int                 `json:"tenants_with_tier"`
		Bad    []map[string]string `json:"bad"`
		Adrift []string            `json:"tiers_without_rule"`
	}
	decode(t, ctl(t, 1, "validate", "-o", "json", bad), &v)
	if v.Rules != 3 || v.Tiers != 1 || len(v.Bad) != 1 || v.Bad[0]["id"] != "rules[3]" || v.Bad[0]["field"] != "limits[0]" || len(v.Adrift) != 1 {
		t.Errorf("%+v", v)
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	old, new := file(t, "good.json", good), file(t, "changed.json", changed)
	if out := ctl(t, 0, "diff", old, old); out != "" {
		t.Errorf("a file differs from itself:\n%s", out)
	}
	out := ctl(t, 1, "diff", old, new)
	has(t, out,
		"- shop-a  create-order  token-bucket 100 per 1s, burst 200",
		"+ shop-a  create-order  token-bucket 10 per 1s, burst 50",
		"+ shop-c  *             off",
		"- shop-x  *             deny-all",
		"~ shop-b  tier          gold -> silver",
		"1 bad rules of the new source are left out",
	)
	if strings.Contains(out, "tier gold") {
		t.Errorf("a rule that stays is told of:\n%s", out)
	}
	// A service keeps the last good version of a rule that has become bad.
	bad := file(t, "bad.json", strings.Replace(good, `"rate": 100`, `"rate": 0`, 1))
	if out := ctl(t, 0, "diff", old, bad); strings.Contains(out, "shop-a") || !strings.Contains(out, "1 bad rules of the new source") {
		t.Errorf("a rule that has become bad is told of as gone:\n%s", out)
	}
	var v struct {
		Rules []change     `json:"rules"`
		Tiers []tierChange `json:"tiers"`
	}
	out, _, _ = strings.Cut(ctl(t, 1, "diff", "-o", "json", old, new), "\n1 bad") // which went to the other stream
	decode(t, out, &v)
	if len(v.Rules) != 3 || len(v.Tiers) != 1 || v.Rules[0].Old.Limits[0].Burst != 200 || v.Rules[0].New.Limits[0].Burst != 50 ||
		v.Rules[1].Old != nil || v.Rules[2].New != nil {
		t.Errorf("%s", out)
	}
}

// TestSQL: a database is a source as a file is, and the two can be compared before the one is changed.
func TestSQL(t *testing.T) {
	t.Parallel()
	server := pgserver.Start(t)
	url := server.URL("postgres")
	has(t, ctl(t, 2, "validate", url), "rate_limit_rule")
	server.Psql("postgres", rules.Schema)
	server.Psql("postgres", `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('shop-a', 'create-order', 200, 100)`)
	has(t, ctl(t, 0, "validate", url), "1 good rules, 0 bad")
	has(t, ctl(t, 1, "diff", url, file(t, "changed.json", changed)), "- shop-a", "burst 200", "+ shop-a", "burst 50", "+ shop-c", "+ tier gold")
	has(t, ctl(t, 0, "explain", "-rules", url, "shop-a", "create-order"), "rule", "1, of (tenant, route)", "burst 200", "blocked", "not known")
	server.Psql("postgres", `ALTER TABLE rate_limit_rule DROP CONSTRAINT rate_limit_rule_capacity_check; UPDATE rate_limit_rule SET capacity = 0`)
	has(t, ctl(t, 1, "validate", url), "0 good rules, 1 bad", "rule 1: capacity")
	server.Kill()
	has(t, ctl(t, 2, "explain", "-rules", url, "shop-a", "create-order"), "ratelimitctl explain: ")
}
