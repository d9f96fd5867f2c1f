//go:build unix

package gorgonia

import (
	"runtime"
	"syscall"
	"time"
)

// usage returns the CPU time of this process so far and the most memory it has
// held, in bytes.
func usage() (cpu time.Duration, peak int64) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0
	}
	peak = int64(u.Maxrss)
	if runtime.GOOS != "darwin" { // which alone counts bytes
		peak *= 1024
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), peak
}
