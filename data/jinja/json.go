package jinja

import (
	"slices"
	"strings"
)

// toJSON is tojson as Hugging Face's library defines it: Python's json.dumps
// with ensure_ascii=False, no HTML escapes, keys in their order.
func toJSON(s *state, line int, v value, a callArgs) value {
	b := s.bind(line, "tojson", a, "ensure_ascii", "indent", "separators", "sort_keys")
	w := jsonWriter{s: s, line: line, item: ", ", key: ": ", ascii: truth(or(b[0], false)), sorted: truth(or(b[3], false))}
	if in := or(b[1], nil); in != nil {
		w.indented, w.item = true, ","
		switch in := in.(type) {
		case text:
			w.indent = in.s
		default:
			w.indent = strings.Repeat(" ", int(min(max(s.wantInt(line, "tojson", in), 0), 64)))
		}
	}
	if sep := or(b[2], nil); sep != nil {
		pair := s.items(line, sep)
		if len(pair) != 2 {
			s.fail(line, "separators are two strings")
		}
		w.item, w.key = s.wantText(line, "tojson", pair[0]).s, s.wantText(line, "tojson", pair[1]).s
	}
	w.value(v, 0)
	return w.b.done()
}

type jsonWriter struct {
	s                       *state
	line                    int
	b                       builder
	item, key, indent       string
	indented, ascii, sorted bool
}

func (w *jsonWriter) value(v value, depth int) {
	if depth > maxDepth {
		w.s.fail(w.line, "values nested more than %d deep", maxDepth)
	}
	w.s.step(w.line, 1)
	switch v := v.(type) {
	case nil:
		w.b.str("null")
	case bool:
		if v {
			w.b.str("true")
		} else {
			w.b.str("false")
		}
	case int64, float64:
		t := w.s.repr(w.line, v)
		if strings.ContainsAny(t.s, "in") && t.s != "inf" { // nan
			w.s.fail(w.line, "JSON has no %s", t.s)
		}
		w.b.text(t)
	case text:
		w.string(v)
	case *list:
		if v.kind > kindTuple {
			w.s.fail(w.line, "an iterator or view is no JSON")
		}
		w.group("[", "]", len(v.items), depth, func(i int) { w.value(v.items[i], depth+1) })
	case *dict:
		keys := v.keys
		if w.sorted {
			keys = slices.Clone(keys)
			slices.SortFunc(keys, func(a, b text) int { return strings.Compare(a.s, b.s) })
		}
		w.group("{", "}", len(keys), depth, func(i int) {
			w.string(keys[i])
			w.b.str(w.key)
			w.value(v.values[keys[i].s], depth+1)
		})
	default:
		w.s.fail(w.line, "%s is no JSON", kindOf(v))
	}
}

func (w *jsonWriter) group(open, end string, n, depth int, item func(i int)) {
	w.b.str(open)
	newline := func(depth int) {
		if w.indented {
			w.s.charge(w.line, 1+depth*len(w.indent))
			w.b.str("\n" + strings.Repeat(w.indent, depth))
		}
	}
	for i := range n {
		if i > 0 {
			w.b.str(w.item)
			w.s.charge(w.line, len(w.item))
		}
		newline(depth + 1)
		item(i)
	}
	if n > 0 {
		newline(depth)
	}
	w.b.str(end)
}

func (w *jsonWriter) string(t text) {
	w.b.str(`"`)
	w.b.text(t.escaped(w.s, w.line, func(r rune) string {
		switch r {
		case '"':
			return `\"`
		case '\\':
			return `\\`
		case '\n':
			return `\n`
		case '\r':
			return `\r`
		case '\t':
			return `\t`
		case '\b':
			return `\b`
		case '\f':
			return `\f`
		}
		switch {
		case r < 0x20:
			return `\u` + hex(r, 4)
		case w.ascii && r > 0xffff:
			r -= 0x10000
			return `\u` + hex(0xd800+r>>10, 4) + `\u` + hex(0xdc00+r&0x3ff, 4)
		case w.ascii && r >= 0x7f:
			return `\u` + hex(r, 4)
		}
		return ""
	}))
	w.b.str(`"`)
}
