package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// preTokenizer is one step of a tokenizer's pre-tokenizer.
type preTokenizer struct {
	// Exactly one of the following cuts; none for a ByteLevel that cuts nothing.
	split splitter // leaves no gaps, every piece counts
	find  finder   // matches are used as behavior says
	meta  string   // Metaspace: the replacement of spaces

	behavior behavior
	invert   bool // what find does not match counts as the match

	prefixSpace bool // ByteLevel: a piece that does not start with a space gets one
	mapBytes    bool // ByteLevel before other steps: those see GPT-2's alphabet

	metaPrepend prependScheme
	metaSplit   bool
}

// finder returns the first match at byte i of s or later; start is negative
// when there is none. Matches are not empty.
type finder func(u *unicodeTables, s string, i int) (start, end int)

// behavior says what becomes of matches.
type behavior uint8

const (
	isolated behavior = iota
	removed
	mergedWithPrevious
	mergedWithNext
	contiguous
)

// behaviors are the names in tokenizer.json.
var behaviors = map[string]behavior{
	"Isolated": isolated, "Removed": removed, "MergedWithPrevious": mergedWithPrevious,
	"MergedWithNext": mergedWithNext, "Contiguous": contiguous,
}

// prependScheme says which pieces a Metaspace prepends its replacement to.
type prependScheme uint8

const (
	prependAlways prependScheme = iota
	prependFirst
	prependNever
)

// apply splits s, which is not empty, by one step and yields the pieces in
// order. atStart says that s begins at the first byte of the text given to
// Encode.
func (p *preTokenizer) apply(u *unicodeTables, s string, atStart bool, yield func(piece string, atStart bool)) {
	switch {
	case p.meta != "":
		p.applyMeta(s, atStart, yield)
	case p.find != nil:
		p.applyFind(u, s, atStart, yield)
	default:
		if p.prefixSpace && s[0] != ' ' {
			s = " " + s
		}
		for i := 0; i < len(s); {
			j := len(s)
			if p.split != nil {
				j = p.split(u, s, i)
			}
			piece := s[i:j]
			if p.mapBytes {
				piece = toByteLevel(piece)
			}
			yield(piece, atStart && i == 0)
			i = j
		}
	}
}

// applyFind cuts s at matches.
func (p *preTokenizer) applyFind(u *unicodeTables, s string, atStart bool, yield func(string, bool)) {
	f := folder{behavior: p.behavior, yield: func(start, end int) { yield(s[start:end], atStart && start == 0) }}
	done := 0
	for done < len(s) {
		start, end := p.find(u, s, done)
		if start < 0 {
			start, end = len(s), len(s)
		}
		if start > done {
			f.segment(done, start, p.invert)
		}
		if end > start {
			f.segment(start, end, !p.invert)
		}
		done = end
	}
	f.finish()
}

// folder joins the matches and gaps of a text as a behavior says.
type folder struct {
	behavior   behavior
	yield      func(start, end int)
	start, end int  // segment not yielded yet
	pending    bool // there is one
	match      bool // the last segment was a match
}

func (f *folder) segment(start, end int, match bool) {
	join := false
	switch f.behavior {
	case removed:
		if !match {
			f.yield(start, end)
		}
		return
	case isolated:
		f.yield(start, end)
		return
	case contiguous:
		join = match == f.match
	case mergedWithPrevious:
		join = match && !f.match
	case mergedWithNext:
		join = !match && f.match
	}
	if f.pending && join {
		f.end = end
	} else {
		f.finish()
		f.start, f.end, f.pending = start, end, true
	}
	f.match = match
}

func (f *folder) finish() {
	if f.pending {
		f.yield(f.start, f.end)
		f.pending = false
	}
}

func (p *preTokenizer) applyMeta(s string, atStart bool, yield func(string, bool)) {
	s = strings.ReplaceAll(s, " ", p.meta)
	if p.metaPrepend == prependAlways || p.metaPrepend == prependFirst && atStart {
		if !strings.HasPrefix(s, p.meta) {
			s = p.meta + s
		}
	}
	if !p.metaSplit {
		yield(s, atStart)
		return
	}
	first := atStart
	for s != "" {
		j := len(s)
		if k := strings.Index(s[1:], p.meta); k >= 0 {
			j = k + 1
		}
		yield(s[:j], first)
		s, first = s[j:], false
	}
}

// findClass finds single characters of a class.
func findClass(bits uint8) finder {
	return func(u *unicodeTables, s string, i int) (int, int) {
		for i < len(s) {
			c, n := u.at(s, i)
			if c&bits != 0 {
				return i, i + n
			}
			i += n
		}
		return -1, -1
	}
}

// findWord finds \w+|[^\w\s]+ as Rust's regex crate understands them.
func findWord(u *unicodeTables, s string, i int) (int, int) {
	for i < len(s) {
		c, n := u.at(s, i)
		if c&(classWord|classSpace) == 0 || c&classWord != 0 {
			end := i + n
			for end < len(s) {
				d, n := u.at(s, end)
				if d&classWord != c&classWord || d&(classWord|classSpace) == classSpace {
					break
				}
				end += n
			}
			return i, end
		}
		i += n
	}
	return -1, -1
}

// findString finds a literal string.
func findString(pattern string) finder {
	return func(_ *unicodeTables, s string, i int) (int, int) {
		k := strings.Index(s[i:], pattern)
		if k < 0 {
			return -1, -1
		}
		return i + k, i + k + len(pattern)
	}
}

// findRegex finds a regular expression.
func findRegex(r *regex) finder {
	return func(_ *unicodeTables, s string, i int) (int, int) { return r.find(s, i) }
}

// isOneRune reports whether s is one character.
func isOneRune(s string) bool { return utf8.RuneCountInString(s) == 1 }
