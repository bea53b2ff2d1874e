//go:build !linux

package pgserver

import "os/exec"

// prepare does nothing where a test is not root's as a rule. A test that panics leaves its servers behind here.
func prepare(*exec.Cmd) {}
