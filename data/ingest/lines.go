package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data/shard"
)

// lineWriter collects values as compressed JSON lines. Lines of one kind
// compress so well that even one for each of the shortest records of a part
// fits a blob.
type lineWriter struct {
	buf bytes.Buffer
	z   *zstd.Encoder
	n   int64
}

// maxLines bounds the memory of a part's compressed lines.
const maxLines = 200 << 20

func (w *lineWriter) add(v any) error {
	if w.z == nil {
		z, err := zstd.NewWriter(&w.buf, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(256<<10))
		if err != nil {
			return fmt.Errorf("compress lines: %w", err)
		}
		w.z = z
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a line: %w", err)
	}
	w.n++
	if w.buf.Len() > maxLines {
		return &specstream.InputError{Field: "partition_bytes", Reason: fmt.Sprintf("the account of a part's records takes more than %d MiB", maxLines>>20), Hint: "make parts smaller"}
	}
	_, err = w.z.Write(append(b, '\n'))
	return wrap("compress lines", err)
}

// store puts the lines into a blob, which has no digest when there are none.
func (w *lineWriter) store(ctx context.Context, s Blobs) (shard.Blob, error) {
	if w.n == 0 {
		return shard.Blob{}, nil
	}
	if err := w.z.Close(); err != nil {
		return shard.Blob{}, fmt.Errorf("compress lines: %w", err)
	}
	d, err := s.PutBlob(ctx, w.buf.Bytes())
	return shard.Blob{Digest: d, Bytes: int64(w.buf.Len())}, err
}

// lineReader reads what a lineWriter has stored.
type lineReader[T any] struct {
	z *zstd.Decoder
	d *json.Decoder
}

// openLines opens the lines of a digest; "" has none. The caller closes it.
func openLines[T any](ctx context.Context, s Blobs, d specstream.Digest) (*lineReader[T], error) {
	if d == "" {
		return &lineReader[T]{}, nil
	}
	b, err := readBlob(ctx, s, d)
	if err != nil {
		return nil, err
	}
	z, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("read lines: %w", err)
	}
	return &lineReader[T]{z: z, d: json.NewDecoder(z)}, nil
}

// next returns the next line, and io.EOF behind the last.
func (r *lineReader[T]) next() (v T, err error) {
	if r.d == nil {
		return v, io.EOF
	}
	if err = r.d.Decode(&v); err != nil && err != io.EOF {
		err = fmt.Errorf("read lines: %w", err)
	}
	return v, err
}

func (r *lineReader[T]) close() {
	if r.z != nil {
		r.z.Close()
	}
}
