package jinja

import "slices"

// The expressions of a template.
type (
	expr any // one of those below

	constExpr struct{ v value }
	nameExpr  struct {
		name string
		line int
	}
	listExpr struct {
		items []expr
		tuple bool
		line  int
	}
	dictExpr struct {
		keys, values []expr
		line         int
	}
	condExpr  struct{ cond, then, orElse expr }
	logicExpr struct {
		left, right expr
		or          bool
	}
	notExpr     struct{ x expr }
	compareExpr struct {
		first expr
		ops   []string
		rest  []expr
		line  int
	}
	binaryExpr struct {
		op          string
		left, right expr
		line        int
	}
	concatExpr struct {
		parts []expr
		line  int
	}
	signExpr struct {
		x    expr
		neg  bool
		line int
	}
	attrExpr struct {
		x    expr
		name string
		line int
	}
	itemExpr struct {
		x, key expr
		line   int
	}
	sliceExpr struct {
		x                 expr
		start, stop, step expr // nil when absent
		line              int
	}
	callExpr struct {
		fn   expr
		args args
		line int
	}
	filterExpr struct {
		x    expr // nil in a set block
		name string
		fn   filterFunc
		args args
		line int
	}
	testExpr struct {
		x    expr
		name string
		fn   testFunc
		args args
		line int
	}
	args struct {
		pos   []expr
		names []string
		named []expr
	}
)

func (p *parser) expr() expr { return p.exprUp(true) }

// exprUp reads an expression, conditional ones (a if b else c) only with cond.
func (p *parser) exprUp(cond bool) expr {
	p.enter()
	defer p.leave()
	x := p.or()
	for cond && p.skipName("if") {
		c := &condExpr{cond: p.or(), then: x}
		if p.skipName("else") {
			c.orElse = p.expr()
		}
		x = c
	}
	return x
}

// tuple reads an expression or several with commas between.
func (p *parser) tuple(cond bool) expr {
	line := p.cur().line
	first := p.exprUp(cond)
	if !p.isOp(",") {
		return first
	}
	t := &listExpr{items: []expr{first}, tuple: true, line: line}
	for p.skipOp(",") {
		if k := p.cur(); k.kind == tokEnd || k.kind == tokOp && k.text == ")" {
			break
		}
		t.items = append(t.items, p.exprUp(cond))
	}
	return t
}

// tupleWithout is tuple without conditional expressions, for `if` has another
// meaning behind it.
func (p *parser) tupleWithout(end string) expr {
	if end != "" && p.isName(end) {
		p.fail("expected an expression")
	}
	return p.tuple(false)
}

func (p *parser) or() expr {
	x := p.and()
	for p.skipName("or") {
		x = &logicExpr{x, p.and(), true}
	}
	return x
}

func (p *parser) and() expr {
	x := p.not()
	for p.skipName("and") {
		x = &logicExpr{x, p.not(), false}
	}
	return x
}

func (p *parser) not() expr {
	if p.skipName("not") {
		p.enter()
		defer p.leave()
		return &notExpr{p.not()}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	c := &compareExpr{line: p.cur().line}
	c.first = p.math1()
	for {
		t := p.cur()
		switch {
		case t.kind == tokOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text):
			p.at++
			c.ops = append(c.ops, t.text)
		case p.skipName("in"):
			c.ops = append(c.ops, "in")
		case p.isName("not") && p.toks[p.at+1].kind == tokName && p.toks[p.at+1].text == "in":
			p.at += 2
			c.ops = append(c.ops, "not in")
		default:
			if len(c.ops) == 0 {
				return c.first
			}
			return c
		}
		c.rest = append(c.rest, p.math1())
	}
}

// binary reads left-associative operators.
func (p *parser) binary(operand func() expr, ops ...string) expr {
	x := operand()
	for {
		t := p.cur()
		if t.kind != tokOp || !slices.Contains(ops, t.text) {
			return x
		}
		p.at++
		x = &binaryExpr{t.text, x, operand(), t.line}
	}
}

func (p *parser) math1() expr { return p.binary(p.concat, "+", "-") }

func (p *parser) concat() expr {
	line := p.cur().line
	x := p.math2()
	if !p.isOp("~") {
		return x
	}
	c := &concatExpr{[]expr{x}, line}
	for p.skipOp("~") {
		c.parts = append(c.parts, p.math2())
	}
	return c
}

func (p *parser) math2() expr { return p.binary(p.pow, "*", "/", "//", "%") }
func (p *parser) pow() expr {
	return p.binary(func() expr { return p.unary(true) }, "**")
}

func (p *parser) unary(filters bool) expr {
	p.enter()
	defer p.leave()
	var x expr
	line := p.cur().line
	switch {
	case p.skipOp("-"):
		x = &signExpr{p.unary(false), true, line}
	case p.skipOp("+"):
		x = &signExpr{p.unary(false), false, line}
	default:
		x = p.primary()
	}
	x = p.postfix(x)
	for filters {
		switch {
		case p.skipOp("|"):
			x = p.filter(x)
		case p.skipName("is"):
			x = p.test(x)
		case p.isOp("("):
			x = p.call(x)
		default:
			return x
		}
	}
	return x
}

