package rules

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/sluicego/ratelimit"
)

// A row is one of rate_limit_rule, as text; nil is NULL, or a column that the table has not.
type row struct{ cells []sql.RawBytes }

const (
	colID = iota
	colTenant
	colRoute
	colCapacity // the first of what makes the policy
	colRefill
	colAlgorithm
	colPeriod
	colName
	colOnFailure
	colShared
	colMore
	colCost
	colMode
	colPercent
	colExpires // the last
	colTier
)

// A compiler turns rows into entries. Rows that say the same of their limits are read once.
type compiler struct {
	b        *builder
	policies map[string]*policy
	scratch  []byte
}

func newCompiler(b *builder) *compiler { return &compiler{b: b, policies: map[string]*policy{}} }

// row takes a row.
func (c *compiler) row(r *row) {
	c.scratch = c.scratch[:0]
	for _, cell := range r.cells[colCapacity : colExpires+1] {
		size := int64(len(cell))
		if cell == nil {
			size = -1
		}
		c.scratch = strconv.AppendInt(c.scratch, size, 10)
		c.scratch = append(append(c.scratch, ':'), cell...)
	}
	tenant, route, tier := r.cells[colTenant], r.cells[colRoute], r.cells[colTier]
	if p := c.policies[string(c.scratch)]; p != nil && len(tenant) > 0 && len(route) > 0 && tier == nil {
		c.b.count++
		c.b.add(place{tenant: string(tenant), route: c.b.text(string(route))}, string(r.cells[colID]), p)
		return
	}
	if p := c.b.put(r.rule()); p != nil {
		c.policies[string(c.scratch)] = p
	}
}

// A cellError is a column that cannot be read.
func cellError(column int, format string, args ...any) error {
	return &RuleError{Field: columns[column], Err: fmt.Errorf(format, args...)}
}

// rule is the row as a Rule.
func (r *row) rule() Rule {
	rule := Rule{
		ID: string(r.cells[colID]), Tenant: string(r.cells[colTenant]), Route: string(r.cells[colRoute]), Tier: string(r.cells[colTier]),
	}
	rule.Invalid = r.fill(&rule)
	return rule
}

func (r *row) fill(rule *Rule) error {
	switch {
	case rule.Route == "":
		return cellError(colRoute, "it is empty; any route is %q", Any)
	case rule.Tenant == "" && rule.Tier == "":
		return cellError(colTenant, "it is empty; any tenant is %q", Any)
	}
	first, err := r.limit()
	if err != nil {
		return err
	}
	shared, err := r.bool(colShared)
	if err != nil {
		return err
	}
	if shared {
		rule.Shared = append(rule.Shared, first)
	} else {
		rule.Limits = append(rule.Limits, first)
	}
	if more := bytes.TrimSpace(r.cells[colMore]); len(more) > 0 {
		var limits []jsonLimit
		field, err := strict(more, &limits)
		if err == nil {
			field, err = twice(json.NewDecoder(bytes.NewReader(more)))
		}
		if err == nil {
			field, err = rule.addLimits(columns[colMore], limits)
		}
		if err != nil {
			return &RuleError{Field: strings.TrimSuffix(columns[colMore]+": "+field, ": "), Err: err}
		}
	}
	return r.manner(rule)
}

// manner reads what the row says beside the limits.
func (r *row) manner(rule *Rule) error {
	if err := rule.Mode.UnmarshalText(r.cells[colMode]); err != nil {
		return cellError(colMode, "%w", err)
	}
	var err error
	if rule.Cost, err = r.int(colCost, 1, maxCost); err != nil {
		return err
	}
	if r.cells[colPercent] != nil {
		percent, err := r.int(colPercent, 0, 100)
		if err != nil {
			return err
		}
		rule.percent(int(percent))
	}
	if text := r.cells[colExpires]; text != nil {
		if rule.Expires, err = parseTime(string(text)); err != nil {
			return cellError(colExpires, "%w", err)
		}
	}
	return nil
}

// limit reads the limit that stands in columns of its own.
func (r *row) limit() (ratelimit.Limit, error) {
	var l ratelimit.Limit
	capacity, err := r.int(colCapacity, 1, 1_000_000_000)
	if err != nil {
		return l, err
	}
	if r.cells[colCapacity] == nil {
		return l, cellError(colCapacity, "it is NULL")
	}
	if a := r.cells[colAlgorithm]; a != nil {
		if err := l.Algorithm.UnmarshalText(a); err != nil {
			return l, cellError(colAlgorithm, "%w", err)
		}
	}
	if err := l.OnFailure.UnmarshalText(r.cells[colOnFailure]); err != nil {
		return l, cellError(colOnFailure, "%w", err)
	}
	l.Name = string(r.cells[colName])
	if err := ratelimit.PerSecond(1).Named(l.Name).Validate(); err != nil {
		return l, cellError(colName, "%w", err)
	}
	l.Rate, l.Burst = capacity, capacity
	blame := colPeriod
	if r.cells[colPeriod] != nil {
		err = r.perPeriod(&l)
	} else {
		blame = colRefill
		err = r.perSecond(&l)
	}
	if err != nil {
		return l, err
	}
	if l.Algorithm != ratelimit.TokenBucket {
		l.Rate, l.Burst = capacity, 0
	}
	if err := l.Validate(); err != nil {
		if strings.Contains(err.Error(), "Rate") && l.Rate == capacity {
			blame = colCapacity
		}
		return l, cellError(blame, "%w", err)
	}
	return l, nil
}

