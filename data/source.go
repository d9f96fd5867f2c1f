package data

import (
	"bufio"
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
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/specstream/specstream"
)

// Opener opens an input by its path or URI. The stream ends when ctx does. An
// input that isn't there is an error that wraps fs.ErrNotExist.
type Opener func(ctx context.Context, uri string) (io.ReadCloser, error)

// OpenFile opens files of the local disk.
func OpenFile(ctx context.Context, uri string) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if i := strings.Index(uri, "://"); i > 0 {
		return nil, &specstream.InputError{File: uri, Reason: fmt.Sprintf("no store for %s inputs is configured", uri[:i+3])}
	}
	f, err := os.Open(uri)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.IsDir() {
		err = &specstream.InputError{File: uri, Reason: "is a folder", Hint: "name its files, or use a pattern such as " + filepath.Join(uri, "*.jsonl")}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Input describes one input as it was read, for a dataset's lineage.
type Input struct {
	// URI is the path or URI as it was named.
	URI string `json:"uri"`
	// Bytes is the number of stored (compressed) bytes read.
	Bytes int64 `json:"bytes"`
	// SHA256 is the digest of those bytes: of the whole file, once it was read
	// to its end or drained; empty before.
	SHA256 specstream.Digest `json:"sha256"`
	// Records is the number of records read, numbered 1 to Records.
	Records int64 `json:"records"`
}

// Expand resolves local glob patterns. Each pattern's files come sorted by
// name, patterns in the order given; a path that exists is taken as it is, and
// URIs are never patterns. A file that two inputs name, or a pattern that
// matches nothing, is an InputError.
func Expand(inputs []string) ([]string, error) {
	var out []string
	for _, in := range inputs {
		files := []string{in}
		if !strings.Contains(in, "://") && strings.ContainsAny(in, "*?[") {
			if _, err := os.Lstat(in); errors.Is(err, fs.ErrNotExist) {
				if files, err = filepath.Glob(in); err != nil {
					return nil, &specstream.InputError{File: in, Reason: "bad pattern", Err: err}
				}
				if len(files) == 0 {
					return nil, &specstream.InputError{File: in, Reason: "the pattern matches no file"}
				}
			}
		}
		for _, f := range files {
			if slices.Contains(out, f) {
				return nil, &specstream.InputError{File: f, Reason: "is named twice among the inputs", Hint: "its records would be counted twice; name it once"}
			}
			out = append(out, f)
		}
	}
	return out, nil
}

// stream is the decompressed text of one input, without a byte-order mark.
type stream struct {
	io.Reader
	raw   *rawReader
	close []func() error
}

// rawReader reads stored bytes: it counts and hashes them, stops when the
// context ends, and remembers the store's own errors, so that they can be told
// from damage in the bytes.
type rawReader struct {
	ctx context.Context
	r   io.Reader
	sum hash.Hash
	n   int64
	err error // the store's error; nil at io.EOF
	eof bool
}

func (r *rawReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		r.err = err
		return 0, err
	}
	n, err := r.r.Read(p)
	r.sum.Write(p[:n])
	r.n += int64(n)
	switch {
	case err == io.EOF:
		r.eof = true
	case err != nil:
		r.err = err
	}
	return n, err
}

func (r *rawReader) digest() specstream.Digest {
	if !r.eof {
		return ""
	}
	return specstream.Digest("sha256:" + hex.EncodeToString(r.sum.Sum(nil)))
}

// maxWindow bounds the memory of zstd decompression.
const maxWindow = 128 << 20

func openStream(ctx context.Context, uri string, open Opener) (_ *stream, err error) {
	rc, err := open(ctx, uri)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &specstream.InputError{File: uri, Reason: "there is no such input", Err: err}
		}
		return nil, fmt.Errorf("open %s: %w", uri, err)
	}
	s := &stream{raw: &rawReader{ctx: ctx, r: rc, sum: sha256.New()}, close: []func() error{rc.Close}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	br := bufio.NewReaderSize(s.raw, 64<<10)
	head, err := br.Peek(4)
	if err != nil && err != io.EOF {
		return nil, s.failed(uri, err)
	}
	var text io.Reader = br
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		zr, err := gzip.NewReader(br)
		if err != nil {
			return nil, s.failed(uri, err)
		}
		s.close = append(s.close, func() error {
			_ = zr.Close() // only says again what reading said
			return nil
		})
		text = zr
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		zr, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, s.failed(uri, err)
		}
		s.close = append(s.close, func() error { zr.Close(); return nil })
		text = zr
	}
	if text != io.Reader(br) {
		br = bufio.NewReaderSize(text, 64<<10)
	}
	head, err = br.Peek(3)
	if err != nil && err != io.EOF {
		return nil, s.failed(uri, err)
	}
	switch {
	case bytes.Equal(head, []byte("\xef\xbb\xbf")):
		if _, err := br.Discard(3); err != nil {
			return nil, s.failed(uri, err)
		}
	case bytes.HasPrefix(head, []byte{0xff, 0xfe}) || bytes.HasPrefix(head, []byte{0xfe, 0xff}):
		return nil, &specstream.InputError{File: uri, Reason: "the text is UTF-16", Hint: "convert it to UTF-8, for example with iconv"}
	}
	s.Reader = br
	return s, nil
}

// failed classifies an error of reading: the store's own errors are worth a
// retry, damage in the bytes is bad input.
func (s *stream) failed(uri string, err error) error {
	if s.raw.err != nil {
		return fmt.Errorf("read %s at byte %d: %w", uri, s.raw.n, s.raw.err)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return &specstream.InputError{File: uri, Reason: "the compressed file ends too early", Hint: "it was cut; fetch it again"}
	}
	return &specstream.InputError{File: uri, Reason: "the compressed file is damaged", Err: err, Hint: "fetch it again"}
}

// Close releases the decompressor and the input.
func (s *stream) Close() error {
	var errs []error
	for _, c := range slices.Backward(s.close) {
		errs = append(errs, c())
	}
	s.close = nil
	return errors.Join(errs...)
}
