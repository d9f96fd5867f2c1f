package data

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bytedance/sonic"

	"github.com/specstream/specstream"
)

// decodeJSON decodes one element into v, a pointer to a struct whose fields are
// pointers, so that what is missing or null stays nil. sonic's ConfigStd keeps
// to encoding/json's rules at a multiple of its speed. keys are the names that v
// reads: an object that has one of them twice is refused, for the decoder would
// take the last in silence. check names the field of the wrong type in an element
// that v can't hold; it is only asked about well-formed JSON, whose numbers are
// json.Number. What decoding alters is noted in r.
func decodeJSON(r *Record, raw Raw, v any, keys *keySet, check func(value any) error) error {
	return decodeWith(sonic.ConfigStd, r, raw, v, keys, check)
}

func decodeWith(api sonic.API, r *Record, raw Raw, v any, keys *keySet, check func(value any) error) error {
	if raw.Bad != nil {
		return raw.Bad
	}
	if !utf8.Valid(raw.JSON) {
		if err := wellFormed(raw.JSON); err != nil {
			return err
		}
		return bad(BadUTF8, "", "is not valid UTF-8")
	}
	found := scan(raw.JSON, keys)
	if found.lone {
		r.change(ChangedSurrogates)
	}
	var err error
	if !found.unsound && found.problem == nil {
		if err = api.Unmarshal(raw.JSON, v); err == nil && raw.JSON[0] == '{' {
			return nil
		}
	}
	// Off the fast path: tell damage from records of another make with the
	// standard library, whose errors say where.
	if err := wellFormed(raw.JSON); err != nil {
		return err
	}
	if found.problem != nil {
		return found.problem
	}
	value, verr := anyValue(raw.JSON)
	if verr != nil {
		return bad(BadType, "", "is not a record of the format: %v", verr)
	}
	if _, ok := value.(map[string]any); !ok {
		return bad(BadType, "", "want a JSON object, got %s", jsonKind(value))
	}
	if err == nil {
		return nil // an object behind white space
	}
	if cerr := check(value); cerr != nil {
		return cerr
	}
	return bad(BadType, "", "is not a record of the format: %v", err)
}

// wellFormed returns nil for well-formed JSON, whatever its UTF-8, else the
// InputError that ends reading: the bounds of a damaged element are a guess.
func wellFormed(b []byte) error {
	var v json.RawMessage
	err := json.Unmarshal(b, &v)
	if err == nil {
		return nil
	}
	in := &specstream.InputError{Reason: "damaged JSON", Err: err, Hint: "mend the file or fetch it again; a damaged file is never read in part"}
	var at *json.SyntaxError
	if errors.As(err, &at) {
		in.Reason = fmt.Sprintf("damaged JSON at byte %d of the record", at.Offset)
	}
	return in
}

