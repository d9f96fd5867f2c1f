package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"unsafe"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// offsetReader serves the bytes [off, off+len(b)) of a file that is not read
// anywhere else.
type offsetReader struct {
	b   []byte
	off int64
}

func (r offsetReader) ReadAt(p []byte, off int64) (int, error) {
	if off < r.off || off > r.off+int64(len(r.b)) {
		return 0, fmt.Errorf("read at %d outside the verified bytes %d..%d", off, r.off, r.off+int64(len(r.b)))
	}
	n := copy(p, r.b[off-r.off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// openFooter parses a shard's metadata out of the bytes behind its last row
// group, which the caller has verified, and checks them against the manifest.
func openFooter(s Shard, x *shardIndex, footer []byte) (f *parquet.File, err error) {
	defer recovered(&err)
	if n := len(footer); n < 8 || int64(binary.LittleEndian.Uint32(footer[n-8:])) > int64(n-8) {
		return nil, errors.New("the file does not end with Parquet metadata")
	}
	f, err = parquet.OpenFile(offsetReader{footer, x.footerOffset()}, s.Bytes,
		parquet.SkipMagicBytes(true), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, err
	}
	if err := checkParquetSchema(f); err != nil {
		return nil, err
	}
	groups := f.Metadata().RowGroups
	if len(groups) != len(s.Groups) {
		return nil, fmt.Errorf("the file has %d row groups, the manifest %d", len(groups), len(s.Groups))
	}
	for i, g := range groups {
		if g.NumRows != s.Groups[i] {
			return nil, fmt.Errorf("row group %d has %d rows, the manifest says %d", i, g.NumRows, s.Groups[i])
		}
	}
	if f.NumRows() != s.Rows {
		return nil, fmt.Errorf("the file has %d rows, the manifest says %d", f.NumRows(), s.Rows)
	}
	return f, nil
}

// decodeGroup turns a row group's verified bytes into a record with the given
// columns. Where a column is one page, and it is in the shards that [Writer]
// makes by default, values are the page's own memory: they are not copied. That
// memory belongs to Go's collector, not to mem, which provides list offsets
// alone.
func decodeGroup(f *parquet.File, index int, want rowGroup, b []byte, cols []column, schema *arrow.Schema, mem memory.Allocator) (rec arrow.Record, err error) {
	arrays := make([]arrow.Array, 0, len(cols))
	defer func() {
		for _, a := range arrays {
			a.Release()
		}
	}()
	defer recovered(&err)
	group := f.RowGroups()[index]
	for _, c := range cols {
		leaf, ok := f.Schema().Lookup(c.path...) // by name: the library sorts columns of a Group
		if !ok {
			return nil, fmt.Errorf("column %q is missing", c.name)
		}
		chunk, ok := group.ColumnChunks()[leaf.ColumnIndex].(*parquet.FileColumnChunk)
		if !ok {
			return nil, fmt.Errorf("column %q is not stored in the file", c.name)
		}
		if err := checkPages(&f.Metadata().RowGroups[index].Columns[leaf.ColumnIndex].MetaData, b, want.off); err != nil {
			return nil, fmt.Errorf("column %q: %w", c.name, err)
		}
		a, err := readColumn(c, chunk.PagesFrom(offsetReader{b, want.off}), int(want.rows), mem)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", c.name, err)
		}
		arrays = append(arrays, a)
	}
	tokens := arrays[1].(*array.List)
	if n := int64(tokens.ListValues().Len()); n != want.tokens {
		return nil, fmt.Errorf("it has %d tokens, the manifest says %d", n, want.tokens)
	}
	if err := checkSpans(tokens, arrays[2].(*array.List)); err != nil {
		return nil, err
	}
	return array.NewRecord(schema, arrays, want.rows), nil
}

// checkPages walks a column's page headers before the library does, which
// allocates whatever sizes they state: that the pages fill the column exactly,
// are of the one kind the format has, and have the checksums they state. The
// digest has vouched for the bytes already; this is for a manifest that was
// made from damaged ones.
func checkPages(md *format.ColumnMetaData, b []byte, off int64) error {
	start, size := md.DataPageOffset-off, md.TotalCompressedSize
	if md.DictionaryPageOffset != 0 {
		return errors.New("dictionary encoding is not part of the schema")
	}
	if start < 0 || size < 0 || start > int64(len(b)) || size > int64(len(b))-start {
		return errors.New("its pages lie outside the row group")
	}
	rest := b[start : start+size]
	var protocol thrift.CompactProtocol
	for page := 0; len(rest) > 0; page++ {
		var h format.PageHeader
		r := protocol.NewReaderFromBytes(rest)
		if err := thrift.NewDecoder(r).Decode(&h); err != nil {
			return fmt.Errorf("page %d: header: %w", page, err)
		}
		rest = rest[r.BytesRead():]
		v2 := h.DataPageHeaderV2
		switch {
		case h.Type != format.DataPageV2 || !v2.Valid:
			return fmt.Errorf("page %d is a %s, want a DATA_PAGE_V2", page, h.Type)
		case h.CompressedPageSize < 0 || int64(h.CompressedPageSize) > int64(len(rest)):
			return fmt.Errorf("page %d of %d bytes runs past the column's end", page, h.CompressedPageSize)
		case h.UncompressedPageSize < 0 || h.UncompressedPageSize > maxPageBytes:
			return fmt.Errorf("page %d states %d bytes, the most is %d", page, h.UncompressedPageSize, maxPageBytes)
		case v2.V.NumValues < 0 || v2.V.NumValues > maxGroupTokens:
			return fmt.Errorf("page %d states %d values, the most is %d", page, v2.V.NumValues, maxGroupTokens)
		}
		if got := crc32.ChecksumIEEE(rest[:h.CompressedPageSize]); got != uint32(h.CRC) {
			return fmt.Errorf("page %d has the checksum %08x, its header says %08x", page, got, uint32(h.CRC))
		}
		rest = rest[h.CompressedPageSize:]
	}
	return nil
}

// recovered turns a panic of the Parquet library on bytes it doesn't foresee
// into an error.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the Parquet library failed: %v", p)
	}
}

