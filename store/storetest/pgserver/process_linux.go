package pgserver

import (
	"os/exec"
	"syscall"
)

// prepare has a program run as somebody who is not root, and the kernel kill it when this process ends, however it ends: a
// panic runs no Cleanup.
func prepare(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if uid, gid, ok := unprivileged(); ok {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
}
