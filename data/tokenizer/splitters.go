package tokenizer

import "strings"

// A splitter returns the end of the piece of s that starts at byte i < len(s).
// Splitters are hand-written forms of the regular expressions they are named
// after: linear in the length of s, where a backtracking engine is not.
type splitter func(u *unicodeTables, s string, i int) int

// The regular expressions with a splitter, as tokenizer.json files spell them.
const (
	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// splitters maps supported regular expressions to their splitters. All of them
// cover every character, so that "Isolated" leaves no gaps between matches.
var splitters = map[string]splitter{
	patternGPT2:   splitGPT2,
	patternLlama3: splitLlama3,
	patternQwen:   splitQwen,
}

// runOfSpace returns the end of the run of \s that starts at i and the start
// of its last character.
func (u *unicodeTables) runOfSpace(s string, i int) (end, last int) {
	end, last = i, i
	for end < len(s) {
		c, n := u.at(s, end)
		if c&classSpace == 0 {
			break
		}
		last = end
		end += n
	}
	return end, last
}

// trailingSpace is \s+(?!\S)|\s+ on a run of spaces: all of it at the end of
// the text, else all but its last character, which goes with the next word.
func trailingSpace(s string, i, end, last int) int {
	if end == len(s) || last == i {
		return end
	}
	return last
}

// splitGPT2 is patternGPT2.
func splitGPT2(u *unicodeTables, s string, i int) int {
	if s[i] == '\'' {
		if n := contraction(s[i:]); n > 0 {
			return i + n
		}
	}
	j := i
	if s[i] == ' ' && i+1 < len(s) {
		j++
	}
	c, n := u.at(s, j)
	if c&classSpace != 0 {
		end, last := u.runOfSpace(s, i)
		return trailingSpace(s, i, end, last)
	}
	const kinds = classLetter | classNumber | classSpace
	for j += n; j < len(s); j += n {
		var d uint8
		if d, n = u.at(s, j); (c^d)&kinds != 0 {
			break
		}
	}
	return j
}

// contraction returns the length of 's|'t|'re|'ve|'m|'ll|'d at the start of s,
// 0 when there is none.
func contraction(s string) int {
	if len(s) < 2 {
		return 0
	}
	switch s[1] {
	case 's', 't', 'm', 'd':
		return 2
	}
	if len(s) < 3 {
		return 0
	}
	switch s[1:3] {
	case "re", "ve", "ll":
		return 3
	}
	return 0
}

// foldedContraction is contraction under (?i:…). U+017F, long s, folds to s.
func foldedContraction(s string) int {
	if len(s) < 2 {
		return 0
	}
	switch s[1] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	}
	if len(s) < 3 {
		return 0
	}
	if s[1:3] == "\u017f" {
		return 3
	}
	switch [2]byte{s[1] | 0x20, s[2] | 0x20} {
	case [2]byte{'r', 'e'}, [2]byte{'v', 'e'}, [2]byte{'l', 'l'}:
		return 3
	}
	return 0
}

func splitLlama3(u *unicodeTables, s string, i int) int { return splitCL100K(u, s, i, 3) }
func splitQwen(u *unicodeTables, s string, i int) int   { return splitCL100K(u, s, i, 1) }

// splitCL100K is patternLlama3 and patternQwen, which differ in how many
// numerals make a piece.
func splitCL100K(u *unicodeTables, s string, i, maxNumerals int) int {
	b := s[i]
	if b == '\'' {
		if n := foldedContraction(s[i:]); n > 0 {
			return i + n
		}
	}
	c, n := u.at(s, i)

	// [^\r\n\p{L}\p{N}]?\p{L}+
	word := -1
	switch {
	case c&classLetter != 0:
		word = i + n
	case c&classNumber == 0 && b != '\r' && b != '\n' && i+n < len(s):
		if d, m := u.at(s, i+n); d&classLetter != 0 {
			word = i + n + m
		}
	}
	if word >= 0 {
		for word < len(s) {
			d, m := u.at(s, word)
			if d&classLetter == 0 {
				break
			}
			word += m
		}
		return word
	}

	// \p{N}{1,maxNumerals}
	if c&classNumber != 0 {
		j := i + n
		for k := 1; k < maxNumerals && j < len(s); k++ {
			d, m := u.at(s, j)
			if d&classNumber == 0 {
				break
			}
			j += m
		}
		return j
	}

	//  ?[^\s\p{L}\p{N}]+[\r\n]*
	j := i
	if b == ' ' && i+1 < len(s) {
		j++
	}
	const kinds = classLetter | classNumber | classSpace
	if c, n = u.at(s, j); c&kinds == 0 {
		for j += n; j < len(s); j += n {
			if c, n = u.at(s, j); c&kinds != 0 {
				break
			}
		}
		for j < len(s) && (s[j] == '\r' || s[j] == '\n') {
			j++
		}
		return j
	}

	// \s*[\r\n]+|\s+(?!\S)|\s+
	end, last := u.runOfSpace(s, i)
	if k := strings.LastIndexAny(s[i:end], "\r\n"); k >= 0 {
		return i + k + 1
	}
	return trailingSpace(s, i, end, last)
}
