// Command ratelimitctl looks into rate limits: the rules that a service loads, and the state that it keeps in Redis.
//
//	ratelimitctl validate SOURCE                         would these rules load?
//	ratelimitctl diff     OLD NEW                        what would change from one source to another?
//	ratelimitctl explain  -rules SOURCE TENANT ROUTE     why is this tenant blocked, or not?
//	ratelimitctl peek     -rules SOURCE TENANT ROUTE     what is left, without spending
//	ratelimitctl reset    -rules SOURCE TENANT ROUTE     forget what was spent
//	ratelimitctl keys                                    how many keys there are in Redis, and how large
//
// A SOURCE is a JSON file of rules or the postgres:// URL of a database with the table rate_limit_rule. Where no rules
// are used, peek and reset are told the limit and the parts of the key, as the service gives them to ratelimit.Key:
//
//	ratelimitctl peek -rate 100 -period 1m -burst 200 user-123 search
//
// -o json prints for programs. -h after a command lists its flags. The exit code is 0, 1 if validate found a bad rule or diff a
// difference, or 2 for an error.
//
// RATELIMITCTL_REDIS and RATELIMITCTL_RULES stand for -redis and -rules, so that passwords in them need not be arguments.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

// errFound is a validate or diff that found something, and has said so.
var errFound = errors.New("found")

// A command is what an argument names.
type command struct {
	usage string // of its arguments
	run   func(ctx context.Context, c *call) error
	flags func(c *call)
}

var commands = map[string]command{
	"validate": {"SOURCE", validate, nil},
	"diff":     {"OLD NEW", diff, nil},
	"explain":  {"TENANT ROUTE", explain, func(c *call) { c.redisFlags(); c.rulesFlag(); c.limitFlags() }},
	"peek":     {"TENANT ROUTE, or with -rate the parts of a key", peek, func(c *call) { c.redisFlags(); c.rulesFlag(); c.limitFlags() }},
	"reset":    {"TENANT ROUTE, or with -rate the parts of a key", reset, func(c *call) { c.redisFlags(); c.rulesFlag(); c.limitFlags() }},
	"keys":     {"", keys, func(c *call) { c.redisFlags(); c.keysFlags() }},
}

const usage = `usage: ratelimitctl COMMAND [flags] arguments

  validate SOURCE                       would these rules load?
  diff     OLD NEW                      what would change from one source to another?
  explain  -rules SOURCE TENANT ROUTE   why is this tenant blocked, or not?
  peek     -rules SOURCE TENANT ROUTE   what is left, without spending
  reset    -rules SOURCE TENANT ROUTE   forget what was spent
  keys                                  how many keys there are in Redis, and how large

A SOURCE is a JSON file of rules or a postgres:// URL. ratelimitctl COMMAND -h lists the flags.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	logging.Disable() // go-redis would tell of each attempt that fails; we tell the error
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run carries out a command line and returns the exit code.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	cmd, ok := commands[name]
	if !ok {
		fmt.Fprint(errs, usage)
		return 2
	}
	c := newCall(name, cmd, out, errs)
	err := c.parse(args[1:])
	if err == nil {
		err = cmd.run(ctx, c)
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case err == errFound:
		return 1
	}
	fmt.Fprintf(errs, "ratelimitctl %s: %v\n", name, err)
	return 2
}
