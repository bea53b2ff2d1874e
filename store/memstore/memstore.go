// Package memstore is a ratelimit.Store in the memory of one process: exact, bounded, without a goroutine.
package memstore

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/sluicego/ratelimit"
)

// DefaultMaxKeys is what MaxKeys is unless set.
const DefaultMaxKeys = 1_000_000

// Options are how a Store is built; the zero value is the default.
type Options struct {
	// MaxKeys bounds the memory: the most states, one for each key and limit, that are kept. A sliding log of n
	// entries counts as max(1, n). 0 means DefaultMaxKeys; New panics below 0.
	//
	// When it is reached, a state that equals an unused key makes room, which costs nobody anything. If there is
	// none, the least recently used goes: of all up to 16,384 MaxKeys, above that of the states that share a lock
	// with the new one, about as many. A log alone may outgrow MaxKeys, up to the Rate of its limit; all else has
	// gone by then.
	MaxKeys int
	// Clock tells the time, by its wall clock reading. Nil means time.Now, and then steps of the wall clock after
	// New do not matter. It is called by many goroutines at once.
	Clock func() time.Time
}

// Stats are counts of a Store, since New but for Keys.
type Stats struct {
	Keys    int    // states kept now, as Len
	Evicted uint64 // live states forgotten because MaxKeys was reached: what they had spent is lost
	Expired uint64 // states forgotten because they equalled an unused key
}

// A Store keeps the state of limits in memory. It is made by New alone, safe for concurrent use, and has nothing to close.
type Store struct {
	shards  []shard
	dues    []atomic.Int64 // of each shard: no state in it equals an unused key before this time
	shift   uint8          // the upper bits of a hash choose the shard
	seed    maphash.Seed
	clock   func() time.Time // nil: started and what has passed since
	started time.Time
	base    int64 // started in microseconds
	max     int64
	sweeper sweeper

	_        [64]byte // what changes with every new key stays off the lines that every call reads
	machines machines
	uses     atomic.Int64
	charged  atomic.Int64 // against max
	keys     atomic.Int64
	evicted  atomic.Uint64
	expired  atomic.Uint64
}

var (
	_ ratelimit.Store     = (*Store)(nil)
	_ ratelimit.Historian = (*Store)(nil)
)

const (
	shardKeys = 16384 // about how many states share a lock at most: the work of one eviction depends on it
	maxShards = 4096
)

