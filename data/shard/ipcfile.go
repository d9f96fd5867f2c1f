package shard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/zeebo/xxh3"
)

// A cache file is an Arrow IPC stream of one record, which any Arrow reader can
// map, and behind its end a trailer that says whose row group it is:
//
//	the 8 bytes "specarw1"
//	the SHA-256 that names the shard, 32 bytes
//	the row group's number, 4 bytes, and 1 if it has the text columns, 4 bytes
//	the length of the stream, 8 bytes
//	the XXH3-128 of all bytes before, 16 bytes
//
// with little-endian numbers.
const (
	ipcMagic     = "specarw1"
	trailerBytes = 8 + 32 + 4 + 4 + 8 + 16
)

// encodeIPC returns the cache file of a row group.
func encodeIPC(k cacheKey, text bool, rec arrow.Record) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(recordBytes(rec)) + 8192)
	w := ipc.NewWriter(&b, ipc.WithSchema(rec.Schema()))
	if err := errors.Join(w.Write(rec), w.Close()); err != nil {
		return nil, fmt.Errorf("encode Arrow IPC: %w", err)
	}
	out := appendTrailer(b.Bytes(), k, text)
	h := xxh3.Hash128(out).Bytes()
	return append(out, h[:]...), nil
}

// appendTrailer appends a stream's trailer but for the checksum.
func appendTrailer(stream []byte, k cacheKey, text bool) []byte {
	n := uint64(len(stream))
	out := append(stream, ipcMagic...)
	out = append(out, digestBytes(k.shard)...)
	out = binary.LittleEndian.AppendUint32(out, uint32(k.group))
	flags := uint32(0)
	if text {
		flags = 1
	}
	out = binary.LittleEndian.AppendUint32(out, flags)
	return binary.LittleEndian.AppendUint64(out, n)
}

// checkIPC checks a file's size, checksum and trailer, and returns the stream.
func checkIPC(b []byte, k cacheKey, text bool) ([]byte, error) {
	if len(b) < trailerBytes {
		return nil, fmt.Errorf("it has only %d bytes", len(b))
	}
	sum := xxh3.Hash128(b[:len(b)-16]).Bytes()
	if !bytes.Equal(sum[:], b[len(b)-16:]) {
		return nil, errors.New("its checksum is wrong")
	}
	stream := b[: len(b)-trailerBytes : len(b)-trailerBytes]
	if !bytes.Equal(appendTrailer(stream, k, text)[len(stream):], b[len(stream):len(b)-16]) {
		return nil, errors.New("it is another row group's")
	}
	return stream, nil
}

// ipcSchema returns the message that begins a stream of a schema.
func ipcSchema(schema *arrow.Schema) ([]byte, error) {
	var b bytes.Buffer
	if err := ipc.NewWriter(&b, ipc.WithSchema(schema)).Close(); err != nil {
		return nil, fmt.Errorf("encode Arrow schema: %w", err)
	}
	// What follows is the end mark of 8 bytes.
	return b.Bytes()[:b.Len()-8], nil
}

// parseIPC returns the record of a stream, whose columns are the stream's own
// memory: buffer makes an Arrow buffer of a part of it. Arrow's own reader would
// copy every column. The checksum has vouched for the bytes; lengths and offsets
// are checked all the same, so that no bytes make a record that reads outside.
func parseIPC(stream, prefix []byte, cols []column, schema *arrow.Schema, rows int64, buffer func([]byte) *memory.Buffer) (rec arrow.Record, err error) {
	if !bytes.HasPrefix(stream, prefix) {
		return nil, errors.New("its schema is another one")
	}
	arrays := make([]arrow.Array, 0, len(cols))
	defer func() {
		for _, a := range arrays {
			a.Release()
		}
	}()
	// The flatbuffers library panics on offsets that lead outside.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its record is malformed: %v", p)
		}
	}()
	if len(prefix)%8 != 0 {
		return nil, errors.New("its record is not aligned")
	}
	m, err := parseBatch(stream[len(prefix):])
	if err != nil {
		return nil, err
	}
	if m.rows != rows {
		return nil, fmt.Errorf("it has %d rows, the manifest says %d", m.rows, rows)
	}
	m.buffer = buffer
	for _, c := range cols {
		a, err := m.column(c)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", c.name, err)
		}
		arrays = append(arrays, a)
	}
	if m.node != m.nodes || m.buf != m.bufs {
		return nil, errors.New("it has further columns")
	}
	if err := checkSpans(arrays[1].(*array.List), arrays[2].(*array.List)); err != nil {
		return nil, err
	}
	return array.NewRecord(schema, arrays, rows), nil
}

