package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
)

// RecordReader yields normalised records.
type RecordReader interface {
	// Next returns the next record, and io.EOF behind the last. Behind a
	// [BadRecordError] or a [SkipError] reading goes on with the next call; any
	// other error ends it.
	Next() (Record, error)
	// Close releases the input.
	Close() error
}

// Raw is one undecoded element of an input.
type Raw struct {
	// Number is the 1-based number of the element in its input.
	Number int64
	// JSON is the element's text. A row of Parquet is a JSON object of its
	// columns; so is a row of CSV, all of whose values are strings, unless the
	// format reads cells.
	JSON []byte
	// Cells are the row's cells in the order of the format's columns, for
	// formats that read CSV alone.
	Cells []string
	// Bad is set when the element could be delimited but not taken apart.
	Bad error
}

// Open opens a local file; gzip and zstd are recognised by their first bytes, a
// UTF-8 byte-order mark is removed.
func Open(ctx context.Context, f Format, path string) (*Reader, error) {
	return OpenWith(ctx, f, path, OpenFile)
}

// OpenWith is [Open] for inputs that open can open. It reads an input whole,
// without a scan before; [OpenPart] reads what a scan found.
func OpenWith(ctx context.Context, f Format, uri string, open Opener) (*Reader, error) {
	s, err := openStream(ctx, uri, open, streamOptions{})
	if err != nil {
		return nil, err
	}
	if head, _ := s.text.Peek(len(magicParquet)); s.compression == "" && string(head) == magicParquet {
		if err := s.Close(); err != nil {
			return nil, err
		}
		return openWholeParquet(ctx, f, uri, open)
	}
	t, err := readText(s, f)
	if err != nil {
		return nil, unjoined(errors.Join(err, s.Close()))
	}
	return &Reader{uri: uri, format: f, in: t, name: baseName(uri)}, nil
}

// input yields the elements of an open input, or of a part of one.
type input interface {
	// next returns the next element without its number; its bytes are valid
	// until the call after. It returns io.EOF behind the last.
	next() (Raw, error)
	// failed makes of an error of next one that names the record, and tells bad
	// input from what is worth a retry.
	failed(record int64, err error) error
	// verify checks, at the end of a part, that it is what was scanned.
	verify() error
	Close() error
}

// Reader reads the records of an input or of a part of one. It implements
// [RecordReader].
type Reader struct {
	uri    string
	format Format
	in     input
	part   *Part  // nil: the whole input
	name   string // what records without an id of their own are named after
	n      int64  // number of the last element returned
	err    error  // what ended reading
}

// Next reads and decodes the next record.
func (r *Reader) Next() (Record, error) {
	raw, err := r.NextRaw()
	if err != nil {
		return Record{}, err
	}
	rec, err := r.Decode(raw)
	if err != nil && !recoverable(err) {
		r.err = err
	}
	return rec, err
}

func recoverable(err error) bool {
	var b *BadRecordError
	var s *SkipError
	return errors.As(err, &b) || errors.As(err, &s)
}

// NextRaw returns the next element undecoded, so that decoding can go on in
// other goroutines, and io.EOF behind the last. The element's bytes are valid
// until the next call.
func (r *Reader) NextRaw() (Raw, error) {
	if r.err != nil {
		return Raw{}, r.err
	}
	raw, err := r.in.next()
	switch {
	case err == io.EOF:
		r.err = r.atEnd()
	case err != nil:
		r.err = r.in.failed(r.n+1, err)
	case r.part != nil && r.n+1 >= r.part.First+r.part.Records:
		r.err = changed(*r.part, fmt.Sprintf("there are more than its %d records", r.part.Records))
	default:
		r.n++
		raw.Number = r.n
		return raw, nil
	}
	return Raw{}, r.err
}

// atEnd returns io.EOF if a part was all there.
func (r *Reader) atEnd() error {
	if r.part == nil {
		return io.EOF
	}
	if n := r.n - r.part.First + 1; n != r.part.Records {
		return changed(*r.part, fmt.Sprintf("there are %d of its %d records", n, r.part.Records))
	}
	if err := r.in.verify(); err != nil {
		return err
	}
	return io.EOF
}

// Decode turns an element of this input into a record. It may be called from
// several goroutines. Errors are a [BadRecordError], a [SkipError], or an
// InputError when the element is not well-formed JSON, which means that the
// input is damaged.
func (r *Reader) Decode(raw Raw) (Record, error) {
	rec, err := r.format.decode(raw)
	if err != nil {
		return Record{}, located(err, r.uri, raw.Number)
	}
	rec.Source, rec.Number = r.uri, raw.Number
	if rec.ID == "" {
		rec.ID = fmt.Sprintf("%s#%d", r.name, raw.Number)
	}
	return rec, nil
}

// Close releases the input.
func (r *Reader) Close() error {
	if r.err == nil {
		r.err = errors.New("data: reader is closed")
	}
	return r.in.Close()
}

func baseName(uri string) string {
	if strings.Contains(uri, "://") {
		return path.Base(uri)
	}
	return filepath.Base(uri)
}
