package checkpoints

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/specstream/specstream"
)

// MaxBlob is the most bytes a blob may have: one PUT, small enough to be sent
// again whole.
const MaxBlob = 256 << 20

// pieceSize is how long the blobs of a long file are. Changing it changes which
// blobs a file becomes, so unchanged files would be stored anew.
const pieceSize = 64 << 20

func blobKey(d specstream.Digest) string {
	h := d.Hex()
	return "blobs/sha256/" + h[:2] + "/" + h
}

func digestOf(h hash.Hash) specstream.Digest {
	return specstream.Digest("sha256:" + hex.EncodeToString(h.Sum(nil)))
}

// PutBlob stores b, at most MaxBlob bytes, under its digest. A blob that is
// there already is not sent again.
func (r *Repo) PutBlob(ctx context.Context, b []byte) (specstream.Digest, error) {
	if len(b) > MaxBlob {
		return "", fmt.Errorf("put blob: %d bytes, want at most %d", len(b), MaxBlob)
	}
	d := specstream.DigestBytes(b)
	err := again(ctx, func() error {
		info, err := r.Store.Stat(ctx, blobKey(d))
		if err == nil && info.Size == int64(len(b)) {
			return nil
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		return r.Store.Put(ctx, blobKey(d), bytes.NewReader(b), int64(len(b)))
	})
	if err != nil {
		return "", fmt.Errorf("put blob: %w", err)
	}
	return d, nil
}

// PutFile stores the file at path as one blob, or as several if it is longer
// than 64 MiB. The result's Name is the path's last element. Each piece is read
// once and sent from memory, so a blob always is what its digest says, even
// while somebody writes to the file; a file seen to change is an error.
func (r *Repo) PutFile(ctx context.Context, path string) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return File{}, fmt.Errorf("put file: %w", err)
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return File{}, fmt.Errorf("put file: %w", err)
	}
	if !before.Mode().IsRegular() {
		return File{}, fmt.Errorf("put file %s: not a regular file", path)
	}
	out, err := r.putPieces(ctx, f, before.Size(), pieceSize)
	if err != nil {
		return File{}, fmt.Errorf("put file %s: %w", path, err)
	}
	after, err := f.Stat()
	if err != nil {
		return File{}, fmt.Errorf("put file: %w", err)
	}
	if after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return File{}, fmt.Errorf("put file %s: it changed while it was read", path)
	}
	out.Name = filepath.Base(path)
	return out, nil
}

