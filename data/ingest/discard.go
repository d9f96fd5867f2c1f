package ingest

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data/shard"
)

// Discard is a store of blobs that forgets them, for Options.Shards of a run
// that is only to tell what it would do.
type Discard struct{}

var _ Blobs = Discard{}

// PutBlob implements [shard.Blobs].
func (Discard) PutBlob(ctx context.Context, b []byte) (specstream.Digest, error) {
	return specstream.DigestBytes(b), ctx.Err()
}

// OpenBlob implements [shard.Blobs]: nothing is there.
func (Discard) OpenBlob(_ context.Context, d specstream.Digest) (shard.BlobReader, error) {
	return nil, fmt.Errorf("open blob %s: %w", d.Short(), fs.ErrNotExist)
}
