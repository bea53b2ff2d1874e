package redisserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// A ReplyError is an error that the server answered with, its code first: "WRONGTYPE Operation against …".
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// Do runs one command and returns its reply: a string, an int64, nil, or a []any of those, in which errors are
// ReplyErrors. An error reply to the whole command is returned as err. All calls share one connection, which a failure
// or Kill replaces, and a call gives up after five seconds.
func (s *Server) Do(args ...string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		c, err := dial(s.Addr)
		if err != nil {
			return nil, err
		}
		s.conn = c
	}
	reply, err := s.conn.do(args)
	if err != nil && !errors.As(err, new(ReplyError)) {
		_ = s.conn.Close()
		s.conn = nil
	}
	return reply, err
}

// Text is Do for replies of one value: numbers come as digits, nil as "", an array as its values, a space between.
func (s *Server) Text(args ...string) (string, error) {
	reply, err := s.Do(args...)
	return text(reply), err
}

func text(reply any) string {
	switch r := reply.(type) {
	case nil:
		return ""
	case []any:
		words := make([]string, len(r))
		for i, e := range r {
			words[i] = text(e)
		}
		return strings.Join(words, " ")
	default:
		return fmt.Sprint(r)
	}
}

// Info returns the fields of one section of INFO.
func (s *Server) Info(section string) (map[string]string, error) {
	text, err := s.Text("INFO", section)
	return fields(text), err
}

// fields parses lines of name:value, which INFO and CLUSTER INFO answer with.
func fields(text string) map[string]string {
	m := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}

// Calls returns how often the server has run a command, from clients and from scripts, since it started or since
// CONFIG RESETSTAT.
func (s *Server) Calls(command string) (int64, error) {
	info, err := s.Info("commandstats")
	if err != nil {
		return 0, err
	}
	stat, ok := info["cmdstat_"+strings.ToLower(command)]
	if !ok {
		return 0, nil
	}
	calls, _, _ := strings.Cut(strings.TrimPrefix(stat, "calls="), ",")
	return strconv.ParseInt(calls, 10, 64)
}

func (s *Server) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}

type conn struct {
	net.Conn
	r *bufio.Reader
}

func dial(addr string) (*conn, error) {
	c, err := net.DialTimeout("tcp", addr, 2*time.Second)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, r: bufio.NewReader(c)}, nil
}

func (c *conn) do(args []string) (any, error) {
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return nil, err
	}
	if _, err := c.Write(appendCommand(nil, args)); err != nil {
		return nil, err
	}
	reply, err := readReply(c.r)
	if e, ok := reply.(ReplyError); ok {
		return nil, e
	}
	return reply, err
}

func appendCommand(b []byte, args []string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

// readReply reads one RESP2 reply.
func readReply(r *bufio.Reader) (any, error) {
	kind, rest, err := readLine(r)
	if err != nil {
		return nil, err
	}
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return ReplyError(rest), nil
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("redisserver: malformed reply: %w", err)
	}
	switch kind {
	case ':':
		return n, nil
	case '$':
		if n < 0 {
			return nil, nil
		}
		return readBulk(r, n)
	case '*':
		if n < 0 {
			return nil, nil
		}
		list := make([]any, n)
		for i := range list {
			if list[i], err = readReply(r); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("redisserver: reply of unknown kind %q", kind)
}

// readCommand reads what a client sends: an array of bulk strings.
func readCommand(r *bufio.Reader) ([]string, error) {
	reply, err := readReply(r)
	if err != nil {
		return nil, err
	}
	list, ok := reply.([]any)
	if !ok || len(list) == 0 {
		return nil, errors.New("redisserver: a command is not an array")
	}
	args := make([]string, len(list))
	for i, e := range list {
		if args[i], ok = e.(string); !ok {
			return nil, errors.New("redisserver: an argument is not a string")
		}
	}
	return args, nil
}

func readLine(r *bufio.Reader) (kind byte, rest string, err error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, "", err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return 0, "", fmt.Errorf("redisserver: malformed line %.40q", line)
	}
	return line[0], line[1 : len(line)-2], nil
}

func readBulk(r *bufio.Reader, n int64) (string, error) {
	b := make([]byte, n+2)
	if _, err := io.ReadFull(r, b); err != nil {
		return "", err
	}
	return string(b[:n]), nil
}
