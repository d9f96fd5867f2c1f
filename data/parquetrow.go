package data

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// column is a node of a Parquet schema, as JSON sees it: lists and maps are one
// node, whatever groups they are stored as.
type column struct {
	name     string
	key      []byte // `"name":`
	kind     columnKind
	optional bool
	def      int       // definition level from which on it is there
	elemDef  int       // of lists and maps: level from which on there is an element
	rep      int       // of lists and maps: repetition level of further elements
	children []*column // of an object its fields; of a list its element; of a map key and value
	first    int       // its leaves are columns [first, last)
	last     int
	format   func(b []byte, v parquet.Value) []byte
}

type columnKind int

const (
	columnObject columnKind = iota
	columnList
	columnMap
	columnLeaf
)

// leaf names a leaf column by its path.
func (c *column) leaf(i int) string {
	for _, child := range c.children {
		if i >= child.first && i < child.last {
			if name := child.leaf(i); name != "" && child.kind != columnLeaf {
				return child.name + "." + name
			}
			return child.name
		}
	}
	return ""
}

// schemaReader builds columns of a schema, which is a tree in depth-first order.
type schemaReader struct {
	list []format.SchemaElement
	next int
	leaf int
}

// maxSchemaDepth bounds the nesting of a schema.
const maxSchemaDepth = 64

func readSchema(list []format.SchemaElement) (*column, error) {
	r := &schemaReader{list: list}
	root, err := r.column(0, 0, 0, true)
	if err == nil && r.next != len(list) {
		err = damaged("the schema has %d elements behind its end", len(list)-r.next)
	}
	return root, err
}

func (r *schemaReader) take(depth int) (*format.SchemaElement, error) {
	if r.next >= len(r.list) {
		return nil, damaged("the schema ends too early")
	}
	if depth > maxSchemaDepth {
		return nil, damaged("the schema is nested deeper than %d levels", maxSchemaDepth)
	}
	r.next++
	return &r.list[r.next-1], nil
}

// column reads the next element and all below it, inside one with these levels.
func (r *schemaReader) column(def, rep, depth int, root bool) (*column, error) {
	e, err := r.take(depth)
	if err != nil {
		return nil, err
	}
	if !root && e.RepetitionType.V == format.Repeated {
		list := &column{name: e.Name, kind: columnList, def: def, elemDef: def + 1, rep: rep + 1, first: r.leaf}
		elem, err := r.body(e, def+1, rep+1, depth)
		list.children, list.last = []*column{elem}, r.leaf
		return list, err
	}
	optional := !root && e.RepetitionType.V == format.Optional
	if optional {
		def++
	}
	c, err := r.body(e, def, rep, depth)
	if err == nil {
		c.optional = optional
	}
	return c, err
}

// body reads what is below an element, whatever its own repetition.
func (r *schemaReader) body(e *format.SchemaElement, def, rep, depth int) (*column, error) {
	c := &column{name: e.Name, def: def, rep: rep, first: r.leaf}
	n := int(e.NumChildren.V)
	if !e.NumChildren.Valid || n == 0 {
		if !e.Type.Valid {
			return nil, damaged("the schema's group %q has no columns", e.Name)
		}
		c.kind, c.format = columnLeaf, leafFormat(e)
		r.leaf++
		c.last = r.leaf
		return c, nil
	}
	if n < 0 || n > len(r.list)-r.next {
		return nil, damaged("the schema's group %q states %d columns", e.Name, n)
	}
	var err error
	repeated := &r.list[r.next]
	switch inner := int(repeated.NumChildren.V); {
	case n == 1 && repeated.RepetitionType.V == format.Repeated && isList(e):
		c.kind, c.elemDef, c.rep = columnList, def+1, rep+1
		err = r.listElement(c, e, repeated, depth)
	case n == 1 && repeated.RepetitionType.V == format.Repeated && isMap(e) && inner >= 1 && inner <= 2:
		c.kind, c.elemDef, c.rep = columnMap, def+1, rep+1
		r.next++
		err = r.fields(c, inner, def+1, rep+1, depth+1)
		if err == nil && c.children[0].kind != columnLeaf {
			err = damaged("the keys of the map %q are no values", e.Name)
		}
	default:
		err = r.fields(c, n, def, rep, depth)
	}
	c.last = r.leaf
	return c, err
}

