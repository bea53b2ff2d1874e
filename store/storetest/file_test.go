package storetest_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/storetest"
)

// A fileStore keeps states in the files of a folder, so several processes may share them and a test may spoil them.
type fileStore struct {
	mu     sync.Mutex
	dir    string
	clock  func() time.Time // nil: the wall clock
	writes atomic.Int64

	unlocked  bool                                              // a fault: load and save are not one step
	saveLooks bool                                              // a fault: what was not changed is written too
	strict    bool                                              // a fault: what cannot be read is an error
	stubborn  bool                                              // a fault: a state without an expiry never gets one
	ttl       func(until, full time.Duration, isNew bool) int64 // microseconds; below 0 leaves the old expiry
}

const margin = time.Second

func newFileStore(dir string, clock func() time.Time) *fileStore {
	return &fileStore{dir: dir, clock: clock, ttl: func(until, _ time.Duration, _ bool) int64 { return (until + margin).Microseconds() }}
}

func (f *fileStore) path(key string, l *ratelimit.Limit) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s:%s", l.Algorithm, l.Name, ratelimit.BareKey(key)))
	return filepath.Join(f.dir, fmt.Sprintf("%x", sum[:12]))
}

// lock makes the lock file, which only one can.
func (f *fileStore) lock() (unlock func(), err error) {
	if f.unlocked {
		return func() {}, nil
	}
	f.mu.Lock() // callers of one process need not fight over the file
	name := filepath.Join(f.dir, "lock")
	for {
		file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			file.Close()
			return func() { os.Remove(name); f.mu.Unlock() }, nil
		}
		if !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrPermission) {
			f.mu.Unlock()
			return nil, err
		}
		runtime.Gosched()
	}
}

// load reads a state and when it expires; 0 is never.
func (f *fileStore) load(path string) (s ratelimit.State, expires int64, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, 0, nil
	}
	if err == nil && len(data) >= 8 {
		expires = int64(binary.BigEndian.Uint64(data))
		if expires != 0 && expires <= time.Now().UnixMicro() {
			return s, 0, nil
		}
		err = s.UnmarshalBinary(data[8:])
	} else if err == nil {
		err = errors.New("cut short")
	}
	if !f.strict {
		err = nil
	}
	return s, expires, err
}

func (f *fileStore) save(path string, s *ratelimit.State, m *ratelimit.Machine, now, expires int64) error {
	until := time.Duration(min(max(0, s.Unused()-now), 1<<52)) * time.Microsecond
	full := time.Duration(min(m.FullAfter(), 1<<52)) * time.Microsecond
	_, err := os.Stat(path)
	isNew := err != nil
	if us := f.ttl(until, full, isNew); us >= 0 && (isNew || expires != 0 || !f.stubborn) {
		if f.clock != nil {
			us = max(us, time.Minute.Microseconds())
		}
		expires = time.Now().UnixMicro() + us
	}
	data, err := s.AppendBinary(binary.BigEndian.AppendUint64(nil, uint64(expires)))
	if err != nil {
		return err
	}
	f.writes.Add(1)
	return os.WriteFile(path, data, 0o600)
}

func (f *fileStore) Take(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	if err := req.Validate(); err != nil {
		return ratelimit.Result{}, err
	}
	if m, err := ratelimit.NewMachine(*req.Limit); err == nil && req.Cost > req.Limit.Capacity() {
		res, _ := m.Take(&ratelimit.State{}, 0, req.Cost, 0)
		return res, ctx.Err()
	}
	results, err := f.TakeAll(ctx, []ratelimit.Request{req})
	if err != nil {
		return ratelimit.Result{}, err
	}
	return results[0], nil
}

