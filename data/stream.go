package data

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/specstream/specstream"
)

// Compressions of an input, recognised by its first bytes.
const (
	compressionGzip = "gzip"
	compressionZstd = "zstd"
)

const (
	// maxWindow bounds the memory of zstd decompression (zstd --long=27).
	maxWindow = 128 << 20
	// freeExpansion is how many bytes a compressed input may expand to whatever
	// its size; beyond, max_expansion bounds it.
	freeExpansion = 64 << 20
	// defaultExpansion is DataSpec.MaxExpansion's default.
	defaultExpansion = 200
)

// stream is the decompressed text of one input.
type stream struct {
	uri         string
	rc          io.ReadCloser // what the opener gave
	raw         *rawReader
	compression string
	text        *bufio.Reader
	zstd        *zstd.Decoder
}

// streamOptions says how an input is read.
type streamOptions struct {
	sum          bool // SHA-256 of the stored bytes
	maxExpansion int
	progress     func(bytes int64)
}

// openStream opens an input's text; what it begins with is left in it.
func openStream(ctx context.Context, uri string, open Opener, o streamOptions) (_ *stream, err error) {
	rc, err := openInput(ctx, uri, open)
	if err != nil {
		return nil, err
	}
	s := &stream{uri: uri, rc: rc, raw: &rawReader{ctx: ctx, r: rc, progress: o.progress}}
	if o.sum {
		s.raw.sum = newBackground()
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	s.text = bufio.NewReaderSize(s.raw, 64<<10)
	head, err := s.text.Peek(4)
	if err != nil && err != io.EOF {
		return nil, s.failed(err)
	}
	var plain io.Reader
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		s.compression = compressionGzip
		plain, err = gzip.NewReader(s.text)
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		s.compression = compressionZstd
		s.zstd, err = zstd.NewReader(s.text, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		plain = s.zstd
	default:
		return s, nil
	}
	if err != nil {
		return nil, s.failed(err)
	}
	ratio := o.maxExpansion
	if ratio <= 0 {
		ratio = defaultExpansion
	}
	s.text = bufio.NewReaderSize(&bounded{r: plain, raw: s.raw, ratio: int64(ratio)}, 64<<10)
	return s, nil
}

// skipBOM removes a UTF-8 byte-order mark and returns its length.
func (s *stream) skipBOM() (int64, error) {
	head, err := s.text.Peek(4)
	if err != nil && err != io.EOF {
		return 0, s.failed(err)
	}
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		n, err := s.text.Discard(3)
		return int64(n), err
	case bytes.HasPrefix(head, []byte{0xff, 0xfe}), bytes.HasPrefix(head, []byte{0xfe, 0xff}), bytes.HasPrefix(head, []byte("\x00\x00\xfe\xff")):
		return 0, &specstream.InputError{File: s.uri, Reason: "the text is UTF-16 or UTF-32", Hint: "convert it to UTF-8, for example with iconv"}
	}
	return 0, nil
}

// bounded reads decompressed bytes and refuses a bomb: bytes that expand beyond
// all measure.
type bounded struct {
	r     io.Reader
	raw   *rawReader
	n     int64
	ratio int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.n += int64(n)
	if b.n > freeExpansion && b.n/b.ratio > b.raw.n {
		return 0, &specstream.InputError{Field: "max_expansion", Reason: fmt.Sprintf("the compressed file expands to more than %d times its size: %d bytes of %d", b.ratio, b.n, b.raw.n),
			Hint: "raise max_expansion if the file is to be trusted"}
	}
	return n, err
}

// failed classifies an error of reading: the store's own errors are worth a
// retry, damage in the bytes is bad input.
func (s *stream) failed(err error) error {
	if s.raw.err != nil {
		var in *specstream.InputError
		if errors.As(s.raw.err, &in) { // such as an object that was replaced
			return s.raw.err
		}
		return fmt.Errorf("read %s at byte %d: %w", s.uri, s.raw.n, s.raw.err)
	}
	var in *specstream.InputError
	if errors.As(err, &in) {
		in.File = s.uri
		return in
	}
	if s.compression == "" {
		return fmt.Errorf("read %s at byte %d: %w", s.uri, s.raw.n, err)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return &specstream.InputError{File: s.uri, Reason: "the compressed file ends too early", Hint: "it was cut; fetch it again"}
	}
	return &specstream.InputError{File: s.uri, Reason: "the compressed file is damaged", Err: err, Hint: "fetch it again"}
}

// drain reads the stored bytes that are left and returns the digest of all.
func (s *stream) drain() (specstream.Digest, error) {
	if _, err := io.Copy(io.Discard, s.raw); err != nil {
		return "", s.failed(err)
	}
	sum := s.raw.sum
	s.raw.sum = nil
	return sum.finish(), nil
}

// Close releases the decompressor and the input.
func (s *stream) Close() error {
	if s.zstd != nil {
		s.zstd.Close()
	}
	if s.raw.sum != nil {
		s.raw.sum.finish()
		s.raw.sum = nil
	}
	if err := s.rc.Close(); err != nil {
		return fmt.Errorf("close %s: %w", s.uri, err)
	}
	return nil
}
