package tokenizer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// syntax is a node of a parsed regular expression.
type syntax struct {
	op         syntaxOp
	set        ranges    // opSet
	subs       []*syntax // opSeq, opAlt; one for opRepeat and opLook
	min, max   int       // opRepeat; max < 0: no limit
	possessive bool      // opRepeat
	negative   bool      // opLook
}

type syntaxOp uint8

const (
	opSet syntaxOp = iota // one character
	opSeq
	opAlt
	opRepeat
	opLook // lookahead
	opEnd  // \z
)

// regexParser parses the subset of Oniguruma's Ruby syntax whose meaning this
// package reproduces exactly; everything else is an error.
type regexParser struct {
	u    *unicodeTables
	s    string
	i    int
	fold bool // within (?i…)
	last rune // the last ASCII letter put under (?i…), 0 when something else followed
}

// maxRegex bounds the length of an expression and the depth of its groups.
const (
	maxRegex      = 1 << 12
	maxRegexDepth = 32
)

func parseRegex(u *unicodeTables, expr string) (*syntax, error) {
	if len(expr) > maxRegex {
		return nil, fmt.Errorf("is longer than %d bytes", maxRegex)
	}
	p := &regexParser{u: u, s: expr}
	n, err := p.alternatives(0)
	if err == nil && p.i < len(p.s) {
		err = p.errorf("unmatched )")
	}
	if err != nil {
		return nil, err
	}
	return n, nil
}

func (p *regexParser) errorf(format string, args ...any) error {
	return fmt.Errorf("%s (at byte %d)", fmt.Sprintf(format, args...), p.i)
}

// take skips a prefix when it is there.
func (p *regexParser) take(prefix string) bool {
	if strings.HasPrefix(p.s[p.i:], prefix) {
		p.i += len(prefix)
		return true
	}
	return false
}

func (p *regexParser) alternatives(depth int) (*syntax, error) {
	if depth > maxRegexDepth {
		return nil, p.errorf("groups are nested more than %d deep", maxRegexDepth)
	}
	fold := p.fold // an option set within a group ends with it
	defer func() { p.fold = fold }()
	alt := &syntax{op: opAlt}
	for {
		p.last = 0
		seq, err := p.sequence(depth)
		if err != nil {
			return nil, err
		}
		alt.subs = append(alt.subs, seq)
		if !p.take("|") {
			break
		}
	}
	p.last = 0
	if len(alt.subs) == 1 {
		return alt.subs[0], nil
	}
	return alt, nil
}

func (p *regexParser) sequence(depth int) (*syntax, error) {
	seq := &syntax{op: opSeq}
	for p.i < len(p.s) && p.s[p.i] != '|' && p.s[p.i] != ')' {
		if p.take("(?i)") {
			if len(seq.subs) > 0 {
				return nil, p.errorf("option (?i) in the middle of a sequence")
			}
			p.fold = true
			continue
		}
		n, err := p.atom(depth)
		if err != nil {
			return nil, err
		}
		if n, err = p.quantified(n); err != nil {
			return nil, err
		}
		seq.subs = append(seq.subs, n)
	}
	return seq, nil
}

// atom parses one character, class or group.
func (p *regexParser) atom(depth int) (*syntax, error) {
	rest := p.s[p.i:]
	group := func(open string) (*syntax, error) {
		p.i += len(open)
		n, err := p.alternatives(depth + 1)
		if err == nil && !p.take(")") {
			err = p.errorf("missing )")
		}
		return n, err
	}
	look := func(open string, negative bool) (*syntax, error) {
		n, err := group(open)
		return &syntax{op: opLook, subs: []*syntax{n}, negative: negative}, err
	}
	switch {
	case strings.HasPrefix(rest, "(?:"):
		return group("(?:")
	case strings.HasPrefix(rest, "(?i:"):
		fold := p.fold
		p.fold = true
		n, err := group("(?i:")
		p.fold = fold
		return n, err
	case strings.HasPrefix(rest, "(?!"):
		return look("(?!", true)
	case strings.HasPrefix(rest, "(?="):
		return look("(?=", false)
	case strings.HasPrefix(rest, "(?"):
		return nil, p.errorf("group %.4q", rest)
	case rest[0] == '(':
		return group("(")
	case rest[0] == '[':
		p.i++
		set, err := p.class(depth)
		p.last = 0
		return &syntax{op: opSet, set: set}, err
	case rest[0] == '.':
		p.i++
		p.last = 0
		return &syntax{op: opSet, set: ranges{{'\n', '\n'}}.not()}, nil
	case strings.HasPrefix(rest, `\z`):
		p.i += 2
		return &syntax{op: opEnd}, nil
	case strings.ContainsRune("^$*+?", rune(rest[0])):
		return nil, p.errorf("%q", rest[:1])
	}
	set, single, err := p.character()
	if err != nil {
		return nil, err
	}
	if p.fold {
		if set, err = p.folded(set, single); err != nil {
			return nil, err
		}
	}
	return &syntax{op: opSet, set: set}, nil
}

