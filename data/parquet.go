package data

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
	"github.com/zeebo/xxh3"

	"github.com/specstream/specstream"
)

// storeAt reads a stored file at any place, and remembers the store's own errors.
type storeAt struct {
	ctx  context.Context
	at   io.ReaderAt
	size int64

	mu  sync.Mutex
	err error
}

func (s *storeAt) ReadAt(p []byte, off int64) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, s.lost(context.Cause(s.ctx))
	}
	n, err := s.at.ReadAt(p, off)
	if err != nil && err != io.EOF {
		err = s.lost(err)
	}
	return n, err
}

func (s *storeAt) lost(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	return err
}

// seekerAt makes an io.ReaderAt of an io.ReadSeeker.
type seekerAt struct {
	mu sync.Mutex
	r  io.ReadSeeker
}

func (s *seekerAt) ReadAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.r.Seek(off, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := io.ReadFull(s.r, p)
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	return n, err
}

// parquetFile is an open Parquet file, whose schema and layout are checked.
type parquetFile struct {
	uri    string
	rc     io.Closer
	store  *storeAt
	file   *parquet.File
	root   *column
	chunks []chunk // of all row groups, in order
}

// maxFooter bounds the metadata of a Parquet file.
const maxFooter = 64 << 20

// openParquet reads the metadata of a Parquet file.
func openParquet(ctx context.Context, f Format, uri string, open Opener) (_ *parquetFile, err error) {
	rc, err := openInput(ctx, uri, open)
	if err != nil {
		return nil, err
	}
	p := &parquetFile{uri: uri, rc: rc, store: &storeAt{ctx: ctx}}
	defer func() {
		if err != nil {
			err = unjoined(errors.Join(err, p.Close()))
		}
	}()
	seeker, ok := rc.(io.ReadSeeker)
	if !ok {
		return nil, fmt.Errorf("open %s: Parquet is read from its end, and this store can't seek", uri)
	}
	if p.store.size, err = seeker.Seek(0, io.SeekEnd); err != nil {
		return nil, fmt.Errorf("seek in %s: %w", uri, err)
	}
	if p.store.at, ok = rc.(io.ReaderAt); !ok {
		p.store.at = &seekerAt{r: seeker}
	}
	if err := p.readFooter(); err != nil {
		return nil, p.failed(0, err)
	}
	names := make([]string, len(p.root.children))
	for i, c := range p.root.children {
		names[i] = c.name
	}
	if err := f.CheckColumns(names); err != nil {
		return nil, p.failed(0, err)
	}
	return p, nil
}

