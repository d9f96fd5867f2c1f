//go:build unix && !linux

package main

import "syscall"

// dieWithParent puts a child into a group of its own. Only Linux can tie its
// life to this process's.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