// folded returns a character or class under (?i…). Only ASCII letters have an
// effect that is certain: Oniguruma also folds sequences, so that "ss" matches
// "ß", and such sequences are refused.
func (p *regexParser) folded(set ranges, single bool) (ranges, error) {
	var out ranges
	for _, r := range set {
		if r.hi >= utf8.RuneSelf {
			return nil, p.errorf("characters beyond ASCII under (?i)")
		}
		for c := r.lo; c <= r.hi; c++ {
			out = append(out, runeRange{c, c})
			lower := c | 0x20
			if lower < 'a' || lower > 'z' {
				continue
			}
			out = append(out, runeRange{lower, lower}, runeRange{lower &^ 0x20, lower &^ 0x20})
			switch lower {
			case 's':
				out = append(out, runeRange{0x17F, 0x17F}) // long s
			case 'k':
				out = append(out, runeRange{0x212A, 0x212A}) // Kelvin sign
			}
		}
	}
	last := p.last
	p.last = 0
	if single {
		p.last = set[0].lo | 0x20
		if slices.Contains([]string{"ss", "st", "ff", "fi", "fl"}, string([]rune{last, p.last})) {
			return nil, p.errorf("%q under (?i)", string([]rune{last, p.last}))
		}
	}
	return out.normalized(), nil
}

// quantified parses what follows an atom.
func (p *regexParser) quantified(n *syntax) (*syntax, error) {
	if p.i >= len(p.s) {
		return n, nil
	}
	r := &syntax{op: opRepeat, subs: []*syntax{n}, max: -1}
	interval := false
	switch p.s[p.i] {
	case '?':
		r.max = 1
	case '*':
	case '+':
		r.min = 1
	case '{':
		end, ok := p.interval(r)
		if !ok {
			return n, nil // a brace that is no interval stands for itself
		}
		interval = true
		p.i = end - 1
	default:
		return n, nil
	}
	p.i++
	p.last = 0
	if p.i < len(p.s) {
		switch c := p.s[p.i]; {
		case c == '+' && !interval:
			r.possessive = true
			p.i++
		case strings.IndexByte("?*+", c) >= 0:
			return nil, p.errorf("quantifier followed by %q", c)
		}
		if p.i < len(p.s) && (strings.IndexByte("?*+", p.s[p.i]) >= 0 || p.s[p.i] == '{') {
			if _, ok := p.interval(&syntax{}); ok || p.s[p.i] != '{' {
				return nil, p.errorf("quantifier of a quantifier")
			}
		}
	}
	switch {
	case n.op == opSet:
		return r, nil
	case n.op == opLook || n.op == opEnd:
		return nil, p.errorf("quantifier of an assertion")
	case r.min == 0 && r.max == 1 && !r.possessive:
		return &syntax{op: opAlt, subs: []*syntax{n, {op: opSeq}}}, nil
	}
	return nil, p.errorf("repeated group")
}

// maxRepeat bounds the numbers in braces.
const maxRepeat = 1000

// interval parses {n}, {n,}, {n,m} and {,m} into r and returns its end.
func (p *regexParser) interval(r *syntax) (end int, ok bool) {
	if p.s[p.i] != '{' {
		return 0, false
	}
	k := strings.IndexByte(p.s[p.i:], '}')
	if k < 0 {
		return 0, false
	}
	left, right, two := strings.Cut(p.s[p.i+1:p.i+k], ",")
	number := func(s string, empty int) (int, bool) {
		if s == "" {
			return empty, two
		}
		n, err := strconv.ParseUint(s, 10, 16)
		return int(n), err == nil && n <= maxRepeat
	}
	lo, ok1 := number(left, 0)
	hi, ok2 := number(right, -1)
	if !two {
		hi, ok2 = lo, ok1
	}
	if !ok1 || !ok2 || left == "" && right == "" || hi >= 0 && hi < lo {
		return 0, false
	}
	r.min, r.max = lo, hi
	return p.i + k + 1, true
}

// class parses a bracket expression after its "[".
func (p *regexParser) class(depth int) (ranges, error) {
	if depth > maxRegexDepth {
		return nil, p.errorf("classes are nested more than %d deep", maxRegexDepth)
	}
	negative := p.take("^")
	var whole, part ranges // whole: of what && has joined so far
	joined, empty := false, true
	for {
		if p.i >= len(p.s) {
			return nil, p.errorf("missing ]")
		}
		switch rest := p.s[p.i:]; {
		case rest[0] == ']' && empty:
			return nil, p.errorf("empty class")
		case rest[0] == ']':
			p.i++
			part = part.normalized()
			if joined {
				part = intersect(whole, part)
			}
			if negative {
				part = part.not()
			}
			if p.fold {
				if negative {
					return nil, p.errorf("negated class under (?i)")
				}
				return p.folded(part, false)
			}
			return part, nil
		case strings.HasPrefix(rest, "[:"):
			return nil, p.errorf("POSIX class")
		case rest[0] == '[':
			p.i++
			fold := p.fold
			p.fold = false
			sub, err := p.class(depth + 1)
			p.fold = fold
			if err != nil {
				return nil, err
			}
			part = append(part, sub...)
		case strings.HasPrefix(rest, "&&"):
			p.i += 2
			part = part.normalized()
			if joined {
				part = intersect(whole, part)
			}
			whole, part, joined = part, nil, true
		default:
			set, err := p.classRange()
			if err != nil {
				return nil, err
			}
			part = append(part, set...)
		}
		empty = false
	}
}

