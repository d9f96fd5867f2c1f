//go:build unix

package kernels

import (
	"syscall"
	"time"
)

// cpuTime is the processor time this process has used. Rates on one core are
// measured with it, so that a busy machine does not distort them.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
