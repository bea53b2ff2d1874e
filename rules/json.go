package rules

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluicego/ratelimit"
)

// A FileSource is rules in a JSON file, read whole each time and decoded when its bytes have changed:
//
//	{
//	  "rules": [
//	    {"id": "1", "tenant": "shop-a", "route": "create-order", "limits": [{"rate": 100, "period": "1s", "burst": 200}]},
//	    {"tier": "gold", "cost": 2, "mode": "shadow", "enforce_percent": 10, "expires": "2027-01-01T00:00:00Z",
//	     "limits": [{"name": "day", "algorithm": "sliding-counter", "rate": 10000, "period": "24h", "on_failure": "closed"},
//	                {"name": "all", "rate": 500, "period": "1s", "shared": true}]}
//	  ],
//	  "tenants": {"shop-a": "gold"}
//	}
//
// tenant and route are "*" unless set. A limit that is shared stands in Rule.Shared. A rule that is wrong, by a field that
// is unknown or stands twice too, is skipped; its place in the file is its ID unless it has one. A file that is no JSON in UTF-8,
// as one that is being written, is a failed load: write a new file and rename it.
type FileSource struct{ path string }

var _ TierSource = (*FileSource)(nil)

// File returns the Source of the rules in a JSON file.
func File(path string) *FileSource { return &FileSource{path: path} }

// Rules reads the file.
func (f *FileSource) Rules(context.Context) ([]Rule, error) {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	rules, _, err := decode(data)
	return rules, err
}

// Tiers reads the file.
func (f *FileSource) Tiers(context.Context) (map[string]string, error) {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	_, tiers, err := decode(data)
	return tiers, err
}

// feed tells nothing while the file is as it was.
func (f *FileSource) feed(_ context.Context, since any, b *builder) (any, error) {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	mark := sha256.Sum256(data)
	if since == mark {
		return mark, nil
	}
	rules, tiers, err := decode(data)
	if err != nil {
		return nil, err
	}
	b.all()
	for _, r := range rules {
		b.put(r)
	}
	for tenant, tier := range tiers {
		b.tier(tenant, tier)
	}
	return mark, nil
}

// A jsonRule is a rule in a file.
type jsonRule struct {
	ID             string      `json:"id"`
	Tenant         string      `json:"tenant"`
	Route          string      `json:"route"`
	Tier           string      `json:"tier"`
	Limits         []jsonLimit `json:"limits"`
	Cost           int64       `json:"cost"`
	Mode           Mode        `json:"mode"`
	EnforcePercent *int        `json:"enforce_percent"`
	Expires        time.Time   `json:"expires"`
}

// A jsonLimit is a limit in a file, and in the column more_limits of a table.
type jsonLimit struct {
	Name      string                `json:"name"`
	Algorithm ratelimit.Algorithm   `json:"algorithm"`
	Rate      int64                 `json:"rate"`
	Period    string                `json:"period"`
	Burst     int64                 `json:"burst"`
	OnFailure ratelimit.FailureMode `json:"on_failure"`
	Shared    bool                  `json:"shared"`
}

// decode reads a file. Each rule is read alone, so that a bad one costs no other.
func decode(data []byte) ([]Rule, map[string]string, error) {
	if !utf8.Valid(data) { // else a name would silently become another
		return nil, nil, errors.New("it is not UTF-8")
	}
	var file struct {
		Rules   once              `json:"rules"`
		Tenants map[string]string `json:"tenants"`
	}
	if _, err := strict(data, &file); err != nil {
		return nil, nil, err
	}
	rules := make([]Rule, len(file.Rules))
	for i, raw := range file.Rules {
		rules[i] = decodeRule(raw)
		if rules[i].ID == "" {
			rules[i].ID = fmt.Sprintf("rules[%d]", i)
		}
	}
	return rules, file.Tenants, nil
}

func decodeRule(data []byte) Rule {
	var j jsonRule
	field, err := strict(data, &j)
	if err == nil {
		field, err = twice(json.NewDecoder(bytes.NewReader(data)))
	}
	if err != nil {
		_ = json.Unmarshal(data, &j) // as far as it goes: whose rule it was
		return Rule{ID: j.ID, Tenant: j.Tenant, Route: j.Route, Tier: j.Tier, Invalid: &RuleError{Field: field, Err: err}}
	}
	r := Rule{ID: j.ID, Tenant: j.Tenant, Route: j.Route, Tier: j.Tier, Cost: j.Cost, Mode: j.Mode, Expires: j.Expires}
	if j.EnforcePercent != nil {
		r.percent(*j.EnforcePercent)
	}
	if field, err := r.addLimits("limits", j.Limits); err != nil {
		r.Invalid = &RuleError{Field: field, Err: err}
	}
	return r
}

// percent sets EnforcePercent from where 0 means nobody.
func (r *Rule) percent(n int) {
	r.EnforcePercent = n
	if n == 0 && r.Mode == Enforce {
		r.Mode = Shadow
	}
}

// addLimits adds decoded limits to a rule. The error is of the field.
func (r *Rule) addLimits(list string, limits []jsonLimit) (field string, err error) {
	for i, j := range limits {
		field := fmt.Sprintf("%s[%d]", list, i)
		period, err := time.ParseDuration(j.Period)
		if err != nil {
			return field + ".period", fmt.Errorf("%.40q is no duration such as 1s, 5m or 24h", j.Period)
		}
		l := ratelimit.Limit{Name: j.Name, Algorithm: j.Algorithm, Rate: j.Rate, Period: period, Burst: j.Burst, OnFailure: j.OnFailure}
		if err := l.Validate(); err != nil {
			return field, err
		}
		if j.Shared {
			r.Shared = append(r.Shared, l)
		} else {
			r.Limits = append(r.Limits, l)
		}
	}
	return "", nil
}

// strict decodes one JSON value that fills data and has no field that v has not. It names the field that is to blame,
// where that can be told.
func strict(data []byte, v any) (field string, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err = d.Decode(v); err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("something follows the value")
		}
	}
	if known := (*json.UnmarshalTypeError)(nil); errors.As(err, &known) {
		return known.Field, fmt.Errorf("a %s is no %v", known.Value, known.Type)
	}
	if err != nil {
		if _, name, ok := strings.Cut(err.Error(), "json: unknown field "); ok {
			return strings.Trim(name, `"`), errors.New("unknown field")
		}
	}
	return "", err
}
