//go:build !unix

package gorgonia

import "time"

// usage is not measured here.
func usage() (cpu time.Duration, peak int64) { return 0, 0 }
