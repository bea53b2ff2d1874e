package storetest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicego/ratelimit"
)

// joinEnv is set in the other process of a race, which runs the same test, to where the state is.
const joinEnv = "RATELIMIT_STORETEST_JOIN"

// raceEnv is what the other process has to do there, a raceOrder in JSON.
const raceEnv = "RATELIMIT_STORETEST_RACE"

type raceOrder struct {
	Key   []byte
	Limit ratelimit.Limit
	At    int64 // its clock stands here
}

const (
	raceCallers = 20
	raceCalls   = 25 // each

	readyLine  = "storetest: ready"
	resultLine = "storetest: taken"
)

// raceProcesses spends 500 times here and 500 times in another process, or in this one where the store cannot be joined,
// all at once, and returns what each got.
func (k *kit) raceProcesses(key string, l ratelimit.Limit) (here, there int64) {
	k.Helper()
	if !needsJoin(k.c) {
		return race(k, 2*raceCallers, raceCalls, func(int, int) ratelimit.Request { return ratelimit.Request{Key: key, Limit: &l, Cost: 1} }), 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*m)
	defer cancel()
	cmd, err := k.other(ctx, raceOrder{[]byte(key), l, k.clock.micros()})
	if err != nil {
		k.Fatalf("the other process: %v", err)
	}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		k.Fatalf("the other process: %v", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		k.Fatalf("the other process: %v", err)
	}
	if err := cmd.Start(); err != nil {
		k.Fatalf("the other process: %v", err)
	}
	lines := bufio.NewScanner(stdout)
	_, isReady := await(lines, readyLine)
	if isReady {
		fmt.Fprintln(stdin, "go")
		here = race(k, raceCallers, raceCalls, func(int, int) ratelimit.Request { return ratelimit.Request{Key: key, Limit: &l, Cost: 1} })
	}
	result, isDone := await(lines, resultLine)
	for lines.Scan() { // it may have more to say before it ends
	}
	err = cmd.Wait()
	if _, scanErr := fmt.Sscan(result, &there); !isReady || !isDone || err != nil || scanErr != nil {
		k.Fatalf("the other process: ready %v, done %v (%q), %v", isReady, isDone, result, err)
	}
	return here, there
}

// other makes the command that runs the test that called Run, and nothing else, in another process.
func (k *kit) other(ctx context.Context, order raceOrder) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var pattern []string
	for name := range strings.SplitSeq(k.suite, "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(name)+"$")
	}
	text, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-test.run="+strings.Join(pattern, "/"), "-test.count=1", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), joinEnv+"="+k.c.Address(k.t, k.store), raceEnv+"="+string(text))
	cmd.WaitDelay = s
	return cmd, nil
}

// await reads lines until one starts so, and returns the rest of it.
func await(lines *bufio.Scanner, start string) (rest string, ok bool) {
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), start); ok {
			return rest, true
		}
	}
	return "", false
}

// joinRace is the part of the other process.
func joinRace(t *testing.T, c *Config, address string) {
	t.Helper()
	var order raceOrder
	if err := json.Unmarshal([]byte(os.Getenv(raceEnv)), &order); err != nil {
		t.Fatalf("%s: %v", raceEnv, err)
	}
	store := c.Join(t, address, func() time.Time { return time.UnixMicro(order.At) })
	req := ratelimit.Request{Key: string(order.Key), Limit: &order.Limit, Cost: 1}
	start := make(chan struct{})
	var taken atomic.Int64
	var wg sync.WaitGroup
	for range raceCallers {
		wg.Go(func() {
			<-start
			for range raceCalls {
				res, err := store.Take(context.Background(), req)
				if err != nil {
					t.Errorf("in the other process: %v", err)
					return
				}
				taken.Add(res.Taken)
			}
		})
	}
	fmt.Println(readyLine)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil && err != io.EOF {
		t.Errorf("in the other process: %v", err)
	}
	close(start)
	wg.Wait()
	fmt.Println(resultLine, taken.Load())
}
