package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// fieldPath is the way to a value inside a record: keys of objects and indices
// of arrays from 0, joined by dots, as in "turns.0.text". A backslash takes the
// meaning from a dot, a brace or a backslash behind it. Keys are compared with
// their case.
type fieldPath struct {
	text string   // as it was written
	keys []string // of one element at least
}

func parsePath(text string) (fieldPath, error) {
	p, rest, err := readPath(text, false)
	if err == nil && rest != "" {
		err = fmt.Errorf("a brace stands in the name %q", clip(text))
	}
	return p, err
}

// readPath parses a path up to the end of s or, inside braces, up to the closing
// brace; rest is what follows.
func readPath(s string, braces bool) (p fieldPath, rest string, err error) {
	var key strings.Builder
	i, closed := 0, false
scan:
	for ; i < len(s); i++ {
		switch c := s[i]; c {
		case '\\':
			if i+1 == len(s) || !strings.ContainsRune(`.{}\`, rune(s[i+1])) {
				return p, "", fmt.Errorf(`a backslash in %q stands before none of . { } \`, clip(s))
			}
			i++
			key.WriteByte(s[i])
		case '.':
			p.keys = append(p.keys, key.String())
			key.Reset()
		case '{', '}':
			closed = true
			break scan
		default:
			key.WriteByte(c)
		}
	}
	p.text, rest = s[:i], s[i:]
	p.keys = append(p.keys, key.String())
	switch {
	case closed && !braces:
		return p, rest, nil // for the caller to judge
	case closed && s[i] == '{':
		return p, "", fmt.Errorf("a brace is opened inside the braces of {%s", clip(s))
	case braces && !closed:
		return p, "", fmt.Errorf("the brace of {%s is not closed", clip(s))
	case p.text == "":
		return p, "", errors.New("a field has no name")
	case slices.Contains(p.keys, ""):
		return p, "", fmt.Errorf("the path %q has an empty part", clip(p.text))
	}
	if closed {
		rest = rest[1:]
	}
	return p, rest, nil
}

// of returns the value at the path; null is a value.
func (p fieldPath) of(v any) (any, error) {
	for i, key := range p.keys {
		switch in := v.(type) {
		case map[string]any:
			inner, ok := in[key]
			if !ok {
				return nil, bad(BadMissing, p.upTo(i+1), "is missing")
			}
			v = inner
		case []any:
			n, err := strconv.ParseUint(key, 10, 31)
			switch {
			case err != nil:
				return nil, bad(BadType, p.upTo(i), "is an array, and %q is not an index", clip(key))
			case n >= uint64(len(in)):
				return nil, bad(BadMissing, p.upTo(i+1), "is missing: the array has %d elements", len(in))
			}
			v = in[n]
		case nil:
			return nil, bad(BadMissing, p.upTo(i), "is null")
		default:
			return nil, bad(BadType, p.upTo(i), "want an object or an array, got %s", jsonKind(v))
		}
	}
	return v, nil
}

// upTo is the text of the path's first n parts.
func (p fieldPath) upTo(n int) string {
	if n == len(p.keys) {
		return p.text
	}
	return strings.Join(p.keys[:n], ".")
}

// fieldText is a text made of fields: either the name of one, or literal text
// with fields in braces, where {{ and }} stand for braces.
type fieldText struct {
	text  string
	parts []textPart
}

// textPart is literal text, or a field when the path has keys.
type textPart struct {
	literal string
	path    fieldPath
}

func parseText(text string) (fieldText, error) {
	t := fieldText{text: text}
	if !strings.ContainsAny(text, "{}") {
		p, err := parsePath(text)
		t.parts = []textPart{{path: p}}
		return t, err
	}
	var literal strings.Builder
	for rest := text; rest != ""; {
		c := rest[0]
		switch {
		case strings.HasPrefix(rest, "{{"), strings.HasPrefix(rest, "}}"):
			literal.WriteByte(c)
			rest = rest[2:]
		case c == '}':
			return t, errors.New("a closing brace has no opening one: write }} for a brace")
		case c == '{':
			p, after, err := readPath(rest[1:], true)
			if err != nil {
				return t, err
			}
			if literal.Len() > 0 {
				t.parts = append(t.parts, textPart{literal: literal.String()})
				literal.Reset()
			}
			t.parts = append(t.parts, textPart{path: p})
			rest = after
		default:
			literal.WriteByte(c)
			rest = rest[1:]
		}
	}
	if literal.Len() > 0 {
		t.parts = append(t.parts, textPart{literal: literal.String()})
	}
	return t, nil
}

// paths are the fields of the text.
func (t fieldText) paths() []fieldPath {
	var out []fieldPath
	for _, p := range t.parts {
		if p.path.keys != nil {
			out = append(out, p.path)
		}
	}
	return out
}

// of returns the text for a record. Numbers and booleans are spelled as in the
// source; a null field is missing.
func (t fieldText) of(v any) (string, error) {
	if len(t.parts) == 1 {
		return t.parts[0].of(v)
	}
	var b strings.Builder
	for _, p := range t.parts {
		s, err := p.of(v)
		if err != nil {
			return "", err
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

func (p textPart) of(v any) (string, error) {
	if p.path.keys == nil {
		return p.literal, nil
	}
	field, err := p.path.of(v)
	if err != nil {
		return "", err
	}
	if field == nil {
		return "", bad(BadMissing, p.path.text, "is null")
	}
	return spelled(p.path.text, field)
}

// spelled is a string, or a number or boolean as the source spells it.
func spelled(at string, v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	}
	return "", bad(BadType, at, "want a text, got %s", jsonKind(v))
}
