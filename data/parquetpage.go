package data

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
	"github.com/zeebo/xxh3"

	"github.com/specstream/specstream"
)

// Limits of a page of Parquet. Writers make pages of about 1 MiB and 20,000
// values; older ones put all the nulls of a row group into one.
const (
	maxPageHeader  = 1 << 20
	maxPageBytes   = 128 << 20
	maxPageValues  = 16 << 20
	maxFooterItems = 1 << 20 // structs in lists of the metadata
)

// pageCheck walks over pages before the Parquet library reads them: that they
// fill their column, have the checksums they state, and are what they state when
// decompressed. The library allocates whatever sizes are stated, and some of its
// decompressors don't end on damaged pages.
type pageCheck struct {
	ratio int64
	buf   *bufio.Reader
	page  []byte
	out   []byte
	zstd  *zstd.Decoder
	gzip  *gzip.Reader
}

func newPageCheck(maxExpansion int) *pageCheck {
	if maxExpansion <= 0 {
		maxExpansion = defaultExpansion
	}
	return &pageCheck{ratio: int64(maxExpansion), buf: bufio.NewReaderSize(nil, maxPageHeader)}
}

// chunk checks the pages of a column and returns the digest of its bytes.
func (k *pageCheck) chunk(r io.Reader, c chunk, root *column) (xxh3.Uint128, error) {
	var h xxh3.Hasher
	k.buf.Reset(io.TeeReader(r, &h))
	var read, expanded, values int64
	for page := 0; read < c.size; page++ {
		head, err := k.buf.Peek(int(min(maxPageHeader, c.size-read)))
		if err != nil {
			return xxh3.Uint128{}, err
		}
		n, err := checkThrift(head, 64)
		if err != nil {
			return xxh3.Uint128{}, k.at(c, root, page, "header: %v", err)
		}
		var ph format.PageHeader
		var protocol thrift.CompactProtocol
		if err := thrift.NewDecoder(protocol.NewReaderFromBytes(bytes.Clone(head[:n]))).Decode(&ph); err != nil {
			return xxh3.Uint128{}, k.at(c, root, page, "header: %v", err)
		}
		if _, err := k.buf.Discard(n); err != nil {
			return xxh3.Uint128{}, err
		}
		read += int64(n)
		size := int64(ph.CompressedPageSize)
		if size < 0 || size > c.size-read || ph.UncompressedPageSize < 0 || ph.UncompressedPageSize > maxPageBytes {
			return xxh3.Uint128{}, k.at(c, root, page, "it states %d bytes, %d when decompressed; the column has %d left, and the most of a page is %d MiB",
				ph.CompressedPageSize, ph.UncompressedPageSize, c.size-read, maxPageBytes>>20)
		}
		if int64(cap(k.page)) < size {
			k.page = make([]byte, size)
		}
		k.page = k.page[:size]
		if _, err := io.ReadFull(k.buf, k.page); err != nil {
			return xxh3.Uint128{}, err
		}
		read += size
		count, err := k.body(c.codec, &ph)
		if err != nil {
			return xxh3.Uint128{}, k.at(c, root, page, "%v", err)
		}
		values += int64(count)
		expanded += int64(ph.UncompressedPageSize)
		if expanded > freeExpansion && expanded/k.ratio > read {
			return xxh3.Uint128{}, &specstream.InputError{Field: "max_expansion", Reason: fmt.Sprintf("a column expands to more than %d times its size: %d bytes of %d", k.ratio, expanded, read),
				Hint: "raise max_expansion if the file is to be trusted"}
		}
	}
	if values != c.values {
		return xxh3.Uint128{}, damaged("column %q of row group %d has %d values, its metadata state %d", root.leaf(c.column), c.group, values, c.values)
	}
	return h.Sum128(), nil
}

func (k *pageCheck) at(c chunk, root *column, page int, what string, args ...any) error {
	return damaged("column %q of row group %d, page %d: %s", root.leaf(c.column), c.group, page, fmt.Sprintf(what, args...))
}

// body checks the page in k.page and returns its number of values.
func (k *pageCheck) body(codec format.CompressionCodec, h *format.PageHeader) (values int32, err error) {
	if h.CRC != 0 {
		if sum := crc32.ChecksumIEEE(k.page); sum != uint32(h.CRC) {
			return 0, fmt.Errorf("its checksum is %08x, the header states %08x", sum, uint32(h.CRC))
		}
	}
	packed, size := k.page, int64(h.UncompressedPageSize)
	switch {
	case h.Type == format.DataPage && h.DataPageHeader.Valid:
		values = h.DataPageHeader.V.NumValues
	case h.Type == format.DictionaryPage && h.DictionaryPageHeader.Valid:
		if n := h.DictionaryPageHeader.V.NumValues; n < 0 || n > maxPageValues {
			return 0, fmt.Errorf("it states a dictionary of %d values, the most is %d", n, maxPageValues)
		}
	case h.Type == format.DataPageV2 && h.DataPageHeaderV2.Valid:
		v2 := &h.DataPageHeaderV2.V
		values = v2.NumValues
		levels := int64(v2.RepetitionLevelsByteLength) + int64(v2.DefinitionLevelsByteLength)
		if v2.RepetitionLevelsByteLength < 0 || v2.DefinitionLevelsByteLength < 0 || levels > int64(len(packed)) || levels > size {
			return 0, fmt.Errorf("it states %d bytes of levels in %d", levels, len(packed))
		}
		packed, size = packed[levels:], size-levels
		if v2.IsCompressed.Valid && !v2.IsCompressed.V {
			codec = format.Uncompressed
		}
	default:
		return 0, fmt.Errorf("pages of type %v are not known here", h.Type)
	}
	if values < 0 || values > maxPageValues {
		return 0, fmt.Errorf("it states %d values, the most is %d", values, maxPageValues)
	}
	n, err := k.unpack(codec, packed, size)
	if err != nil {
		return 0, fmt.Errorf("decompress: %w", err)
	}
	if n != size {
		return 0, fmt.Errorf("it has %d bytes when decompressed, the header states %d", n, size)
	}
	return values, nil
}

