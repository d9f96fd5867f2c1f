//go:build unix && !linux

package devserver

import "syscall"

// processAttributes put the server in a process group of its own, so that
// Ctrl-C at the terminal leaves it to us to stop it last. There is no
// parent-death signal here; infra/devstack watches its parent instead.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
