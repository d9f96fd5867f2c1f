package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode"
)

// value is a value of the template's language: undefined, nil (None), bool,
// int64, float64, text, *list, *dict, *namespace, *loop or *function.
type value any

type undefined struct{ what string }

type listKind uint8

const (
	kindList listKind = iota
	kindTuple
	kindView     // dict.items() and range(): has a length, no items by number
	kindIterator // what filters such as map give: only iterated over
)

type list struct {
	items []value
	kind  listKind
}

// dict keeps the order of its keys, which are texts.
type dict struct {
	keys   []text
	values map[string]value
}

func newDict() *dict { return &dict{values: map[string]value{}} }

func (d *dict) set(k text, v value) {
	if _, ok := d.values[k.s]; !ok {
		d.keys = append(d.keys, k)
	}
	d.values[k.s] = v
}

type namespace struct{ vars map[string]value }

type function struct {
	name string
	call func(s *state, line int, a callArgs) value
}

// callArgs are evaluated arguments.
type callArgs struct {
	pos   []value
	names []string
	named []value
}

// bind sorts the arguments to parameters by name; absent ones are nil
// interfaces of type missing.
type missing struct{}

func (s *state) bind(line int, what string, a callArgs, params ...string) []value {
	if len(a.pos) > len(params) {
		s.fail(line, "%s takes at most %d arguments, got %d", what, len(params), len(a.pos))
	}
	out := make([]value, len(params))
	for i := range out {
		out[i] = missing{}
	}
	copy(out, a.pos)
named:
	for i, n := range a.names {
		for k, p := range params {
			if p == n {
				if _, ok := out[k].(missing); !ok {
					s.fail(line, "%s got two values for %q", what, n)
				}
				out[k] = a.named[i]
				continue named
			}
		}
		s.fail(line, "%s takes no argument %q", what, n)
	}
	return out
}

// or returns v, or d if v is missing.
func or(v, d value) value {
	if _, ok := v.(missing); ok {
		return d
	}
	return v
}

func kindOf(v value) string {
	switch v := v.(type) {
	case undefined:
		return v.what + ", which is undefined"
	case nil:
		return "none"
	case bool:
		return "a boolean"
	case int64:
		return "an integer"
	case float64:
		return "a float"
	case text:
		return "a string"
	case *list:
		return "a list"
	case *dict:
		return "a dictionary"
	case *namespace:
		return "a namespace"
	}
	return "a function"
}

// truth is Python's bool(v).
func truth(v value) bool {
	switch v := v.(type) {
	case undefined, nil:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case text:
		return v.s != ""
	case *list:
		return v.kind == kindIterator || len(v.items) > 0
	case *dict:
		return len(v.keys) > 0
	}
	return true
}

// number returns v as Python's arithmetic takes it.
func number(v value) (i int64, f float64, isInt, ok bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, 1, true, true
		}
		return 0, 0, true, true
	case int64:
		return v, float64(v), true, true
	case float64:
		return 0, v, false, true
	}
	return 0, 0, false, false
}

// equal is Python's ==.
func (s *state) equal(a, b value) bool {
	if s.depth++; s.depth > maxDepth {
		s.fail(0, "values nested more than %d deep", maxDepth)
	}
	defer func() { s.depth-- }()
	s.step(0, 1)
	if i, f, isInt, ok := number(a); ok {
		j, g, isInt2, ok := number(b)
		return ok && (isInt && isInt2 && i == j || !(isInt && isInt2) && f == g)
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case undefined:
		_, ok := b.(undefined)
		return ok
	case text:
		b, ok := b.(text)
		s.look(len(a.s))
		return ok && a.s == b.s
	case *list:
		b, ok := b.(*list)
		if !ok || a.kind != b.kind || len(a.items) != len(b.items) {
			return false
		}
		if a.kind == kindIterator {
			return a == b
		}
		for i := range a.items {
			if !s.equal(a.items[i], b.items[i]) {
				return false
			}
		}
		return true
	case *dict:
		b, ok := b.(*dict)
		if !ok || len(a.keys) != len(b.keys) {
			return false
		}
		for k, v := range a.values {
			w, ok := b.values[k]
			if !ok || !s.equal(v, w) {
				return false
			}
		}
		return true
	}
	return a == b
}

// compare orders numbers and strings.
func (s *state) compare(line int, a, b value) int {
	if i, f, isInt, ok := number(a); ok {
		if j, g, isInt2, ok := number(b); ok {
			switch {
			case isInt && isInt2 && i < j, !(isInt && isInt2) && f < g:
				return -1
			case isInt && isInt2 && i == j, !(isInt && isInt2) && f == g:
				return 0
			}
			return 1
		}
	}
	if a, ok := a.(text); ok {
		if b, ok := b.(text); ok {
			s.look(len(a.s))
			return strings.Compare(a.s, b.s)
		}
	}
	s.fail(line, "can't order %s and %s", kindOf(a), kindOf(b))
	return 0
}