// ipcBatch walks the nodes and buffers of a record batch message.
type ipcBatch struct {
	t          flatbuffers.Table
	rows       int64
	nodesAt    flatbuffers.UOffsetT
	bufsAt     flatbuffers.UOffsetT
	nodes, buf int
	node, bufs int
	body       []byte
	buffer     func([]byte) *memory.Buffer
}

// Slots of the tables Message and RecordBatch in Arrow's format/Message.fbs and
// the value of MessageHeader for a record batch.
const (
	slotHeaderType  = 6
	slotHeader      = 8
	slotBodyLength  = 10
	slotLength      = 4
	slotNodes       = 6
	slotBuffers     = 8
	slotCompression = 10
	headerBatch     = 3
)

// parseBatch reads the message of a record batch and finds its body; an end
// mark is all that follows.
func parseBatch(b []byte) (*ipcBatch, error) {
	if len(b) < 8 || binary.LittleEndian.Uint32(b) != math.MaxUint32 {
		return nil, errors.New("it has no record")
	}
	n := int64(binary.LittleEndian.Uint32(b[4:]))
	if n < 4 || n%8 != 0 || n > int64(len(b)-8) {
		return nil, errors.New("its record's message runs past the end")
	}
	meta, rest := b[8:8+n:8+n], b[8+n:]
	msg := flatbuffers.Table{Bytes: meta, Pos: flatbuffers.GetUOffsetT(meta)}
	header := field(&msg, slotHeader)
	if o := field(&msg, slotHeaderType); o == 0 || header == 0 || msg.GetByte(o) != headerBatch {
		return nil, errors.New("its second message is not a record")
	}
	size := int64(0)
	if o := field(&msg, slotBodyLength); o != 0 {
		size = msg.GetInt64(o)
	}
	if size < 0 || size != int64(len(rest)-8) || binary.LittleEndian.Uint64(rest[size:]) != math.MaxUint32 {
		return nil, errors.New("its record does not end where the stream does")
	}
	m := &ipcBatch{t: flatbuffers.Table{Bytes: meta, Pos: msg.Indirect(header)}, body: rest[:size:size]}
	if field(&m.t, slotCompression) != 0 {
		return nil, errors.New("its record is compressed")
	}
	if o := field(&m.t, slotLength); o != 0 {
		m.rows = m.t.GetInt64(o)
	}
	if o := m.t.Offset(slotNodes); o != 0 {
		m.nodes, m.nodesAt = m.t.VectorLen(flatbuffers.UOffsetT(o)), m.t.Vector(flatbuffers.UOffsetT(o))
	}
	if o := m.t.Offset(slotBuffers); o != 0 {
		m.bufs, m.bufsAt = m.t.VectorLen(flatbuffers.UOffsetT(o)), m.t.Vector(flatbuffers.UOffsetT(o))
	}
	return m, nil
}

// field returns where a table's field lies, 0 if it is absent.
func field(t *flatbuffers.Table, slot flatbuffers.VOffsetT) flatbuffers.UOffsetT {
	o := t.Offset(slot)
	if o == 0 {
		return 0
	}
	return t.Pos + flatbuffers.UOffsetT(o)
}

// length returns the next node's length; there are no nulls.
func (m *ipcBatch) length() (int, error) {
	if m.node == m.nodes {
		return 0, errors.New("it is missing")
	}
	at := m.nodesAt + flatbuffers.UOffsetT(16*m.node)
	m.node++
	n, nulls := m.t.GetInt64(at), m.t.GetInt64(at+8)
	if n < 0 || n > maxSampleBytes || nulls != 0 {
		return 0, fmt.Errorf("it has %d values, %d of them null", n, nulls)
	}
	return int(n), nil
}

