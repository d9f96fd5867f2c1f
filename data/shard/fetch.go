package shard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/parquet-go/parquet-go"

	"github.com/specstream/specstream"
)

// fetchChunk is the size of the range reads that copy a shard, in bytes.
const fetchChunk = 8 << 20

// openShard is what is known of a shard in use.
type openShard struct {
	name string // for errors
	meta Shard
	lock chan struct{} // held while the footer is read or the file fetched
	file *parquet.File // the parsed footer; nil until first use
	// fetched says that the cache folder holds the file.
	fetched bool
}

// acquire takes the shard's lock unless ctx ends first.
func (s *openShard) acquire(ctx context.Context) error {
	select {
	case s.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *openShard) release() { <-s.lock }

// footer returns the shard's parsed metadata, reading them on first use.
func (d *Dataset) footer(ctx context.Context, s *openShard) (*parquet.File, error) {
	if err := s.acquire(ctx); err != nil {
		return nil, err
	}
	f := s.file
	s.release()
	if f != nil {
		return f, nil
	}
	// Two callers may both get here; they read the same bytes.
	off := s.meta.footerOffset()
	b, err := d.readRange(ctx, s, off, s.meta.Bytes-off, s.meta.Footer)
	if err != nil {
		return nil, fmt.Errorf("footer: %w", err)
	}
	f, err = openFooter(s.meta, b)
	if err != nil {
		return nil, fmt.Errorf("footer: %w: %w", ErrCorrupt, err)
	}
	if err := s.acquire(ctx); err != nil {
		return nil, err
	}
	s.file = f
	s.release()
	return f, nil
}

// readRange returns n bytes of a shard at off, whose digest must be want. A
// damaged copy in the cache folder is fetched anew, once.
func (d *Dataset) readRange(ctx context.Context, s *openShard, off, n int64, want specstream.Digest) ([]byte, error) {
	if d.o.CacheDir == "" {
		return readBlobRange(ctx, d.blobs, s.meta, off, n, want)
	}
	cache := DirBlobs{d.o.CacheDir}
	if err := d.fetch(ctx, s, false); err != nil {
		return nil, err
	}
	b, err := readBlobRange(ctx, cache, s.meta, off, n, want)
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, os.ErrNotExist) {
		return b, err
	}
	if err := d.fetch(ctx, s, true); err != nil {
		return nil, err
	}
	return readBlobRange(ctx, cache, s.meta, off, n, want)
}

// readBlobRange reads and verifies a range of a stored shard.
func readBlobRange(ctx context.Context, blobs Blobs, s Shard, off, n int64, want specstream.Digest) (b []byte, err error) {
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

// fetch makes sure that the cache folder holds the shard. With again it
// replaces the copy that is there.
func (d *Dataset) fetch(ctx context.Context, s *openShard, again bool) error {
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release()
	if s.fetched && !again {
		return nil
	}
	path := DirBlobs{d.o.CacheDir}.path(s.meta.Digest)
	if st, err := os.Stat(path); err == nil && st.Size() == s.meta.Bytes && !again {
		// An earlier fetch verified it before it got this name, and each range
		// is verified again when it is read.
		s.fetched = true
		return nil
	}
	r, err := openShardBlob(ctx, d.blobs, s.meta)
	if err != nil {
		return err
	}
	err = writeFileAtomic(path, &verifiedReader{ctx: ctx, r: r, want: s.meta.Digest})
	if err = errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("copy to %s: %w", path, err)
	}
	s.fetched = true
	return nil
}

// verifyShard reads the whole blob and checks its digest.
func (d *Dataset) verifyShard(ctx context.Context, s *openShard) error {
	r, err := openShardBlob(ctx, d.blobs, s.meta)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, &verifiedReader{ctx: ctx, r: r, want: s.meta.Digest})
	return errors.Join(err, r.Close())
}

// verifiedReader copies a blob and ends with an error, in EOF's place, unless
// the bytes had the digest wanted. It is read through WriteTo, in large chunks,
// since each is a request to a remote store.
type verifiedReader struct {
	ctx  context.Context
	r    BlobReader
	want specstream.Digest
}

// Read is there for io.Copy's sake, which calls WriteTo.
func (v *verifiedReader) Read([]byte) (int, error) {
	return 0, errors.New("verifiedReader is read through WriteTo")
}

// WriteTo implements [io.WriterTo].
func (v *verifiedReader) WriteTo(w io.Writer) (int64, error) {
	h := sha256.New()
	size := v.r.Size()
	buf := make([]byte, min(fetchChunk, size))
	for off := int64(0); off < size; {
		if err := v.ctx.Err(); err != nil {
			return off, err
		}
		b := buf[:min(int64(len(buf)), size-off)]
		if k, err := v.r.ReadAt(b, off); k < len(b) {
			if err == io.EOF {
				err = fmt.Errorf("%w: they end at byte %d", ErrCorrupt, off+int64(k))
			}
			return off, fmt.Errorf("read %d bytes at %d: %w", len(b), off, err)
		}
		h.Write(b)
		if _, err := w.Write(b); err != nil {
			return off, err
		}
		off += int64(len(b))
	}
	if got := specstream.Digest("sha256:" + hex.EncodeToString(h.Sum(nil))); got != v.want {
		return size, fmt.Errorf("%w: the file has the digest %s", ErrCorrupt, got)
	}
	return size, nil
}
