package data

import (
	"fmt"
	"slices"
	"strings"

	"github.com/specstream/specstream"
)

// Format reads the elements of one record format.
type Format struct {
	name string
	// version counts the changes of what decode makes of the same element.
	version int
	csv     bool // the elements are rows of CSV
	// container is what the format or its mapping asks for; see Container.
	container string
	// columns are those an element must have and, of CSV, the cells that decode
	// is given, in this order.
	columns []string
	// exact says that the names of columns are compared with their case.
	exact bool
	// oneOf are further columns of which an element must have one.
	oneOf  [][]string
	decode func(Raw) (Record, error)
}

// Name is the format's name in a DataSpec.
func (f Format) Name() string { return f.name }

// Version names what the format makes of an element, such as "sharegpt/2". It
// changes whenever the same element would give another record.
func (f Format) Version() string { return fmt.Sprintf("%s/%d", f.name, f.version) }

// Container is the container that the format or its mapping asks for: "json",
// "csv" or "parquet"; "" leaves it to the input's name and content.
func (f Format) Container() string { return f.container }

// Columns are the columns that a CSV header or a Parquet schema must have, in
// the order in which the format wants the cells of a CSV row; nil when the
// format makes do with alternatives. [Format.CheckColumns] knows those too.
func (f Format) Columns() []string { return slices.Clone(f.columns) }

// CheckColumns returns nil if records of the format can be made of rows that
// have columns of these names, else an [specstream.InputError] that names what
// is missing. The built-in formats compare names without case and the white
// space around them; a mapping's names must be met exactly.
func (f Format) CheckColumns(columns []string) error {
	has := func(want string) bool {
		return slices.ContainsFunc(columns, func(n string) bool {
			return n == want || !f.exact && strings.EqualFold(strings.TrimSpace(n), want)
		})
	}
	want := slices.Clone(f.oneOf)
	for _, c := range f.columns {
		want = append(want, []string{c})
	}
	for _, names := range want {
		if slices.ContainsFunc(names, has) {
			continue
		}
		missing := "the column is missing"
		if len(names) > 1 {
			missing = fmt.Sprintf("the column is missing, and so is any in its place (%s)", strings.Join(names[1:], ", "))
		}
		return &specstream.InputError{
			Field:  names[0],
			Reason: fmt.Sprintf("%s: there are %s", missing, clipTo(fmt.Sprintf("%q", columns), 400)),
			Hint:   fmt.Sprintf("records of the format %q cannot be made of this input", f.name),
		}
	}
	return nil
}

// formats are those that need no more than their name.
var formats = []Format{
	chatFormat(repeatedDrop),
	{name: "dialogsum", version: 2, columns: []string{"dialogue"}, oneOf: [][]string{{"summary", "summary1"}}, decode: decodeDialogSum},
	{name: "sql", version: 2, columns: []string{"question", "context"}, oneOf: [][]string{{"answer", "query"}}, decode: decodeSQL},
	{name: "e2e", version: 2, csv: true, container: "csv", columns: []string{"mr", "ref"}, decode: decodeE2E},
	{name: "alpaca", version: 1, columns: []string{"instruction", "output"}, decode: decodeAlpaca},
	{name: "specbench", version: 1, columns: []string{"turns"}, decode: decodeSpecBench},
}

// FormatOf returns the format of a name, one of [specstream.Formats] but
// "mapping", with defaults for what a specification may choose.
func FormatOf(name string) (Format, error) {
	for _, f := range formats {
		if f.name == name {
			return f, nil
		}
	}
	if name == "mapping" {
		return Format{}, specstream.Invalid("format", "\"mapping\" needs a mapping that names the fields")
	}
	return Format{}, specstream.Invalid("format", "%q is not one of %s", name, strings.Join(specstream.Formats, ", "))
}

// FormatFor returns the format of a completed specification, with its mapping
// and its choice for repeated turns.
func FormatFor(spec specstream.DataSpec) (Format, error) {
	repeated := repeatedDrop
	if spec.Clean != nil && spec.Clean.RepeatedTurns != "" {
		repeated = spec.Clean.RepeatedTurns
	}
	if repeated != repeatedDrop && repeated != repeatedMerge {
		return Format{}, specstream.Invalid("clean.repeated_turns", "%q is neither %q nor %q", repeated, repeatedDrop, repeatedMerge)
	}
	switch {
	case spec.Format == "mapping" && spec.Mapping != nil:
		return mappingFormat(*spec.Mapping, repeated)
	case spec.Mapping != nil:
		return Format{}, specstream.Invalid("mapping", "goes with the format \"mapping\", not %q", spec.Format)
	case spec.Format == "sharegpt":
		return chatFormat(repeated), nil
	}
	return FormatOf(spec.Format)
}