// listElement reads the repeated element of a list, which stands for the list's
// element or for a group around it (parquet-format, LogicalTypes.md, "Lists").
func (r *schemaReader) listElement(c *column, list, repeated *format.SchemaElement, depth int) error {
	inner := int(repeated.NumChildren.V)
	if inner == 1 && repeated.Name != "array" && repeated.Name != list.Name+"_tuple" {
		r.next++
		return r.fields(c, 1, c.elemDef, c.rep, depth+1)
	}
	e, err := r.take(depth + 1)
	if err != nil {
		return err
	}
	elem, err := r.body(e, c.elemDef, c.rep, depth+1)
	c.children = []*column{elem}
	return err
}

func (r *schemaReader) fields(c *column, n, def, rep, depth int) error {
	seen := map[string]bool{}
	for range n {
		f, err := r.column(def, rep, depth+1, false)
		if err != nil {
			return err
		}
		if seen[f.name] {
			return damaged("the schema's group %q has two columns %q", c.name, f.name)
		}
		seen[f.name] = true
		f.key = append(appendJSONString(nil, f.name), ':')
		c.children = append(c.children, f)
	}
	return nil
}

func isList(e *format.SchemaElement) bool {
	_, ok := e.LogicalType.Value.(*format.ListType)
	return ok || e.ConvertedType.Valid && e.ConvertedType.V == deprecated.List
}

func isMap(e *format.SchemaElement) bool {
	_, ok := e.LogicalType.Value.(*format.MapType)
	return ok || e.ConvertedType.Valid && (e.ConvertedType.V == deprecated.Map || e.ConvertedType.V == deprecated.MapKeyValue)
}

// assembler makes JSON objects of rows. Strings, enums and bytes that are UTF-8
// become strings, other bytes {"base64": …}, numbers and decimals numbers (NaN and
// the infinities strings), dates and times strings in ISO 8601, JSON what it is,
// lists arrays, structs and maps objects, and nulls null.
type assembler struct {
	out    []byte
	values [][]parquet.Value // of the row, by column
	at     []int             // how many of them are taken
}

// row returns the row's object; it is valid until the next call.
func (a *assembler) row(root *column, row parquet.Row) ([]byte, error) {
	if len(a.values) != root.last {
		a.values, a.at = make([][]parquet.Value, root.last), make([]int, root.last)
	}
	clear(a.values)
	clear(a.at)
	row.Range(func(i int, v []parquet.Value) bool {
		if i < len(a.values) {
			a.values[i] = v
		}
		return true
	})
	a.out = a.out[:0]
	if err := a.add(root); err != nil {
		return nil, err
	}
	for i, v := range a.values {
		if a.at[i] != len(v) {
			return nil, damaged("column %q has %d values too many in the row", root.leaf(i), len(v)-a.at[i])
		}
	}
	return a.out, nil
}

// peek is the next value of a column's first leaf.
func (a *assembler) peek(c *column) (parquet.Value, error) {
	if i := a.at[c.first]; i < len(a.values[c.first]) {
		return a.values[c.first][i], nil
	}
	return parquet.Value{}, damaged("column %q lacks a value in the row", c.name)
}

// absent takes the one value that each leaf of a null or empty column has.
func (a *assembler) absent(c *column, as string) error {
	for i := c.first; i < c.last; i++ {
		if a.at[i] >= len(a.values[i]) || !a.values[i][a.at[i]].IsNull() {
			return damaged("column %q has a value where another part of it has none", c.name)
		}
		a.at[i]++
	}
	a.out = append(a.out, as...)
	return nil
}

