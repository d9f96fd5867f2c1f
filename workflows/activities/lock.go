package activities

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/specstream/specstream"
)

// lockJob takes an exclusive lock on a file, waiting for it. The lock belongs to
// the open file, so a child that inherits it holds it too: it is free only when
// worker and child have both ended.
func lockJob(ctx context.Context, stop <-chan struct{}, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("job lock: %w", err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("job lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-stop:
			f.Close()
			return nil, specstream.ErrDrained
		case <-tick.C:
		}
	}
}