func (p *parser) primary() expr {
	t := p.next()
	switch t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return &constExpr{true}
		case "false", "False":
			return &constExpr{false}
		case "none", "None":
			return &constExpr{nil}
		}
		return &nameExpr{t.text, t.line}
	case tokString:
		s := t.text
		for p.cur().kind == tokString {
			s += p.next().text
		}
		return &constExpr{text{s: s}}
	case tokInt, tokFloat:
		return &constExpr{t.num}
	case tokOp:
		switch t.text {
		case "(":
			if p.skipOp(")") {
				return &listExpr{tuple: true, line: t.line}
			}
			x := p.tuple(true)
			p.expectOp(")")
			return x
		case "[":
			return &listExpr{items: p.items("]"), line: t.line}
		case "{":
			return p.dict(t.line)
		}
	}
	fail(p.name, t.line, "unexpected %s", t.describe())
	return nil
}

func (p *parser) items(end string) (out []expr) {
	for !p.skipOp(end) {
		if len(out) > 0 {
			p.expectOp(",")
			if p.skipOp(end) {
				break
			}
		}
		out = append(out, p.expr())
	}
	return out
}

func (p *parser) dict(line int) expr {
	d := &dictExpr{line: line}
	for !p.skipOp("}") {
		if len(d.keys) > 0 {
			p.expectOp(",")
			if p.skipOp("}") {
				break
			}
		}
		d.keys = append(d.keys, p.expr())
		p.expectOp(":")
		d.values = append(d.values, p.expr())
	}
	return d
}

func (p *parser) postfix(x expr) expr {
	for {
		t := p.cur()
		switch {
		case p.skipOp("."):
			switch a := p.next(); a.kind {
			case tokName:
				x = &attrExpr{x, a.text, t.line}
			case tokInt:
				x = &itemExpr{x, &constExpr{a.num}, t.line}
			default:
				p.fail("expected a name or number behind the point")
			}
		case p.skipOp("["):
			x = p.subscript(x, t.line)
		case p.isOp("("):
			x = p.call(x)
		default:
			return x
		}
	}
}

func (p *parser) subscript(x expr, line int) expr {
	var part [3]expr
	n := 0
	for !p.skipOp("]") {
		if p.skipOp(":") {
			if n++; n > 2 {
				p.fail("a slice has at most three parts")
			}
			continue
		}
		if part[n] != nil || p.isOp(",") {
			p.fail("expected \"]\", got %s", p.cur().describe())
		}
		part[n] = p.expr()
	}
	if n > 0 {
		return &sliceExpr{x, part[0], part[1], part[2], line}
	}
	if part[0] == nil {
		p.fail("an index is missing")
	}
	return &itemExpr{x, part[0], line}
}

func (p *parser) args() (a args) {
	p.expectOp("(")
	for first := true; !p.skipOp(")"); first = false {
		if !first {
			p.expectOp(",")
			if p.skipOp(")") {
				break
			}
		}
		if p.isOp("*") || p.isOp("**") {
			p.fail("* and ** in a call are not supported")
		}
		if t := p.cur(); t.kind == tokName && p.toks[p.at+1].kind == tokOp && p.toks[p.at+1].text == "=" {
			p.at += 2
			a.names = append(a.names, t.text)
			a.named = append(a.named, p.expr())
			continue
		}
		if len(a.named) > 0 {
			p.fail("a positional argument follows a named one")
		}
		a.pos = append(a.pos, p.expr())
	}
	return a
}

func (p *parser) call(fn expr) expr {
	line := p.cur().line
	return &callExpr{fn, p.args(), line}
}

// filter reads a filter's name and arguments, behind "|".
func (p *parser) filter(x expr) *filterExpr {
	f := &filterExpr{x: x, line: p.cur().line}
	f.name = p.expectName()
	if f.fn = filters[f.name]; f.fn == nil {
		p.fail("the filter %q is not supported", f.name)
	}
	if p.isOp("(") {
		f.args = p.args()
	}
	return f
}

// test reads a test's name and arguments, behind "is".
func (p *parser) test(x expr) expr {
	negated := p.skipName("not")
	t := &testExpr{x: x, line: p.cur().line}
	t.name = p.expectName()
	if t.fn = tests[t.name]; t.fn == nil {
		p.fail("the test %q is not supported", t.name)
	}
	switch k := p.cur(); {
	case p.isOp("("):
		t.args = p.args()
	case k.kind == tokName && k.text != "else" && k.text != "or" && k.text != "and", k.kind == tokString, k.kind == tokInt, k.kind == tokFloat, p.isOp("["), p.isOp("{"):
		if p.isName("is") {
			p.fail("tests can't be chained with \"is\"")
		}
		// Jinja2 reads any name behind a test as its argument, "if" too, and
		// then fails for most tests; so do we.
		t.args.pos = []expr{p.postfix(p.primary())}
	}
	if negated {
		return &notExpr{t}
	}
	return t
}
