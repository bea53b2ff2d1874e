package rueidisstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluicego/ratelimit/lua"
)

// NewLazy returns a Store that connects in the background: rueidis.NewClient fails while Redis is down, and a service
// should start all the same. It calls connect until that returns a client, with pauses that grow to about half a second;
// until then every decision is at once ErrStoreUnavailable, or ErrMisconfigured where the server refused. Close ends
// that and closes the client. A nil connect or a Prefix with other bytes is an error.
func NewLazy(connect func() (rueidis.Client, error), o Options) (*Store, error) {
	if connect == nil {
		return nil, errors.New("rueidisstore: connect is nil")
	}
	codec, err := lua.NewCodec(o.Prefix, o.Clock)
	if err != nil {
		return nil, err
	}
	l := &lazy{connect: connect}
	l.now.Store(&attempt{err: lua.Unavailable(errors.New("not connected yet"))})
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.work.Go(func() { l.try(ctx) })
	return &Store{codec: codec, lazy: l}, nil
}

// Close ends the connecting of a Store made by NewLazy, waits for it, which takes as long as connect does, closes its
// client and waits for calls under way. Decisions are ErrStoreUnavailable from then on. A Store made by New has nothing
// to close: its client is the caller's.
func (s *Store) Close() {
	if s.lazy != nil {
		s.lazy.close.Do(s.lazy.end)
	}
}

// connected returns the link, or the error of a decision without one.
func (s *Store) connected() (*link, error) {
	if s.lazy == nil {
		return s.link, nil
	}
	a := s.lazy.now.Load()
	return a.link, a.err
}

// lazy is a client that is yet to be made.
type lazy struct {
	connect func() (rueidis.Client, error)
	now     atomic.Pointer[attempt]
	stop    context.CancelFunc
	work    sync.WaitGroup
	close   sync.Once
}

// An attempt is the outcome of the latest: a link or an error.
type attempt struct {
	link *link
	err  error
}

// try connects until that succeeds or ctx is done.
func (l *lazy) try(ctx context.Context) {
	const longest = 500 * time.Millisecond
	for pause := 50 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, longest) {
		client, err := l.connect()
		if err == nil && client == nil {
			err = errors.New("connect returned no client")
		}
		if err == nil {
			l.now.Store(&attempt{link: newLink(client)})
			return
		}
		l.now.Store(&attempt{err: classify(err)})
		t := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

func (l *lazy) end() {
	l.stop()
	l.work.Wait()
	last := l.now.Swap(&attempt{err: lua.Unavailable(rueidis.ErrClosing)})
	if last.link != nil {
		last.link.client.Close()
		last.link.drain()
	}
}