// perPeriod has the limit admit its capacity per period_seconds.
func (r *row) perPeriod(l *ratelimit.Limit) error {
	seconds, err := r.number(colPeriod)
	if err != nil {
		return err
	}
	micros := seconds.Mul(seconds, big.NewRat(1_000_000, 1))
	if !micros.IsInt() || !micros.Num().IsInt64() || micros.Num().Int64() > maxMicros {
		return cellError(colPeriod, "it is not in whole microseconds up to 366 days")
	}
	l.Period = time.Duration(micros.Num().Int64()) * time.Microsecond
	return nil
}

const (
	maxMicros = int64(366 * 24 * time.Hour / time.Microsecond)
	minMicros = int64(time.Millisecond / time.Microsecond)
)

// perSecond has the limit refill at refill_per_second: exactly, or not at all. A window is as long as its capacity lasts.
func (r *row) perSecond(l *ratelimit.Limit) error {
	rate, err := r.number(colRefill)
	if err != nil {
		return err
	}
	if rate.Sign() <= 0 {
		return cellError(colRefill, "%s is not above 0", r.cells[colRefill])
	}
	capacity := l.Rate
	if l.Algorithm != ratelimit.TokenBucket {
		micros := new(big.Rat).Quo(big.NewRat(capacity, 1), rate)
		micros.Mul(micros, big.NewRat(1_000_000, 1))
		if !micros.IsInt() || !micros.Num().IsInt64() || micros.Num().Int64() > maxMicros {
			return cellError(colRefill, "%d at %s a second do not last whole microseconds up to 366 days; set period_seconds", capacity, r.cells[colRefill])
		}
		l.Period = time.Duration(micros.Num().Int64()) * time.Microsecond
		return nil
	}
	units, seconds := rate.Num(), rate.Denom()
	if units.IsInt64() && units.Int64() <= 1_000_000_000 && seconds.IsInt64() && seconds.Int64() <= maxMicros/1_000_000 {
		l.Rate, l.Period = units.Int64(), time.Duration(seconds.Int64())*time.Second
		return nil
	}
	perMicro := new(big.Rat).Quo(rate, big.NewRat(1_000_000, 1))
	units, micros := perMicro.Num(), perMicro.Denom()
	if micros.IsInt64() && micros.Int64() < minMicros {
		k := big.NewInt((minMicros-1)/micros.Int64() + 1)
		units, micros = new(big.Int).Mul(units, k), new(big.Int).Mul(micros, k)
	}
	if !units.IsInt64() || units.Int64() > 1_000_000_000 || !micros.IsInt64() || micros.Int64() > maxMicros {
		return cellError(colRefill, "%.40s is no whole number up to 1000000000 per whole microseconds up to 366 days", r.cells[colRefill])
	}
	l.Rate, l.Period = units.Int64(), time.Duration(micros.Int64())*time.Microsecond
	return nil
}

// number reads a decimal number.
func (r *row) number(column int) (*big.Rat, error) {
	text := string(r.cells[column])
	if r.cells[column] == nil {
		return nil, cellError(column, "it is NULL")
	}
	// An exponent of a thousand digits would take all memory to work out.
	if _, exponent, ok := strings.Cut(strings.ToLower(text), "e"); len(text) > 60 || ok && len(exponent) > 4 || strings.Trim(text, "0123456789+-.eE") != "" {
		return nil, cellError(column, "%.60q is no decimal number of at most 60 characters", text)
	}
	n, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, cellError(column, "%q is no decimal number", text)
	}
	return n, nil
}

// int reads a whole number; NULL is 0.
func (r *row) int(column int, least, most int64) (int64, error) {
	if r.cells[column] == nil {
		return 0, nil
	}
	n, err := r.number(column)
	if err != nil {
		return 0, err
	}
	if !n.IsInt() || n.Cmp(big.NewRat(least, 1)) < 0 || n.Cmp(big.NewRat(most, 1)) > 0 {
		return 0, cellError(column, "%s is no whole number from %d to %d", r.cells[column], least, most)
	}
	return n.Num().Int64(), nil
}

// bool reads a truth value; NULL is false.
func (r *row) bool(column int) (bool, error) {
	if r.cells[column] == nil {
		return false, nil
	}
	v, err := strconv.ParseBool(string(r.cells[column]))
	if err != nil {
		return false, cellError(column, "%.40q is neither true nor false", r.cells[column])
	}
	return v, nil
}

// parseTime reads a time as database/sql writes one, and as SQLite keeps one. The end of time, in PostgreSQL, is never.
func parseTime(text string) (time.Time, error) {
	switch text {
	case "infinity":
		return time.Time{}, nil
	case "-infinity":
		return time.Unix(0, 0), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("it is no time")
}
