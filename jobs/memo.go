package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/data/ingest"
)

// storeMemo keeps memos as objects of a store:
//
//	memo/ingest/<2 hex>/<64 hex>.json
//
// Losing them costs only time.
type storeMemo struct{ store checkpoints.Store }

var _ ingest.Memo = storeMemo{}

func (storeMemo) object(key string) string { return "memo/ingest/" + key[:2] + "/" + key + ".json" }

// Get implements [ingest.Memo].
func (m storeMemo) Get(ctx context.Context, key string) (b []byte, ok bool, err error) {
	err = available(ctx, func() error {
		r, info, err := m.store.Get(ctx, m.object(key))
		if err != nil {
			return err
		}
		b, err = io.ReadAll(r)
		if err == nil && int64(len(b)) != info.Size {
			err = fmt.Errorf("%w: memo %s broke off", checkpoints.ErrUnavailable, key)
		}
		return errors.Join(err, r.Close())
	})
	if errors.Is(err, checkpoints.ErrNotFound) {
		return nil, false, nil
	}
	return b, err == nil, err
}

// Put implements [ingest.Memo]. All that is ever put under one key is the same,
// so it does not matter which of several writes lands last.
func (m storeMemo) Put(ctx context.Context, key string, b []byte) error {
	return available(ctx, func() error {
		return m.store.Put(ctx, m.object(key), bytes.NewReader(b), int64(len(b)))
	})
}

// available calls f again while the store says that it is not available.
func available(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		if err == nil || !errors.Is(err, checkpoints.ErrUnavailable) || try == readTries {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(readDelay << try):
		}
	}
}
