//go:build !unix

package shard

import (
	"io"
	"os"
)

// mapFile reads a file of n bytes: a mapped file could not be removed here.
func mapFile(f *os.File, n int64) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(f, b)
	return b, err
}

func unmapFile([]byte) {}
