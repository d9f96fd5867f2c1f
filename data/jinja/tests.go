package jinja

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

type testFunc func(s *state, line int, v value, a callArgs) bool

// tests are those of `is`, and of select and its like.
var tests map[string]testFunc

func init() {
	is := func(f func(v value) bool) testFunc {
		return func(s *state, line int, v value, a callArgs) bool {
			s.bind(line, "the test", a)
			return f(v)
		}
	}
	with := func(f func(s *state, line int, v, other value) bool) testFunc {
		return func(s *state, line int, v value, a callArgs) bool {
			b := s.bind(line, "the test", a, "other")
			if _, absent := b[0].(missing); absent {
				s.fail(line, "the test wants a value to compare with")
			}
			return f(s, line, v, b[0])
		}
	}
	ordered := func(ok func(c int) bool) testFunc {
		return with(func(s *state, line int, v, other value) bool { return ok(s.compare(line, v, other)) })
	}
	isUndefined := is(func(v value) bool { _, ok := v.(undefined); return ok })
	eq := with(func(s *state, _ int, v, other value) bool { return s.equal(v, other) })
	ne := with(func(s *state, _ int, v, other value) bool { return !s.equal(v, other) })
	lt, le := ordered(func(c int) bool { return c < 0 }), ordered(func(c int) bool { return c <= 0 })
	gt, ge := ordered(func(c int) bool { return c > 0 }), ordered(func(c int) bool { return c >= 0 })
	remainder := func(n int64, want int64) testFunc {
		return func(s *state, line int, v value, a callArgs) bool {
			s.bind(line, "the test", a)
			return (s.wantInt(line, "the test", v)%n+n)%n == want
		}
	}
	tests = map[string]testFunc{
		"defined":   func(s *state, line int, v value, a callArgs) bool { return !isUndefined(s, line, v, a) },
		"undefined": isUndefined,
		"none":      is(func(v value) bool { return v == nil }),
		"true":      is(func(v value) bool { return v == true }),
		"false":     is(func(v value) bool { return v == false }),
		"boolean":   is(func(v value) bool { _, ok := v.(bool); return ok }),
		"integer":   is(func(v value) bool { _, ok := v.(int64); return ok }),
		"float":     is(func(v value) bool { _, ok := v.(float64); return ok }),
		"number":    is(func(v value) bool { _, _, _, ok := number(v); return ok }),
		"string":    is(func(v value) bool { _, ok := v.(text); return ok }),
		"mapping":   is(func(v value) bool { _, ok := v.(*dict); return ok }),
		"sequence": is(func(v value) bool {
			switch v := v.(type) {
			case text, *dict, undefined:
				return true
			case *list:
				return v.kind <= kindTuple
			}
			return false
		}),
		"iterable": is(func(v value) bool {
			switch v.(type) {
			case text, *dict, *list, undefined:
				return true
			}
			return false
		}),
		"callable": is(func(v value) bool { _, ok := v.(*function); return ok }),
		"lower":    is(func(v value) bool { t, ok := v.(text); return ok && cased(t.s, unicode.IsUpper) }),
		"upper":    is(func(v value) bool { t, ok := v.(text); return ok && cased(t.s, unicode.IsLower) }),
		"equalto":  eq, "eq": eq, "ne": ne,
		"lt": lt, "lessthan": lt, "le": le, "gt": gt, "greaterthan": gt, "ge": ge,
		"in":   with(func(s *state, line int, v, other value) bool { return s.contains(line, other, v) }),
		"odd":  remainder(2, 1),
		"even": remainder(2, 0),
		"divisibleby": with(func(s *state, line int, v, other value) bool {
			n := s.wantInt(line, "divisibleby", other)
			if n == 0 {
				s.fail(line, "division by zero")
			}
			return s.wantInt(line, "divisibleby", v)%n == 0
		}),
		"sameas": with(func(s *state, line int, v, other value) bool {
			switch v.(type) {
			case nil, bool:
				return v == other
			}
			s.fail(line, "the test sameas is supported for none, true and false alone")
			return false
		}),
	}
	for op, name := range map[string]string{"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"} {
		tests[op] = tests[name] // for select and its like
	}
}

// cased reports whether s has letters with case and none of those not wanted.
func cased(s string, not func(rune) bool) bool {
	any := false
	for _, r := range s {
		if not(r) || unicode.IsTitle(r) {
			return false
		}
		any = any || unicode.IsUpper(r) || unicode.IsLower(r)
	}
	return any
}

// globals are the functions every template can call.
var globals map[string]value

func init() {
	globals = map[string]value{}
	for _, f := range []*function{
		{"range", func(s *state, line int, a callArgs) value {
			b := s.bind(line, "range", a, "start", "stop", "step")
			lo, hi, step := int64(0), s.wantInt(line, "range", b[0]), int64(1)
			if _, absent := b[1].(missing); !absent {
				lo, hi = hi, s.wantInt(line, "range", b[1])
				step = s.wantInt(line, "range", or(b[2], int64(1)))
			}
			if step == 0 {
				s.fail(line, "range wants a step other than zero")
			}
			out := &list{kind: kindView}
			for i := lo; step > 0 && i < hi || step < 0 && i > hi; i += step {
				if len(out.items) == 100_000 { // Jinja2's sandbox has the same limit
					s.fail(line, "a range of more than 100000 numbers")
				}
				out.items = append(out.items, i)
			}
			s.step(line, len(out.items))
			return out
		}},
		{"namespace", func(s *state, line int, a callArgs) value {
			ns := &namespace{vars: map[string]value{}}
			for _, v := range a.pos {
				d, ok := v.(*dict)
				if !ok || len(a.pos) > 1 {
					s.fail(line, "namespace wants named values")
				}
				for k, v := range d.values {
					ns.vars[k] = v
				}
			}
			for i, n := range a.names {
				ns.vars[n] = a.named[i]
			}
			return ns
		}},
		{"dict", func(s *state, line int, a callArgs) value {
			if len(a.pos) > 0 {
				s.fail(line, "dict with positional arguments is not supported")
			}
			d := newDict()
			for i, n := range a.names {
				d.set(plainText(n), a.named[i])
			}
			return d
		}},
		{"raise_exception", func(s *state, line int, a callArgs) value {
			m := s.str(line, s.bind(line, "raise_exception", a, "message")[0])
			panic(&Error{Name: s.t.name, Line: line, Reason: m.s, Raised: true})
		}},
		{"strftime_now", func(s *state, line int, a callArgs) value {
			return plainText(s.strftime(line, s.wantText(line, "strftime_now", s.bind(line, "strftime_now", a, "format")[0]).s))
		}},
	} {
		globals[f.name] = f
	}
}

// clock is the time strftime_now tells.
type clock = time.Time

func (s *state) strftime(line int, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		layout, ok := map[byte]string{'d': "02", 'm': "01", 'Y': "2006", 'y': "06", 'b': "Jan", 'B': "January", 'a': "Mon", 'A': "Monday",
			'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM"}[format[i]]
		switch {
		case ok:
			b.WriteString(s.now.Format(layout))
		case format[i] == 'j':
			fmt.Fprintf(&b, "%03d", s.now.YearDay())
		case format[i] == '%':
			b.WriteByte('%')
		default:
			s.fail(line, "%%%c in a date format is not supported", format[i])
		}
	}
	return b.String()
}
