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

// leftover returns an error that shows a goroutine with this label, if there is one.
func leftover(label string) error {
	var text strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
		return err
	}
	for stack := range strings.SplitSeq(text.String(), "\n\n") {
		if strings.Contains(stack, fmt.Sprintf(`"fleet":%q`, label)) {
			return fmt.Errorf("goroutines are left:\n%s", stack)
		}
	}
	return nil
}
