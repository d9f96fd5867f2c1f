package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bytedance/sonic"

	"github.com/specstream/specstream"
)

// Format reads the elements of one record format.
type Format struct {
	name    string
	csv     bool
	columns []string // columns a CSV header must have
	decode  func(Raw) (Record, error)
}

// Name is the format's name in a DataSpec.
func (f Format) Name() string { return f.name }

var formats = []Format{
	{name: "sharegpt", decode: decodeShareGPT},
	{name: "dialogsum", decode: decodeDialogSum},
	{name: "sql", decode: decodeSQL},
	{name: "e2e", csv: true, columns: []string{"mr", "ref"}, decode: decodeE2E},
}

// FormatOf returns the format of a name, one of [specstream.Formats].
func FormatOf(name string) (Format, error) {
	for _, f := range formats {
		if f.name == name {
			return f, nil
		}
	}
	return Format{}, specstream.Invalid("format", "%q is not one of %s", name, strings.Join(specstream.Formats, ", "))
}

// decodeJSON decodes one element into v, a pointer to a struct whose fields are
// pointers, so that what is missing or null stays nil. sonic's ConfigStd keeps
// to encoding/json's rules at a multiple of its speed. check names the field of
// the wrong type in an element that v can't hold; it is only asked about
// well-formed JSON.
func decodeJSON(raw Raw, v any, check func(value any) error) error {
	if !utf8.Valid(raw.JSON) {
		return bad(BadUTF8, "", "is not valid UTF-8")
	}
	err := sonic.ConfigStd.Unmarshal(raw.JSON, v)
	if err == nil && raw.JSON[0] == '{' {
		return nil
	}
	// Off the fast path: tell damage from wrong types with the standard
	// library, whose errors say where.
	var value any
	if jerr := json.Unmarshal(raw.JSON, &value); jerr != nil {
		in := &specstream.InputError{Reason: "damaged JSON", Err: jerr, Hint: "mend the file or fetch it again; a damaged file is never read in part"}
		var at *json.SyntaxError
		if errors.As(jerr, &at) {
			in.Reason = fmt.Sprintf("damaged JSON at byte %d of the record", at.Offset)
		}
		return in
	}
	if _, ok := value.(map[string]any); !ok {
		return bad(BadType, "", "want a JSON object, got %s", jsonKind(value))
	}
	if cerr := check(value); cerr != nil {
		return cerr
	}
	return bad(BadType, "", "is not a record of the format: %v", err)
}

// checkStrings reports the first of the named fields that is neither a string
// nor null.
func checkStrings(names ...string) func(any) error {
	return func(value any) error { return stringFields(value, "", names...) }
}

func stringFields(value any, prefix string, names ...string) error {
	obj, ok := value.(map[string]any)
	if !ok {
		return bad(BadType, strings.TrimSuffix(prefix, "."), "want an object, got %s", jsonKind(value))
	}
	keys := make([]string, 0, len(obj))
	for k := range obj {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		isNamed := slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, k) })
		if _, ok := obj[k].(string); isNamed && !ok && obj[k] != nil {
			return bad(BadType, prefix+k, "want a string, got %s", jsonKind(obj[k]))
		}
	}
	return nil
}

func jsonKind(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case float64, json.Number:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "an array"
	}
	return "an object"
}

// required returns the text of a field that must be there and hold more than
// white space.
func required(field string, v *string) (string, error) {
	if v == nil {
		return "", bad(BadMissing, field, "is missing")
	}
	if blank(*v) {
		return "", bad(BadEmpty, field, "is empty")
	}
	return *v, nil
}

// completion is required for the text a model is trained to produce.
func completion(field string, v *string) (string, error) {
	s, err := required(field, v)
	var b *BadRecordError
	if errors.As(err, &b) && b.Code == BadEmpty {
		b.Code = BadEmptyCompletion
		b.Input.Reason = "is empty: there is nothing to train on"
	}
	return s, err
}

// blank reports whether s has no visible text: white space, zero-width
// characters and byte-order marks only.
func blank(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool {
		return !unicode.IsSpace(r) && r != '\ufeff' && (r < '\u200b' || r > '\u200d') && r != '\u2060'
	}) < 0
}

// loneSurrogate reports whether JSON text has an escaped half of a surrogate
// pair, which stands for no character and decodes to U+FFFD.
func loneSurrogate(b []byte) bool {
	if !bytes.Contains(b, []byte(`\ud`)) && !bytes.Contains(b, []byte(`\uD`)) {
		return false
	}
	for i := 0; i+1 < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		u, ok := escapedUnit(b[i:])
		switch {
		case !ok:
			i++ // the escaped byte
		case u < 0xd800 || u > 0xdfff:
			i += 5
		case u > 0xdbff:
			return true // a low half with no high half before it
		default:
			if low, ok := escapedUnit(b[i+6:]); !ok || low < 0xdc00 || low > 0xdfff {
				return true
			}
			i += 11
		}
	}
	return false
}

// escapedUnit parses \uXXXX at the start of b.
func escapedUnit(b []byte) (u uint16, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		u = u<<4 | uint16(c)
	}
	return u, true
}

// finish adds what normalisation altered on the level of JSON.
func (r *Record) finish(raw Raw) {
	if loneSurrogate(raw.JSON) {
		r.Changed = append(r.Changed, ChangedSurrogates)
	}
}
