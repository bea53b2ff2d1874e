package main

import (
	"context"
	"database/sql"
	"log/slog"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/rules"
	"github.com/sluicego/ratelimit/rules/pgrules"
	"github.com/sluicego/ratelimit/store/goredisstore"
	"github.com/sluicego/ratelimit/store/memstore"
)

// defaultRule is for tenants and routes that have none of their own.
var defaultRule = rules.Rule{Limits: []ratelimit.Limit{{Rate: 10, Period: time.Second, Burst: 20}}}

// startPatience is how long a start waits for PostgreSQL, and for Redis. Then it goes on without.
const startPatience = 3 * time.Second

// limits are the rules and the store that decides by them.
type limits struct {
	set      *rules.Set
	listener *pgrules.Listener
	store    tally
	fallback *ratelimit.Fallback // nil in memory
	closers  []func()
}

func newLimits(ctx context.Context, c config) (*limits, error) {
	l := &limits{}
	err := l.openStore(ctx, c)
	if err == nil {
		err = l.openRules(ctx, c)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// openStore has decisions made by Redis, and for as long as it is slow or gone by this instance's share of each limit.
func (l *limits) openStore(ctx context.Context, c config) error {
	memory := memstore.New(memstore.Options{})
	if c.memory {
		l.store.Store = memory
		return nil
	}
	client := redis.NewClient(c.redis)
	l.onClose(func() { _ = client.Close() })
	store, err := goredisstore.New(client, goredisstore.Options{})
	if err != nil {
		return err
	}
	l.fallback, err = ratelimit.NewFallback(store, memory, ratelimit.FallbackOptions{
		Timeout: c.budget, Instances: func() int { return c.instances },
	})
	if err != nil {
		return err
	}
	l.onClose(func() { _ = l.fallback.Close() })
	l.store.Store = l.fallback

	// So that the first decision finds a connection.
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		slog.Warn("gateway: starting without Redis", "error", err)
	}
	return nil
}

// openRules has the rules loaded from PostgreSQL, and again whenever it tells of a change.
func (l *limits) openRules(ctx context.Context, c config) error {
	var source rules.Source = rules.Static()
	if c.postgres != "" {
		db, err := sql.Open("pgx", c.postgres)
		if err != nil {
			return err
		}
		l.onClose(func() { _ = db.Close() })
		source = rules.SQL(db)
	}
	// Time-outs are short, for a database that hangs is left and asked again.
	first, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	var err error
	l.set, err = rules.New(first, source, rules.Options{
		Default: defaultRule,
		Timeout: 10 * time.Second,
		OnError: func(err error) { slog.Error("gateway: rules", "error", err) },
	})
	if err != nil {
		return err
	}
	l.onClose(l.set.Close)
	if c.postgres == "" {
		return nil
	}
	l.listener, err = pgrules.Listen(c.postgres, l.set, pgrules.Options{
		OnError: func(err error) { slog.Warn("gateway: notifications of rules", "error", err) },
	})
	if err != nil {
		return err
	}
	l.onClose(l.listener.Close)
	return nil
}

// limiter decides about keys of ratelimit.Key(tenant, route).
func (l *limits) limiter() ratelimit.Limiter { return l.set.Limiter(&l.store) }

func (l *limits) onClose(f func()) { l.closers = append(l.closers, f) }

// close ends all that was opened, the last first.
func (l *limits) close() {
	for i := len(l.closers) - 1; i >= 0; i-- {
		l.closers[i]()
	}
}
