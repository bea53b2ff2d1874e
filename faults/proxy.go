package faults

import (
	"net"
	"sync"
	"testing"
	"time"
)

// A Proxy stands between clients and one server, and does to their connections what networks do. It starts out well.
type Proxy struct {
	// Addr is where clients connect.
	Addr string

	server   string
	listener net.Listener
	ends     sync.WaitGroup

	mu       sync.Mutex // guards what follows
	links    map[*link]struct{}
	accepted int
	latency  time.Duration // of each direction
	silence  chan struct{} // not nil while nothing is forwarded, closed when that ends
	cut      bool          // replies become resets
	closed   bool
}

// NewProxy starts a Proxy before the server at addr. It ends with the test.
func NewProxy(tb testing.TB, addr string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), server: addr, listener: l, links: make(map[*link]struct{})}
	p.ends.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Slow has what is sent from now on arrive after half of roundTrip, in either direction.
func (p *Proxy) Slow(roundTrip time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = roundTrip / 2
}

// Silence forwards nothing from now on. Connections stay, new ones are accepted, and what is sent is kept, as by a
// network that loses packets, until Speak.
func (p *Proxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silence == nil {
		p.silence = make(chan struct{})
	}
}

// Speak ends Silence and forwards what was kept.
func (p *Proxy) Speak() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silence != nil {
		close(p.silence)
		p.silence = nil
	}
}

// CutReplies, while on, resets a connection instead of forwarding what the server replies: the server has done what it was
// asked for, and the client cannot know.
func (p *Proxy) CutReplies(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = on
}

// Reset resets all connections.
func (p *Proxy) Reset() { p.each((*link).reset) }

// HalfClose ends every connection in the direction of the client, who may go on to send.
func (p *Proxy) HalfClose() {
	p.each(func(l *link) {
		l.strand()
		_ = l.client.CloseWrite()
	})
}

// Strand forwards nothing more over the connections that there are, and closes none of them: the peer is gone, and nobody
// tells the client. New connections work.
func (p *Proxy) Strand() { p.each((*link).strand) }

// Conns returns how many connections there are and how many there ever were.
func (p *Proxy) Conns() (open, accepted int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links), p.accepted
}

func (p *Proxy) each(f func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		f(l)
	}
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Reset()
	p.ends.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil { // as if the server's own kernel had refused
			(&link{client: client.(*net.TCPConn), gone: make(chan struct{})}).reset()
			continue
		}
		l := &link{
			proxy: p, client: client.(*net.TCPConn), server: server.(*net.TCPConn),
			gone: make(chan struct{}), stranded: make(chan struct{}),
		}
		p.mu.Lock()
		p.links[l] = struct{}{}
		p.accepted++
		if p.closed {
			l.reset()
		}
		p.mu.Unlock()
		p.ends.Go(l.run)
	}
}

// A link is a connection of a client and the one to the server that belongs to it.
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn
	once           sync.Once
	gone           chan struct{} // closed at the end
	aside          sync.Once
	stranded       chan struct{} // closed when nothing is forwarded any more
}

func (l *link) run() {
	var pipes sync.WaitGroup
	pipes.Go(func() { l.pipe(l.client, l.server, false) })
	pipes.Go(func() { l.pipe(l.server, l.client, true) })
	pipes.Wait()
	l.proxy.mu.Lock()
	delete(l.proxy.links, l)
	l.proxy.mu.Unlock()
}

func (l *link) strand() { l.aside.Do(func() { close(l.stranded) }) }

// end closes both connections.
func (l *link) end() {
	l.once.Do(func() {
		close(l.gone)
		_ = l.client.Close()
		if l.server != nil {
			_ = l.server.Close()
		}
	})
}

// reset ends the link with a reset for the client.
func (l *link) reset() {
	_ = l.client.SetLinger(0)
	l.end()
}

// A chunk is what was read, and when it is due at the other side.
type chunk struct {
	bytes []byte
	due   time.Time
}

// pipe forwards from one side to the other.
func (l *link) pipe(from, to *net.TCPConn, replies bool) {
	chunks := make(chan chunk, 1024)
	var writer sync.WaitGroup
	writer.Go(func() {
		for c := range chunks {
			if !l.pass(c, replies) {
				l.reset()
				return
			}
			select {
			case <-l.stranded:
				continue
			default:
			}
			if _, err := to.Write(c.bytes); err != nil {
				l.end()
				return
			}
		}
	})
	buf := make([]byte, bufferSize)
	for {
		n, err := from.Read(buf)
		if err != nil {
			break
		}
		l.proxy.mu.Lock()
		latency := l.proxy.latency
		l.proxy.mu.Unlock()
		select {
		case chunks <- chunk{append([]byte(nil), buf[:n]...), time.Now().Add(latency)}:
		case <-l.gone:
		}
	}
	close(chunks)
	writer.Wait()
	if replies {
		select {
		case <-l.stranded: // the client is not told
			<-l.gone
		default:
		}
	}
	l.end()
}

// pass waits until c may go on. It returns false if the connection is to be reset instead.
func (l *link) pass(c chunk, reply bool) bool {
	wait := time.NewTimer(time.Until(c.due))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-l.gone:
		return false
	}
	for {
		l.proxy.mu.Lock()
		silence, cut := l.proxy.silence, l.proxy.cut
		l.proxy.mu.Unlock()
		if silence == nil {
			return !(reply && cut)
		}
		select {
		case <-silence:
		case <-l.gone:
			return false
		}
	}
}
