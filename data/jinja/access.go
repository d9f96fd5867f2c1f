package jinja

import (
	"slices"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// attr is x.name: a method or, of a dictionary, an item.
func (s *state) attr(line int, x value, name string) value {
	switch x := x.(type) {
	case undefined:
		s.fail(line, "%s is undefined and has no %q", x.what, name)
	case *namespace:
		if v, ok := x.vars[name]; ok {
			return v
		}
	case *loop:
		if v, ok := s.loopAttr(line, x, name); ok {
			return v
		}
	case *dict:
		if m := dictMethods[name]; m != nil {
			return &function{name, func(s *state, line int, a callArgs) value { return m(s, line, x, a) }}
		}
		if slices.Contains(unsupportedDict, name) {
			s.fail(line, "the method %q of dictionaries is not supported", name)
		}
		if v, ok := x.values[name]; ok {
			return v
		}
	case text:
		if m := textMethods[name]; m != nil {
			s.look(len(x.s)) // before the call, which is certain to follow or fail
			return &function{name, func(s *state, line int, a callArgs) value { return m(s, line, x, a) }}
		}
		if slices.Contains(unsupportedText, name) {
			s.fail(line, "the method %q of strings is not supported", name)
		}
	case *list:
		if slices.Contains(unsupportedList, name) {
			s.fail(line, "the method %q of lists is not supported", name)
		}
	}
	return undefined{name}
}

// item is x[key].
func (s *state) item(line int, x, key value) value {
	if u, ok := x.(undefined); ok {
		s.fail(line, "%s is undefined and has no items", u.what)
	}
	if b, ok := key.(bool); ok {
		key = int64(0)
		if b {
			key = int64(1)
		}
	}
	switch k := key.(type) {
	case text:
		if d, ok := x.(*dict); ok {
			if v, ok := d.values[k.s]; ok {
				return v
			}
		}
		return s.attr(line, x, k.s)
	case int64:
		var n int
		switch x := x.(type) {
		case text:
			s.look(len(x.s))
			n = x.count()
		case *list:
			if x.kind > kindTuple {
				s.fail(line, "items by number of an iterator or view are not supported")
			}
			n = len(x.items)
		default:
			return undefined{"the item"}
		}
		if k < 0 {
			k += int64(n)
		}
		if k < 0 || k >= int64(n) {
			return undefined{"an item behind the end"}
		}
		if t, ok := x.(text); ok {
			return t.sub(t.offset(int(k)), t.offset(int(k)+1))
		}
		return x.(*list).items[k]
	}
	return undefined{"the item"}
}

func (s *state) slice(x *sliceExpr) value {
	v := s.eval(x.x)
	n := 0
	switch v := v.(type) {
	case text:
		s.look(len(v.s))
		n = v.count()
	case *list:
		n = len(v.items)
		s.step(x.line, n)
		if v.kind > kindTuple {
			s.fail(x.line, "an iterator or view can't be sliced")
		}
	case undefined:
		s.fail(x.line, "%s", kindOf(v))
	default:
		return undefined{"the slice"}
	}
	part := func(e expr, def int) int {
		if e == nil {
			return def
		}
		switch p := s.eval(e).(type) {
		case nil:
			return def
		case int64:
			return int(min(max(p, -1<<40), 1<<40))
		default:
			s.fail(x.line, "a slice wants integers, got %s", kindOf(p))
		}
		return 0
	}
	const none = 1 << 50
	step := part(x.step, 1)
	if step == 0 {
		s.fail(x.line, "the step of a slice can't be zero")
	}
	clamp := func(i, def int) int {
		if i == none {
			return def
		}
		lo, hi := 0, n
		if step < 0 {
			lo, hi = -1, n-1
		}
		if i < 0 {
			i += n
		}
		return min(max(i, lo), hi)
	}
	start, stop := clamp(part(x.start, none), 0), clamp(part(x.stop, none), n)
	if step < 0 {
		start, stop = clamp(part(x.start, none), n-1), clamp(part(x.stop, none), -1)
	}
	if t, ok := v.(text); ok && step == 1 {
		return t.sub(t.offset(start), t.offset(max(start, stop)))
	}
	var at []int
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		at = append(at, i)
	}
	if l, ok := v.(*list); ok {
		out := &list{kind: l.kind}
		for _, i := range at {
			out.items = append(out.items, l.items[i])
		}
		return out
	}
	t := v.(text)
	s.step(x.line, n)
	chars := s.items(x.line, t)
	var b builder
	for _, i := range at {
		b.text(chars[i].(text))
	}
	return b.done()
}

