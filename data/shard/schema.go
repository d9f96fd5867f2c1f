package shard

import (
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

const (
	parquetMagic  = "PAR1"
	schemaKey     = "specstream.schema"
	schemaVersion = "1"

	// A decoded row group must fit Arrow's 32-bit offsets many times over.
	maxGroupRows   = 1 << 24
	maxGroupTokens = 1 << 26
	// maxSampleBytes bounds one sample, and with it one row group.
	maxSampleBytes = 128 << 20
	// maxPageBytes bounds a page before compression: the largest column of the
	// largest row group, with its levels.
	maxPageBytes = 4 * maxSampleBytes
)

// Column names, in a record's order too.
const (
	ColumnID           = "id"
	ColumnTokens       = "tokens"
	ColumnSpans        = "spans"
	ColumnPrompt       = "prompt"
	ColumnReference    = "reference"
	ColumnAlternatives = "alternatives"
)

// row is a sample as Parquet stores it. Strings take the library's default
// encoding, DELTA_LENGTH_BYTE_ARRAY, as the format recommends; tokens are PLAIN,
// which with zstd is the smallest for them (1.6 bytes a token of English text).
type row struct {
	ID           string   `parquet:"id"`
	Tokens       []int32  `parquet:"tokens,list"`
	Spans        []int32  `parquet:"spans,list"`
	Prompt       string   `parquet:"prompt"`
	Reference    string   `parquet:"reference"`
	Alternatives []string `parquet:"alternatives,list"`
}

// column describes how one column is found and what it becomes.
type column struct {
	name string
	path []string // the leaf's path in the file
	list bool
	text bool // bytes of strings, not int32
}

var columns = []column{
	{name: ColumnID, path: []string{"id"}, text: true},
	{name: ColumnTokens, path: []string{"tokens", "list", "element"}, list: true},
	{name: ColumnSpans, path: []string{"spans", "list", "element"}, list: true},
	{name: ColumnPrompt, path: []string{"prompt"}, text: true},
	{name: ColumnReference, path: []string{"reference"}, text: true},
	{name: ColumnAlternatives, path: []string{"alternatives", "list", "element"}, list: true, text: true},
}

var (
	parquetSchema = parquet.SchemaOf(row{})
	codec         = &zstd.Codec{Level: zstd.SpeedDefault}
)

func (c column) arrowType() arrow.DataType {
	var t arrow.DataType = arrow.PrimitiveTypes.Int32
	if c.text {
		t = arrow.BinaryTypes.String
	}
	if c.list {
		t = arrow.ListOfNonNullable(t)
	}
	return t
}

// Schema returns the Arrow schema of the records a data set gives, with the
// text columns or without:
//
//	id utf8, tokens list<int32>, spans list<int32>[, prompt utf8,
//	reference utf8, alternatives list<utf8>]
func Schema(text bool) *arrow.Schema {
	var fields []arrow.Field
	for _, c := range readColumns(text) {
		fields = append(fields, arrow.Field{Name: c.name, Type: c.arrowType()})
	}
	md := arrow.NewMetadata([]string{schemaKey}, []string{schemaVersion})
	return arrow.NewSchema(fields, &md)
}

// readColumns returns the columns of a record.
func readColumns(text bool) []column {
	if text {
		return columns
	}
	return columns[:3]
}

// checkParquetSchema refuses a file of another schema. The library would read
// one as rows of zero values without a word.
func checkParquetSchema(f *parquet.File) error {
	v, ok := f.Lookup(schemaKey)
	if !ok {
		return fmt.Errorf("not a specstream shard: the Parquet metadata lack %q", schemaKey)
	}
	if v != schemaVersion {
		return fmt.Errorf("%s is %q, want %q", schemaKey, v, schemaVersion)
	}
	if !parquet.EqualNodes(f.Schema(), parquetSchema) {
		return fmt.Errorf("the columns are not those of schema %s: %v", schemaVersion, f.Schema())
	}
	return nil
}