// checkSpans checks that every row's spans are pairs inside its tokens, rising.
func checkSpans(tokens, spans *array.List) error {
	v := spans.ListValues().(*array.Int32).Int32Values()
	for i := range spans.Len() {
		a, b := spans.ValueOffsets(i)
		t0, t1 := tokens.ValueOffsets(i)
		if (b-a)%2 != 0 {
			return fmt.Errorf("row %d has half a span", i)
		}
		end := int32(0)
		for ; a < b; a += 2 {
			if v[a] < end || v[a+1] <= v[a] || int64(v[a+1]) > t1-t0 {
				return fmt.Errorf("row %d has span [%d, %d) of %d tokens", i, v[a], v[a+1], t1-t0)
			}
			end = v[a+1]
		}
	}
	return nil
}

// columnData collects a column's pages.
type columnData struct {
	ints    []int32
	bytes   []byte
	strings []int32 // string offsets, one more than strings
	lists   []int32 // list offsets, without the last
	pages   int
}

// readColumn reads a column's pages to their end into one Arrow array of rows
// values.
func readColumn(c column, pages *parquet.FilePages, rows int, mem memory.Allocator) (a arrow.Array, err error) {
	defer func() { err = errors.Join(err, pages.Close()) }()
	var d columnData
	for {
		p, err := pages.ReadPage()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		// The page is not released, so its values stay valid and are freed by
		// the collector when the last array goes.
		if err := d.add(c, p); err != nil {
			return nil, fmt.Errorf("page %d: %w", d.pages, err)
		}
		d.pages++
	}
	return d.array(c, rows, mem)
}

// add appends a page: by taking over its memory if it is the first, else by
// copying.
func (d *columnData) add(c column, p parquet.Page) error {
	if p.Dictionary() != nil {
		return errors.New("dictionary encoding is not part of the schema")
	}
	values := p.Data()
	base := d.values(c)
	var n int // values in the page
	if c.text {
		b, offsets := values.ByteArray()
		off, err := signedOffsets(b, offsets)
		if err != nil {
			return err
		}
		n = max(len(off)-1, 0)
		if err := d.addText(b, off); err != nil {
			return err
		}
	} else {
		v := values.Int32()
		n = len(v)
		if d.ints == nil {
			d.ints = v[:n:n]
		} else {
			d.ints = append(d.ints, v...)
		}
	}
	if !c.list {
		if int64(n) != p.NumRows() {
			return fmt.Errorf("%d values in %d rows", n, p.NumRows())
		}
		return nil
	}
	rep, def := p.RepetitionLevels(), p.DefinitionLevels()
	if len(rep) != len(def) {
		return fmt.Errorf("%d repetition levels, %d definition levels", len(rep), len(def))
	}
	if d.lists == nil {
		d.lists = make([]int32, 0, p.NumRows()+1)
	}
	at := base
	for i, r := range rep {
		switch {
		case r == 0:
			d.lists = append(d.lists, int32(at))
		case r != 1 || len(d.lists) == 0:
			return fmt.Errorf("repetition level %d at %d", r, i)
		case def[i] == 0:
			return errors.New("a row goes on behind an empty list")
		}
		if def[i] > 1 {
			return fmt.Errorf("definition level %d at %d", def[i], i)
		}
		at += int(def[i]) // level 0 is an empty list, 1 a value
	}
	if at != base+n {
		return fmt.Errorf("%d values, the levels say %d", n, at-base)
	}
	return nil
}

