package faults

import (
	"strings"
	"testing"
)

func TestLeftover(t *testing.T) {
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
	if err := leftover(label); err == nil || !strings.Contains(err.Error(), "TestLeftover") {
		t.Errorf("a goroutine's goroutine is seen as %v", err)
	}
	close(stop)
	if err := Poll(patience, func() error { return leftover(label) }); err != nil {
		t.Error(err)
	}
}
