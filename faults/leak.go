package faults

import (
	"context"
	"fmt"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
)

var labels atomic.Int64

func newLabel() string { return strconv.FormatInt(labels.Add(1), 10) }

// labelled calls f on this goroutine with a label that every goroutine started by f bears too, and those that they start,
// whichever package does it.
func labelled(label string, f func()) {
	pprof.Do(context.Background(), pprof.Labels("fleet", label), func(context.Context) { f() })
}

// goroutines returns how many goroutines bear this label, and their stacks.
func goroutines(label string) (n int, stacks []string) {
	var text strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&text, 1) // a Builder takes all
	_, all, _ := strings.Cut(text.String(), "\n")   // a line of how many there are in all
	for stack := range strings.SplitSeq(all, "\n\n") {
		if strings.Contains(stack, fmt.Sprintf(`"fleet":%q`, label)) {
			count, _, _ := strings.Cut(stack, " @ ")
			same, err := strconv.Atoi(count)
			if err != nil {
				panic(err)
			}
			n += same
			stacks = append(stacks, stack)
		}
	}
	return n, stacks
}

// leftover returns an error that shows a goroutine with this label, if there is one.
func leftover(label string) error {
	if n, stacks := goroutines(label); n > 0 {
		return fmt.Errorf("%d goroutines are left:\n%s", n, stacks[0])
	}
	return nil
}