func (a *assembler) add(c *column) error {
	v, err := a.peek(c)
	if err != nil {
		return err
	}
	if len(a.out) > maxElement {
		return damaged("a row is longer than %d MiB", maxElement>>20)
	}
	if c.optional && v.DefinitionLevel() < c.def {
		return a.absent(c, "null")
	}
	switch c.kind {
	case columnLeaf:
		if v.IsNull() {
			return damaged("column %q is null and must not be", c.name)
		}
		a.at[c.first]++
		a.out = c.format(a.out, v)
		return nil
	case columnObject:
		for i, f := range c.children {
			a.out = append(a.out, "{,"[min(i, 1)])
			a.out = append(a.out, f.key...)
			if err := a.add(f); err != nil {
				return err
			}
		}
		a.out = append(a.out, '}')
		return nil
	}
	open, end := byte('['), byte(']')
	if c.kind == columnMap {
		open, end = '{', '}'
	}
	if v.DefinitionLevel() < c.elemDef {
		return a.absent(c, string([]byte{open, end}))
	}
	a.out = append(a.out, open)
	for {
		if c.kind == columnMap {
			err = a.pair(c)
		} else {
			err = a.add(c.children[0])
		}
		if err != nil {
			return err
		}
		i := a.at[c.first]
		if i >= len(a.values[c.first]) || a.values[c.first][i].RepetitionLevel() != c.rep {
			break
		}
		a.out = append(a.out, ',')
	}
	a.out = append(a.out, end)
	return nil
}

// pair adds a key and its value.
func (a *assembler) pair(c *column) error {
	start := len(a.out)
	if err := a.add(c.children[0]); err != nil {
		return err
	}
	if a.out[start] != '"' { // a number for a key
		key := string(a.out[start:])
		a.out = appendJSONString(a.out[:start], key)
	}
	a.out = append(a.out, ':')
	if len(c.children) == 1 {
		a.out = append(a.out, "null"...)
		return nil
	}
	return a.add(c.children[1])
}

// leafFormat returns how values of a leaf are written.
func leafFormat(e *format.SchemaElement) func([]byte, parquet.Value) []byte {
	converted := func(t deprecated.ConvertedType) bool { return e.ConvertedType.Valid && e.ConvertedType.V == t }
	switch t := e.LogicalType.Value.(type) {
	case *format.DecimalType:
		return decimalFormat(int(t.Scale))
	case *format.DateType:
		return formatDate
	case *format.TimeType:
		return timeFormat(unitOf(t.Unit), "15:04:05.999999999")
	case *format.TimestampType:
		return timeFormat(unitOf(t.Unit), timestampLayout(t.IsAdjustedToUTC))
	case *format.IntType:
		if !t.IsSigned {
			return formatUnsigned
		}
	case *format.JsonType:
		return formatJSON
	case *format.UUIDType:
		return formatUUID
	case *format.Float16Type:
		return formatFloat16
	case *format.StringType, *format.EnumType:
		return formatString
	}
	switch {
	case converted(deprecated.Decimal):
		return decimalFormat(int(e.Scale.V))
	case converted(deprecated.Date):
		return formatDate
	case converted(deprecated.TimeMillis):
		return timeFormat(time.Millisecond, "15:04:05.999")
	case converted(deprecated.TimeMicros):
		return timeFormat(time.Microsecond, "15:04:05.999999")
	case converted(deprecated.TimestampMillis):
		return timeFormat(time.Millisecond, timestampLayout(true))
	case converted(deprecated.TimestampMicros):
		return timeFormat(time.Microsecond, timestampLayout(true))
	case converted(deprecated.Uint8), converted(deprecated.Uint16), converted(deprecated.Uint32), converted(deprecated.Uint64):
		return formatUnsigned
	case converted(deprecated.Json):
		return formatJSON
	case converted(deprecated.UTF8), converted(deprecated.Enum):
		return formatString
	}
	return formatPlain
}

func formatPlain(b []byte, v parquet.Value) []byte {
	switch v.Kind() {
	case parquet.Boolean:
		return strconv.AppendBool(b, v.Boolean())
	case parquet.Int32:
		return strconv.AppendInt(b, int64(v.Int32()), 10)
	case parquet.Int64:
		return strconv.AppendInt(b, v.Int64(), 10)
	case parquet.Float:
		return appendFloat(b, float64(v.Float()), 32)
	case parquet.Double:
		return appendFloat(b, v.Double(), 64)
	case parquet.Int96: // nanoseconds of the day and Julian day, of old writers
		i := v.Int96()
		const julianEpoch = 2440588
		t := time.Unix((int64(i[2])-julianEpoch)*86400, int64(uint64(i[1])<<32|uint64(i[0]))).UTC()
		return appendJSONString(b, t.Format(timestampLayout(false)))
	}
	bytes := v.ByteArray()
	if utf8.Valid(bytes) {
		return formatString(b, v)
	}
	b = append(b, `{"base64":"`...)
	return append(base64.StdEncoding.AppendEncode(b, bytes), `"}`...)
}

