package jinja

import (
	"math"
	"slices"
	"strings"
)

// state is one rendering.
type state struct {
	t     *Template
	scope *scope
	out   *builder
	root  *builder // of the template itself
	now   clock

	generated []Range
	steps     int
	bytes     int
	depth     int
}

type scope struct {
	vars map[string]value
	up   *scope
}

func (s *state) fail(line int, format string, args ...any) { fail(s.t.name, line, format, args...) }

// step counts n units of work.
func (s *state) step(line, n int) {
	if s.steps -= n; s.steps < 0 {
		s.fail(line, "takes more steps than a template may")
	}
}

// look counts a look at n bytes of text.
func (s *state) look(n int) { s.step(0, n/64) }

// charge counts n bytes of text made.
func (s *state) charge(line, n int) {
	if n < 0 || n > s.bytes {
		s.fail(line, "makes more text than a template may")
	}
	s.bytes -= n
}

func (s *state) push() func() {
	old := s.scope
	s.scope = &scope{vars: map[string]value{}, up: old}
	return func() { s.scope = old }
}

func (s *state) lookup(name string) (value, bool) {
	for sc := s.scope; sc != nil; sc = sc.up {
		if v, ok := sc.vars[name]; ok {
			return v, true
		}
	}
	v, ok := globals[name]
	return v, ok
}

// captured runs f with its output going to a text of its own.
func (s *state) captured(f func()) text {
	old := s.out
	s.out = &builder{}
	f()
	t := s.out.done()
	s.out = old
	return t
}

// flow is how a statement ended.
type flow uint8

const (
	flowOn flow = iota
	flowBreak
	flowContinue
)

func (s *state) run(body []stmt) flow {
	for _, st := range body {
		s.step(0, 1)
		if f := s.exec(st); f != flowOn {
			return f
		}
	}
	return flowOn
}

func (s *state) exec(st stmt) flow {
	switch st := st.(type) {
	case *dataStmt:
		s.charge(0, len(st.text))
		s.out.str(st.text)
	case *printStmt:
		t := s.str(st.line, s.eval(st.x))
		s.charge(st.line, len(t.s))
		s.out.text(t)
	case *ifStmt:
		if truth(s.eval(st.cond)) {
			return s.run(st.then)
		}
		return s.run(st.orElse)
	case *forStmt:
		return s.loop(st)
	case *setStmt:
		s.assign(st.line, st.target, s.eval(st.value))
	case *setBlockStmt:
		pop := s.push()
		t := s.captured(func() { s.run(st.body) })
		pop()
		var v value = t
		for _, f := range st.filters {
			v = f.fn(s, f.line, v, s.args(f.args))
		}
		s.assign(st.line, st.target, v)
	case *macroStmt:
		s.scope.vars[st.name] = s.macro(st)
	case *generationStmt:
		s.generation(st)
	case *loopStmt:
		if st.brk {
			return flowBreak
		}
		return flowContinue
	}
	return flowOn
}

func (s *state) generation(st *generationStmt) {
	if s.out != s.root {
		s.fail(0, "{%% generation %%} inside a macro or a set block is not supported")
	}
	start := s.root.b.Len()
	pop := s.push()
	s.run(st.body)
	pop()
	s.generated = append(s.generated, Range{start, s.root.b.Len()})
}

func (s *state) assign(line int, t target, v value) {
	if t.parts != nil {
		items := s.items(line, v)
		if len(items) != len(t.parts) {
			s.fail(line, "can't take %d values apart into %d", len(items), len(t.parts))
		}
		for i, p := range t.parts {
			s.assign(line, p, items[i])
		}
		return
	}
	if t.attr == "" {
		s.scope.vars[t.name] = v
		return
	}
	held, _ := s.lookup(t.name)
	ns, ok := held.(*namespace)
	if !ok {
		s.fail(line, "%q is not a namespace: attributes can't be set on anything else", t.name)
	}
	ns.vars[t.attr] = v
}

// loop is the variable of that name inside a loop.
type loop struct {
	index int // of the current item, from 0
	items []value
}

