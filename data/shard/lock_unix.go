//go:build unix

package shard

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks a file against every other holder, in this process or another;
// ok is false while there is one. The lock ends when the file is closed, however
// its process ends.
func tryLock(f *os.File) (ok bool, err error) {
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
