package storetest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
)

// A modelStore is the model as a store.
type modelStore struct {
	mu    sync.Mutex
	model *model
	clock func() time.Time
}

// NewModelStore returns a store whose decisions are the model's.
func NewModelStore(clock func() time.Time) ratelimit.Store {
	if clock == nil {
		clock = time.Now
	}
	return &modelStore{model: newModel(), clock: clock}
}

func (s *modelStore) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	results, err := s.TakeAll(ctx, []ratelimit.Request{req})
	if err != nil {
		return ratelimit.Result{}, err
	}
	return results[0], nil
}

func (s *modelStore) TakeAll(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
	b, err := ratelimit.Merge(reqs)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	decided := append([]ratelimit.Request(nil), b.Requests...)
	for i := range decided {
		decided[i].Key = ratelimit.BareKey(decided[i].Key)
	}
	now := min(max(0, s.clock().UnixMicro()), 1<<53-1)
	return b.Results(s.model.takeAll(decided, now)), nil
}

func (s *modelStore) Reset(ctx context.Context, key string, limits ...*ratelimit.Limit) error {
	if len(limits) == 0 {
		return ratelimit.ErrInvalidLimit
	}
	for _, l := range limits {
		req := ratelimit.Request{Key: key, Limit: l}
		if err := req.Validate(); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range limits {
		s.model.reset(ratelimit.BareKey(key), l)
	}
	return nil
}

// A recorder takes the place of a *testing.T where a case is expected to fail.
type recorder struct {
	mu       sync.Mutex
	failures []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// Impatient returns c with less patience.
func Impatient(c Config, patience time.Duration) Config {
	c.patience = patience
	return c
}

// CaseNames returns the names of all cases that c runs.
func CaseNames(c Config) (names []string) {
	for _, ch := range checks {
		if ch.needs == nil || ch.needs(&c) {
			names = append(names, ch.name)
		}
	}
	return names
}

// Joined tells whether this is the other process of a race.
func Joined() bool { return os.Getenv(joinEnv) != "" }

// Failure runs the case of that name and returns its first failure, or "".
func Failure(t *testing.T, c Config, name string) string {
	t.Helper()
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, ch := range checks {
			if ch.name == name {
				ch.run(newKit(r, t, &c, t.Name()))
			}
		}
	}()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failures) == 0 {
		return ""
	}
	return r.failures[0]
}
