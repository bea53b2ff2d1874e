// Package pgrules has changed rules hold at once: it listens to the notifications that the triggers of rules.Schema send,
// and refreshes a rules.Set with each.
//
//	set, err := rules.New(ctx, rules.SQL(db), options)
//	…
//	listener, err := pgrules.Listen(url, set, pgrules.Options{})
//	…
//	defer listener.Close()
//
// LISTEN needs a connection of its own that is its own for as long as it lives: past a pooler such as PgBouncer, or the
// server it reaches directly.
package pgrules

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// Channel is what the triggers of rules.Schema notify.
const Channel = "rate_limit_rule"

// A Refresher is what is to be refreshed: a *rules.Set, or several.
type Refresher interface {
	Refresh(ctx context.Context) error
}

// Options are how a Listener is built; the zero value is the default.
type Options struct {
	// Channel is what to listen to; "" means Channel.
	Channel string
	// Check is how often a quiet connection is asked whether it lives; 0 means 10 s. It has 5 s to answer.
	Check time.Duration
	// MaxPause bounds the pause before the next attempt to connect, which begins at 100 ms and doubles; 0 means 5 s. After
	// each attempt that fails the rules are refreshed all the same, by the set's own connection.
	MaxPause time.Duration
	// OnError is told of each connection that was lost or could not be made. A Refresh that fails is not: the set tells that
	// itself. Nil means that nobody is told. One goroutine calls it and waits for it; it does not call Close. A panic is dropped.
	OnError func(error)
}

const (
	defaultCheck    = 10 * time.Second
	defaultMaxPause = 5 * time.Second
	firstPause      = 100 * time.Millisecond
	patience        = 5 * time.Second // with a server that was asked something
)

// A Listener listens until it is closed. Its two goroutines end with Close.
type Listener struct {
	config    *pgx.ConnConfig
	refresher Refresher
	options   Options
	listening atomic.Bool
	changed   chan struct{} // holds one: changes that meet are one refresh
	cancel    context.CancelFunc
	running   sync.WaitGroup
}

// Listen begins to listen at a server, given as a URL or as "key=value" pairs, and returns at once, also while the server
// is away. Errors are of the arguments.
func Listen(server string, r Refresher, o Options) (*Listener, error) {
	config, err := pgx.ParseConfig(server)
	if err != nil {
		return nil, fmt.Errorf("pgrules: %w", err)
	}
	switch {
	case r == nil:
		return nil, errors.New("pgrules: the Refresher is nil")
	case o.Check < 0 || o.MaxPause < 0:
		return nil, fmt.Errorf("pgrules: Options.Check %v and MaxPause %v must be 0 or above", o.Check, o.MaxPause)
	}
	if o.Channel == "" {
		o.Channel = Channel
	}
	if o.Check == 0 {
		o.Check = defaultCheck
	}
	if o.MaxPause == 0 {
		o.MaxPause = defaultMaxPause
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Listener{config: config, refresher: r, options: o, changed: make(chan struct{}, 1), cancel: cancel}
	l.running.Go(func() { l.listen(ctx) })
	l.running.Go(func() { l.refresh(ctx) })
	return l, nil
}

// Close ends the listening and waits for it. Closing twice is fine.
func (l *Listener) Close() {
	l.cancel()
	l.running.Wait()
}

// Listening tells whether the connection stands. While it does not, a change holds when the rules are polled.
func (l *Listener) Listening() bool { return l.listening.Load() }

// listen keeps a connection up.
func (l *Listener) listen(ctx context.Context) {
	pause := firstPause
	for {
		stood, err := l.connection(ctx)
		if ctx.Err() != nil {
			return
		}
		l.tell(fmt.Errorf("pgrules: %w", err))
		l.change()
		if stood {
			pause = firstPause
		}
		timer := time.NewTimer(pause/2 + rand.N(pause/2+1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		pause = min(2*pause, max(firstPause, l.options.MaxPause))
	}
}

// tell keeps a panic of the caller's hook from the connection.
func (l *Listener) tell(err error) {
	defer func() { _ = recover() }()
	if l.options.OnError != nil {
		l.options.OnError(err)
	}
}

// connection makes one and listens until it fails. It tells whether it ever stood.
func (l *Listener) connection(ctx context.Context) (stood bool, err error) {
	conn, err := bounded(ctx, patience, func(ctx context.Context) (*pgx.Conn, error) {
		conn, err := pgx.ConnectConfig(ctx, l.config.Copy())
		if err != nil {
			return nil, err
		}
		if _, err = conn.Exec(ctx, "LISTEN "+pgx.Identifier{l.options.Channel}.Sanitize()); err != nil {
			hangUp(conn)
		}
		return conn, err
	})
	if err != nil {
		return false, err
	}
	defer hangUp(conn)
	l.listening.Store(true)
	defer l.listening.Store(false)
	l.change() // what was changed while nobody listened
	for {
		_, err := bounded(ctx, l.options.Check, conn.WaitForNotification)
		switch {
		case err == nil:
			l.change()
		case ctx.Err() != nil || conn.IsClosed():
			return true, err
		default: // it was quiet
			_, err := bounded(ctx, patience, func(ctx context.Context) (struct{}, error) { return struct{}{}, conn.Ping(ctx) })
			if err != nil {
				return true, err
			}
		}
	}
}

func bounded[T any](ctx context.Context, d time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return f(ctx)
}

// hangUp closes a connection, without waiting for a server that hangs.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

func (l *Listener) change() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// refresh refreshes once for all changes that came since it began the last time.
func (l *Listener) refresh(ctx context.Context) {
	for {
		select {
		case <-l.changed:
			_ = l.refresher.Refresh(ctx) // the set tells its own errors
		case <-ctx.Done():
			return
		}
	}
}
