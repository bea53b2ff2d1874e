package faults

import (
	"fmt"
	"strings"
	"testing"
)

func TestLeftover(t *testing.T) {
	t.Parallel()
	label := newLabel()
	if err := leftover(label); err != nil {
		t.Error(err)
	}
	stop, started := make(chan struct{}), make(chan struct{})
	labelled(label, func() {
		go func() {
			go func() {
				close(started)
				<-stop
			}()
		}()
	})
	<-started
	if err := Poll(patience, func() error { // the one that started it may be on its way out
		if err := leftover(label); err == nil || !strings.Contains(err.Error(), "TestLeftover") {
			return fmt.Errorf("a goroutine's goroutine is seen as %w", err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	close(stop)
	if err := Poll(patience, func() error { return leftover(label) }); err != nil {
		t.Error(err)
	}
}
