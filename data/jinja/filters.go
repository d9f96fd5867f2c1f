package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

type filterFunc func(s *state, line int, v value, a callArgs) value

// filters are those chat templates use. What Jinja2 has besides is refused when
// the template is read.
var filters map[string]filterFunc

func init() {
	noArgs := func(f func(s *state, line int, v value) value) filterFunc {
		return func(s *state, line int, v value, a callArgs) value {
			s.bind(line, "the filter", a)
			return f(s, line, v)
		}
	}
	mapText := func(f func(string) string) filterFunc {
		return noArgs(func(s *state, line int, v value) value { return s.str(line, v).mapped(s, line, f) })
	}
	end := func(pick func(items []value) value) filterFunc {
		return noArgs(func(s *state, line int, v value) value {
			if items := s.items(line, v); len(items) > 0 {
				return pick(items)
			}
			return undefined{"the item of an empty list"}
		})
	}
	length := noArgs(func(s *state, line int, v value) value { return int64(s.length(line, v)) })
	byDefault := func(s *state, line int, v value, a callArgs) value {
		b := s.bind(line, "default", a, "default_value", "boolean")
		_, absent := v.(undefined)
		if absent || truth(or(b[1], false)) && !truth(v) {
			return or(b[0], text{})
		}
		return v
	}
	filters = map[string]filterFunc{
		"trim": func(s *state, line int, v value, a callArgs) value {
			t := s.str(line, v)
			s.charge(line, len(t.s))
			return textMethods["strip"](s, line, t, callArgs{pos: a.pos, names: a.names, named: a.named})
		},
		"upper": mapText(upper), "lower": mapText(lower),
		"capitalize": noArgs(func(s *state, line int, v value) value { return asciiOnly(capitalize)(s, line, s.str(line, v)) }),
		"title":      noArgs(func(s *state, line int, v value) value { return asciiOnly(titleFilter)(s, line, s.str(line, v)) }),
		"length":     length, "count": length,
		"default": byDefault, "d": byDefault,
		"first":  end(func(items []value) value { return items[0] }),
		"last":   end(func(items []value) value { return items[len(items)-1] }),
		"string": noArgs(func(s *state, line int, v value) value { return s.str(line, v) }),
		"safe":   noArgs(func(s *state, line int, v value) value { return s.str(line, v) }),
		"list":   noArgs(func(s *state, line int, v value) value { return &list{items: s.items(line, v)} }),
		"items": noArgs(func(s *state, line int, v value) value {
			if _, ok := v.(undefined); ok {
				return &list{kind: kindIterator}
			}
			d, ok := v.(*dict)
			if !ok {
				s.fail(line, "items wants a dictionary, got %s", kindOf(v))
			}
			l := dictMethods["items"](s, line, d, callArgs{}).(*list)
			l.kind = kindIterator
			return l
		}),
		"join": func(s *state, line int, v value, a callArgs) value {
			b := s.bind(line, "join", a, "d", "attribute")
			items := s.items(line, v)
			if attr, ok := b[1].(text); ok {
				items = slices.Clone(items)
				for i := range items {
					items[i] = s.path(line, items[i], attr)
				}
			}
			return s.join(line, items, s.str(line, or(b[0], text{})), false)
		},
		"replace": func(s *state, line int, v value, a callArgs) value {
			b := s.bind(line, "replace", a, "old", "new", "count")
			n := int64(-1)
			if c := or(b[2], nil); c != nil {
				n = s.wantInt(line, "replace", c)
			}
			return s.replace(line, s.str(line, v), s.wantText(line, "replace", b[0]), s.wantText(line, "replace", b[1]), n)
		},
		"int":    toInt,
		"tojson": toJSON,
		"map":    mapFilter,
		"select": pickFilter(false, true), "reject": pickFilter(false, false),
		"selectattr": pickFilter(true, true), "rejectattr": pickFilter(true, false),
		"reverse": noArgs(func(s *state, line int, v value) value {
			if t, ok := v.(text); ok {
				var b builder
				for _, c := range slices.Backward(s.items(line, t)) {
					b.text(c.(text))
				}
				return b.done()
			}
			items := slices.Clone(s.items(line, v))
			slices.Reverse(items)
			return &list{items: items, kind: kindIterator}
		}),
		"indent":   indent,
		"dictsort": dictSort,
	}
}

// path is an attribute such as "function.name" of an item.
func (s *state) path(line int, v value, attr text) value {
	for _, part := range strings.Split(attr.s, ".") {
		if i, err := strconv.ParseInt(part, 10, 32); err == nil {
			v = s.item(line, v, i)
		} else {
			v = s.item(line, v, plainText(part))
		}
	}
	return v
}