// readFooter parses and checks the metadata.
func (p *parquetFile) readFooter() (err error) {
	defer recovered(&err)
	var tail [8]byte
	size := p.store.size
	if size < 12 {
		return damaged("the file has %d bytes", size)
	}
	if _, err := io.ReadFull(io.NewSectionReader(p.store, size-8, 8), tail[:]); err != nil {
		return err
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	if string(tail[4:]) != magicParquet {
		return damaged("it does not end with Parquet metadata; it was cut")
	}
	if n > size-12 || n > maxFooter {
		return damaged("it states %d bytes of metadata; the file has %d, and the most is %d", n, size, maxFooter)
	}
	footer := make([]byte, n)
	if _, err := io.ReadFull(io.NewSectionReader(p.store, size-8-n, n), footer); err != nil {
		return err
	}
	if _, err := checkThrift(footer, maxFooterItems); err != nil {
		return damaged("metadata: %v", err)
	}
	buffer := 1 << 20 // a read is a request
	if _, local := p.rc.(*os.File); local {
		buffer = 64 << 10
	}
	p.file, err = parquet.OpenFile(p.store, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(buffer))
	if err != nil {
		return err
	}
	md := p.file.Metadata()
	if p.root, err = readSchema(md.Schema); err != nil {
		return err
	}
	var rows int64
	for g := range md.RowGroups {
		group := &md.RowGroups[g]
		if group.NumRows < 0 || len(group.Columns) != p.root.last {
			return damaged("row group %d has %d rows and %d columns, the schema has %d columns", g, group.NumRows, len(group.Columns), p.root.last)
		}
		rows += group.NumRows
		for i := range group.Columns {
			c, err := chunkOf(md, g, i, size-8-n)
			if err != nil {
				return err
			}
			p.chunks = append(p.chunks, c)
		}
	}
	if rows != md.NumRows || rows != p.file.NumRows() {
		return damaged("the row groups have %d rows, the file states %d", rows, md.NumRows)
	}
	ordered := p.inFileOrder(0, len(md.RowGroups))
	for i := 1; i < len(ordered); i++ {
		if a, b := ordered[i-1], ordered[i]; a.start+a.size > b.start {
			return damaged("two columns lie over one another at byte %d", b.start)
		}
	}
	return nil
}

// chunk is a column of a row group, as it is stored.
type chunk struct {
	group, column int
	start, size   int64
	codec         format.CompressionCodec
	values        int64
}

// chunkOf checks where a column of a row group lies; pages end before limit.
func chunkOf(md *format.FileMetaData, group, column int, limit int64) (chunk, error) {
	m := &md.RowGroups[group].Columns[column].MetaData
	first := &md.RowGroups[0].Columns[column]
	c := chunk{group: group, column: column, start: m.DataPageOffset, size: m.TotalCompressedSize, codec: m.Codec, values: m.NumValues}
	if m.DictionaryPageOffset != 0 {
		c.start = min(c.start, m.DictionaryPageOffset)
	}
	switch {
	case md.RowGroups[group].Columns[column].FilePath != "":
		return c, damaged("row group %d keeps its pages in another file", group)
	case c.start < 4 || c.size < 0 || c.start > limit || c.size > limit-c.start || c.values < 0:
		return c, damaged("a column of row group %d lies at bytes %d to %d, outside the pages", group, c.start, c.start+c.size)
	case m.Codec != first.MetaData.Codec:
		return c, damaged("row group %d is compressed in another way (%s) than the first (%s), which is not supported; write the file anew", group, m.Codec, first.MetaData.Codec)
	case !knownCodec(m.Codec):
		return c, damaged("the compression %s is not supported; write the file with zstd", m.Codec)
	}
	return c, nil
}

// inFileOrder returns the chunks of row groups [from, to) by their place.
func (p *parquetFile) inFileOrder(from, to int) []chunk {
	n := p.root.last
	out := slices.Clone(p.chunks[from*n : to*n])
	slices.SortFunc(out, func(a, b chunk) int {
		if a.start != b.start {
			return int(min(max(a.start-b.start, -1), 1))
		}
		return int(min(max(a.size-b.size, -1), 1))
	})
	return out
}

// digests are those of chunks, by row group and column.
type digests map[[2]int]xxh3.Uint128

// digest is that of row groups [from, to), of which d has the chunks: of the
// schema and the digest of each chunk. Where they lie in the file is no part.
func (p *parquetFile) digest(d digests, from, to int) string {
	h := xxh3.New()
	for _, e := range p.file.Metadata().Schema {
		fmt.Fprintf(h, "%q %v %v %v %v %v %v %v %s\n", e.Name, e.Type, e.TypeLength, e.RepetitionType, e.NumChildren, e.ConvertedType, e.Scale, e.Precision, &e.LogicalType)
	}
	for g := from; g < to; g++ {
		fmt.Fprintf(h, "%d\n", p.file.Metadata().RowGroups[g].NumRows)
		for c := range p.root.last {
			sum := d[[2]int{g, c}].Bytes()
			h.Write(sum[:])
		}
	}
	return digestOf(h)
}

// scanParquet cuts a Parquet file into parts of whole row groups while it streams
// by: metadata are read at its end, by a second opening.
func scanParquet(ctx context.Context, s *stream, o ScanOptions) (_ Scanned, err error) {
	p, err := openParquet(ctx, o.Format, o.URI, o.Open)
	if err != nil {
		return Scanned{}, err
	}
	defer func() { err = unjoined(errors.Join(err, p.Close())) }()
	groups := p.file.Metadata().RowGroups
	sums := digests{}
	check := newPageCheck(o.MaxExpansion)
	var pos int64
	for _, c := range p.inFileOrder(0, len(groups)) {
		if _, err := io.CopyN(io.Discard, s.text, c.start-pos); err != nil {
			return Scanned{}, s.failed(noEOF(err))
		}
		sum, err := check.chunk(io.LimitReader(s.text, c.size), c, p.root)
		if err != nil {
			if s.raw.err != nil {
				return Scanned{}, s.failed(err)
			}
			return Scanned{}, p.failed(0, err)
		}
		sums[[2]int{c.group, c.column}] = sum
		pos = c.start + c.size
	}
	if _, err := io.Copy(io.Discard, s.text); err != nil {
		return Scanned{}, s.failed(err)
	}

	var out Scanned
	var part Part
	var text, first int64 // bytes of the part's text; records before it
	for g := range groups {
		if part.Container == "" {
			part = Part{URI: o.URI, Container: ContainerParquet, Start: int64(g), First: first + 1}
		}
		rows := groups[g].NumRows
		if o.Limit > 0 {
			rows = min(rows, o.Limit-first)
		}
		part.Records += rows
		first += rows
		text += groups[g].TotalByteSize
		for _, c := range p.chunks[g*p.root.last : (g+1)*p.root.last] {
			part.Bytes += c.size
		}
		done := g+1 == len(groups) || o.Limit > 0 && first == o.Limit
		if done || o.PartBytes > 0 && text >= o.PartBytes {
			part.End = int64(g) + 1
			part.Digest = p.digest(sums, int(part.Start), int(part.End))
			if part.Records > 0 {
				out.Parts = append(out.Parts, part)
			}
			part, text = Part{}, 0
		}
		if done {
			break
		}
	}
	return out, nil
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// openWholeParquet reads all records of a file, after its pages are checked.
func openWholeParquet(ctx context.Context, f Format, uri string, open Opener) (*Reader, error) {
	p, err := openParquet(ctx, f, uri, open)
	if err != nil {
		return nil, err
	}
	groups := len(p.file.Metadata().RowGroups)
	check := newPageCheck(0)
	for _, c := range p.inFileOrder(0, groups) {
		if _, err := check.chunk(io.NewSectionReader(p.store, c.start, c.size), c, p.root); err != nil {
			return nil, unjoined(errors.Join(p.failed(0, err), p.Close()))
		}
	}
	return &Reader{uri: uri, format: f, name: baseName(uri), in: &parquetRows{parquetFile: p, group: 0, groups: groups, left: p.file.NumRows()}}, nil
}

// openParquetPart reads the records of a part, after the bytes of its row groups
// have been found to be those that were scanned.
func openParquetPart(ctx context.Context, f Format, part Part, open Opener) (input, error) {
	p, err := openParquet(ctx, f, part.URI, open)
	if err != nil {
		return nil, err
	}
	if err := p.checkPart(part); err != nil {
		return nil, unjoined(errors.Join(err, p.Close()))
	}
	return &parquetRows{parquetFile: p, group: int(part.Start), groups: int(part.End), left: part.Records}, nil
}

func (p *parquetFile) checkPart(part Part) error {
	groups := p.file.Metadata().RowGroups
	if part.End > int64(len(groups)) {
		return changed(part, fmt.Sprintf("it has %d row groups", len(groups)))
	}
	var rows int64
	for _, g := range groups[part.Start:part.End] {
		rows += g.NumRows
	}
	if rows < part.Records {
		return changed(part, fmt.Sprintf("row groups %d to %d have %d rows", part.Start, part.End-1, rows))
	}
	sums := digests{}
	buf := make([]byte, 4<<20) // of a remote file each is a request
	var h xxh3.Hasher
	for _, c := range p.inFileOrder(int(part.Start), int(part.End)) {
		h.Reset()
		n, err := io.CopyBuffer(&h, io.NewSectionReader(p.store, c.start, c.size), buf)
		if err != nil {
			return p.failed(0, err)
		}
		if n != c.size {
			return changed(part, "it is shorter")
		}
		sums[[2]int{c.group, c.column}] = h.Sum128()
	}
	if p.digest(sums, int(part.Start), int(part.End)) != part.Digest {
		return changed(part, "the bytes of its row groups or its schema are others")
	}
	return nil
}

// failed classifies an error: the store's own are worth a retry.
func (p *parquetFile) failed(record int64, err error) error {
	if p.store.err != nil {
		if specstream.BadInput(p.store.err) {
			return p.store.err
		}
		return fmt.Errorf("read %s: %w", p.uri, p.store.err)
	}
	var in *specstream.InputError
	if errors.As(err, &in) {
		in.File = p.uri
		return in
	}
	return &specstream.InputError{File: p.uri, Record: record, Reason: "damaged Parquet", Err: err, Hint: "write the file anew or fetch it again; a damaged file is never read in part"}
}

// Close releases the file.
func (p *parquetFile) Close() error {
	if err := p.rc.Close(); err != nil {
		return fmt.Errorf("close %s: %w", p.uri, err)
	}
	return nil
}

// recovered turns a panic of the Parquet library on bytes it doesn't foresee
// into an error.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = damaged("the Parquet library failed: %v", p)
	}
}

