package shard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"

	"github.com/specstream/specstream"
)

// fetchChunk is the size of the range reads that verify a shard, in bytes.
const fetchChunk = 8 << 20

// openShard is what is parsed of a shard in use.
type openShard struct {
	index *shardIndex
	file  *parquet.File
}

// openShard returns a shard's parsed metadata, reading them if need be.
func (d *Dataset) openShard(ctx context.Context, i int) (*openShard, error) {
	return d.open.get(ctx, i, func() (*openShard, error) {
		s := d.manifest.Shards[i]
		x, err := readIndex(ctx, d.blobs, s)
		if err != nil {
			return nil, err
		}
		x.lengths = nil // nobody asks for them here
		off := x.footerOffset()
		b, err := readRange(ctx, d.blobs, s, off, s.Bytes-off, x.footer)
		if err != nil {
			return nil, fmt.Errorf("footer: %w", err)
		}
		f, err := openFooter(s, x, b)
		if err != nil {
			return nil, fmt.Errorf("footer: %w: %w", ErrCorrupt, err)
		}
		return &openShard{x, f}, nil
	})
}

// readRange reads and verifies a range of a stored shard.
func readRange(ctx context.Context, blobs Blobs, s Shard, off, n int64, want specstream.Digest) (b []byte, err error) {
	r, err := openShardBlob(ctx, blobs, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	b = make([]byte, n)
	if k, err := r.ReadAt(b, off); int64(k) < n {
		if err == io.EOF {
			err = fmt.Errorf("%w: they end at byte %d", ErrCorrupt, off+int64(k))
		}
		return nil, fmt.Errorf("read %d bytes at %d: %w", n, off, err)
	}
	if got := specstream.DigestBytes(b); got != want {
		return nil, fmt.Errorf("%w: bytes %d..%d have the digest %s, the manifest says %s", ErrCorrupt, off, off+n, got, want)
	}
	return b, nil
}

// openShardBlob opens a shard's blob and checks its size.
func openShardBlob(ctx context.Context, blobs Blobs, s Shard) (BlobReader, error) {
	r, err := blobs.OpenBlob(ctx, s.Digest)
	if err != nil {
		return nil, err
	}
	if r.Size() != s.Bytes {
		return nil, errors.Join(fmt.Errorf("%w: the file has %d bytes, the manifest says %d", ErrCorrupt, r.Size(), s.Bytes), r.Close())
	}
	return r, nil
}

// verifyShard reads the whole blob and checks its digest.
func (d *Dataset) verifyShard(ctx context.Context, i int) error {
	s := d.manifest.Shards[i]
	r, err := openShardBlob(ctx, d.blobs, s)
	if err != nil {
		return err
	}
	return errors.Join(verifyBlob(ctx, r, s.Digest), r.Close())
}

// verifyBlob reads a blob to its end, in large chunks, since each is a request
// to a remote store.
func verifyBlob(ctx context.Context, r BlobReader, want specstream.Digest) error {
	h := sha256.New()
	size := r.Size()
	buf := make([]byte, min(fetchChunk, size))
	for off := int64(0); off < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		b := buf[:min(int64(len(buf)), size-off)]
		if k, err := r.ReadAt(b, off); k < len(b) {
			if err == io.EOF {
				err = fmt.Errorf("%w: they end at byte %d", ErrCorrupt, off+int64(k))
			}
			return fmt.Errorf("read %d bytes at %d: %w", len(b), off, err)
		}
		h.Write(b)
		off += int64(len(b))
	}
	if got := specstream.Digest("sha256:" + hex.EncodeToString(h.Sum(nil))); got != want {
		return fmt.Errorf("%w: the file has the digest %s", ErrCorrupt, got)
	}
	return nil
}
