package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sluicego/ratelimit"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // a line for each connection that fails
	debug.SetGCPercent(400)
	if err := overlap(); err != nil {
		panic(err)
	}
	end := machine.Watch()
	code := m.Run()
	end()
	if err := Poll(patience, nothingLeft); err != nil && code == 0 {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

// overlap has several tests run at the same time on each processor, where the command line does not say how many. They
// mostly wait.
func overlap() error {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if asked {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(8*runtime.GOMAXPROCS(0)))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// nothingLeft returns nil if no goroutine of this library or of a client is left. It sees those too that a timer started.
func nothingLeft() error {
	text := make([]byte, 1<<22)
	for stack := range strings.SplitSeq(string(text[:runtime.Stack(text, true)]), "\n\n") {
		for _, p := range []string{"sluicego/ratelimit.", "/goredisstore.", "/rueidisstore.", "/memstore.", "/go-redis/", "/rueidis."} {
			if strings.Contains(stack, p) {
				return fmt.Errorf("a goroutine is left:\n%s", stack)
			}
		}
	}
	return nil
}

// each runs f for each kind of client, at the same time.
func each(t *testing.T, f func(t *testing.T, connect func(Target) func() (ratelimit.Store, func()))) {
	t.Helper()
	eachAlone(t, func(t *testing.T, connect func(Target) func() (ratelimit.Store, func())) {
		t.Parallel()
		f(t, connect)
	})
}

// eachAlone runs f for each kind of client, one after the other.
func eachAlone(t *testing.T, f func(t *testing.T, connect func(Target) func() (ratelimit.Store, func()))) {
	t.Helper()
	for name, client := range Clients {
		t.Run(name, func(t *testing.T) {
			f(t, func(to Target) func() (ratelimit.Store, func()) {
				return func() (ratelimit.Store, func()) { return client(t, to) }
			})
		})
	}
}