func (s *state) loopAttr(line int, l *loop, name string) (value, bool) {
	n := len(l.items)
	near := func(i int) value {
		if i < 0 || i >= n {
			return undefined{"the item beside the loop's"}
		}
		return l.items[i]
	}
	switch name {
	case "index":
		return int64(l.index + 1), true
	case "index0":
		return int64(l.index), true
	case "revindex":
		return int64(n - l.index), true
	case "revindex0":
		return int64(n - l.index - 1), true
	case "first":
		return l.index == 0, true
	case "last":
		return l.index == n-1, true
	case "length":
		return int64(n), true
	case "depth":
		return int64(1), true // of recursion, which there is none of
	case "depth0":
		return int64(0), true
	case "previtem":
		return near(l.index - 1), true
	case "nextitem":
		return near(l.index + 1), true
	case "cycle":
		return &function{name, func(s *state, line int, a callArgs) value {
			if len(a.pos) == 0 || len(a.named) > 0 {
				s.fail(line, "loop.cycle wants values")
			}
			return a.pos[l.index%len(a.pos)]
		}}, true
	case "changed":
		s.fail(line, "loop.changed is not supported")
	}
	return nil, false
}

type dictMethod func(s *state, line int, d *dict, a callArgs) value

var dictMethods = map[string]dictMethod{
	"items": func(s *state, line int, d *dict, a callArgs) value {
		s.bind(line, "items", a)
		out := &list{kind: kindView}
		s.step(line, len(d.keys))
		for _, k := range d.keys {
			out.items = append(out.items, &list{items: []value{k, d.values[k.s]}, kind: kindTuple})
		}
		return out
	},
	"keys": func(s *state, line int, d *dict, a callArgs) value {
		s.bind(line, "keys", a)
		return &list{items: s.items(line, d), kind: kindView}
	},
	"values": func(s *state, line int, d *dict, a callArgs) value {
		s.bind(line, "values", a)
		out := &list{kind: kindView}
		s.step(line, len(d.keys))
		for _, k := range d.keys {
			out.items = append(out.items, d.values[k.s])
		}
		return out
	},
	"get": func(s *state, line int, d *dict, a callArgs) value {
		b := s.bind(line, "get", a, "key", "default")
		if k, ok := b[0].(text); ok {
			if v, ok := d.values[k.s]; ok {
				return v
			}
		}
		return or(b[1], nil)
	},
}

// Methods Python has and templates could ask for; to give nothing for them, as
// for an unknown name, would be wrong.
var (
	unsupportedDict = []string{"clear", "copy", "fromkeys", "pop", "popitem", "setdefault", "update"}
	unsupportedList = []string{"append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"}
	unsupportedText = []string{"casefold", "center", "encode", "expandtabs", "format", "format_map", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit",
		"isidentifier", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper", "ljust", "maketrans", "partition", "rindex", "rjust",
		"rpartition", "swapcase", "translate", "zfill"}
)

type textMethod func(s *state, line int, t text, a callArgs) value

var textMethods map[string]textMethod