func (s *state) loop(st *forStmt) flow {
	items := s.items(st.line, s.eval(st.over))
	if st.filter != nil {
		kept := make([]value, 0, len(items))
		for _, it := range items {
			s.step(st.line, 1)
			pop := s.push()
			s.assign(st.line, st.target, it)
			if truth(s.eval(st.filter)) {
				kept = append(kept, it)
			}
			pop()
		}
		items = kept
	}
	if len(items) == 0 {
		defer s.push()()
		return s.run(st.orElse)
	}
	l := &loop{items: items}
	for i, it := range items {
		s.step(st.line, 1)
		l.index = i
		pop := s.push()
		s.scope.vars["loop"] = l
		s.assign(st.line, st.target, it)
		f := s.run(st.body)
		pop()
		if f == flowBreak {
			break
		}
	}
	return flowOn
}

func (s *state) macro(st *macroStmt) *function {
	defined := s.scope
	return &function{name: st.name, call: func(s *state, line int, a callArgs) value {
		if s.depth++; s.depth > maxDepth {
			s.fail(line, "macros call each other more than %d deep", maxDepth)
		}
		vals := s.bind(line, "the macro "+st.name, a, st.params...)
		scope := s.scope
		s.scope = defined
		pop := s.push()
		first := len(st.params) - len(st.defaults)
		for i, name := range st.params {
			if _, ok := vals[i].(missing); !ok {
				s.scope.vars[name] = vals[i]
			} else if i >= first {
				s.scope.vars[name] = s.eval(st.defaults[i-first])
			} else {
				s.scope.vars[name] = undefined{name}
			}
		}
		t := s.captured(func() { s.run(st.body) })
		pop()
		s.scope = scope
		s.depth--
		return t
	}}
}

func (s *state) args(a args) callArgs {
	c := callArgs{names: a.names}
	for _, x := range a.pos {
		c.pos = append(c.pos, s.eval(x))
	}
	for _, x := range a.named {
		c.named = append(c.named, s.eval(x))
	}
	return c
}

func (s *state) eval(x expr) value {
	switch x := x.(type) {
	case *constExpr:
		return x.v
	case *nameExpr:
		if v, ok := s.lookup(x.name); ok {
			return v
		}
		switch x.name {
		case "self", "caller", "varargs", "kwargs":
			s.fail(x.line, "the name %q is not supported", x.name)
		}
		return undefined{x.name}
	case *listExpr:
		s.step(x.line, len(x.items))
		l := &list{items: make([]value, len(x.items))}
		if x.tuple {
			l.kind = kindTuple
		}
		for i, it := range x.items {
			l.items[i] = s.eval(it)
		}
		return l
	case *dictExpr:
		d := newDict()
		for i, k := range x.keys {
			key, ok := s.eval(k).(text)
			if !ok {
				s.fail(x.line, "keys of a dictionary other than strings are not supported")
			}
			d.set(key, s.eval(x.values[i]))
		}
		return d
	case *condExpr:
		switch {
		case truth(s.eval(x.cond)):
			return s.eval(x.then)
		case x.orElse != nil:
			return s.eval(x.orElse)
		}
		return undefined{"the missing else"}
	case *logicExpr:
		if v := s.eval(x.left); truth(v) == x.or {
			return v
		}
		return s.eval(x.right)
	case *notExpr:
		return !truth(s.eval(x.x))
	case *compareExpr:
		return s.comparison(x)
	case *binaryExpr:
		return s.binary(x)
	case *concatExpr:
		parts := make([]text, len(x.parts))
		n := 0
		for i, p := range x.parts {
			parts[i] = s.str(x.line, s.eval(p))
			n += len(parts[i].s)
		}
		s.charge(x.line, n)
		return joinTexts(parts...)
	case *signExpr:
		v := s.eval(x.x)
		i, f, isInt, ok := number(v)
		switch {
		case !ok:
			s.fail(x.line, "%s has no sign", kindOf(v))
		case isInt && x.neg:
			return -i
		case isInt:
			return i
		case x.neg:
			return -f
		}
		return f
	case *attrExpr:
		return s.attr(x.line, s.eval(x.x), x.name)
	case *itemExpr:
		return s.item(x.line, s.eval(x.x), s.eval(x.key))
	case *sliceExpr:
		return s.slice(x)
	case *callExpr:
		s.step(x.line, 1)
		fn := s.eval(x.fn)
		f, ok := fn.(*function)
		if !ok {
			s.fail(x.line, "%s can't be called", kindOf(fn))
		}
		return f.call(s, x.line, s.args(x.args))
	case *filterExpr:
		s.step(x.line, 1)
		return x.fn(s, x.line, s.eval(x.x), s.args(x.args))
	case *testExpr:
		s.step(x.line, 1)
		return x.fn(s, x.line, s.eval(x.x), s.args(x.args))
	}
	panic("jinja: an expression of no kind") // the parser makes those above alone
}