func knownCodec(c format.CompressionCodec) bool {
	switch c {
	case format.Uncompressed, format.Snappy, format.Gzip, format.Zstd, format.Brotli, format.Lz4Raw:
		return true
	}
	return false
}

// unpack decompresses a page and returns its size, or one more than want if it
// has more.
func (k *pageCheck) unpack(codec format.CompressionCodec, packed []byte, want int64) (n int64, err error) {
	var r io.Reader
	src := bytes.NewReader(packed)
	switch codec {
	case format.Uncompressed:
		return int64(len(packed)), nil
	case format.Snappy:
		if n, err := snappy.DecodedLen(packed); err != nil || int64(n) != want {
			return int64(n), err
		}
		b, err := snappy.Decode(k.room(want), packed)
		return int64(len(b)), err
	case format.Lz4Raw:
		if len(packed) == 0 && want == 0 {
			return 0, nil
		}
		n, err := lz4.UncompressBlock(packed, k.room(want))
		return int64(n), err
	case format.Brotli:
		r = brotli.NewReader(src)
	case format.Gzip:
		if k.gzip == nil {
			k.gzip, err = gzip.NewReader(src)
		} else {
			err = k.gzip.Reset(src)
		}
		r = k.gzip
	case format.Zstd:
		if len(packed) == 0 && want == 0 {
			return 0, nil
		}
		if k.zstd == nil {
			k.zstd, err = zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		} else {
			err = k.zstd.Reset(src)
		}
		r = k.zstd
	default:
		return 0, fmt.Errorf("the compression %s is not supported", codec)
	}
	if err != nil {
		return 0, err
	}
	return io.Copy(io.Discard, io.LimitReader(r, want+1))
}

func (k *pageCheck) room(n int64) []byte {
	if int64(cap(k.out)) < n {
		k.out = make([]byte, n)
	}
	return k.out[:n]
}

var errThrift = errors.New("is not well-formed")

// checkThrift walks over a struct in Thrift's compact protocol and returns its
// length: that it is well-formed, nested reasonably, and has no more than items
// elements in its lists, before a decoder makes room for what is stated.
func checkThrift(b []byte, items int) (n int, err error) {
	w := thriftWalk{b: b, items: items}
	if err := w.structure(0); err != nil {
		return 0, err
	}
	return len(b) - len(w.b), nil
}

type thriftWalk struct {
	b     []byte
	items int
}

// Types of Thrift's compact protocol.
const (
	thriftTrue, thriftFalse, thriftI8, thriftI64, thriftDouble, thriftBinary = 1, 2, 3, 6, 7, 8
	thriftList, thriftSet, thriftMap, thriftStruct, thriftUUID               = 9, 10, 11, 12, 13
)

func (w *thriftWalk) byte() (byte, error) {
	if len(w.b) == 0 {
		return 0, errThrift
	}
	c := w.b[0]
	w.b = w.b[1:]
	return c, nil
}

func (w *thriftWalk) varint() (uint64, error) {
	v, n := binary.Uvarint(w.b)
	if n <= 0 {
		return 0, errThrift
	}
	w.b = w.b[n:]
	return v, nil
}

func (w *thriftWalk) skip(n uint64) error {
	if n > uint64(len(w.b)) {
		return errThrift
	}
	w.b = w.b[n:]
	return nil
}

func (w *thriftWalk) structure(depth int) error {
	if depth > 32 {
		return errors.New("is nested too deep")
	}
	for {
		c, err := w.byte()
		if err != nil || c == 0 {
			return err
		}
		if c>>4 == 0 { // a field's number in full
			if _, err := w.varint(); err != nil {
				return err
			}
		}
		if kind := c & 15; kind != thriftTrue && kind != thriftFalse {
			if err := w.value(kind, depth); err != nil {
				return err
			}
		}
	}
}

func (w *thriftWalk) value(kind byte, depth int) error {
	switch {
	case kind == thriftTrue, kind == thriftFalse, kind == thriftI8: // inside a list
		return w.skip(1)
	case kind > thriftI8 && kind <= thriftI64:
		_, err := w.varint()
		return err
	case kind == thriftDouble:
		return w.skip(8)
	case kind == thriftUUID:
		return w.skip(16)
	case kind == thriftBinary:
		n, err := w.varint()
		if err != nil {
			return err
		}
		return w.skip(n)
	case kind == thriftStruct:
		return w.structure(depth + 1)
	case kind == thriftList, kind == thriftSet:
		c, err := w.byte()
		if err != nil {
			return err
		}
		n := uint64(c >> 4)
		if n == 15 {
			if n, err = w.varint(); err != nil {
				return err
			}
		}
		return w.list(n, c&15, 0, depth)
	case kind == thriftMap:
		n, err := w.varint()
		if err != nil || n == 0 {
			return err
		}
		c, err := w.byte()
		if err != nil {
			return err
		}
		return w.list(n, c>>4, c&15, depth)
	}
	return errThrift
}

// list walks over the elements of a list, or the keys and values of a map.
func (w *thriftWalk) list(n uint64, kind, value byte, depth int) error {
	if n > uint64(len(w.b)) {
		return errThrift
	}
	if w.items -= int(n); w.items < 0 {
		return errors.New("has too many elements")
	}
	for range n {
		if err := w.value(kind, depth+1); err != nil {
			return err
		}
		if value != 0 {
			if err := w.value(value, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
