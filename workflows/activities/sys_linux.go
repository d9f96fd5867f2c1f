package activities

import "syscall"

// childAttributes give the child a process group, so that it is signalled with
// all it has started and not by the terminal's Ctrl-C, and make the kernel kill
// it when the thread that started it ends, which [process] keeps alive for as
// long as the child runs.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
