package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/specstream/specstream"
)

// BlobReader is an open blob: range reads, and its size in bytes. It is an
// alias of an interface literal, so that a store satisfies [Blobs] without
// importing this package.
type BlobReader = interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// Blobs is the content-addressed store that a data set lives in.
type Blobs interface {
	// PutBlob stores b under its SHA-256 and returns it. Storing what is there
	// already succeeds. The store may keep b: the caller does not change it
	// afterwards.
	PutBlob(ctx context.Context, b []byte) (specstream.Digest, error)
	// OpenBlob opens a blob for range reads, which end when ctx does. An absent
	// blob is an error that matches fs.ErrNotExist where the store can tell.
	OpenBlob(ctx context.Context, d specstream.Digest) (BlobReader, error)
}

// ManifestFile is the name of the manifest in a data set folder.
const ManifestFile = "dataset.json"

// DirBlobs is a data set folder on a local disk:
//
//	DIR/dataset.json               the manifest
//	DIR/blobs/sha256/ab/<hex>      the shards and the blobs beside them
//
// Files appear whole or not at all, and are never changed.
type DirBlobs struct {
	// Dir is the folder; it is made on the first write.
	Dir string
}

var _ Blobs = DirBlobs{}

// path returns where a blob lies.
func (s DirBlobs) path(d specstream.Digest) string {
	h := d.Hex()
	return filepath.Join(s.Dir, "blobs", "sha256", h[:2], h)
}

// PutBlob implements [Blobs]. A file of that name and size is left alone.
func (s DirBlobs) PutBlob(ctx context.Context, b []byte) (specstream.Digest, error) {
	d := specstream.DigestBytes(b)
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("put blob %s: %w", d.Short(), err)
	}
	p := s.path(d)
	if st, err := os.Stat(p); err == nil && st.Size() == int64(len(b)) {
		return d, nil
	}
	if err := writeFileAtomic(p, bytes.NewReader(b)); err != nil {
		return "", fmt.Errorf("put blob %s: %w", d.Short(), err)
	}
	return d, nil
}

// OpenBlob implements [Blobs].
func (s DirBlobs) OpenBlob(ctx context.Context, d specstream.Digest) (BlobReader, error) {
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open blob %s: %w", d.Short(), err)
	}
	return openFile(s.path(d))
}

// PutManifest writes DIR/dataset.json, replacing what is there in one step.
func (s DirBlobs) PutManifest(m Manifest) error {
	b, err := m.Encode()
	if err != nil {
		return err
	}
	if err := writeFileAtomic(filepath.Join(s.Dir, ManifestFile), bytes.NewReader(b)); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

// Manifest reads and checks DIR/dataset.json.
func (s DirBlobs) Manifest() (m Manifest, err error) {
	p := filepath.Join(s.Dir, ManifestFile)
	f, err := os.Open(p)
	if errors.Is(err, fs.ErrNotExist) {
		return Manifest{}, &specstream.InputError{File: p, Reason: "no such file",
			Hint: "name the folder that `specstream ingest --out` wrote"}
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("open manifest: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return ReadManifest(p, f)
}

// fileReader is a local file as a BlobReader.
type fileReader struct {
	*os.File
	size int64
}

func (f fileReader) Size() int64 { return f.size }

func openFile(path string) (fileReader, error) {
	f, err := os.Open(path)
	if err != nil {
		return fileReader{}, err
	}
	st, err := f.Stat()
	if err != nil {
		return fileReader{}, errors.Join(err, f.Close())
	}
	return fileReader{f, st.Size()}, nil
}

// writeFileAtomic writes a file that appears under its name only when it is
// complete and on the disk.
func writeFileAtomic(path string, r io.Reader) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes a rename in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
