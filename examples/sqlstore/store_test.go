package sqlstore

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/storetest"
)

func open(t *testing.T, path string, clock func() time.Time) *Store {
	t.Helper()
	if clock == nil {
		clock = time.Now
	}
	s, err := Open(path, clock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func fresh(t *testing.T, clock func() time.Time) *Store {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "limits.db"), clock)
}

// TestStore runs the conformance suite, with two processes on one file.
func TestStore(t *testing.T) {
	of := func(s ratelimit.Store) *Store { return s.(*Store) }
	storetest.Run(t, storetest.Config{
		New: func(t *testing.T, clock func() time.Time) ratelimit.Store { return fresh(t, clock) },
		Address: func(t *testing.T, s ratelimit.Store) (path string) {
			query(t, of(s), "SELECT file FROM pragma_database_list WHERE name = 'main'", nil, &path)
			return path
		},
		Join: func(t *testing.T, path string, clock func() time.Time) ratelimit.Store { return open(t, path, clock) },
		Corruptions: []storetest.Corruption{
			{Name: "no state", Make: spoil("NULL")},
			{Name: "an empty state", Make: spoil("x''")},
			{Name: "a number", Make: spoil("42")},
			{Name: "garbage", Make: spoil("'-7637260132274145208'")},
			{Name: "a state cut short", Make: spoil("substr(state, 1, length(state) - 1)")},
		},
		TTL: func(t *testing.T, s ratelimit.Store, key string, l *ratelimit.Limit) time.Duration {
			var unused int64
			query(t, of(s), "SELECT coalesce(max(unused), 0) FROM ratelimit"+where, id(key, l), &unused)
			if left := unused - of(s).clock().UnixMicro(); left > 0 {
				return time.Duration(min(left, 1<<53)) * time.Microsecond
			}
			return -1
		},
		Writes: func(t *testing.T, s ratelimit.Store) (changes int64) {
			query(t, of(s), "SELECT total_changes()", nil, &changes)
			return changes
		},
		Traces: 20,
	})
}

func query(t *testing.T, s *Store, text string, args []any, into any) {
	t.Helper()
	if err := s.db.QueryRow(text, args...).Scan(into); err != nil {
		t.Fatal(err)
	}
}

// spoil replaces a state.
func spoil(by string) func(t *testing.T, s ratelimit.Store, key string, l *ratelimit.Limit) {
	return func(t *testing.T, s ratelimit.Store, key string, l *ratelimit.Limit) {
		t.Helper()
		if _, err := s.(*Store).db.Exec("UPDATE ratelimit SET state = "+by+where, id(key, l)...); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnusedRowsGo deletes the rows that are as good as none, and no others.
func TestUnusedRowsGo(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := fresh(t, func() time.Time { return now })
	soon, late := ratelimit.PerMinute(10), ratelimit.PerDay(10).Named("late")
	for _, l := range []*ratelimit.Limit{&soon, &late} {
		if _, err := s.Take(t.Context(), ratelimit.Request{Key: "k", Limit: l, Cost: 10}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		after time.Duration
		want  int64
	}{{2 * time.Minute, 0}, {time.Microsecond, 1}, {24 * time.Hour, 1}, {time.Hour, 0}} {
		now = now.Add(step.after)
		if n, err := s.DeleteUnused(t.Context()); n != step.want || err != nil {
			t.Errorf("at %v: %d rows deleted, want %d; %v", now, n, step.want, err)
		}
	}
}

// TestOutage has the file closed: that is an outage, tells the driver's error and not the key.
func TestOutage(t *testing.T) {
	s := fresh(t, nil)
	s.Close()
	l := ratelimit.Limit{Algorithm: ratelimit.SlidingLog, Rate: 5, Period: time.Minute}
	req := ratelimit.Request{Key: "sekret", Limit: &l, Cost: 1}
	_, take := s.Take(t.Context(), req)
	_, all := s.TakeAll(t.Context(), []ratelimit.Request{req, req})
	log := l
	log.Algorithm, log.Burst = ratelimit.SlidingLog, 0
	_, history := s.History(t.Context(), req.Key, &log)
	_, sweep := s.DeleteUnused(t.Context())
	for name, err := range map[string]error{
		"Take": take, "TakeAll": all, "Reset": s.Reset(t.Context(), req.Key, &l), "History": history, "DeleteUnused": sweep,
	} {
		if !errors.Is(err, ratelimit.ErrStoreUnavailable) || strings.Contains(err.Error(), req.Key) || !strings.Contains(err.Error(), "closed") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "no", "such", "folder"), time.Now); !errors.Is(err, ratelimit.ErrStoreUnavailable) {
		t.Errorf("Open where no file can be: %v", err)
	}
}

// TestBusy lets another process hold the file: callers wait for it, and leave when their contexts end.
func TestBusy(t *testing.T) {
	s := fresh(t, nil)
	var path string
	query(t, s, "SELECT file FROM pragma_database_list WHERE name = 'main'", nil, &path)
	other, err := open(t, path, nil).db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	l := ratelimit.PerHour(10)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := s.Take(ctx, ratelimit.Request{Key: "k", Limit: &l, Cost: 1}); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ratelimit.ErrStoreUnavailable) {
		t.Errorf("while the file is held: %v", err)
	}
	late := time.Since(deadline(ctx))
	if late > time.Second {
		t.Errorf("Take returned %v after its deadline", late)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Take(context.Background(), ratelimit.Request{Key: "k", Limit: &l, Cost: 1})
		done <- err
	}()
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("once the file is free: %v", err)
	}
}

func deadline(ctx context.Context) time.Time {
	d, _ := ctx.Deadline()
	return d
}

// TestHistory reads a log back from its row.
func TestHistory(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := fresh(t, func() time.Time { return now })
	l := ratelimit.Limit{Rate: 10, Period: time.Minute}
	limiter, err := ratelimit.NewSlidingLog(s, l)
	if err != nil {
		t.Fatal(err)
	}
	for cost := range int64(3) {
		now = now.Add(25 * time.Second)
		if res, err := limiter.Allow(t.Context(), "k", cost+1); err != nil || !res.Allowed {
			t.Fatalf("cost %d: %+v, %v", cost+1, res, err)
		}
	}
	now = now.Add(25 * time.Second)
	entries, err := limiter.History(t.Context(), "k")
	if err != nil || len(entries) != 2 || entries[0].Cost != 2 || entries[1].Cost != 3 || now.Sub(entries[0].Time) != 50*time.Second {
		t.Errorf("history %v, %v", entries, err)
	}
	if _, err := s.History(t.Context(), "", &l); !errors.Is(err, ratelimit.ErrInvalidKey) {
		t.Errorf("history of no key: %v", err)
	}
}
