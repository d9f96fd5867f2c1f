package jobs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Scratch folders are WORK/scratch-*. Each holds a lock for as long as the
// process that made it lives, so that those of killed processes can be told from
// those in use, with no regard to process ids or clocks.
const (
	scratchPrefix = "scratch-"
	scratchLock   = "lock"
)

// scratch makes a folder for one piece of work, after removing what killed
// processes have left. remove removes it.
func (e *Env) scratch() (dir string, remove func() error, err error) {
	fail := func(err error) (string, func() error, error) {
		return "", nil, fmt.Errorf("scratch folder: %w", err)
	}
	guard, err := e.guardScratch()
	if err != nil {
		return fail(err)
	}
	defer guard.Close()
	if err := e.sweepScratch(); err != nil {
		return fail(err)
	}
	if dir, err = os.MkdirTemp(e.Work, scratchPrefix); err != nil {
		return fail(err)
	}
	lock, err := lockFile(filepath.Join(dir, scratchLock), false)
	if err != nil {
		return fail(errors.Join(err, os.RemoveAll(dir)))
	}
	return dir, func() error {
		guard, err := e.guardScratch()
		if err != nil {
			return fmt.Errorf("remove scratch folder: %w", err)
		}
		return errors.Join(os.RemoveAll(dir), lock.Close(), guard.Close())
	}, nil
}

// guardScratch excludes all others from making, judging and removing scratch
// folders: no one may meet a folder that is made but not locked yet.
func (e *Env) guardScratch() (*os.File, error) {
	return lockFile(filepath.Join(e.Work, "scratch.lock"), true)
}

// sweepScratch removes the folders whose makers are gone.
func (e *Env) sweepScratch() error {
	entries, err := os.ReadDir(e.Work)
	if err != nil {
		return err
	}
	for _, d := range entries {
		if !d.IsDir() || !strings.HasPrefix(d.Name(), scratchPrefix) {
			continue
		}
		dir := filepath.Join(e.Work, d.Name())
		lock, err := lockFile(filepath.Join(dir, scratchLock), false)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			continue // in use
		}
		if err != nil {
			return err
		}
		if err := errors.Join(os.RemoveAll(dir), lock.Close()); err != nil {
			return err
		}
	}
	return nil
}

// lockFile opens a file, making it if need be, and locks it; without wait a lock
// that another holds is EWOULDBLOCK. Closing it gives the lock up.
func lockFile(path string, wait bool) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		err = syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}
