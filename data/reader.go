package data

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

	"github.com/specstream/specstream"
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
	// JSON is the element's text, for the JSON formats.
	JSON []byte
	// Cells are the row's cells in the order of the format's columns, for CSV.
	Cells []string
	// Bad is set when the element could be delimited but not taken apart.
	Bad error
}

// Open opens a local file of one of [specstream.Formats]; gzip and zstd are
// recognised by their first bytes, a UTF-8 byte-order mark is removed.
func Open(ctx context.Context, format, path string) (*Reader, error) {
	return OpenWith(ctx, format, path, OpenFile)
}

// OpenWith is [Open] for inputs that open can open.
func OpenWith(ctx context.Context, format, uri string, open Opener) (*Reader, error) {
	f, err := FormatOf(format)
	if err != nil {
		return nil, err
	}
	s, err := openStream(ctx, uri, open)
	if err != nil {
		return nil, err
	}
	r := &Reader{uri: uri, format: f, stream: s}
	if !f.csv {
		r.json = newSplitter(s)
		return r, nil
	}
	r.row = &rowLimit{r: s, left: maxElement}
	r.csv = csv.NewReader(r.row)
	r.csv.ReuseRecord = true
	if err := r.readHeader(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return r, nil
}

// Reader reads one input. It implements [RecordReader].
type Reader struct {
	uri     string
	format  Format
	stream  *stream
	json    *splitter
	csv     *csv.Reader
	row     *rowLimit
	header  int   // columns of the header
	columns []int // where the format's columns are among them
	n       int64 // elements returned
	err     error // what ended reading
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
	raw, err := r.nextRaw()
	if err != nil {
		r.err = err
		return Raw{}, err
	}
	r.n++
	return raw, nil
}

func (r *Reader) nextRaw() (Raw, error) {
	raw := Raw{Number: r.n + 1}
	if r.csv != nil {
		r.row.left = maxElement
		cells, err := r.csv.Read()
		switch {
		case err == io.EOF:
			return Raw{}, io.EOF
		case errors.Is(err, csv.ErrFieldCount):
			raw.Bad = bad(BadColumns, "", "has %d columns, the header has %d", len(cells), r.header)
			return raw, nil
		case err != nil:
			return Raw{}, r.csvError(err)
		}
		raw.Cells = make([]string, len(r.columns))
		for i, at := range r.columns {
			raw.Cells[i] = cells[at]
		}
		return raw, nil
	}
	b, err := r.json.next()
	if err != nil && err != io.EOF {
		return Raw{}, r.readError(err)
	}
	raw.JSON = b
	return raw, err
}

// readError turns the splitter's errors into an InputError that names the
// record, and leaves the store's own errors worth a retry.
func (r *Reader) readError(err error) error {
	var d *damage
	if errors.As(err, &d) {
		return &specstream.InputError{File: r.uri, Record: r.n + 1, Reason: "damaged " + r.kind() + ": " + d.reason, Hint: "mend the file or fetch it again; a damaged file is never read in part"}
	}
	err = r.stream.failed(r.uri, err)
	if in, ok := err.(*specstream.InputError); ok {
		in.Record = r.n + 1
	}
	return err
}

func (r *Reader) kind() string {
	if r.csv != nil {
		return "CSV"
	}
	return "JSON"
}

func (r *Reader) csvError(err error) error {
	var p *csv.ParseError
	if errors.As(err, &p) {
		return &specstream.InputError{File: r.uri, Record: r.n + 1, Reason: fmt.Sprintf("damaged CSV at line %d, column %d", p.Line, p.Column), Err: p.Err, Hint: "mend the file or fetch it again; a damaged file is never read in part"}
	}
	return r.readError(err)
}

// rowLimit bounds the memory of one CSV row: an opening quote that is never
// closed would take in the rest of the file.
type rowLimit struct {
	r    io.Reader
	left int
}

func (l *rowLimit) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, damaged("a row is longer than %d MiB; a closing quote may be missing", maxElement>>20)
	}
	n, err := l.r.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

func (r *Reader) readHeader() error {
	head, err := r.csv.Read()
	if err == io.EOF {
		return &specstream.InputError{File: r.uri, Reason: "the file is empty"}
	}
	if err != nil {
		return r.csvError(err)
	}
	at := map[string]int{}
	for i, h := range head {
		h = strings.ToLower(strings.TrimSpace(h))
		if _, twice := at[h]; twice {
			return &specstream.InputError{File: r.uri, Field: h, Reason: "the header names the column twice"}
		}
		at[h] = i
	}
	r.header = len(head)
	for _, want := range r.format.columns {
		i, ok := at[want]
		if !ok {
			return &specstream.InputError{File: r.uri, Field: want, Reason: fmt.Sprintf("the header %q lacks the column", strings.Join(head, ",")), Hint: "the first line must name the columns " + strings.Join(r.format.columns, ",")}
		}
		r.columns = append(r.columns, i)
	}
	return nil
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
		rec.ID = fmt.Sprintf("%s#%d", baseName(r.uri), raw.Number)
	}
	return rec, nil
}

// Drain reads the rest of the stored bytes without decoding them, so that
// [Reader.Input] has the digest of the whole file although no more of its
// records are wanted. It ends reading.
func (r *Reader) Drain() error {
	if r.err == nil {
		r.err = io.EOF
	}
	if r.err != io.EOF {
		return r.err
	}
	if _, err := io.Copy(io.Discard, r.stream.raw); err != nil {
		r.err = r.stream.failed(r.uri, err)
		return r.err
	}
	return nil
}

// Input describes what was read so far.
func (r *Reader) Input() Input {
	return Input{URI: r.uri, Bytes: r.stream.raw.n, SHA256: r.stream.raw.digest(), Records: r.n}
}

// Close releases the input.
func (r *Reader) Close() error {
	if r.err == nil {
		r.err = errors.New("data: reader is closed")
	}
	if err := r.stream.Close(); err != nil {
		return fmt.Errorf("close %s: %w", r.uri, err)
	}
	return nil
}

func baseName(uri string) string {
	if strings.Contains(uri, "://") {
		return path.Base(uri)
	}
	return filepath.Base(uri)
}
