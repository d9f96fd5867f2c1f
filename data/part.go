package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/specstream/specstream"
)

// Containers of records, as Part.Container names them.
const (
	ContainerArray   = "json-array" // one JSON array
	ContainerLines   = "json-lines" // JSON objects, each beginning on a line of its own
	ContainerCSV     = "csv"        // RFC 4180 with a header
	ContainerParquet = "parquet"
)

// Part is a run of whole records of one input. [Scan] cuts an input into parts;
// they depend on the input's bytes and ScanOptions.PartBytes alone.
type Part struct {
	// URI names the input.
	URI string `json:"uri"`
	// Container is one of the Container… constants.
	Container string `json:"container"`
	// Compression is "gzip", "zstd" or empty. A compressed input is one part.
	Compression string `json:"compression,omitempty"`
	// Start and End are the byte range, in the decompressed text, from the first
	// record's first byte to behind the last record; of Parquet, row groups
	// [Start, End).
	Start int64 `json:"start"`
	End   int64 `json:"end"`
	// First is the number of its first record, from 1, and Records how many
	// there are. A part of Parquet may hold fewer than its row groups.
	First   int64 `json:"first"`
	Records int64 `json:"records"`
	// Header is that of CSV, as it is written.
	Header []string `json:"header,omitempty"`
	// Digest is "xxh3:" and 32 hex digits, the XXH3-128 of the decompressed bytes
	// [Start, End); of Parquet, of the schema and the row groups' stored bytes.
	Digest string `json:"digest"`
	// Bytes is the number of stored bytes the part stands for, to measure
	// progress by.
	Bytes int64 `json:"bytes"`
}

// textSource yields the elements of a text.
type textSource interface {
	// next returns the next element without its number; its bytes are valid
	// until the call after. It returns io.EOF behind the last, *damage where the
	// container is not well-formed, and errors of reading as they are.
	next() (Raw, error)
	text() *window
	// describe names the container, and the header that its parts need.
	describe() (container string, header []string)
}

func (s *splitter) text() *window { return &s.window }
func (c *rows) text() *window     { return &c.window }

func (s *splitter) describe() (string, []string) {
	if s.array {
		return ContainerArray, nil
	}
	return ContainerLines, nil
}

func (c *rows) describe() (string, []string) { return ContainerCSV, c.header }

// jsonSource adapts the splitter to a textSource.
type jsonSource struct{ *splitter }

func (e jsonSource) next() (Raw, error) {
	b, err := e.splitter.next()
	return Raw{JSON: b}, err
}

// name is what records of the part that have no id of their own are named after:
// its content, so that a file may be moved without becoming another.
func (p Part) name() string {
	digest := strings.TrimPrefix(p.Digest, "xxh3:")
	return digest[:min(len(digest), 12)]
}

// magicParquet is what a Parquet file begins with.
const magicParquet = "PAR1"

// containerOf tells the kind of container: "csv", "parquet" or "json". Parquet is
// told by its first bytes, whatever is asked for; CSV only by the format or the
// name, since any text may be CSV.
func containerOf(f Format, uri string, head []byte) string {
	switch {
	case string(head) == magicParquet:
		return "parquet"
	case f.Container() != "":
		return f.Container()
	case strings.HasSuffix(plainName(uri), ".csv"):
		return "csv"
	}
	return "json"
}