func (s *state) comparison(x *compareExpr) value {
	left := s.eval(x.first)
	for i, op := range x.ops {
		right := s.eval(x.rest[i])
		s.step(x.line, 1)
		var ok bool
		switch op {
		case "==":
			ok = s.equal(left, right)
		case "!=":
			ok = !s.equal(left, right)
		case "in":
			ok = s.contains(x.line, right, left)
		case "not in":
			ok = !s.contains(x.line, right, left)
		default:
			c := s.compare(x.line, left, right)
			ok = c < 0 && op[0] == '<' || c > 0 && op[0] == '>' || c == 0 && len(op) == 2
		}
		if !ok {
			return false
		}
		left = right
	}
	return true
}

func (s *state) binary(x *binaryExpr) value {
	a, b := s.eval(x.left), s.eval(x.right)
	s.step(x.line, 1)
	i, f, isInt, ok := number(a)
	j, g, isInt2, ok2 := number(b)
	if ok && ok2 {
		if isInt && isInt2 && (x.op != "/") && !(x.op == "**" && j < 0) {
			return s.integers(x, i, j)
		}
		return s.floats(x, f, g)
	}
	switch at := a.(type) {
	case text:
		if bt, ok := b.(text); ok && x.op == "+" {
			s.charge(x.line, len(at.s)+len(bt.s))
			return joinTexts(at, bt)
		}
		if x.op == "*" && isInt2 {
			return s.repeat(x.line, at, j)
		}
	case *list:
		if bl, ok := b.(*list); ok && x.op == "+" && at.kind == bl.kind && at.kind <= kindTuple {
			s.step(x.line, len(at.items)+len(bl.items))
			return &list{items: slices.Concat(at.items, bl.items), kind: at.kind}
		}
	}
	if bt, ok := b.(text); ok && x.op == "*" && isInt {
		return s.repeat(x.line, bt, i)
	}
	s.fail(x.line, "%q doesn't go with %s and %s", x.op, kindOf(a), kindOf(b))
	return nil
}

func (s *state) repeat(line int, t text, n int64) value {
	if n <= 0 || t.s == "" {
		return text{}
	}
	if n > int64(s.bytes)/int64(len(t.s)) {
		s.charge(line, math.MaxInt)
	}
	s.charge(line, len(t.s)*int(n))
	if len(t.runs) == 0 {
		return plainText(strings.Repeat(t.s, int(n)))
	}
	var b builder
	for range n {
		b.text(t)
	}
	return b.done()
}

func (s *state) integers(x *binaryExpr, i, j int64) value {
	over := func() { s.fail(x.line, "an integer of more than 64 bits") }
	switch x.op {
	case "+":
		if r := i + j; (r > i) == (j > 0) || j == 0 {
			return r
		}
		over()
	case "-":
		if r := i - j; (r < i) == (j > 0) || j == 0 {
			return r
		}
		over()
	case "*":
		return product(i, j, over)
	case "//", "%":
		if j == 0 {
			s.fail(x.line, "division by zero")
		}
		if i == math.MinInt64 && j == -1 {
			over()
		}
		q, r := i/j, i%j
		if r != 0 && (r < 0) != (j < 0) { // Python rounds down
			q, r = q-1, r+j
		}
		if x.op == "//" {
			return q
		}
		return r
	}
	r := int64(1)
	for range j {
		r = product(r, i, over)
		if r == 0 || r == 1 && i == 1 {
			break
		}
		s.step(x.line, 1)
	}
	return r
}

func product(i, j int64, over func()) int64 {
	r := i * j
	if i != 0 && (r/i != j || i == -1 && j == math.MinInt64) {
		over()
	}
	return r
}

func (s *state) floats(x *binaryExpr, f, g float64) value {
	switch x.op {
	case "+":
		return f + g
	case "-":
		return f - g
	case "*":
		return f * g
	case "**":
		return math.Pow(f, g)
	}
	if g == 0 {
		s.fail(x.line, "division by zero")
	}
	switch x.op {
	case "/":
		return f / g
	case "//":
		return math.Floor(f / g)
	}
	r := math.Mod(f, g)
	if r != 0 && (r < 0) != (g < 0) {
		r += g
	}
	return r
}
