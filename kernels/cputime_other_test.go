//go:build !unix

package kernels

import "time"

var processStart = time.Now()

// cpuTime is wall time where processor time is not to be had.
func cpuTime() time.Duration { return time.Since(processStart) }