func init() {
	trim := func(left, right bool) textMethod {
		return func(s *state, line int, t text, a callArgs) value {
			s.charge(line, len(t.s))
			f := isSpace
			if c := or(s.bind(line, "strip", a, "chars")[0], nil); c != nil {
				set := s.wantText(line, "strip", c).s
				f = func(r rune) bool { return strings.ContainsRune(set, r) }
			}
			if left {
				t = t.trimLeft(f)
			}
			if right {
				t = t.trimRight(f)
			}
			return t
		}
	}
	mapped := func(f func(string) string) textMethod {
		return func(s *state, line int, t text, a callArgs) value {
			s.bind(line, "the method", a)
			return t.mapped(s, line, f)
		}
	}
	cased := func(f func(string) string) textMethod {
		f2 := asciiOnly(f)
		return func(s *state, line int, t text, a callArgs) value {
			s.bind(line, "the method", a)
			return f2(s, line, t)
		}
	}
	affix := func(has func(s, affix string) bool) textMethod {
		return func(s *state, line int, t text, a callArgs) value {
			v := s.bind(line, "the method", a, "prefix")[0]
			if l, ok := v.(*list); ok && l.kind == kindTuple {
				for _, it := range l.items {
					if has(t.s, s.wantText(line, "the method", it).s) {
						return true
					}
				}
				return false
			}
			return has(t.s, s.wantText(line, "the method", v).s)
		}
	}
	split := func(right bool) textMethod {
		return func(s *state, line int, t text, a callArgs) value {
			b := s.bind(line, "split", a, "sep", "maxsplit")
			n := int(min(s.wantInt(line, "split", or(b[1], int64(-1))), 1<<30))
			var parts []text
			switch sep := or(b[0], nil).(type) {
			case nil:
				if right && n >= 0 {
					s.fail(line, "rsplit without a separator but with a limit is not supported")
				}
				parts = t.fields(n)
			default:
				by := s.wantText(line, "split", sep).s
				if by == "" {
					s.fail(line, "an empty separator")
				}
				if right {
					parts = t.cutRight(by, n)
				} else {
					parts = t.cut(by, n)
				}
			}
			s.charge(line, len(t.s))
			return textList(s, line, parts)
		}
	}
	textMethods = map[string]textMethod{
		"strip": trim(true, true), "lstrip": trim(true, false), "rstrip": trim(false, true),
		"upper": mapped(upper), "lower": mapped(lower), "title": cased(titleMethod), "capitalize": cased(capitalize),
		"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix),
		"split": split(false), "rsplit": split(true),
		"removeprefix": func(s *state, line int, t text, a callArgs) value {
			p := s.wantText(line, "removeprefix", s.bind(line, "removeprefix", a, "prefix")[0]).s
			return t.sub(len(t.s)-len(strings.TrimPrefix(t.s, p)), len(t.s))
		},
		"removesuffix": func(s *state, line int, t text, a callArgs) value {
			p := s.wantText(line, "removesuffix", s.bind(line, "removesuffix", a, "suffix")[0]).s
			return t.sub(0, len(strings.TrimSuffix(t.s, p)))
		},
		"splitlines": func(s *state, line int, t text, a callArgs) value {
			s.bind(line, "splitlines", a)
			s.charge(line, len(t.s))
			return textList(s, line, t.lines())
		},
		"replace": func(s *state, line int, t text, a callArgs) value {
			b := s.bind(line, "replace", a, "old", "new", "count")
			return s.replace(line, t, s.wantText(line, "replace", b[0]), s.wantText(line, "replace", b[1]), s.wantInt(line, "replace", or(b[2], int64(-1))))
		},
		"join": func(s *state, line int, t text, a callArgs) value {
			return s.join(line, s.items(line, s.bind(line, "join", a, "iterable")[0]), t, true)
		},
		"find": func(s *state, line int, t text, a callArgs) value {
			return index(t, strings.Index(t.s, s.wantText(line, "find", s.bind(line, "find", a, "sub")[0]).s))
		},
		"rfind": func(s *state, line int, t text, a callArgs) value {
			return index(t, strings.LastIndex(t.s, s.wantText(line, "rfind", s.bind(line, "rfind", a, "sub")[0]).s))
		},
		"index": func(s *state, line int, t text, a callArgs) value {
			i := strings.Index(t.s, s.wantText(line, "index", s.bind(line, "index", a, "sub")[0]).s)
			if i < 0 {
				s.fail(line, "substring not found")
			}
			return index(t, i)
		},
		"count": func(s *state, line int, t text, a callArgs) value {
			return int64(strings.Count(t.s, s.wantText(line, "count", s.bind(line, "count", a, "sub")[0]).s))
		},
	}
}

