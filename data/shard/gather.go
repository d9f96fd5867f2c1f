package shard

import (
	"fmt"
	"math"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
)

// pick is a row of one of several records.
type pick struct{ rec, row int }

// valueRange is a run of values of one of several arrays.
type valueRange struct{ src, from, to int }

// gather copies rows of decoded row groups into a new record from mem.
func gather(cols []column, schema *arrow.Schema, recs []arrow.Record, picks []pick, mem memory.Allocator) (arrow.Record, error) {
	arrays := make([]arrow.Array, 0, len(cols))
	defer func() {
		for _, a := range arrays {
			a.Release()
		}
	}()
	src := make([]arrow.Array, len(recs))
	for i, c := range cols {
		for j, r := range recs {
			src[j] = r.Column(i)
		}
		a, err := gatherColumn(c, src, picks, mem)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", c.name, err)
		}
		arrays = append(arrays, a)
	}
	return array.NewRecord(schema, arrays, int64(len(picks))), nil
}

func gatherColumn(c column, src []arrow.Array, picks []pick, mem memory.Allocator) (arrow.Array, error) {
	ranges := make([]valueRange, len(picks))
	if !c.list {
		for i, p := range picks {
			ranges[i] = valueRange{p.rec, p.row, p.row + 1}
		}
		values, err := gatherValues(c, src, ranges, mem)
		if err != nil {
			return nil, err
		}
		defer values.Release()
		return array.MakeFromData(values), nil
	}
	children := make([]arrow.Array, len(src))
	for i, a := range src {
		children[i] = a.(*array.List).ListValues()
	}
	offsets := newInt32Buffer(mem, len(picks)+1)
	defer offsets.Release()
	o := int32s(offsets)
	at := int64(0)
	for i, p := range picks {
		from, to := src[p.rec].(*array.List).ValueOffsets(p.row)
		ranges[i] = valueRange{p.rec, int(from), int(to)}
		o[i] = int32(at)
		if at += to - from; at > math.MaxInt32 {
			return nil, fmt.Errorf("more than %d values in a batch", math.MaxInt32)
		}
	}
	o[len(picks)] = int32(at)
	values, err := gatherValues(c, children, ranges, mem)
	if err != nil {
		return nil, err
	}
	defer values.Release()
	list := array.NewData(c.arrowType(), len(picks), []*memory.Buffer{nil, offsets}, []arrow.ArrayData{values}, 0, 0)
	defer list.Release()
	return array.NewListData(list), nil
}

// gatherValues copies runs of strings or int32s, one behind another. The
// sources are whole row groups' columns, never slices, so their offset is 0.
func gatherValues(c column, src []arrow.Array, ranges []valueRange, mem memory.Allocator) (*array.Data, error) {
	n := 0
	for _, r := range ranges {
		n += r.to - r.from
	}
	if n > math.MaxInt32 {
		return nil, fmt.Errorf("%d values in a batch, the most is %d", n, math.MaxInt32)
	}
	if !c.text {
		out := newInt32Buffer(mem, n)
		defer out.Release()
		v, at := int32s(out), 0
		for _, r := range ranges {
			at += copy(v[at:], src[r.src].(*array.Int32).Int32Values()[r.from:r.to])
		}
		return array.NewData(arrow.PrimitiveTypes.Int32, n, []*memory.Buffer{nil, out}, nil, 0, 0), nil
	}
	total := int64(0)
	for _, r := range ranges {
		off := stringOffsets(src[r.src])
		total += int64(off[r.to] - off[r.from])
	}
	if total > math.MaxInt32 {
		return nil, fmt.Errorf("%d bytes of text in a batch, the most is %d", total, math.MaxInt32)
	}
	offsets, text := newInt32Buffer(mem, n+1), memory.NewResizableBuffer(mem)
	defer offsets.Release()
	defer text.Release()
	text.Resize(int(total))
	o, b := int32s(offsets), text.Bytes()
	k, at := 0, 0
	for _, r := range ranges {
		off := stringOffsets(src[r.src])
		for i := r.from; i < r.to; i++ {
			o[k] = int32(at) + off[i] - off[r.from]
			k++
		}
		at += copy(b[at:], src[r.src].Data().Buffers()[2].Bytes()[off[r.from]:off[r.to]])
	}
	o[n] = int32(at)
	return array.NewData(arrow.BinaryTypes.String, n, []*memory.Buffer{nil, offsets, text}, nil, 0, 0), nil
}

// stringOffsets returns the offsets of an unsliced string array, one more than
// its strings.
func stringOffsets(a arrow.Array) []int32 {
	return arrow.Int32Traits.CastFromBytes(a.Data().Buffers()[1].Bytes())
}
