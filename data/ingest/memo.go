package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data/shard"
)

// Memo remembers small results under keys. It may forget: what is not found is
// made again, and is then the same.
type Memo interface {
	// Get returns what was put last under key, if anything.
	Get(ctx context.Context, key string) ([]byte, bool, error)
	// Put remembers b under key. All that is ever put under one key means the
	// same.
	Put(ctx context.Context, key string, b []byte) error
}

// forgetful remembers nothing.
type forgetful struct{}

func (forgetful) Get(context.Context, string) ([]byte, bool, error) { return nil, false, nil }
func (forgetful) Put(context.Context, string, []byte) error         { return nil }

// DirMemo keeps a file a key: DIR/ab/<key>.json. A file that a crash of the
// machine has damaged is found out by its sum and counts as forgotten.
type DirMemo struct{ Dir string }

var _ Memo = DirMemo{}

func (m DirMemo) path(key string) string { return filepath.Join(m.Dir, key[:2], key+".json") }

// Get implements [Memo].
func (m DirMemo) Get(ctx context.Context, key string) ([]byte, bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	b, err := os.ReadFile(m.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return b, err == nil, err
}

// Put implements [Memo].
func (m DirMemo) Put(ctx context.Context, key string, b []byte) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	path := m.path(key)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".memo-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// MemMemo remembers in memory. The zero value is empty.
type MemMemo struct{ m sync.Map }

var _ Memo = (*MemMemo)(nil)

// Get implements [Memo].
func (m *MemMemo) Get(ctx context.Context, key string) ([]byte, bool, error) {
	v, ok := m.m.Load(key)
	if !ok {
		return nil, false, ctx.Err()
	}
	return v.([]byte), true, ctx.Err()
}

// Put implements [Memo].
func (m *MemMemo) Put(ctx context.Context, key string, b []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.m.Store(key, bytes.Clone(b))
	return nil
}

// remembered is what a memo holds.
type remembered struct {
	Sum   specstream.Digest `json:"sum"` // of Value
	Value json.RawMessage   `json:"value"`
}

// result is what a stage makes of a part: it names the blobs that must be there.
type result interface {
	blobs() []shard.Blob
}

// recall looks for what is remembered of key. A memo that is damaged, or names
// blobs that are there no more, counts as forgotten: the work is done again.
func recall[T result](ctx context.Context, o Options, key partKey) (v T, ok bool, err error) {
	d, err := specstream.DigestJSON(key)
	if err != nil {
		return v, false, err
	}
	b, ok, err := o.Memo.Get(ctx, d.Hex())
	if err != nil || !ok {
		return v, false, wrap("look up "+key.Stage, err)
	}
	var r remembered
	if json.Unmarshal(b, &r) != nil || specstream.DigestBytes(r.Value) != r.Sum {
		return v, false, nil
	}
	if err := json.Unmarshal(r.Value, &v); err != nil {
		return v, false, fmt.Errorf("look up %s: %w", key.Stage, err)
	}
	for _, blob := range v.blobs() {
		there, err := has(ctx, o, blob)
		if err != nil || !there {
			var none T
			return none, false, wrap("look up "+key.Stage, err)
		}
	}
	return v, true, nil
}

// remember keeps v under key.
func remember[T result](ctx context.Context, m Memo, key partKey, v T) error {
	d, err := specstream.DigestJSON(key)
	if err != nil {
		return err
	}
	value, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("remember %s: %w", key.Stage, err)
	}
	b, err := json.Marshal(remembered{Sum: specstream.DigestBytes(value), Value: value})
	if err != nil {
		return fmt.Errorf("remember %s: %w", key.Stage, err)
	}
	return wrap("remember "+key.Stage, m.Put(ctx, d.Hex(), b))
}

// has reports whether a blob is in either store, of its size.
func has(ctx context.Context, o Options, b shard.Blob) (bool, error) {
	if b.Digest == "" {
		return true, nil
	}
	for _, s := range []Blobs{o.Shards, o.Blobs} {
		r, err := s.OpenBlob(ctx, b.Digest)
		if err == nil {
			return r.Size() == b.Bytes, r.Close()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return false, nil
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// putJSON stores v as a blob.
func putJSON(ctx context.Context, s Blobs, v any) (specstream.Digest, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	return s.PutBlob(ctx, b)
}

// getJSON reads a blob that putJSON has stored, and checks it.
func getJSON(ctx context.Context, s Blobs, d specstream.Digest, v any) error {
	b, err := readBlob(ctx, s, d)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// readBlob reads a whole blob and checks it against its digest.
func readBlob(ctx context.Context, s Blobs, d specstream.Digest) (b []byte, err error) {
	r, err := s.OpenBlob(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("open blob %s: %w", d.Short(), err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	b = make([]byte, r.Size())
	if n, err := r.ReadAt(b, 0); n < len(b) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read blob %s: %w", d.Short(), err)
	}
	if got := specstream.DigestBytes(b); got != d {
		return nil, fmt.Errorf("read blob %s: its bytes have the digest %s: they are damaged", d.Short(), got)
	}
	return b, nil
}
