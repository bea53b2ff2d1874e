package storetest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/storetest"
)

// A reference is the smallest store that keeps the contract: a map of States behind one lock. Its parts are fields, so
// that a wrong store is a reference with one part broken.
type reference struct {
	mu    sync.Mutex
	clock func() time.Time
	state map[id]*ratelimit.State

	id      func(key string, l *ratelimit.Limit) id
	machine func(s *ratelimit.State, i id, l ratelimit.Limit) *ratelimit.Machine
}

type id struct {
	key       string
	algorithm ratelimit.Algorithm
	name      string
	limit     ratelimit.Limit // the zero value, but in stores that take a changed limit for another
}

var _ ratelimit.Store = (*reference)(nil)

func newReference(clock func() time.Time) *reference {
	if clock == nil {
		clock = time.Now
	}
	return &reference{
		clock: clock,
		state: map[id]*ratelimit.State{},
		id: func(key string, l *ratelimit.Limit) id {
			return id{key: ratelimit.BareKey(key), algorithm: l.Algorithm, name: l.Name}
		},
		machine: func(_ *ratelimit.State, _ id, l ratelimit.Limit) *ratelimit.Machine {
			m, err := ratelimit.NewMachine(l)
			if err != nil {
				panic(err) // Validate has accepted it
			}
			return m
		},
	}
}

func (r *reference) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	if err := req.Validate(); err != nil {
		return ratelimit.Result{}, err
	}
	if err := ctx.Err(); err != nil {
		return ratelimit.Result{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.id(req.Key, req.Limit)
	s := r.find(i)
	res, _ := r.machine(s, i, *req.Limit).Take(s, r.clock().UnixMicro(), req.Cost, req.Extra)
	return res, nil
}

func (r *reference) find(i id) *ratelimit.State {
	s := r.state[i]
	if s == nil {
		s = &ratelimit.State{}
		r.state[i] = s
	}
	return s
}

func (r *reference) TakeAll(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
	b, err := ratelimit.Merge(reqs)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var steps []ratelimit.Step
	for _, req := range b.Requests {
		i := r.id(req.Key, req.Limit)
		s := r.find(i)
		steps = append(steps, ratelimit.Step{Machine: r.machine(s, i, *req.Limit), State: s, Cost: req.Cost, Extra: req.Extra})
	}
	results := make([]ratelimit.Result, len(steps))
	ratelimit.StepAll(r.clock().UnixMicro(), steps, results)
	return b.Results(results), nil
}

func (r *reference) Reset(ctx context.Context, key string, limits ...*ratelimit.Limit) error {
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
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range limits {
		delete(r.state, r.id(key, l))
	}
	return nil
}

func (r *reference) History(_ context.Context, key string, l *ratelimit.Limit) ([]ratelimit.Entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.id(key, l)
	s := r.find(i)
	return r.machine(s, i, *l).History(s, r.clock().UnixMicro())
}

func TestReference(t *testing.T) {
	storetest.Run(t, storetest.Config{New: func(_ *testing.T, clock func() time.Time) ratelimit.Store { return newReference(clock) }})
}

// TestModel shows that the model, which decides the traces, is itself right in every case that says its numbers.
func TestModel(t *testing.T) {
	storetest.Run(t, storetest.Config{New: func(_ *testing.T, clock func() time.Time) ratelimit.Store { return storetest.NewModelStore(clock) }})
}
