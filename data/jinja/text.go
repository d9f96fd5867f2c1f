package jinja

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Run says that the bytes [Start, End) of a text come from the [Text] of that
// origin.
type Run struct {
	Start, End int
	Origin     int
}

// text is a string of the template's language that remembers which parts of it
// came from outside.
type text struct {
	s    string
	runs []Run // in order, disjoint, none empty
}

func plainText(s string) text { return text{s: s} }

// sub is t.s[lo:hi].
func (t text) sub(lo, hi int) text {
	out := text{s: t.s[lo:hi]}
	first, _ := slices.BinarySearchFunc(t.runs, lo+1, func(r Run, at int) int { return r.End - at })
	for _, r := range t.runs[first:] {
		if r.Start >= hi {
			break
		}
		out.runs = append(out.runs, Run{max(r.Start, lo) - lo, min(r.End, hi) - lo, r.Origin})
	}
	return out
}

// origin returns the one origin of all of t: 0 when it is the template's own.
// ok is false for a mixture.
func (t text) origin() (origin int, ok bool) {
	switch {
	case len(t.runs) == 0:
		return 0, true
	case len(t.runs) == 1 && t.runs[0].Start == 0 && t.runs[0].End == len(t.s):
		return t.runs[0].Origin, true
	}
	return 0, false
}

func withOrigin(s string, origin int) text {
	t := text{s: s}
	if origin != 0 && s != "" {
		t.runs = []Run{{0, len(s), origin}}
	}
	return t
}

// mapped applies f, which may change lengths. A mixture is taken apart at the
// bounds of its runs only if f does the same to ASCII characters wherever they
// stand, and there is nothing else in it.
func (t text) mapped(s *state, line int, f func(string) string) text {
	s.charge(line, len(t.s))
	if o, ok := t.origin(); ok {
		return withOrigin(f(t.s), o)
	}
	out := f(t.s)
	if len(out) != len(t.s) || !isASCII(t.s) {
		s.fail(line, "can't tell which part of the changed text is the conversation's and which the template's")
	}
	return text{out, t.runs}
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func (t text) trimLeft(f func(rune) bool) text {
	return t.sub(len(t.s)-len(strings.TrimLeftFunc(t.s, f)), len(t.s))
}

func (t text) trimRight(f func(rune) bool) text {
	return t.sub(0, len(strings.TrimRightFunc(t.s, f)))
}

// count is the number of code points: Python's len.
func (t text) count() int { return utf8.RuneCountInString(t.s) }

// offset is the byte position of code point i, 0 ≤ i ≤ count.
func (t text) offset(i int) int {
	if isASCII(t.s) {
		return i
	}
	at := 0
	for range i {
		_, n := utf8.DecodeRuneInString(t.s[at:])
		at += n
	}
	return at
}

// builder joins texts.
type builder struct {
	b    strings.Builder
	runs []Run
}

func (b *builder) str(s string) { b.b.WriteString(s) }

func (b *builder) text(t text) {
	at := b.b.Len()
	b.b.WriteString(t.s)
	for _, r := range t.runs {
		r.Start += at
		r.End += at
		if n := len(b.runs); n > 0 && b.runs[n-1].End == r.Start && b.runs[n-1].Origin == r.Origin {
			b.runs[n-1].End = r.End
			continue
		}
		b.runs = append(b.runs, r)
	}
}

func (b *builder) done() text { return text{b.b.String(), b.runs} }

func joinTexts(parts ...text) text {
	var b builder
	for _, p := range parts {
		b.text(p)
	}
	return b.done()
}

// cut splits t at every sep, at most n times (n < 0: every one).
func (t text) cut(sep string, n int) []text {
	var out []text
	at := 0
	for n != 0 {
		k := strings.Index(t.s[at:], sep)
		if k < 0 {
			break
		}
		out = append(out, t.sub(at, at+k))
		at += k + len(sep)
		n--
	}
	return append(out, t.sub(at, len(t.s)))
}

// cutRight is cut from the end.
func (t text) cutRight(sep string, n int) []text {
	var out []text
	end := len(t.s)
	for n != 0 {
		k := strings.LastIndex(t.s[:end], sep)
		if k < 0 {
			break
		}
		out = append([]text{t.sub(k+len(sep), end)}, out...)
		end = k
		n--
	}
	return append([]text{t.sub(0, end)}, out...)
}

// fields is Python's split without a separator.
func (t text) fields(n int) []text {
	var out []text
	rest := t.trimLeft(isSpace)
	for rest.s != "" {
		k := strings.IndexFunc(rest.s, isSpace)
		if k < 0 {
			return append(out, rest)
		}
		if n == 0 {
			return append(out, rest)
		}
		out = append(out, rest.sub(0, k))
		rest = rest.sub(k, len(rest.s)).trimLeft(isSpace)
		n--
	}
	return out
}

// Strip is Python's str.strip: s without the white space at its ends.
func Strip(s string) string { return strings.TrimFunc(s, isSpace) }

// StripRight is Python's str.rstrip.
func StripRight(s string) string { return strings.TrimRightFunc(s, isSpace) }
