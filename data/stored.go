package data

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/specstream/specstream"
)

// openInput opens an input, and says of one that isn't there that this is the
// user's to mend.
func openInput(ctx context.Context, uri string, open Opener) (io.ReadCloser, error) {
	rc, err := open(ctx, uri)
	switch {
	case err == nil:
		return rc, nil
	case specstream.BadInput(err):
		return nil, err
	case errors.Is(err, fs.ErrNotExist):
		return nil, &specstream.InputError{File: uri, Reason: "there is no such input", Err: err}
	}
	return nil, fmt.Errorf("open %s: %w", uri, err)
}

// rawReader reads stored bytes: it counts them, stops when the context ends, and
// remembers the store's own errors, so that they can be told from damage in the
// bytes.
type rawReader struct {
	ctx      context.Context
	r        io.Reader
	n        int64
	sum      *background       // of the bytes; nil: no one asks
	progress func(bytes int64) // may be nil
	told     int64
	err      error // the store's error; nil at io.EOF
}

// progressBytes is how many bytes are read between two reports of progress.
const progressBytes = 1 << 20

func (r *rawReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		r.err = context.Cause(r.ctx)
		return 0, r.err
	}
	n, err := r.r.Read(p)
	if r.sum != nil {
		r.sum.write(p[:n])
	}
	r.n += int64(n)
	if r.progress != nil && (r.n-r.told >= progressBytes || err != nil && r.n > r.told) {
		r.told = r.n
		r.progress(r.n)
	}
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// background computes a SHA-256 in a goroutine of its own: it is as costly as
// all the rest of reading.
type background struct {
	in   chan []byte
	free chan []byte
	out  chan [sha256.Size]byte
}

func newBackground() *background {
	const buffers = 4
	b := &background{in: make(chan []byte, buffers), free: make(chan []byte, buffers), out: make(chan [sha256.Size]byte, 1)}
	for range buffers {
		b.free <- nil
	}
	go func() {
		h := sha256.New()
		for p := range b.in {
			h.Write(p)
			b.free <- p
		}
		b.out <- [sha256.Size]byte(h.Sum(nil))
	}()
	return b
}

// write adds a copy of p.
func (b *background) write(p []byte) {
	if len(p) > 0 {
		b.in <- append((<-b.free)[:0], p...)
	}
}

// finish ends the goroutine and returns the digest of all that was written.
func (b *background) finish() specstream.Digest {
	close(b.in)
	s := <-b.out
	return specstream.Digest("sha256:" + hex.EncodeToString(s[:]))
}

// checkPin compares an input's digest with the one it must have.
func checkPin(uri string, pin, got specstream.Digest) error {
	if pin == "" || pin == got {
		return nil
	}
	return &specstream.InputError{File: uri, Field: "sha256", Reason: fmt.Sprintf("the input is %s, the specification pins %s", got, pin),
		Hint: "it was changed or cut; fetch the pinned version, or pin this one"}
}
