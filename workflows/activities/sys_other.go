//go:build unix && !linux

package activities

import "syscall"

// childAttributes give the child a process group, so that it is signalled with
// all it has started and not by the terminal's Ctrl-C. There is no parent-death
// signal here: the child of a worker that was killed runs on until its commit is
// fenced.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