// New returns an empty Store. It panics if MaxKeys is below 0.
func New(o Options) *Store {
	if o.MaxKeys < 0 {
		panic(fmt.Sprintf("memstore: MaxKeys %d is below 0", o.MaxKeys))
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	width := min(bits.Len(uint((o.MaxKeys-1)/shardKeys)), bits.Len(maxShards-1))
	s := &Store{
		shards:  make([]shard, 1<<width),
		dues:    make([]atomic.Int64, 1<<width),
		shift:   uint8(64 - width),
		seed:    maphash.MakeSeed(),
		clock:   o.Clock,
		started: time.Now(),
		max:     int64(o.MaxKeys),
	}
	s.base = s.started.UnixMicro()
	none := newTable(1) // and none will be put in it
	for i := range s.shards {
		s.shards[i].number, s.shards[i].due = i, &s.dues[i]
		s.shards[i].table.Store(none)
		s.dues[i].Store(never)
	}
	s.sweeper.work()
	return s
}

// Take decides req. Errors are ctx's and those of a request that is not valid.
func (s *Store) Take(ctx context.Context, req ratelimit.Request) (res ratelimit.Result, err error) {
	if err := ctx.Err(); err != nil {
		return res, err
	}
	if req.Key == "" || req.Limit == nil || req.Extra != 0 {
		if err := req.Validate(); err != nil {
			return res, err
		}
	}
	key := req.Key
	if key[0] == '{' { // else it is its bare form
		key = ratelimit.BareKey(key)
	}
	hash := s.hash(key, req.Limit)
	sh := s.shard(hash)
	// The clock waits for what was begun before it, and what comes after waits for the clock: that the search begins first
	// lets more of it overlap with what the caller did.
	t := sh.table.Load()
	g := t.home(hash)
	tagged := t.group(g).tagged(hash)
	var now, used int64 // out of turn, perhaps, once the lock is there: a State never goes back
	if s.clock == nil { // moment takes a nanosecond more
		used = int64(time.Since(s.started))
		now = s.base + used/1000
	} else {
		now, used = s.moment()
	}
	e, i := t.among(g, tagged, key, req.Limit)
	if e == nil {
		if e, i, t = sh.find(hash, key, req.Limit); e == nil {
			return s.takeNew(sh, hash, key, now, used, &req)
		}
	}
	m := e.state.Machine()
	other := !m.Runs(req.Limit)
	if other {
		if m, err = s.machines.get(req.Limit); err != nil {
			e.mu.Unlock()
			return res, err
		}
	}
	e.used = used
	before, grown, unused := weight(&e.state), int64(0), int64(never)
	if m.TakeInto(&res, &e.state, now, req.Cost, req.Extra) {
		// Nearly always it is later than it was when it will equal an unused key.
		if other || req.Cost < 0 || now+res.ResetAfter.Microseconds() < sh.due.Load() {
			unused = e.state.Unused()
		}
		if grown = weight(&e.state) - before; grown != 0 {
			s.charged.Add(grown)
		}
	}
	e.mu.Unlock()
	if unused != never || grown > 0 || s.sweeper.awake(now) {
		s.tidy(sh, t, i, unused, grown, now, used)
	}
	return res, nil
}

// tidy does what follows a decision now and then. It is a function of its own so that those without it are quicker.
func (s *Store) tidy(sh *shard, t *table, i int, unused, grown, now, used int64) {
	if unused != never {
		sh.mu.Lock()
		sh.unusedFrom(t, i, unused)
		sh.mu.Unlock()
	}
	if grown > 0 {
		s.trim(sh, used, now)
	}
	if s.sweeper.awake(now) {
		s.sweep(now)
	}
}

// takeNew decides req for a key that has no state. sh is locked, and unlocked on return.
func (s *Store) takeNew(sh *shard, hash uint64, key string, now, used int64, req *ratelimit.Request) (ratelimit.Result, error) {
	m, err := s.machines.get(req.Limit)
	if err != nil {
		sh.mu.Unlock()
		return ratelimit.Result{}, err
	}
	var state ratelimit.State
	res, changed := m.Take(&state, now, req.Cost, req.Extra)
	if changed && !s.reserve(1) {
		sh.mu.Unlock()
		b := batch{n: 1}
		b.set(0, s, key, req.Limit, ratelimit.Step{Machine: m, Cost: req.Cost, Extra: req.Extra})
		b.decide(s, now, used)
		return b.results[0], nil
	}
	if changed {
		s.insert(sh, hash, key, &state, used)
	}
	sh.mu.Unlock()
	if s.sweeper.awake(now) {
		s.sweep(now)
	}
	return res, nil
}

// Reset forgets what key has spent under limits.
func (s *Store) Reset(ctx context.Context, key string, limits ...*ratelimit.Limit) error {
	if len(limits) == 0 {
		return fmt.Errorf("%w: none to reset", ratelimit.ErrInvalidLimit)
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
	key = ratelimit.BareKey(key)
	for _, l := range limits {
		hash := s.hash(key, l)
		sh := s.shard(hash)
		sh.mu.Lock()
		if e, i := sh.table.Load().find(hash, key, l); e != nil {
			s.forget(sh, e, i)
			e.mu.Unlock()
		}
		sh.mu.Unlock()
	}
	return nil
}

// History returns what key has spent under a SlidingLog limit and is still in the window, oldest first; a limit of
// another Algorithm is ErrInvalidLimit.
func (s *Store) History(ctx context.Context, key string, limit *ratelimit.Limit) ([]ratelimit.Entry, error) {
	req := ratelimit.Request{Key: key, Limit: limit}
	if err := req.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, err := s.machines.get(limit)
	if err != nil {
		return nil, err
	}
	key = ratelimit.BareKey(key)
	hash := s.hash(key, limit)
	sh := s.shard(hash)
	now, _ := s.moment()
	e, _, _ := sh.find(hash, key, limit)
	if e == nil {
		sh.mu.Unlock()
		return m.History(new(ratelimit.State), now)
	}
	defer e.mu.Unlock()
	return m.History(&e.state, now)
}

// Len is how many states are kept.
func (s *Store) Len() int { return int(s.keys.Load()) }

// Stats returns the counts.
func (s *Store) Stats() Stats {
	return Stats{Keys: s.Len(), Evicted: s.evicted.Load(), Expired: s.expired.Load()}
}

// moment is the time in microseconds since the epoch, and the number of a use of a state, larger than those before it:
// the nanoseconds since New, or with a Clock a count, which is one more thing that all calls write.
func (s *Store) moment() (now, used int64) {
	if s.clock == nil {
		used = int64(time.Since(s.started))
		return s.base + used/1000, used
	}
	return min(max(s.clock().UnixMicro(), 0), 1<<53-1), s.uses.Add(1) // the ends of time that a Machine knows
}