// classRange parses one character of a class, or a range of them.
func (p *regexParser) classRange() (ranges, error) {
	set, single, err := p.character()
	if err != nil {
		return nil, err
	}
	rest := p.s[p.i:]
	if len(rest) < 2 || rest[0] != '-' || rest[1] == ']' {
		return set, nil
	}
	if !single || rest[1] == '[' || strings.HasPrefix(rest, "-&&") {
		return nil, p.errorf("range that begins or ends with a class")
	}
	p.i++
	to, single, err := p.character()
	if err != nil {
		return nil, err
	}
	if !single || to[0].lo < set[0].lo {
		return nil, p.errorf("range that is empty or ends with a class")
	}
	return ranges{{set[0].lo, to[0].lo}}, nil
}

// character parses a literal or escaped character or a class such as \p{L};
// single says that it is one character.
func (p *regexParser) character() (set ranges, single bool, err error) {
	r, n := utf8.DecodeRuneInString(p.s[p.i:])
	if r != '\\' {
		p.i += n
		return ranges{{r, r}}, true, nil
	}
	if p.i++; p.i >= len(p.s) {
		return nil, false, p.errorf("ends with a backslash")
	}
	r, n = utf8.DecodeRuneInString(p.s[p.i:])
	p.i += n
	if c, ok := map[rune]rune{'t': '\t', 'n': '\n', 'r': '\r', 'f': '\f', 'v': '\v', 'a': '\a', 'e': 0x1b}[r]; ok {
		return ranges{{c, c}}, true, nil
	}
	switch r {
	case 's':
		return p.u.sets["space"], false, nil
	case 'S':
		return p.u.sets["space"].not(), false, nil
	case 'd':
		return p.u.sets["gc Nd"], false, nil
	case 'D':
		return p.u.sets["gc Nd"].not(), false, nil
	case 'w':
		return p.u.sets["word"], false, nil
	case 'W':
		return p.u.sets["word"].not(), false, nil
	case 'p', 'P':
		set, err := p.property(r == 'P')
		return set, false, err
	case 'u':
		if len(p.s) >= p.i+4 {
			if v, err := strconv.ParseUint(p.s[p.i:p.i+4], 16, 32); err == nil && utf8.ValidRune(rune(v)) {
				p.i += 4
				return ranges{{rune(v), rune(v)}}, true, nil
			}
		}
	case 'x':
		if k := strings.IndexByte(p.s[p.i:], '}'); k > 1 && p.s[p.i] == '{' {
			if v, err := strconv.ParseUint(p.s[p.i+1:p.i+k], 16, 31); err == nil && utf8.ValidRune(rune(v)) {
				p.i += k + 1
				return ranges{{rune(v), rune(v)}}, true, nil
			}
		}
	}
	if r < utf8.RuneSelf && (r|0x20 < 'a' || r|0x20 > 'z') && (r < '0' || r > '9') {
		return ranges{{r, r}}, true, nil
	}
	return nil, false, p.errorf("escape \\%c", r)
}

// property parses {L} or {^L} after \p or \P.
func (p *regexParser) property(negative bool) (ranges, error) {
	rest := p.s[p.i:]
	k := strings.IndexByte(rest, '}')
	if k < 2 || rest[0] != '{' {
		return nil, p.errorf("property without braces")
	}
	name := rest[1:k]
	p.i += k + 1
	if after, ok := strings.CutPrefix(name, "^"); ok {
		name, negative = after, !negative
	}
	set, ok := p.u.property(name)
	if !ok {
		return nil, p.errorf("property %q", name)
	}
	if negative {
		set = set.not()
	}
	return set, nil
}

// property returns a general category or script by its name.
func (u *unicodeTables) property(name string) (ranges, bool) {
	if set, ok := u.sets["gc "+name]; ok && name != "C" {
		return set, true
	}
	if set, ok := u.sets["script "+name]; ok {
		return set, true
	}
	// Unassigned code points and surrogates are what the tables do not list.
	assigned := union(u.sets["gc L"], u.sets["gc M"], u.sets["gc N"], u.sets["gc P"], u.sets["gc S"], u.sets["gc Z"])
	if name == "C" {
		return assigned.not(), true
	}
	return nil, false
}