func formatString(b []byte, v parquet.Value) []byte {
	return appendJSONString(b, string(v.ByteArray()))
}

func formatUnsigned(b []byte, v parquet.Value) []byte {
	if v.Kind() == parquet.Int32 {
		return strconv.AppendUint(b, uint64(v.Uint32()), 10)
	}
	return strconv.AppendUint(b, v.Uint64(), 10)
}

func formatJSON(b []byte, v parquet.Value) []byte {
	if text := v.ByteArray(); json.Valid(text) {
		return append(b, text...)
	}
	return formatString(b, v)
}

func formatUUID(b []byte, v parquet.Value) []byte {
	u := v.ByteArray()
	if len(u) != 16 {
		return formatPlain(b, v)
	}
	return fmt.Appendf(b, `"%x-%x-%x-%x-%x"`, u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

func formatFloat16(b []byte, v parquet.Value) []byte {
	raw := v.ByteArray()
	if len(raw) != 2 {
		return formatPlain(b, v)
	}
	h := binary.LittleEndian.Uint16(raw)
	exp, frac := int(h>>10&31), float64(h&1023)
	var f float64
	switch exp {
	case 0:
		f = math.Ldexp(frac, -24)
	case 31:
		f = math.Inf(1)
		if frac != 0 {
			f = math.NaN()
		}
	default:
		f = math.Ldexp(frac+1024, exp-25)
	}
	if h>>15 != 0 {
		f = -f
	}
	return appendFloat(b, f, 32)
}

func appendFloat(b []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(b, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(b, `"-Infinity"`...)
	}
	return strconv.AppendFloat(b, f, 'g', -1, bits)
}

func formatDate(b []byte, v parquet.Value) []byte {
	return appendJSONString(b, time.Unix(int64(v.Int32())*86400, 0).UTC().Format(time.DateOnly))
}

func unitOf(u format.TimeUnit) time.Duration {
	switch u.Value.(type) {
	case *format.MilliSeconds:
		return time.Millisecond
	case *format.MicroSeconds:
		return time.Microsecond
	}
	return time.Nanosecond
}

func timestampLayout(utc bool) string {
	if utc {
		return "2006-01-02T15:04:05.999999999Z"
	}
	return "2006-01-02T15:04:05.999999999"
}

func timeFormat(unit time.Duration, layout string) func([]byte, parquet.Value) []byte {
	perSecond := int64(time.Second / unit)
	return func(b []byte, v parquet.Value) []byte {
		n := v.Int64()
		if v.Kind() == parquet.Int32 {
			n = int64(v.Int32())
		}
		t := time.Unix(n/perSecond, n%perSecond*int64(unit)).UTC()
		return appendJSONString(b, t.Format(layout))
	}
}

func decimalFormat(scale int) func([]byte, parquet.Value) []byte {
	return func(b []byte, v parquet.Value) []byte {
		var digits string
		switch v.Kind() {
		case parquet.Int32:
			digits = strconv.FormatInt(int64(v.Int32()), 10)
		case parquet.Int64:
			digits = strconv.FormatInt(v.Int64(), 10)
		default: // two's complement, big-endian
			raw := v.ByteArray()
			n := new(big.Int).SetBytes(raw)
			if len(raw) > 0 && raw[0] >= 0x80 {
				n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(raw))))
			}
			digits = n.String()
		}
		if scale <= 0 || scale > 100 {
			return append(b, digits...)
		}
		if digits[0] == '-' {
			b, digits = append(b, '-'), digits[1:]
		}
		for len(digits) <= scale {
			digits = "0" + digits
		}
		at := len(digits) - scale
		return append(b, slices.Concat([]byte(digits[:at]), []byte{'.'}, []byte(digits[at:]))...)
	}
}
