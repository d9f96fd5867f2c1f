package devserver

import "syscall"

// processAttributes put the server in a process group of its own, so that
// Ctrl-C at the terminal leaves it to us to stop it last, and make the kernel
// stop it should we be killed.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