// putPieces stores the size bytes of f in blobs of at most piece bytes.
func (r *Repo) putPieces(ctx context.Context, f io.Reader, size, piece int64) (File, error) {
	if size <= piece {
		b := make([]byte, size)
		if _, err := io.ReadFull(f, b); err != nil {
			return File{}, fmt.Errorf("read: %w", err)
		}
		d, err := r.PutBlob(ctx, b)
		return File{Digest: d, Size: size}, err
	}
	out := File{Size: size, Blobs: make([]Blob, (size+piece-1)/piece)}
	whole := sha256.New()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.parallel())
	buffers := make(chan []byte, r.parallel()+1)
	for range cap(buffers) {
		buffers <- nil // made on first use
	}
	for i := range out.Blobs {
		var buf []byte
		select {
		case buf = <-buffers:
		case <-gctx.Done():
			if err := g.Wait(); err != nil {
				return File{}, err
			}
			return File{}, ctx.Err()
		}
		if buf == nil {
			buf = make([]byte, piece)
		}
		b := buf[:min(piece, size-int64(i)*piece)]
		if _, err := io.ReadFull(f, b); err != nil {
			return File{}, errors.Join(fmt.Errorf("read: %w", err), g.Wait())
		}
		whole.Write(b)
		g.Go(func() error {
			defer func() { buffers <- buf }()
			d, err := r.PutBlob(gctx, b)
			out.Blobs[i] = Blob{Digest: d, Size: int64(len(b))}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return File{}, err
	}
	out.Digest = digestOf(whole)
	return out, nil
}

// BlobReader reads parts of a stored blob or file, one request a call: wrap it
// in a buffer, or read much at a time. What it reads is not checked against the
// digest (that takes the whole): use it where the bytes carry checksums of their
// own, and [Repo.FetchBlob] or [Repo.Fetch] elsewhere.
type BlobReader struct {
	ctx   context.Context
	repo  *Repo
	blobs []Blob
	size  int64
}

var _ io.ReaderAt = (*BlobReader)(nil)

// OpenBlob opens a blob. Its reads end when ctx does.
func (r *Repo) OpenBlob(ctx context.Context, d specstream.Digest) (*BlobReader, error) {
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	var info Info
	err := again(ctx, func() (err error) {
		info, err = r.Store.Stat(ctx, blobKey(d))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	return &BlobReader{ctx: ctx, repo: r, blobs: []Blob{{d, info.Size}}, size: info.Size}, nil
}

// OpenFile opens a manifest's file. Its reads end when ctx does.
func (r *Repo) OpenFile(ctx context.Context, f File) (*BlobReader, error) {
	if err := f.Validate(); err != nil {
		return nil, fmt.Errorf("open file: %w", err)
	}
	return &BlobReader{ctx: ctx, repo: r, blobs: f.blobs(), size: f.Size}, nil
}

// Size is the length in bytes.
func (b *BlobReader) Size() int64 { return b.size }

// Close ends the use of the reader. It holds no connection.
func (b *BlobReader) Close() error { return nil }

// ReadAt implements [io.ReaderAt].
func (b *BlobReader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read blob: negative offset %d", off)
	}
	n := 0
	start := int64(0)
	for _, blob := range b.blobs {
		in := off + int64(n) - start // offset inside this blob
		start += blob.Size
		if n == len(p) {
			break
		}
		if in >= blob.Size {
			continue
		}
		want := p[n:][:min(int64(len(p)-n), blob.Size-in)]
		got, err := b.read(blobKey(blob.Digest), want, in)
		n += got
		if err != nil {
			return n, fmt.Errorf("read blob: %w", err)
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// read fills p from the object, going on where it breaks off.
func (b *BlobReader) read(key string, p []byte, off int64) (n int, err error) {
	err = again(b.ctx, func() error {
		rc, err := b.repo.Store.GetRange(b.ctx, key, off+int64(n), int64(len(p)-n))
		if err != nil {
			return err
		}
		defer rc.Close()
		got, err := io.ReadFull(rc, p[n:])
		n += got
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: %s broke off", ErrUnavailable, key)
		}
		return err
	})
	return n, err
}

// FetchBlob writes the blob to path, which takes its name only when all bytes
// are there, checked against the digest and flushed to the disk.
func (r *Repo) FetchBlob(ctx context.Context, d specstream.Digest, path string) error {
	b, err := r.OpenBlob(ctx, d)
	if err != nil {
		return err
	}
	return r.fetchFile(ctx, File{Name: filepath.Base(path), Digest: d, Size: b.size}, path)
}

// fetchFile downloads a file and verifies it. Damage in transit is cured by
// fetching again; damage at rest is ErrCorrupt.
func (r *Repo) fetchFile(ctx context.Context, f File, path string) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".fetch-*")
	if err != nil {
		return fmt.Errorf("fetch %s: %w", f.Name, err)
	}
	defer func() {
		tmp.Close() // a second time unless something failed
		if e := os.Remove(tmp.Name()); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}()
	if err := tmp.Chmod(0o644); err != nil {
		return fmt.Errorf("fetch %s: %w", f.Name, err)
	}
	for try := 1; ; try++ {
		err := r.download(ctx, f, tmp)
		if err == nil {
			break
		}
		if !errors.Is(err, ErrCorrupt) || try == damagedFiles {
			return fmt.Errorf("fetch %s: %w", f.Name, err)
		}
		if _, err := tmp.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("fetch %s: %w", f.Name, err)
		}
		if err := tmp.Truncate(0); err != nil {
			return fmt.Errorf("fetch %s: %w", f.Name, err)
		}
	}
	if err := tmp.Sync(); err != nil {
		return fmt.Errorf("fetch %s: %w", f.Name, err)
	}
	if err := tmp.Close(); err != nil {
		return fmt.Errorf("fetch %s: %w", f.Name, err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("fetch %s: %w", f.Name, err)
	}
	return nil
}

// download writes the file's blobs to w and checks the digest of the whole.
func (r *Repo) download(ctx context.Context, f File, w io.Writer) error {
	h := sha256.New()
	for _, b := range f.blobs() {
		if err := r.copyObject(ctx, io.MultiWriter(w, h), blobKey(b.Digest), b.Size); err != nil {
			return err
		}
	}
	if got := digestOf(h); got != f.Digest {
		return fmt.Errorf("%w: %s has digest %s, want %s", ErrCorrupt, f.Name, got, f.Digest)
	}
	return nil
}
