package faults

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

// Stalls are when this process did not get on: something in it was due to run and did not, since the machine was at other
// things. What a caller waits then is not the library's doing. It is safe for concurrent use.
type Stalls struct {
	mu   sync.Mutex
	all  timeline
	long timeline // those of at least long
}

const (
	// beat is how often it is looked whether this process runs on time. Of a stall so much may go unseen.
	beat = 2 * time.Millisecond
	// onTime is how late anything is at most where nothing is wrong.
	onTime = time.Millisecond
	// long is a stall that fleets side by side do not bring about by themselves.
	long = 15 * time.Millisecond
)

// machine is watched while tests run.
var machine Stalls

// Watch measures until the end, which it returns, how late some goroutines are, and how long the threads of this process
// wait for a processor, where the system tells.
func (s *Stalls) Watch() (end func()) {
	var watch sync.WaitGroup
	stop := make(chan struct{})
	every := func(d time.Duration, look func()) {
		watch.Go(func() {
			for {
				due := time.Now().Add(d)
				select {
				case <-time.After(d):
					s.waited(due)
					look()
				case <-stop:
					return
				}
			}
		})
	}
	for range runtime.GOMAXPROCS(0) {
		every(beat, func() {})
	}
	var threads threads
	every(2*beat, func() { threads.look(s) })
	return func() {
		close(stop)
		watch.Wait()
		threads.close()
	}
}

// Expect measures how late a timer is that is due in d, as that of a caller is who waits for so long, and others after it
// until stop is called.
func (s *Stalls) Expect(d time.Duration) (stop func()) {
	var (
		mu    sync.Mutex
		timer *time.Timer
		due   = time.Now().Add(d)
		done  bool
	)
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(d, func() {
		mu.Lock()
		defer mu.Unlock()
		if !done {
			s.waited(due)
			due = time.Now().Add(beat)
			timer.Reset(beat)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		s.waited(due)
		done = true
		timer.Stop()
	}
}

// waited records that something waited from some moment until now.
func (s *Stalls) waited(from time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if d := now.Sub(from); d > onTime {
		s.all.add(span{from, now})
		if d >= long {
			s.long.add(span{from, now})
		}
	}
}

// Within returns how much of a stretch of time was stalled.
func (s *Stalls) Within(from, to time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.within(from, to)
}

// Long returns how much of a stretch of time was in long stalls.
func (s *Stalls) Long(from, to time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.long.within(from, to)
}

// A timeline is spans in their order that do not touch.
type timeline []span

type span struct{ from, to time.Time }

// add adds a span that ends after all others.
func (l *timeline) add(s span) {
	n := len(*l)
	for n > 0 && !(*l)[n-1].to.Before(s.from) {
		n--
		s.from = earlier(s.from, (*l)[n].from)
	}
	*l = append((*l)[:n], s)
}

// within returns how much of a stretch of time is in spans.
func (l timeline) within(from, to time.Time) (sum time.Duration) {
	i, _ := slices.BinarySearchFunc(l, from, func(s span, t time.Time) int { return s.to.Compare(t) })
	for ; i < len(l) && l[i].from.Before(to); i++ {
		sum += earlier(l[i].to, to).Sub(later(l[i].from, from))
	}
	return sum
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