func toInt(s *state, line int, v value, a callArgs) value {
	b := s.bind(line, "int", a, "default", "base")
	if _, ok := b[1].(missing); !ok {
		s.fail(line, "the filter int with a base is not supported")
	}
	switch v := v.(type) {
	case bool, int64:
		i, _, _, _ := number(v)
		return i
	case float64:
		if math.Abs(v) < 1<<62 {
			return int64(v)
		}
	case text:
		t := strings.ReplaceAll(Strip(v.s), "_", "")
		if i, err := strconv.ParseInt(t, 10, 64); err == nil {
			return i
		}
		if f, err := strconv.ParseFloat(t, 64); err == nil && math.Abs(f) < 1<<62 {
			return int64(f)
		}
	}
	return or(b[0], int64(0))
}

// mapFilter is map(attribute="a", default=d) or map("filter", …).
func mapFilter(s *state, line int, v value, a callArgs) value {
	out := &list{kind: kindIterator}
	if len(a.pos) == 0 {
		b := s.bind(line, "map", a, "attribute", "default")
		attr := s.wantText(line, "map", b[0])
		for _, it := range s.items(line, v) {
			it = s.path(line, it, attr)
			if _, absent := it.(undefined); absent {
				it = or(b[1], it)
			}
			out.items = append(out.items, it)
		}
		return out
	}
	name := s.wantText(line, "map", a.pos[0]).s
	f := filters[name]
	if f == nil {
		s.fail(line, "the filter %q is not supported", name)
	}
	a.pos = a.pos[1:]
	for _, it := range s.items(line, v) {
		s.step(line, 1)
		out.items = append(out.items, f(s, line, it, a))
	}
	return out
}

// pickFilter is select, reject and, with an attribute, selectattr, rejectattr.
func pickFilter(attr, keep bool) filterFunc {
	return func(s *state, line int, v value, a callArgs) value {
		var path text
		if attr {
			if len(a.pos) == 0 {
				s.fail(line, "the attribute is missing")
			}
			path, a.pos = s.wantText(line, "selectattr", a.pos[0]), a.pos[1:]
		}
		test := func(v value) bool { return truth(v) }
		if len(a.pos) > 0 {
			name := s.wantText(line, "select", a.pos[0]).s
			f := tests[name]
			if f == nil {
				s.fail(line, "the test %q is not supported", name)
			}
			rest := callArgs{pos: a.pos[1:], names: a.names, named: a.named}
			test = func(v value) bool { return f(s, line, v, rest) }
		}
		out := &list{kind: kindIterator}
		for _, it := range s.items(line, v) {
			s.step(line, 1)
			x := it
			if attr {
				x = s.path(line, it, path)
			}
			if test(x) == keep {
				out.items = append(out.items, it)
			}
		}
		return out
	}
}

func indent(s *state, line int, v value, a callArgs) value {
	b := s.bind(line, "indent", a, "width", "first", "blank")
	by := plainText("")
	switch w := or(b[0], int64(4)).(type) {
	case text:
		by = w
	case int64:
		by = s.repeat(line, plainText(" "), w).(text)
	default:
		s.fail(line, "indent wants a width, got %s", kindOf(w))
	}
	t := s.str(line, v)
	lines := joinTexts(t, plainText("\n")).lines()
	var out builder
	for i, l := range lines {
		if i > 0 {
			out.str("\n")
		}
		if i == 0 && truth(or(b[1], false)) || i > 0 && (l.s != "" || truth(or(b[2], false))) {
			out.text(by)
		}
		out.text(l)
		s.charge(line, len(l.s)+len(by.s)+1)
	}
	return out.done()
}

// folded is a sort key: strings without regard to case unless told.
func folded(v value, caseSensitive bool) value {
	if t, ok := v.(text); ok && !caseSensitive {
		return plainText(lower(t.s))
	}
	return v
}

func (s *state) sorted(line int, items []value, key func(value) value, reverse bool) []value {
	items = slices.Clone(items)
	s.step(line, 16*len(items))
	slices.SortStableFunc(items, func(x, y value) int {
		c := s.compare(line, key(x), key(y))
		if reverse {
			return -c
		}
		return c
	})
	return items
}

func dictSort(s *state, line int, v value, a callArgs) value {
	b := s.bind(line, "dictsort", a, "case_sensitive", "by", "reverse")
	d, ok := v.(*dict)
	if !ok {
		s.fail(line, "dictsort wants a dictionary, got %s", kindOf(v))
	}
	at := 0
	switch by := s.wantText(line, "dictsort", or(b[1], plainText("key"))).s; by {
	case "key":
	case "value":
		at = 1
	default:
		s.fail(line, "dictsort goes by \"key\" or \"value\", not %q", by)
	}
	pairs := dictMethods["items"](s, line, d, callArgs{}).(*list).items
	return &list{items: s.sorted(line, pairs, func(p value) value {
		return folded(p.(*list).items[at], truth(or(b[0], false)))
	}, truth(or(b[2], false)))}
}
