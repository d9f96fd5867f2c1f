//go:build unix

package shard

import (
	"os"
	"syscall"
)

// mapFile maps a file of n bytes for reading. What is mapped stays readable when
// the file is removed.
func mapFile(f *os.File, n int64) ([]byte, error) {
	return syscall.Mmap(int(f.Fd()), 0, int(n), syscall.PROT_READ, syscall.MAP_SHARED|mapAhead)
}

// unmapFile gives back what mapFile returned. It panics where that fails: it was
// unmapped before, so that somebody's memory is gone.
func unmapFile(b []byte) {
	if err := syscall.Munmap(b); err != nil {
		panic("shard: unmap: " + err.Error())
	}
}
