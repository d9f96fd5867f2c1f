package data

import (
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"
)

func element(name string, repetition format.FieldRepetitionType, children int32) format.SchemaElement {
	e := format.SchemaElement{Name: name, RepetitionType: thrift.New(repetition)}
	if children > 0 {
		e.NumChildren = thrift.New(children)
	} else {
		e.Type = thrift.New(format.ByteArray)
	}
	return e
}

func converted(e format.SchemaElement, t deprecated.ConvertedType) format.SchemaElement {
	e.ConvertedType = thrift.New(t)
	return e
}

// TestParquetListForms: lists are arrays in all the forms that writers ever gave
// them (parquet-format, LogicalTypes.md, "Backward-compatibility rules").
func TestParquetListForms(t *testing.T) {
	optional, repeated, required := format.Optional, format.Repeated, format.Required
	root := element("schema", required, 1)
	list := func(name string) format.SchemaElement { return converted(element(name, optional, 1), deprecated.List) }
	v := func(s string, rep, def int) parquet.Value {
		return parquet.ByteArrayValue([]byte(s)).Level(rep, def, 0)
	}
	null := func(rep, def, column int) parquet.Value { return parquet.NullValue().Level(rep, def, column) }
	for _, c := range []struct {
		name   string
		schema []format.SchemaElement
		row    parquet.Row
		want   string
	}{
		{"three levels", []format.SchemaElement{root, list("l"), element("list", repeated, 1), element("element", optional, 0)},
			parquet.Row{v("a", 0, 3), null(1, 2, 0)}, `{"l":["a",null]}`},
		{"three levels, empty", []format.SchemaElement{root, list("l"), element("list", repeated, 1), element("element", optional, 0)},
			parquet.Row{null(0, 1, 0)}, `{"l":[]}`},
		{"three levels, null", []format.SchemaElement{root, list("l"), element("list", repeated, 1), element("element", optional, 0)},
			parquet.Row{null(0, 0, 0)}, `{"l":null}`},
		{"a value that repeats", []format.SchemaElement{root, list("l"), element("element", repeated, 0)},
			parquet.Row{v("a", 0, 2), v("b", 1, 2)}, `{"l":["a","b"]}`},
		{"a group of two that repeats", []format.SchemaElement{root, list("l"), element("element", repeated, 2), element("x", required, 0), element("y", required, 0)},
			parquet.Row{v("a", 0, 2), v("b", 1, 2), parquet.ByteArrayValue([]byte("c")).Level(0, 2, 1), parquet.ByteArrayValue([]byte("d")).Level(1, 2, 1)},
			`{"l":[{"x":"a","y":"c"},{"x":"b","y":"d"}]}`},
		{"a group of one named array", []format.SchemaElement{root, list("l"), element("array", repeated, 1), element("x", required, 0)},
			parquet.Row{v("a", 0, 2)}, `{"l":[{"x":"a"}]}`},
		{"a group of one named after the list", []format.SchemaElement{root, list("l"), element("l_tuple", repeated, 1), element("x", required, 0)},
			parquet.Row{v("a", 0, 2)}, `{"l":[{"x":"a"}]}`},
		{"not annotated", []format.SchemaElement{root, element("l", repeated, 0)}, parquet.Row{null(0, 0, 0)}, `{"l":[]}`},
		{"a map without values", []format.SchemaElement{root, converted(element("m", optional, 1), deprecated.MapKeyValue), element("map", repeated, 1), element("key", required, 0)},
			parquet.Row{v("a", 0, 2), v("b", 1, 2)}, `{"m":{"a":null,"b":null}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			schema, err := readSchema(c.schema)
			require.NoError(t, err)
			var a assembler
			got, err := a.row(schema, c.row)
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))

			_, err = a.row(schema, c.row[:len(c.row)-1])
			if len(c.row) == 1 || c.row[0].Column() != c.row[len(c.row)-1].Column() {
				require.Error(t, err, "a value is missing")
			}
			_, err = a.row(schema, append(c.row[:len(c.row):len(c.row)], null(0, 0, c.row[len(c.row)-1].Column())))
			require.Error(t, err, "a value is left over")
		})
	}
}

func TestParquetSchemaDamage(t *testing.T) {
	root := func(n int32) format.SchemaElement { return element("schema", format.Required, n) }
	leaf := element("a", format.Required, 0)
	deep := []format.SchemaElement{root(1)}
	for range maxSchemaDepth + 1 {
		deep = append(deep, element("g", format.Required, 1))
	}
	for name, c := range map[string]struct {
		schema []format.SchemaElement
		want   string
	}{
		"nothing":             {nil, "ends too early"},
		"no columns":          {[]format.SchemaElement{{Name: "schema"}}, "has no columns"},
		"fewer than stated":   {[]format.SchemaElement{root(2), leaf}, "states 2 columns"},
		"negative":            {[]format.SchemaElement{root(1), {Name: "g", NumChildren: thrift.New(int32(-1))}, leaf}, "states -1 columns"},
		"more than stated":    {[]format.SchemaElement{root(1), leaf, leaf}, "behind its end"},
		"a name twice":        {[]format.SchemaElement{root(2), leaf, leaf}, "two columns"},
		"too deep":            {append(deep, leaf), "deeper than 64"},
		"a map of lists keys": {[]format.SchemaElement{root(1), converted(element("m", format.Optional, 1), deprecated.Map), element("kv", format.Repeated, 1), element("k", format.Repeated, 0)}, "are no values"},
	} {
		_, err := readSchema(c.schema)
		require.ErrorContains(t, err, c.want, name)
	}
}