// values returns how many values have been collected.
func (d *columnData) values(c column) int {
	if c.text {
		return max(len(d.strings)-1, 0)
	}
	return len(d.ints)
}

func (d *columnData) addText(b []byte, off []int32) error {
	if len(off) == 0 {
		return nil
	}
	if d.strings == nil {
		d.bytes, d.strings = b[:len(b):len(b)], off[:len(off):len(off)]
		return nil
	}
	have := int64(d.strings[len(d.strings)-1])
	if have+int64(off[len(off)-1]-off[0]) > math.MaxInt32 {
		return errors.New("more than 2 GiB of text in a row group")
	}
	d.bytes = append(d.bytes[:have], b[off[0]:off[len(off)-1]]...)
	shift := int32(have) - off[0]
	for _, o := range off[1:] {
		d.strings = append(d.strings, o+shift)
	}
	return nil
}

// signedOffsets reinterprets the library's string offsets as Arrow's, after
// checking that they rise and stay inside b.
func signedOffsets(b []byte, offsets []uint32) ([]int32, error) {
	if len(b) > math.MaxInt32 {
		return nil, errors.New("more than 2 GiB of text in a page")
	}
	if len(offsets) == 0 {
		return nil, nil
	}
	last := uint32(0)
	for i, o := range offsets {
		if o < last || int(o) > len(b) {
			return nil, fmt.Errorf("string offset %d at %d of %d bytes", o, i, len(b))
		}
		last = o
	}
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(offsets))), len(offsets)), nil
}

// array builds the Arrow array and checks the number of rows.
func (d *columnData) array(c column, rows int, mem memory.Allocator) (arrow.Array, error) {
	values := d.valueData(c)
	defer values.Release()
	n := values.Len()
	if c.list {
		n = len(d.lists)
	}
	if n != rows {
		return nil, fmt.Errorf("it has %d rows, the manifest says %d", n, rows)
	}
	if !c.list {
		return array.MakeFromData(values), nil
	}
	offsets := newInt32Buffer(mem, rows+1)
	defer offsets.Release()
	o := int32s(offsets)
	copy(o, d.lists)
	o[rows] = int32(values.Len())
	list := array.NewData(c.arrowType(), rows, []*memory.Buffer{nil, offsets}, []arrow.ArrayData{values}, 0, 0)
	defer list.Release()
	return array.NewListData(list), nil
}

func (d *columnData) valueData(c column) *array.Data {
	if !c.text {
		v := memory.NewBufferBytes(int32Bytes(d.ints))
		defer v.Release()
		return array.NewData(arrow.PrimitiveTypes.Int32, len(d.ints), []*memory.Buffer{nil, v}, nil, 0, 0)
	}
	if d.strings == nil {
		d.strings = []int32{0}
	}
	o, v := memory.NewBufferBytes(int32Bytes(d.strings)), memory.NewBufferBytes(d.bytes)
	defer o.Release()
	defer v.Release()
	return array.NewData(arrow.BinaryTypes.String, len(d.strings)-1, []*memory.Buffer{nil, o, v}, nil, 0, 0)
}

func int32Bytes(v []int32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}

// newInt32Buffer returns a buffer of n int32 from mem; the caller releases it.
func newInt32Buffer(mem memory.Allocator, n int) *memory.Buffer {
	b := memory.NewResizableBuffer(mem)
	b.Resize(4 * n)
	return b
}

func int32s(b *memory.Buffer) []int32 {
	return arrow.Int32Traits.CastFromBytes(b.Bytes())
}
