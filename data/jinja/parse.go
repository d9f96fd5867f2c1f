package jinja

import "slices"

// The statements of a template.
type (
	stmt any // one of those below

	dataStmt  struct{ text string }
	printStmt struct {
		x    expr
		line int
	}
	ifStmt struct {
		cond         expr
		then, orElse []stmt
	}
	forStmt struct {
		target       target
		over, filter expr
		body, orElse []stmt
		line         int
	}
	setStmt struct {
		target target
		value  expr
		line   int
	}
	setBlockStmt struct {
		target  target
		filters []*filterExpr
		body    []stmt
		line    int
	}
	macroStmt struct {
		name     string
		params   []string
		defaults []expr // of the last parameters
		body     []stmt
		line     int
	}
	generationStmt struct{ body []stmt }
	loopStmt       struct{ brk bool }
)

// target is what a value is assigned to: a name, an attribute of a namespace,
// or several targets that a list is taken apart for.
type target struct {
	name, attr string
	parts      []target
}

const maxDepth = 100 // of nested expressions and statements

type parser struct {
	name       string
	toks       []token
	at         int
	depth      int
	loops      int
	generation bool
}

func (p *parser) fail(format string, args ...any) { fail(p.name, p.cur().line, format, args...) }

func (p *parser) cur() token { return p.toks[p.at] }

func (p *parser) next() token {
	t := p.toks[p.at]
	if t.kind != tokEOF {
		p.at++
	}
	return t
}

func (p *parser) isOp(op string) bool   { t := p.cur(); return t.kind == tokOp && t.text == op }
func (p *parser) isName(n string) bool  { t := p.cur(); return t.kind == tokName && t.text == n }
func (p *parser) skipOp(op string) bool { return p.skip(p.isOp(op)) }
func (p *parser) skipName(n string) bool {
	return p.skip(p.isName(n))
}

func (p *parser) skip(ok bool) bool {
	if ok {
		p.at++
	}
	return ok
}

func (p *parser) expectOp(op string) {
	if !p.skipOp(op) {
		p.fail("expected %q, got %s", op, p.cur().describe())
	}
}

func (p *parser) expectName() string {
	if p.cur().kind != tokName {
		p.fail("expected a name, got %s", p.cur().describe())
	}
	return p.next().text
}

func (p *parser) expectEnd() {
	if p.cur().kind != tokEnd {
		p.fail("expected the end of the tag, got %s", p.cur().describe())
	}
	p.at++
}

func (t token) describe() string {
	switch t.kind {
	case tokEOF:
		return "the end of the template"
	case tokData:
		return "text"
	}
	return "\"" + t.text + "\""
}

// enter guards the Go stack.
func (p *parser) enter() {
	if p.depth++; p.depth > maxDepth {
		p.fail("nested more than %d deep", maxDepth)
	}
}

func (p *parser) leave() { p.depth-- }

// statements reads up to a tag with one of the names, which it consumes; it
// returns the name. Without names it reads to the end.
func (p *parser) statements(ends ...string) (out []stmt, end string) {
	p.enter()
	defer p.leave()
	for {
		switch t := p.next(); t.kind {
		case tokEOF:
			if len(ends) > 0 {
				p.fail("expected {%% %s %%}, got the end of the template", ends[len(ends)-1])
			}
			return out, ""
		case tokData:
			out = append(out, &dataStmt{t.text})
		case tokPrint:
			x := p.tuple(true)
			p.expectEnd()
			out = append(out, &printStmt{x, t.line})
		default:
			name := p.expectName()
			if slices.Contains(ends, name) {
				return out, name
			}
			if s := p.statement(name, t.line); s != nil {
				out = append(out, s)
			}
		}
	}
}

// body is statements whose end tag has nothing but its name.
func (p *parser) body(ends ...string) ([]stmt, string) {
	out, end := p.statements(ends...)
	if end != "elif" {
		p.expectEnd()
	}
	return out, end
}

func (p *parser) statement(name string, line int) stmt {
	switch name {
	case "if":
		return p.ifTag()
	case "for":
		return p.forTag(line)
	case "set":
		return p.setTag(line)
	case "macro":
		return p.macroTag(line)
	case "generation":
		p.expectEnd()
		p.generation = true
		loops := p.loops
		p.loops = 0
		body, _ := p.body("endgeneration")
		p.loops = loops
		return &generationStmt{body}
	case "break", "continue":
		if p.loops == 0 {
			p.fail("%q is outside of a loop", name)
		}
		p.expectEnd()
		return &loopStmt{name == "break"}
	}
	p.fail("the tag %q is not supported", name)
	return nil
}

func (p *parser) ifTag() stmt {
	p.enter()
	defer p.leave()
	s := &ifStmt{cond: p.tupleWithout("")}
	p.expectEnd()
	var end string
	s.then, end = p.body("elif", "else", "endif")
	switch end {
	case "elif":
		s.orElse = []stmt{p.ifTag()}
	case "else":
		s.orElse, _ = p.body("endif")
	}
	return s
}

func (p *parser) forTag(line int) stmt {
	s := &forStmt{target: p.target(false), line: line}
	if !p.skipName("in") {
		p.fail("expected \"in\", got %s", p.cur().describe())
	}
	s.over = p.tupleWithout("recursive")
	if p.skipName("if") {
		s.filter = p.expr()
	}
	if p.isName("recursive") {
		p.fail("recursive loops are not supported")
	}
	p.expectEnd()
	p.loops++
	var end string
	s.body, end = p.body("else", "endfor")
	p.loops--
	if end == "else" {
		s.orElse, _ = p.body("endfor")
	}
	return s
}

func (p *parser) target(namespace bool) target {
	one := func() target {
		if p.skipOp("(") {
			t := p.target(namespace)
			p.expectOp(")")
			return t
		}
		name := p.expectName()
		if slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, name) {
			p.fail("can't assign to %q", name)
		}
		if namespace && p.skipOp(".") {
			return target{name: name, attr: p.expectName()}
		}
		return target{name: name}
	}
	p.enter()
	defer p.leave()
	first := one()
	if !p.isOp(",") {
		return first
	}
	t := target{parts: []target{first}}
	for p.skipOp(",") {
		if p.cur().kind != tokName && !p.isOp("(") || p.isName("in") {
			break
		}
		t.parts = append(t.parts, one())
	}
	return t
}

func (p *parser) setTag(line int) stmt {
	t := p.target(true)
	if p.skipOp("=") {
		s := &setStmt{t, p.tuple(true), line}
		p.expectEnd()
		return s
	}
	s := &setBlockStmt{target: t, line: line}
	for p.skipOp("|") {
		s.filters = append(s.filters, p.filter(nil))
	}
	p.expectEnd()
	s.body, _ = p.body("endset")
	return s
}

func (p *parser) macroTag(line int) stmt {
	s := &macroStmt{name: p.expectName(), line: line}
	p.expectOp("(")
	for !p.isOp(")") {
		if len(s.params) > 0 {
			p.expectOp(",")
			if p.isOp(")") {
				break
			}
		}
		name := p.expectName()
		if slices.Contains(s.params, name) {
			p.fail("two parameters %q", name)
		}
		s.params = append(s.params, name)
		if p.skipOp("=") {
			s.defaults = append(s.defaults, p.expr())
		} else if len(s.defaults) > 0 {
			p.fail("a parameter without a default follows one with a default")
		}
	}
	p.expectOp(")")
	p.expectEnd()
	loops := p.loops
	p.loops = 0
	s.body, _ = p.body("endmacro")
	p.loops = loops
	return s
}
