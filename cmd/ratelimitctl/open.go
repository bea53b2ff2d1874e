package main

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/rules"
	"github.com/sluicego/ratelimit/store/goredisstore"
)

// patience is how long a server may take for one thing.
const patience = 10 * time.Second

// openSource opens a JSON file or a database.
func openSource(name string) (rules.TierSource, func(), error) {
	if strings.HasPrefix(name, "postgres://") || strings.HasPrefix(name, "postgresql://") {
		db, err := sql.Open("pgx", name)
		if err != nil {
			return nil, nil, err
		}
		return rules.SQL(db), func() { _ = db.Close() }, nil
	}
	return rules.File(name), func() {}, nil
}

// load reads a source: its rules as they are, bad ones too, and what a service would make of them.
func load(ctx context.Context, name string) ([]rules.Rule, rules.Report, error) {
	source, done, err := openSource(name)
	if err != nil {
		return nil, rules.Report{}, err
	}
	defer done()
	once := &kept{TierSource: source}
	report, err := rules.Validate(ctx, once)
	return once.rules, report, err
}

// A kept is a source that keeps the rules it was last asked for.
type kept struct {
	rules.TierSource
	rules []rules.Rule
}

func (k *kept) Rules(ctx context.Context) (_ []rules.Rule, err error) {
	k.rules, err = k.TierSource.Rules(ctx)
	return k.rules, err
}

// openSet loads the rules as a service would, with the limit of the flags for its default.
func (c *call) openSet(ctx context.Context) (*rules.Set, error) {
	source, done, err := openSource(c.rules)
	if err != nil {
		return nil, err
	}
	defer done()
	var failed error
	o := rules.Options{Default: rules.Rule{Mode: rules.Off}, OnError: func(err error) {
		if one := (*rules.RuleError)(nil); !errors.As(err, &one) {
			failed = err
		}
	}}
	if c.limit.Rate != 0 {
		o.Default = rules.Rule{Limits: []ratelimit.Limit{c.limit}}
	}
	set, err := rules.New(ctx, source, o)
	if err != nil {
		return nil, err
	}
	set.Close() // what was loaded holds
	if set.Age() == ratelimit.Never {
		return nil, errors.Join(failed, ctx.Err())
	}
	return set, nil
}

// openRedis connects to a server or a Cluster.
func (c *call) openRedis() (redis.UniversalClient, error) {
	if c.redis == "" {
		return nil, errors.New("say -redis host:port")
	}
	var o redis.UniversalOptions
	if strings.Contains(c.redis, "://") {
		u, err := redis.ParseURL(c.redis)
		if err != nil {
			return nil, errors.New("-redis is no redis:// URL") // err may quote a password
		}
		o = redis.UniversalOptions{Addrs: []string{u.Addr}, Username: u.Username, Password: u.Password, DB: u.DB, TLSConfig: u.TLSConfig}
	} else {
		o.Addrs = strings.Split(c.redis, ",")
	}
	o.IsClusterMode = c.cluster
	o.DialTimeout, o.ReadTimeout = patience, patience
	return redis.NewUniversalClient(&o), nil
}

// openStore is openRedis, as a store.
func (c *call) openStore() (ratelimit.Store, func(), error) {
	client, err := c.openRedis()
	if err != nil {
		return nil, nil, err
	}
	store, err := goredisstore.New(client, goredisstore.Options{Prefix: c.prefix})
	if err != nil {
		_ = client.Close()
		return nil, nil, err
	}
	return store, func() { _ = client.Close() }, nil
}