// parquetRows yields rows as JSON objects.
type parquetRows struct {
	*parquetFile
	group  int // the next to be opened
	groups int // the end
	left   int64
	rows   parquet.Rows
	inRows int64 // rows of the open group that are not read yet
	batch  [32]parquet.Row
	at, n  int // batch[at:n] is to be returned
	json   assembler
}

func (r *parquetRows) next() (raw Raw, err error) {
	defer recovered(&err)
	if r.left == 0 {
		return Raw{}, io.EOF
	}
	for r.at == r.n {
		if err := r.read(); err != nil {
			return Raw{}, err
		}
	}
	row := r.batch[r.at]
	r.at++
	r.left--
	b, err := r.json.row(r.root, row)
	return Raw{JSON: b}, err
}

// read fills the batch.
func (r *parquetRows) read() error {
	if r.inRows == 0 {
		if err := r.closeRows(); err != nil {
			return err
		}
		if r.group == r.groups {
			return damaged("the row groups end %d rows too early", r.left)
		}
		group := r.file.RowGroups()[r.group]
		r.inRows, r.group = group.NumRows(), r.group+1
		if r.inRows == 0 {
			return nil
		}
		r.rows = group.Rows()
	}
	n, err := r.rows.ReadRows(r.batch[:min(int64(len(r.batch)), r.inRows)])
	if n == 0 {
		return fmt.Errorf("row group %d ends %d rows too early: %w", r.group-1, r.inRows, noEOF(orProgress(err)))
	}
	if err != nil && err != io.EOF {
		return err
	}
	r.at, r.n = 0, n
	r.inRows -= int64(n)
	return nil
}

func orProgress(err error) error {
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}

func (r *parquetRows) closeRows() error {
	if r.rows == nil {
		return nil
	}
	rows := r.rows
	r.rows = nil
	return rows.Close()
}

// verify has nothing left to do: a part is checked before it is read.
func (r *parquetRows) verify() error { return nil }

func (r *parquetRows) Close() error {
	err := r.closeRows()
	return unjoined(errors.Join(err, r.parquetFile.Close()))
}