// anyValue decodes well-formed JSON, keeping numbers as they are spelled.
func anyValue(b []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// maxDepth is how deep the objects and arrays of a record may be nested.
const maxDepth = 128

// maxKeys is how many keys a keySet holds.
const maxKeys = 64

// keySet is a set of keys to look for in objects.
type keySet struct {
	names []string
	exact bool // compared with their case
	// byLen are the numbers of the names by their length.
	byLen [][]int
}

// keysOf returns the set of the names. Names of Go struct tags match keys
// whatever the case, as they do in decoding; exact ones only themselves. It
// returns nil for more than maxKeys.
func keysOf(exact bool, names ...string) *keySet {
	k := &keySet{exact: exact}
	for _, n := range names {
		if slices.Contains(k.names, n) {
			continue
		}
		if len(k.names) == maxKeys {
			return nil
		}
		for len(k.byLen) <= len(n) {
			k.byLen = append(k.byLen, nil)
		}
		k.byLen[len(n)] = append(k.byLen[len(n)], len(k.names))
		k.names = append(k.names, n)
	}
	return k
}

// find returns the number of the key with this JSON text (between its quotes),
// or -1.
func (k *keySet) find(text []byte) int {
	if len(text) < len(k.byLen) {
		for _, i := range k.byLen[len(text)] {
			if string(text) == k.names[i] || !k.exact && equalFold(text, k.names[i]) {
				return i
			}
		}
	}
	if bytes.IndexByte(text, '\\') < 0 {
		return -1
	}
	var plain string
	if json.Unmarshal(slices.Concat([]byte{'"'}, text, []byte{'"'}), &plain) != nil || strings.Contains(plain, `\`) {
		return -1
	}
	return k.find([]byte(plain))
}

// equalFold compares ASCII text of equal length.
func equalFold(a []byte, b string) bool {
	for i := range a {
		x, y := a[i], b[i]
		if 'A' <= x && x <= 'Z' {
			x |= 0x20
		}
		if 'A' <= y && y <= 'Z' {
			y |= 0x20
		}
		if x != y {
			return false
		}
	}
	return true
}

// scanned is what a walk over a JSON element found.
type scanned struct {
	// lone: there is an escaped half of a surrogate pair, which stands for no
	// character and decodes to U+FFFD.
	lone bool
	// unsound: there is an escape that JSON does not have, or a string that does
	// not end.
	unsound bool
	// problem is an object that has a key twice, or nesting beyond maxDepth. The
	// walk ends there.
	problem error
}

// scan walks over a JSON element from string to string, and looks for what
// sonic passes over: escapes in values that are skipped, keys given twice. The
// element must be valid UTF-8; on one that is not well-formed, problem has no
// meaning.
func scan(b []byte, keys *keySet) (s scanned) {
	var seen [maxDepth + 1]uint64 // by depth: keys of the open object
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			if depth++; depth > maxDepth {
				s.problem = bad(BadDepth, "", "is nested deeper than %d levels", maxDepth)
				return s
			}
			seen[depth] = 0
		case '}', ']':
			if depth--; depth < 0 {
				return s
			}
		case '"':
			start := i + 1
			end := s.text(b, start)
			if end < 0 {
				s.unsound = true
				return s
			}
			for i = end; i+1 < len(b) && (b[i+1] == ' ' || b[i+1] == '\n' || b[i+1] == '\t' || b[i+1] == '\r'); {
				i++
			}
			if i+1 == len(b) || b[i+1] != ':' {
				continue
			}
			if k := keys.find(b[start:end]); k >= 0 {
				if seen[depth]&(1<<k) != 0 {
					s.problem = bad(BadDuplicate, keys.names[k], "an object has the key twice (again at byte %d of the record): which of them counts is undefined", start)
					return s
				}
				seen[depth] |= 1 << k
			}
		}
	}
	return s
}

// text walks over the string that begins at b[i], and returns where its closing
// quote is, or -1 when it is unsound.
func (s *scanned) text(b []byte, i int) int {
	for {
		i = quoteOrEscape(b, i)
		if i+1 >= len(b) || b[i] == '"' {
			if i == len(b) || b[i] != '"' {
				return -1
			}
			return i
		}
		switch b[i+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			i += 2
		case 'u':
			u, ok := escapedUnit(b[i:])
			if !ok {
				return -1
			}
			i += 6
			switch {
			case u < 0xd800 || u > 0xdfff:
			case u > 0xdbff:
				s.lone = true // a low half with no high half before it
			default:
				if low, ok := escapedUnit(b[i:]); ok && low >= 0xdc00 && low <= 0xdfff {
					i += 6
				} else {
					s.lone = true
				}
			}
		default:
			return -1
		}
	}
}

// quoteOrEscape returns where the next quote or backslash is, from b[i] on; len(b) for
// none. It looks at eight bytes at a time: in real texts the next one is too near
// for bytes.IndexByte to pay.
func quoteOrEscape(b []byte, i int) int {
	const low, high = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(b); i += 8 {
		v := binary.LittleEndian.Uint64(b[i:])
		quote, back := v^(low*'"'), v^(low*'\\')
		// The lowest high bit set is that of the first byte that was equal.
		if hit := ((quote-low)&^quote | (back-low)&^back) & high; hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(b) && b[i] != '"' && b[i] != '\\'; i++ {
	}
	return i
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

// idText returns an id that is a string or a number, as it is spelled; empty
// when it is missing, null or empty.
func idText(field string, raw json.RawMessage) (string, error) {
	if len(raw) == 0 {
		return "", nil
	}
	v, err := anyValue(raw)
	if err != nil {
		return "", bad(BadType, field, "is not valid JSON: %v", err)
	}
	return idValue(field, v)
}

func idValue(field string, v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	}
	return "", bad(BadType, field, "want a string or a number, got %s", jsonKind(v))
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

// either returns the one of two fields of the same meaning that is there; both
// may be when they are equal.
func either(first string, a *string, second string, b *string) (field string, text *string, err error) {
	switch {
	case b == nil:
		return first, a, nil
	case a == nil:
		return second, b, nil
	case *a != *b:
		return first, nil, bad(BadAmbiguous, first, "differs from %q, which means the same: which of them counts is undefined", second)
	}
	return first, a, nil
}

// blank reports whether s has no visible text: white space, zero-width
// characters and byte-order marks only.
func blank(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool {
		return !unicode.IsSpace(r) && r != '\ufeff' && (r < '\u200b' || r > '\u200d') && r != '\u2060'
	}) < 0
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

// clip shortens text for a message.
func clip(s string) string { return clipTo(s, 40) }

func clipTo(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