// bytes returns the next buffer's bytes, which begin at a multiple of 8.
func (m *ipcBatch) bytes() ([]byte, error) {
	if m.buf == m.bufs {
		return nil, errors.New("its buffers are missing")
	}
	at := m.bufsAt + flatbuffers.UOffsetT(16*m.buf)
	m.buf++
	off, n := m.t.GetInt64(at), m.t.GetInt64(at+8)
	if off < 0 || n < 0 || off%8 != 0 || off > int64(len(m.body)) || n > int64(len(m.body))-off {
		return nil, fmt.Errorf("its %d bytes at %d lie outside", n, off)
	}
	return m.body[off : off+n : off+n], nil
}

// offsets returns the next buffer as the n+1 rising offsets of n values, and the
// last of them.
func (m *ipcBatch) offsets(n int) ([]byte, int, error) {
	b, err := m.bytes()
	if err != nil {
		return nil, 0, err
	}
	if n == 0 && len(b) == 0 {
		return make([]byte, 4), 0, nil
	}
	if len(b) < 4*(n+1) {
		return nil, 0, fmt.Errorf("%d bytes are too few for %d offsets", len(b), n+1)
	}
	b = b[: 4*(n+1) : 4*(n+1)]
	last := int32(0)
	for i, o := range arrow.Int32Traits.CastFromBytes(b) {
		if o < last || i == 0 && o != 0 {
			return nil, 0, fmt.Errorf("offset %d is %d behind %d", i, o, last)
		}
		last = o
	}
	return b, int(last), nil
}

// column returns the next column.
func (m *ipcBatch) column(c column) (arrow.Array, error) {
	n, err := m.length()
	if err != nil {
		return nil, err
	}
	if int64(n) != m.rows {
		return nil, fmt.Errorf("it has %d rows of %d", n, m.rows)
	}
	if !c.list {
		values, err := m.values(c, n)
		if err != nil {
			return nil, err
		}
		defer values.Release()
		return array.MakeFromData(values), nil
	}
	if err := m.noNulls(); err != nil {
		return nil, err
	}
	off, last, err := m.offsets(n)
	if err != nil {
		return nil, err
	}
	k, err := m.length()
	if err != nil {
		return nil, err
	}
	if k != last {
		return nil, fmt.Errorf("it has %d values, the offsets say %d", k, last)
	}
	values, err := m.values(c, k)
	if err != nil {
		return nil, err
	}
	defer values.Release()
	return m.data(c.arrowType(), n, []arrow.ArrayData{values}, off), nil
}

// values returns the next n strings or int32s.
func (m *ipcBatch) values(c column, n int) (arrow.ArrayData, error) {
	if err := m.noNulls(); err != nil {
		return nil, err
	}
	if !c.text {
		b, err := m.bytes()
		if err == nil && len(b) < 4*n {
			err = fmt.Errorf("%d bytes are too few for %d values", len(b), n)
		}
		if err != nil {
			return nil, err
		}
		return m.arrayData(arrow.PrimitiveTypes.Int32, n, nil, b[:4*n:4*n]), nil
	}
	off, last, err := m.offsets(n)
	if err != nil {
		return nil, err
	}
	b, err := m.bytes()
	if err == nil && len(b) < last {
		err = fmt.Errorf("%d bytes of text, the offsets say %d", len(b), last)
	}
	if err != nil {
		return nil, err
	}
	return m.arrayData(arrow.BinaryTypes.String, n, nil, off, b[:last:last]), nil
}

// noNulls passes over the next buffer, a bitmap that is left out.
func (m *ipcBatch) noNulls() error {
	b, err := m.bytes()
	if err == nil && len(b) != 0 {
		err = errors.New("it has a bitmap of nulls")
	}
	return err
}

func (m *ipcBatch) data(t arrow.DataType, n int, children []arrow.ArrayData, parts ...[]byte) arrow.Array {
	d := m.arrayData(t, n, children, parts...)
	defer d.Release()
	return array.MakeFromData(d)
}

func (m *ipcBatch) arrayData(t arrow.DataType, n int, children []arrow.ArrayData, parts ...[]byte) arrow.ArrayData {
	buffers := make([]*memory.Buffer, 1, 3)
	for _, p := range parts {
		b := m.buffer(p)
		defer b.Release()
		buffers = append(buffers, b)
	}
	return array.NewData(t, n, buffers, children, 0, 0)
}
