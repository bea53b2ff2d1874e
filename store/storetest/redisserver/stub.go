package redisserver

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Stub is a server in the test's own process whose replies, delays and failures a test scripts. It counts what it
// was asked to do.
type Stub struct {
	// Addr is host:port. It stays the same over Down and Up.
	Addr string

	tb      testing.TB
	handler func(conn int, args []string) Reply
	serial  sync.Mutex // held while a command is executed: one at a time, as in Redis
	ends    sync.WaitGroup

	mu       sync.Mutex // guards what follows
	listener net.Listener
	conns    map[int]net.Conn
	counts   map[string]int
	accepted int
	peak     int
}

// NewStub starts a Stub that does a client's handshake by itself (see Handshake) and calls handler for every other
// command. conn numbers the connections from 1. The name of the command, args[0], is in upper case. Commands are
// executed one at a time whatever their connection, so handler needs no lock, and must neither block nor call Down:
// Reply.After delays.
func NewStub(tb testing.TB, handler func(conn int, args []string) Reply) *Stub {
	tb.Helper()
	return NewRawStub(tb, func(conn int, args []string) Reply {
		if reply, ok := Handshake(args); ok {
			return reply
		}
		return handler(conn, args)
	})
}

// NewRawStub is NewStub with a handler that sees the handshake too.
func NewRawStub(tb testing.TB, handler func(conn int, args []string) Reply) *Stub {
	tb.Helper()
	s := &Stub{tb: tb, handler: handler, conns: make(map[int]net.Conn), counts: make(map[string]int)}
	// Not a port that the system picks: those are where a client that dials a closed one may reach itself.
	s.Addr = (&net.TCPAddr{IP: net.ParseIP(host), Port: freePort(tb)}).String()
	tb.Cleanup(s.Down)
	s.Up()
	return s
}

// NewSilent starts a Stub that accepts connections, reads what they send and never answers.
func NewSilent(tb testing.TB) *Stub {
	tb.Helper()
	return NewRawStub(tb, func(int, []string) Reply { return Reply{} })
}

// Up listens again after Down.
func (s *Stub) Up() {
	s.tb.Helper()
	var l net.Listener
	err := poll(func() (err error) { // the port may be in use for a moment more
		l, err = net.Listen("tcp", s.Addr)
		return err
	})
	if err != nil {
		s.tb.Fatalf("redisserver: stub: %v", err)
	}
	s.mu.Lock()
	s.listener = l
	s.mu.Unlock()
	s.ends.Go(func() { s.accept(l) })
}

// Down closes every connection and refuses new ones. It waits until no command is being executed.
func (s *Stub) Down() {
	s.mu.Lock()
	if s.listener != nil {
		_ = closeListener(s.listener)
		s.listener = nil
	}
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.ends.Wait()
}

// Count returns how many commands of these names the Stub has executed, or with no name, how many of all but those of
// the handshake.
func (s *Stub) Count(names ...string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	if len(names) == 0 {
		for name, count := range s.counts {
			if _, ok := Handshake([]string{name}); !ok {
				n += count
			}
		}
	}
	for _, name := range names {
		n += s.counts[strings.ToUpper(name)]
	}
	return n
}

// Conns returns how many connections are open now, how many were at most, and how many were ever accepted.
func (s *Stub) Conns() (open, peak, accepted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns), s.peak, s.accepted
}

func (s *Stub) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.listener != l { // Down came between
			s.mu.Unlock()
			_ = c.Close()
			return
		}
		s.accepted++
		id := s.accepted
		s.conns[id] = c
		s.peak = max(s.peak, len(s.conns))
		s.mu.Unlock()
		s.ends.Go(func() {
			s.serve(id, c)
			_ = c.Close()
			s.mu.Lock()
			delete(s.conns, id)
			s.mu.Unlock()
		})
	}
}

// serve executes what comes over c, while another goroutine sends the replies.
func (s *Stub) serve(id int, c net.Conn) {
	q := newQueue()
	var sender sync.WaitGroup
	sender.Go(func() { q.send(c) })
	defer sender.Wait()
	defer close(q.gone)
	r := bufio.NewReader(c)
	for {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		reply := s.execute(id, args)
		q.add(reply)
		if reply.close {
			// Closing with input unread would send a reset, which may overtake the replies.
			_, _ = io.Copy(io.Discard, r)
			return
		}
	}
}

func (s *Stub) execute(id int, args []string) Reply {
	s.serial.Lock()
	defer s.serial.Unlock()
	args[0] = strings.ToUpper(args[0])
	s.mu.Lock()
	s.counts[args[0]]++
	s.mu.Unlock()
	return s.handler(id, args)
}

// A queue holds the replies of one connection that are still to be sent.
type queue struct {
	mu      sync.Mutex
	replies []Reply
	more    chan struct{} // holds one value if replies has grown
	gone    chan struct{} // closed when the client has gone, or the Stub hangs up
}

func newQueue() *queue {
	return &queue{more: make(chan struct{}, 1), gone: make(chan struct{})}
}

func (q *queue) add(r Reply) {
	q.mu.Lock()
	q.replies = append(q.replies, r)
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
}

func (q *queue) take() []Reply {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch := q.replies
	q.replies = nil
	return batch
}

// send writes replies until one of them closes the connection or the client has gone.
func (q *queue) send(c net.Conn) {
	for {
		select {
		case <-q.more:
		case <-q.gone:
			return
		}
		for _, r := range q.take() {
			if r.after != nil {
				select {
				case <-r.after:
				case <-q.gone:
					return
				}
			}
			_, _ = io.WriteString(c, r.raw) // where it fails the client has gone, and its reader says so
			if r.close {
				if t, ok := c.(*net.TCPConn); ok {
					_ = t.CloseWrite()
				}
				_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // for a client that does not hang up
				return
			}
			if r.stuck() {
				<-q.gone
				return
			}
		}
	}
}
