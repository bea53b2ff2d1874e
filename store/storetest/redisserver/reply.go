package redisserver

import (
	"fmt"
	"strings"
)

// A Reply is what a Stub does about one command it has executed. The zero Reply answers nothing, ever: RESP answers in
// order, so it also holds back all later replies of that connection, whose commands are executed all the same.
type Reply struct {
	raw   string
	after <-chan struct{}
	close bool
	half  bool
}

// Raw replies with bytes as they are.
func Raw(resp string) Reply { return Reply{raw: resp} }

// Simple replies with a status such as OK.
func Simple(s string) Reply { return Raw("+" + s + "\r\n") }

// Error replies with an error; its code comes first, as in "NOSCRIPT No matching script.".
func Error(s string) Reply { return Raw("-" + s + "\r\n") }

// Int replies with a number.
func Int(n int64) Reply { return Raw(fmt.Sprintf(":%d\r\n", n)) }

// Bulk replies with a string of any bytes.
func Bulk(s string) Reply { return Raw(fmt.Sprintf("$%d\r\n%s\r\n", len(s), s)) }

// Nil replies with the absence of a value.
func Nil() Reply { return Raw("$-1\r\n") }

// Array replies with a list. Of its elements only what they say counts, not when or whether.
func Array(elements ...Reply) Reply {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(elements))
	for _, e := range elements {
		b.WriteString(e.raw)
	}
	return Raw(b.String())
}

// Drop closes the connection with the command executed and its reply unsent. Replies to earlier commands are sent,
// later commands that came in the same batch are not executed.
func Drop() Reply { return Reply{close: true} }

// After holds the reply, and all later ones of that connection, back until ready is closed or gives a value. Commands
// that come meanwhile are executed, as they are when a reply is slow on its way.
func (r Reply) After(ready <-chan struct{}) Reply {
	r.after = ready
	return r
}

// ThenClose closes the connection after the reply.
func (r Reply) ThenClose() Reply {
	r.close = true
	return r
}

// Half sends the first half of the reply and then nothing more, or closes if ThenClose says so.
func (r Reply) Half() Reply {
	r.raw, r.half = r.raw[:len(r.raw)/2], true
	return r
}

// stuck tells whether nothing more is sent on the connection after r.
func (r Reply) stuck() bool { return (r.half || r.raw == "") && !r.close }

// Handshake answers what clients send of their own accord: HELLO in either protocol, AUTH, SELECT, CLIENT, PING and
// the like, as a Redis 7 without Cluster does. ok is false for every other command.
func Handshake(args []string) (reply Reply, ok bool) {
	switch strings.ToUpper(args[0]) {
	case "HELLO":
		return hello(args), true
	case "AUTH", "SELECT", "READONLY", "READWRITE", "ASKING":
		return Simple("OK"), true
	case "QUIT":
		return Simple("OK").ThenClose(), true
	case "PING":
		if len(args) > 1 {
			return Bulk(args[1]), true
		}
		return Simple("PONG"), true
	case "COMMAND":
		return Array(), true
	case "INFO":
		return Bulk("# Server\r\nredis_version:" + stubVersion + "\r\nredis_mode:standalone\r\nrole:master\r\n"), true
	case "CLUSTER":
		return Error("ERR This instance has cluster support disabled"), true
	case "CLIENT":
		return client(args), true
	}
	return Reply{}, false
}

const stubVersion = "7.0.15"

func hello(args []string) Reply {
	proto, kind := int64(2), "*14\r\n"
	if len(args) > 1 {
		switch args[1] {
		case "2":
		case "3":
			proto, kind = 3, "%7\r\n"
		default:
			return Error("NOPROTO unsupported protocol version")
		}
	}
	var b strings.Builder
	b.WriteString(kind)
	for _, e := range []Reply{
		Bulk("server"), Bulk("redis"), Bulk("version"), Bulk(stubVersion), Bulk("proto"), Int(proto), Bulk("id"), Int(1),
		Bulk("mode"), Bulk("standalone"), Bulk("role"), Bulk("master"), Bulk("modules"), Array(),
	} {
		b.WriteString(e.raw)
	}
	return Raw(b.String())
}

func client(args []string) Reply {
	sub := ""
	if len(args) > 1 {
		sub = strings.ToUpper(args[1])
	}
	switch sub {
	case "SETINFO", "SETNAME", "TRACKING", "CACHING", "NO-TOUCH", "NO-EVICT", "CAPA":
		return Simple("OK")
	case "ID":
		return Int(1)
	}
	return Error(fmt.Sprintf("ERR Unknown subcommand or wrong number of arguments for '%.40s'. Try CLIENT HELP.", sub))
}

// ClusterSlots replies to CLUSTER SLOTS with masters at addrs that share the slots evenly, in order.
func ClusterSlots(addrs ...string) Reply {
	ranges := make([]Reply, len(addrs))
	for i, addr := range addrs {
		s := Server{Addr: addr}
		first, last := i*slots/len(addrs), (i+1)*slots/len(addrs)-1
		node := Array(Bulk(host), Int(int64(s.Port())), Bulk(fmt.Sprintf("%040d", i)))
		ranges[i] = Array(Int(int64(first)), Int(int64(last)), node)
	}
	return Array(ranges...)
}
