package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokEOF   tokenKind = iota
	tokData            // text outside of tags
	tokPrint           // {{
	tokBlock           // {%
	tokEnd             // }} or %}
	tokName
	tokString
	tokInt
	tokFloat
	tokOp
)

type token struct {
	kind tokenKind
	text string
	num  any // int64 or float64
	line int
}

// lexer cuts a source into tokens as Jinja2 does with trim_blocks and
// lstrip_blocks set, which is how Hugging Face's library reads chat templates.
type lexer struct {
	name      string
	src       string
	at        int
	line      int
	lineStart bool // the last token ended with a line break
	out       []token
}

func lex(name, src string) []token {
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	src = strings.TrimSuffix(src, "\n")
	l := &lexer{name: name, src: src, line: 1, lineStart: true}
	for l.at < len(l.src) {
		l.root()
	}
	l.emit(tokEOF, "", nil)
	return l.out
}

func (l *lexer) fail(format string, args ...any) { fail(l.name, l.line, format, args...) }

func (l *lexer) emit(kind tokenKind, text string, num any) {
	l.out = append(l.out, token{kind, text, num, l.line})
}

// move goes on to position to.
func (l *lexer) move(to int) {
	l.line += strings.Count(l.src[l.at:to], "\n")
	if to > l.at {
		l.lineStart = l.src[to-1] == '\n'
	}
	l.at = to
}

// root reads text up to the next tag, and the tag.
func (l *lexer) root() {
	i := l.at
	for {
		k := strings.IndexByte(l.src[i:], '{')
		if k < 0 || i+k+1 >= len(l.src) {
			l.data(l.src[l.at:])
			l.move(len(l.src))
			return
		}
		i += k
		if c := l.src[i+1]; c == '{' || c == '%' || c == '#' {
			break
		}
		i++
	}
	kind := l.src[i+1]
	text := l.src[l.at:i]
	rest := l.src[i+2:]
	skip := 2
	switch {
	case strings.HasPrefix(rest, "-"):
		text = strings.TrimRightFunc(text, isSpace)
		skip++
	case strings.HasPrefix(rest, "+") && kind != '{':
		skip++
	case kind != '{':
		text = l.lstrip(text)
	}
	l.data(text)
	l.move(i + skip)
	switch kind {
	case '#':
		l.comment()
	case '{':
		l.emit(tokPrint, "{{", nil)
		l.tag("}}")
	default:
		if !l.raw() {
			l.emit(tokBlock, "{%", nil)
			l.tag("%}")
		}
	}
}

func (l *lexer) data(text string) {
	if text != "" {
		l.emit(tokData, text, nil)
	}
}

// lstrip removes the white space between the start of a line and a tag.
func (l *lexer) lstrip(text string) string {
	k := strings.LastIndexByte(text, '\n') + 1
	if (k > 0 || l.lineStart) && strings.TrimLeftFunc(text[k:], isSpace) == "" {
		return text[:k]
	}
	return text
}

func (l *lexer) comment() {
	k := strings.Index(l.src[l.at:], "#}")
	if k < 0 {
		l.fail("a comment does not end")
	}
	trim := k > 0 && l.src[l.at+k-1] == '-'
	keep := k > 0 && l.src[l.at+k-1] == '+'
	l.move(l.at + k + 2)
	l.after(trim, !keep)
}

// after skips what a closing delimiter takes with it: all white space, or one
// line break.
func (l *lexer) after(trim, newline bool) {
	switch {
	case trim:
		l.skipSpace()
	case newline && strings.HasPrefix(l.src[l.at:], "\n"):
		l.move(l.at + 1)
	}
}

func (l *lexer) skipSpace() {
	rest := strings.TrimLeftFunc(l.src[l.at:], isSpace)
	l.move(len(l.src) - len(rest))
}

// raw reads {% raw %}…{% endraw %}, of which the opening is read up to its
// name. It reports false, and reads nothing, for any other tag.
func (l *lexer) raw() bool {
	end, trim, _, ok := l.bare(l.at, "raw")
	if !ok {
		return false
	}
	l.move(end)
	if trim {
		l.skipSpace()
	}
	for i := l.at; ; {
		k := strings.Index(l.src[i:], "{%")
		if k < 0 {
			l.fail("{%% raw %%} does not end")
		}
		i += k
		at, sign := i+2, byte(0)
		if at < len(l.src) && (l.src[at] == '-' || l.src[at] == '+') {
			sign = l.src[at]
			at++
		}
		end, trim, newline, ok := l.bare(at, "endraw")
		if !ok {
			i += 2
			continue
		}
		text := l.src[l.at:i]
		switch sign {
		case '-':
			text = strings.TrimRightFunc(text, isSpace)
		case 0:
			text = l.lstrip(text)
		}
		l.data(text)
		l.move(end)
		l.after(trim, newline)
		return true
	}
}

// bare matches `name %}` at i.
func (l *lexer) bare(i int, name string) (end int, trim, newline, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimLeftFunc(l.src[i:], isSpace), name)
	if !ok {
		return 0, false, false, false
	}
	rest = strings.TrimLeftFunc(rest, isSpace)
	newline = true
	if strings.HasPrefix(rest, "-%}") {
		trim, rest = true, rest[1:]
	} else if strings.HasPrefix(rest, "+%}") {
		newline, rest = false, rest[1:]
	}
	if rest, ok = strings.CutPrefix(rest, "%}"); !ok {
		return 0, false, false, false
	}
	return len(l.src) - len(rest), trim, newline, true
}

var operators = []string{"**", "//", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "(", ")", "[", "]", "{", "}", ".", ",", ":", "|", "=", "<", ">"}