func index(t text, at int) value {
	if at < 0 {
		return int64(-1)
	}
	return int64(t.sub(0, at).count())
}

func textList(s *state, line int, parts []text) *list {
	s.step(line, len(parts))
	l := &list{items: make([]value, len(parts))}
	for i, p := range parts {
		l.items[i] = p
	}
	return l
}

// lines is Python's splitlines.
func (t text) lines() []text {
	var out []text
	at := 0
	for i, r := range t.s {
		if i < at || !strings.ContainsRune("\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029", r) {
			continue
		}
		out = append(out, t.sub(at, i))
		at = i + len(string(r))
		if r == '\r' && strings.HasPrefix(t.s[at:], "\n") {
			at++
		}
	}
	if at < len(t.s) {
		out = append(out, t.sub(at, len(t.s)))
	}
	return out
}

func (s *state) replace(line int, t, old, with text, count int64) text {
	n := int(min(count, 1<<30))
	if old.s == "" {
		s.fail(line, "to replace the empty string is not supported")
	}
	parts := t.cut(old.s, n)
	s.charge(line, len(t.s)+len(parts)*len(with.s))
	var b builder
	for i, p := range parts {
		if i > 0 {
			b.text(with)
		}
		b.text(p)
	}
	return b.done()
}

// join joins values; strict ones must be strings.
func (s *state) join(line int, items []value, sep text, strict bool) text {
	var b builder
	for i, it := range items {
		if i > 0 {
			b.text(sep)
			s.charge(line, len(sep.s))
		}
		t, ok := it.(text)
		if !ok {
			if strict {
				s.fail(line, "join wants strings, got %s", kindOf(it))
			}
			t = s.str(line, it)
		}
		s.charge(line, len(t.s))
		b.text(t)
	}
	return b.done()
}

func (s *state) wantText(line int, what string, v value) text {
	t, ok := v.(text)
	if !ok {
		if _, absent := v.(missing); absent {
			s.fail(line, "%s wants another argument", what)
		}
		s.fail(line, "%s wants a string, got %s", what, kindOf(v))
	}
	return t
}

func (s *state) wantInt(line int, what string, v value) int64 {
	i, _, isInt, _ := number(v)
	if !isInt {
		s.fail(line, "%s wants an integer, got %s", what, kindOf(v))
	}
	return i
}

// upper and lower are Python's, with the mappings of one character to several
// and the sigma at the end of a word.
func upper(s string) string { return cases.Upper(language.Und).String(s) }
func lower(s string) string { return cases.Lower(language.Und).String(s) }

// asciiOnly guards what is known of ASCII alone.
func asciiOnly(f func(string) string) func(*state, int, text) text {
	return func(s *state, line int, t text) text {
		if !isASCII(t.s) {
			s.fail(line, "title case of letters outside of ASCII is not supported")
		}
		return t.mapped(s, line, f)
	}
}

func capitalize(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + strings.ToLower(s[1:])
}

// titled makes the letters behind those that part accepts upper case, and
// others lower case.
func titled(s string, part func(c byte) bool) string {
	b := []byte(strings.ToLower(s))
	for i := range b {
		if (i == 0 || part(s[i-1])) && b[i] >= 'a' && b[i] <= 'z' {
			b[i] -= 'a' - 'A'
		}
	}
	return string(b)
}

// titleMethod is Python's str.title.
func titleMethod(s string) string {
	return titled(s, func(c byte) bool { return c|0x20 < 'a' || c|0x20 > 'z' })
}

// titleFilter is Jinja2's.
func titleFilter(s string) string {
	return titled(s, func(c byte) bool { return isSpace(rune(c)) || strings.IndexByte("-({[<", c) >= 0 })
}
