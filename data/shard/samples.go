package shard

import (
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"

	"github.com/specstream/specstream/data"
)

// Samples returns a view of a record's rows. Tokens and texts alias the
// record's buffers: they are valid until the record is released, must not be
// changed, and are to be copied by who keeps them longer. Text columns that the
// record was read without stay empty.
func Samples(rec arrow.Record) ([]data.Sample, error) {
	cols := map[string]arrow.Array{}
	for i, f := range rec.Schema().Fields() {
		cols[f.Name] = rec.Column(i)
	}
	for _, c := range columns {
		a, ok := cols[c.name]
		if !ok && c.text && c.name != ColumnID {
			continue
		}
		if !ok {
			return nil, fmt.Errorf("the record has no column %q", c.name)
		}
		if !arrow.TypeEqual(a.DataType(), c.arrowType()) {
			return nil, fmt.Errorf("the record's column %q is %s, want %s", c.name, a.DataType(), c.arrowType())
		}
	}
	out := make([]data.Sample, rec.NumRows())
	tokens, spans := cols[ColumnTokens].(*array.List), cols[ColumnSpans].(*array.List)
	tv, sv := tokens.ListValues().(*array.Int32).Int32Values(), spans.ListValues().(*array.Int32).Int32Values()
	ids := cols[ColumnID].(*array.String)
	for i := range out {
		a, b := tokens.ValueOffsets(i)
		out[i].ID, out[i].Tokens = ids.Value(i), tv[a:b:b]
		a, b = spans.ValueOffsets(i)
		if (b-a)%2 != 0 {
			return nil, fmt.Errorf("row %d of the record has half a span", i)
		}
		if b > a {
			out[i].Spans = make([]data.Span, 0, (b-a)/2)
		}
		for ; a < b; a += 2 {
			out[i].Spans = append(out[i].Spans, data.Span{Start: int(sv[a]), End: int(sv[a+1])})
		}
	}
	if p, ok := cols[ColumnPrompt].(*array.String); ok {
		for i := range out {
			out[i].Prompt = p.Value(i)
		}
	}
	if r, ok := cols[ColumnReference].(*array.String); ok {
		for i := range out {
			out[i].Reference = r.Value(i)
		}
	}
	if l, ok := cols[ColumnAlternatives].(*array.List); ok {
		texts := l.ListValues().(*array.String)
		for i := range out {
			for a, b := l.ValueOffsets(i); a < b; a++ {
				out[i].Alternatives = append(out[i].Alternatives, texts.Value(int(a)))
			}
		}
	}
	return out, nil
}