// tag reads the tokens of a tag and its closing delimiter.
func (l *lexer) tag(closing string) {
	depth := 0
	for {
		l.skipSpace()
		rest := l.src[l.at:]
		if rest == "" {
			l.fail("a tag does not end: %s is missing", closing)
		}
		if depth == 0 {
			trim := strings.HasPrefix(rest, "-"+closing)
			keep := closing == "%}" && strings.HasPrefix(rest, "+%}")
			if trim || keep || strings.HasPrefix(rest, closing) {
				l.emit(tokEnd, closing, nil)
				n := len(closing)
				if trim || keep {
					n++
				}
				l.move(l.at + n)
				l.after(trim, closing == "%}" && !keep)
				return
			}
		}
		switch c := rest[0]; {
		case c == '"' || c == '\'':
			l.str(rest)
		case c >= '0' && c <= '9':
			l.number(rest)
		default:
			if n := nameLen(rest); n > 0 {
				l.emit(tokName, rest[:n], nil)
				l.move(l.at + n)
				continue
			}
			op := ""
			for _, o := range operators {
				if strings.HasPrefix(rest, o) {
					op = o
					break
				}
			}
			switch op {
			case "":
				r, _ := utf8.DecodeRuneInString(rest)
				l.fail("unexpected character %q", r)
			case "(", "[", "{":
				depth++
			case ")", "]", "}":
				depth--
				if depth < 0 {
					l.fail("unexpected %q", op)
				}
			}
			l.emit(tokOp, op, nil)
			l.move(l.at + len(op))
		}
	}
}

func nameLen(s string) int {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return i
		}
	}
	return len(s)
}

// number reads an integer or a float.
func (l *lexer) number(s string) {
	digits := func(s string, ok func(byte) bool) int {
		n := 0
		for n < len(s) && (ok(s[n]) || s[n] == '_' && n > 0 && n+1 < len(s) && ok(s[n+1])) {
			n++
		}
		return n
	}
	decimal := func(c byte) bool { return c >= '0' && c <= '9' }
	if len(s) > 2 && s[0] == '0' && strings.ContainsRune("xXoObB", rune(s[1])) {
		n := 2 + digits(s[2:], func(c byte) bool { return decimal(c) || c|0x20 >= 'a' && c|0x20 <= 'f' })
		l.integer(s[:n], 0)
		return
	}
	n := digits(s, decimal)
	float := false
	if n+1 < len(s) && s[n] == '.' && decimal(s[n+1]) {
		n += 1 + digits(s[n+1:], decimal)
		float = true
	}
	if n < len(s) && s[n]|0x20 == 'e' {
		m := n + 1
		if m < len(s) && (s[m] == '+' || s[m] == '-') {
			m++
		}
		if d := digits(s[m:], decimal); d > 0 {
			n, float = m+d, true
		}
	}
	if !float {
		l.integer(s[:n], 10)
		return
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(s[:n], "_", ""), 64)
	if err != nil || math.IsInf(v, 0) {
		l.fail("the number %s is out of range", s[:n])
	}
	l.emit(tokFloat, s[:n], v)
	l.move(l.at + n)
}

func (l *lexer) integer(s string, base int) {
	digits := strings.ReplaceAll(s, "_", "")
	if base == 10 && len(digits) > 1 && digits[0] == '0' && strings.Trim(digits, "0") != "" {
		l.fail("%s is not a number", s)
	}
	v, err := strconv.ParseInt(digits, base, 64)
	if err != nil {
		l.fail("%s is not a number of 64 bits", s)
	}
	l.emit(tokInt, s, v)
	l.move(l.at + len(s))
}

// str reads a string literal with Python's escapes.
func (l *lexer) str(s string) {
	var b strings.Builder
	i := 1
	for {
		k := strings.IndexAny(s[i:], s[:1]+`\`)
		if k < 0 {
			l.fail("a string does not end")
		}
		b.WriteString(s[i : i+k])
		i += k
		if s[i] != '\\' {
			break
		}
		i++
		if i == len(s) {
			l.fail("a string does not end")
		}
		i += l.escape(&b, s[i:])
	}
	l.emit(tokString, b.String(), nil)
	l.move(l.at + i + 1)
}

// escape writes what \ and the start of s stand for and returns how much of s
// that is.
func (l *lexer) escape(b *strings.Builder, s string) int {
	hex := func(n int) int {
		if len(s) < 1+n {
			l.fail("a truncated \\%c escape", s[0])
		}
		v, err := strconv.ParseUint(s[1:1+n], 16, 32)
		if err != nil || v > utf8.MaxRune || v >= 0xD800 && v < 0xE000 {
			l.fail("\\%s stands for no character", s[:1+n])
		}
		b.WriteRune(rune(v))
		return 1 + n
	}
	switch c := s[0]; c {
	case 'n':
		b.WriteByte('\n')
	case 't':
		b.WriteByte('\t')
	case 'r':
		b.WriteByte('\r')
	case 'a':
		b.WriteByte('\a')
	case 'b':
		b.WriteByte('\b')
	case 'f':
		b.WriteByte('\f')
	case 'v':
		b.WriteByte('\v')
	case '\\', '\'', '"':
		b.WriteByte(c)
	case '\n':
	case 'x':
		return hex(2)
	case 'u':
		return hex(4)
	case 'U':
		return hex(8)
	case 'N':
		l.fail("\\N{…} escapes are not supported")
	default:
		if c >= '0' && c <= '7' {
			n := 1
			for n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7' {
				n++
			}
			v, _ := strconv.ParseUint(s[:n], 8, 16) // octal digits alone
			b.WriteRune(rune(v))
			return n
		}
		b.WriteByte('\\') // Python keeps what it does not know
		_, n := utf8.DecodeRuneInString(s)
		b.WriteString(s[:n])
		return n
	}
	return 1
}

// isSpace is Python's str.isspace.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