func (f *fileStore) TakeAll(ctx context.Context, reqs []ratelimit.Request) ([]ratelimit.Result, error) {
	b, err := ratelimit.Merge(reqs)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	unlock, err := f.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	states := make([]ratelimit.State, len(b.Requests))
	expires := make([]int64, len(b.Requests))
	steps := make([]ratelimit.Step, len(b.Requests))
	for i, req := range b.Requests {
		if states[i], expires[i], err = f.load(f.path(req.Key, req.Limit)); err != nil {
			return nil, err
		}
		m, err := ratelimit.NewMachine(*req.Limit)
		if err != nil {
			return nil, err
		}
		steps[i] = ratelimit.Step{Machine: m, State: &states[i], Cost: req.Cost, Extra: req.Extra}
	}
	clock := f.clock
	if clock == nil {
		clock = time.Now
	}
	now := clock().UnixMicro()
	results := make([]ratelimit.Result, len(steps))
	if ratelimit.StepAll(now, steps, results) || f.saveLooks {
		for i, req := range b.Requests {
			path := f.path(req.Key, req.Limit)
			if _, err := os.Stat(path); err != nil && states[i].Unused() == 0 && !f.saveLooks {
				continue // unused it was, and is
			}
			if err := f.save(path, &states[i], steps[i].Machine, now, expires[i]); err != nil {
				return nil, err
			}
		}
	}
	return b.Results(results), nil
}

func (f *fileStore) Reset(ctx context.Context, key string, limits ...*ratelimit.Limit) error {
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
	unlock, err := f.lock()
	if err != nil {
		return err
	}
	defer unlock()
	for _, l := range limits {
		if err := os.Remove(f.path(key, l)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// fileConfig is the Config of file stores that break has had its way with.
func fileConfig(spoil func(*fileStore)) storetest.Config {
	of := func(s ratelimit.Store) *fileStore { return s.(*fileStore) }
	spoiled := func(dir string, clock func() time.Time) ratelimit.Store {
		f := newFileStore(dir, clock)
		spoil(f)
		return f
	}
	return storetest.Config{
		New:     func(t *testing.T, clock func() time.Time) ratelimit.Store { return spoiled(t.TempDir(), clock) },
		Address: func(_ *testing.T, s ratelimit.Store) string { return of(s).dir },
		Join: func(_ *testing.T, dir string, clock func() time.Time) ratelimit.Store {
			return spoiled(dir, clock)
		},
		Corruptions: []storetest.Corruption{
			{Name: "an empty file", Make: func(t *testing.T, s ratelimit.Store, key string, l *ratelimit.Limit) {
				overwrite(t, of(s).path(key, l), nil)
			}},
			{Name: "garbage", Make: func(t *testing.T, s ratelimit.Store, key string, l *ratelimit.Limit) {
				overwrite(t, of(s).path(key, l), []byte("\x00\x00\x00\x00\x00\x00\x00\x00nonsense"))
			}},
			{Name: "a state cut short", Make: func(t *testing.T, s ratelimit.Store, key string, l *ratelimit.Limit) {
				data, err := os.ReadFile(of(s).path(key, l))
				if err != nil {
					t.Fatal(err)
				}
				overwrite(t, of(s).path(key, l), data[:len(data)-1])
			}},
		},
		TTL: func(t *testing.T, s ratelimit.Store, key string, l *ratelimit.Limit) time.Duration {
			data, err := os.ReadFile(of(s).path(key, l))
			if errors.Is(err, fs.ErrNotExist) {
				return -1
			}
			if err != nil {
				t.Fatal(err)
			}
			expires := int64(binary.BigEndian.Uint64(data))
			if expires == 0 {
				return 0
			}
			left := expires - time.Now().UnixMicro()
			if left <= 0 {
				return -1
			}
			return time.Duration(min(left, 1<<53)) * time.Microsecond
		},
		Persist: func(t *testing.T, s ratelimit.Store, key string, l *ratelimit.Limit) {
			data, err := os.ReadFile(of(s).path(key, l))
			if err != nil {
				t.Fatal(err)
			}
			overwrite(t, of(s).path(key, l), append(make([]byte, 8), data[8:]...))
		},
		Writes: func(_ *testing.T, s ratelimit.Store) int64 { return of(s).writes.Load() },
		Traces: 20,
	}
}

func overwrite(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFiles runs the suite with every function of Config, and two processes.
func TestFiles(t *testing.T) {
	c := fileConfig(func(*fileStore) {})
	const slow = "thousands of calls, each of four file operations"
	c.Except = map[string]string{
		"[R] Remaining is 9 after the first of 10 per second, from 2025 to 2200": slow,
		"R91 R92 a slow bucket in steady use":                                    slow,
		"R11 nothing drifts":                                                     slow,
		"R65 a client that never stops calling is released":                      slow,
	}
	storetest.Run(t, c)
}