// plainName is an input's name in lower case without the suffixes of compression
// and, of web addresses, without the query.
func plainName(uri string) string {
	if strings.Contains(uri, "://") {
		uri, _, _ = strings.Cut(uri, "#")
		uri, _, _ = strings.Cut(uri, "?")
	}
	name := strings.ToLower(path.Base(uri))
	for _, suffix := range []string{".gz", ".zst", ".zstd"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}

// textInput reads the elements of a text.
type textInput struct {
	*stream
	src  textSource
	part *Part // nil: the whole text
	sum  textSum
}

// readText begins to read a whole stream that is not Parquet.
func readText(s *stream, f Format) (*textInput, error) {
	head, err := s.text.Peek(len(magicParquet))
	if err != nil && err != io.EOF {
		return nil, s.failed(err)
	}
	kind := containerOf(f, s.uri, head)
	if kind == "parquet" {
		if string(head) == magicParquet {
			return nil, &specstream.InputError{File: s.uri, Reason: "is Parquet inside a compressed file", Hint: "decompress it: Parquet is compressed by itself"}
		}
		return nil, &specstream.InputError{File: s.uri, Reason: "is not a Parquet file, which is what was asked for"}
	}
	bom, err := s.skipBOM()
	if err != nil {
		return nil, err
	}
	if kind != "csv" {
		return &textInput{stream: s, src: jsonSource{newSplitter(s.text, bom)}}, nil
	}
	c := newRows(s.text, bom)
	t := &textInput{stream: s, src: c}
	if err := c.readHeader(f); err != nil {
		return nil, t.failed(0, err)
	}
	return t, nil
}

// openRange begins to read a part of a text.
func openRange(s *stream, f Format, p Part) (*textInput, error) {
	if s.compression != p.Compression {
		return nil, changed(p, "its compression is another one")
	}
	if err := s.skipTo(p.Start); err != nil {
		return nil, err
	}
	t := &textInput{stream: s, part: &p, sum: textSum{next: p.Start, open: true}}
	text := io.LimitReader(s.text, p.End-p.Start)
	switch p.Container {
	case ContainerArray, ContainerLines:
		t.src = jsonSource{newPartSplitter(text, p.Start, p.Container == ContainerArray)}
	case ContainerCSV:
		c := newRows(text, p.Start)
		if err := c.setHeader(f, slices.Clone(p.Header)); err != nil {
			return nil, t.failed(0, err)
		}
		t.src = c
	default:
		return nil, &specstream.InputError{File: p.URI, Field: "container", Reason: fmt.Sprintf("%q is not a container that is known", p.Container)}
	}
	t.src.text().sum = &t.sum
	return t, nil
}

func (t *textInput) next() (Raw, error) {
	raw, err := t.src.next()
	if err == nil && t.part != nil {
		t.sum.add(t.src.text())
	}
	return raw, err
}

// failed turns errors of the source into an InputError that names the record,
// and leaves the store's own errors worth a retry.
func (t *textInput) failed(record int64, err error) error {
	var d *damage
	var in *specstream.InputError
	switch {
	case errors.As(err, &d) && t.part != nil:
		return changed(*t.part, d.reason)
	case errors.As(err, &d):
		kind := "JSON"
		if _, ok := t.src.(*rows); ok {
			kind = "CSV"
		}
		return &specstream.InputError{File: t.uri, Record: record, Reason: "damaged " + kind + ": " + d.reason, Hint: "mend the file or fetch it again; a damaged file is never read in part"}
	}
	if err = t.stream.failed(err); errors.As(err, &in) && in.Record == 0 {
		in.Record = record
	}
	return err
}

// verify compares what was read of a part with what the scan saw.
func (t *textInput) verify() error {
	w := t.src.text()
	if end := w.at(); end != t.part.End {
		return changed(*t.part, fmt.Sprintf("its records from number %d on end at byte %d, not %d", t.part.First, end, t.part.End))
	}
	if t.sum.finish(w) != t.part.Digest {
		return changed(*t.part, "its bytes are others")
	}
	return nil
}

// skipTo moves to a place in the text: by seeking where text is what is stored
// and its store can seek, else by reading.
func (s *stream) skipTo(off int64) error {
	if seeker, ok := s.rc.(io.Seeker); ok && s.compression == "" && off > int64(s.text.Buffered()) {
		if _, err := seeker.Seek(off, io.SeekStart); err != nil {
			return fmt.Errorf("seek in %s: %w", s.uri, err)
		}
		s.text.Reset(s.raw)
		return nil
	}
	n, err := io.CopyN(io.Discard, s.text, off)
	if err == io.EOF && s.compression == "" {
		return changed(Part{URI: s.uri}, fmt.Sprintf("it ends at byte %d", n))
	}
	if err != nil {
		return s.failed(err)
	}
	return nil
}

// OpenPart reads the records of a part; their numbers are those in the input. At
// the part's end it checks Records and Digest: an input that changed since the
// scan is an InputError, which takes the place of the io.EOF. Parquet is checked
// before the first record. maxExpansion bounds compressed inputs as in
// [ScanOptions]; open may be nil for local files.
func OpenPart(ctx context.Context, f Format, p Part, open Opener, maxExpansion int) (*Reader, error) {
	if open == nil {
		open = OpenFile
	}
	if p.Start < 0 || p.End <= p.Start || p.First < 1 || p.Records < 1 {
		return nil, &specstream.InputError{File: p.URI, Field: "part", Reason: fmt.Sprintf("%d to %d with %d records from number %d is no part", p.Start, p.End, p.Records, p.First)}
	}
	r := &Reader{uri: p.URI, format: f, n: p.First - 1, part: &p, name: p.name()}
	if p.Container == ContainerParquet {
		in, err := openParquetPart(ctx, f, p, open)
		if err != nil {
			return nil, err
		}
		r.in = in
		return r, nil
	}
	s, err := openStream(ctx, p.URI, open, streamOptions{maxExpansion: maxExpansion})
	if err != nil {
		return nil, err
	}
	t, err := openRange(s, f, p)
	if err != nil {
		return nil, unjoined(errors.Join(err, s.Close()))
	}
	r.in = t
	return r, nil
}

// changed is the error for an input that is not what was scanned.
func changed(p Part, how string) error {
	return &specstream.InputError{File: p.URI, Record: p.First, Reason: "the input changed since it was scanned: " + how,
		Hint: "inputs must stay as they are until the ingestion is done; start it again"}
}