func (s *state) contains(line int, in, v value) bool {
	switch in := in.(type) {
	case undefined:
		return false
	case text:
		t, ok := v.(text)
		if !ok {
			s.fail(line, "can't look for %s in a string", kindOf(v))
		}
		s.look(len(in.s))
		return strings.Contains(in.s, t.s)
	case *list:
		s.step(line, len(in.items))
		for _, it := range in.items {
			if s.equal(it, v) {
				return true
			}
		}
		return false
	case *dict:
		t, ok := v.(text)
		_, has := in.values[t.s]
		return ok && has
	}
	s.fail(line, "can't look inside %s", kindOf(in))
	return false
}

// items returns what a loop over v goes through.
func (s *state) items(line int, v value) []value {
	switch v := v.(type) {
	case undefined:
		return nil
	case *list:
		s.step(line, len(v.items))
		return v.items
	case *dict:
		out := make([]value, len(v.keys))
		for i, k := range v.keys {
			out[i] = k
		}
		s.step(line, len(out))
		return out
	case text:
		var out []value
		for i, r := range v.s {
			out = append(out, v.sub(i, i+len(string(r))))
		}
		s.step(line, len(out))
		return out
	}
	s.fail(line, "%s can't be iterated over", kindOf(v))
	return nil
}

func (s *state) length(line int, v value) int {
	switch v := v.(type) {
	case undefined:
		return 0
	case text:
		s.look(len(v.s))
		return v.count()
	case *list:
		if v.kind != kindIterator {
			return len(v.items)
		}
	case *dict:
		return len(v.keys)
	}
	s.fail(line, "%s has no length", kindOf(v))
	return 0
}

// str is Python's str(v), as printing gives it.
func (s *state) str(line int, v value) text {
	switch v := v.(type) {
	case undefined:
		return text{}
	case text:
		return v
	}
	return s.repr(line, v)
}

func (s *state) repr(line int, v value) text {
	if s.depth++; s.depth > maxDepth {
		s.fail(line, "values nested more than %d deep", maxDepth)
	}
	defer func() { s.depth-- }()
	s.step(line, 1)
	switch v := v.(type) {
	case nil:
		return plainText("None")
	case bool:
		if v {
			return plainText("True")
		}
		return plainText("False")
	case int64:
		return plainText(strconv.FormatInt(v, 10))
	case float64:
		return plainText(floatRepr(v))
	case text:
		return s.quote(line, v)
	case *list:
		if v.kind > kindTuple {
			break
		}
		open, end := "[", "]"
		if v.kind == kindTuple {
			open, end = "(", ")"
			if len(v.items) == 1 {
				end = ",)"
			}
		}
		var b builder
		b.str(open)
		for i, it := range v.items {
			if i > 0 {
				b.str(", ")
			}
			b.text(s.repr(line, it))
		}
		b.str(end)
		s.charge(line, b.b.Len())
		return b.done()
	case *dict:
		var b builder
		b.str("{")
		for i, k := range v.keys {
			if i > 0 {
				b.str(", ")
			}
			b.text(s.quote(line, k))
			b.str(": ")
			b.text(s.repr(line, v.values[k.s]))
		}
		b.str("}")
		s.charge(line, b.b.Len())
		return b.done()
	}
	s.fail(line, "%s can't be printed", kindOf(v))
	return text{}
}

func floatRepr(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	sci := strconv.FormatFloat(f, 'e', -1, 64)
	exp, _ := strconv.Atoi(sci[strings.IndexByte(sci, 'e')+1:]) // FormatFloat's own
	if exp < -4 || exp >= 16 {
		return sci
	}
	out := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(out, ".") {
		out += ".0"
	}
	return out
}

// quote is Python's repr of a string.
func (s *state) quote(line int, t text) text {
	q := "'"
	if strings.Contains(t.s, "'") && !strings.Contains(t.s, `"`) {
		q = `"`
	}
	inner := t.escaped(s, line, func(r rune) string {
		switch {
		case r == '\\' || string(r) == q:
			return `\` + string(r)
		case r == '\n':
			return `\n`
		case r == '\r':
			return `\r`
		case r == '\t':
			return `\t`
		case r < 0x20 || r == 0x7f:
			return `\x` + hex(r, 2)
		case r > 0x7f && !unicode.IsPrint(r):
			s.fail(line, "the representation of U+%04X is not supported", r)
		}
		return ""
	})
	return joinTexts(plainText(q), inner, plainText(q))
}

// escaped replaces the characters for which f has something else; what stands
// for a character of the conversation is the conversation's.
func (t text) escaped(s *state, line int, f func(rune) string) text {
	var b builder
	at := 0
	for i, r := range t.s {
		e := f(r)
		if e == "" {
			continue
		}
		c := t.sub(i, i+len(string(r)))
		b.text(t.sub(at, i))
		o, _ := c.origin()
		b.text(withOrigin(e, o))
		at = i + len(string(r))
	}
	b.text(t.sub(at, len(t.s)))
	s.charge(line, b.b.Len())
	return b.done()
}

func hex(r rune, n int) string {
	h := strconv.FormatInt(int64(r), 16)
	return strings.Repeat("0", max(0, n-len(h))) + h
}
