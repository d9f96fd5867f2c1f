package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// normalForm returns s in one of the other three normal forms: decomposed, by
// compatibility mappings too or not, and composed again or not.
func (u *unicodeTables) normalForm(s string, compat, compose bool) string {
	if isASCII(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + len(s)/8)
	var buf []rune
	for i := 0; i < len(s); {
		// Text from one ASCII character to the next is independent of the rest,
		// but for marks that follow the first.
		j := i + 1
		for j < len(s) && s[j] < utf8.RuneSelf {
			j++
		}
		b.WriteString(s[i : j-1])
		end := j
		for end < len(s) && s[end] >= utf8.RuneSelf {
			_, n := utf8.DecodeRuneInString(s[end:])
			end += n
		}
		buf = buf[:0]
		for _, r := range s[j-1 : end] {
			buf = u.decompose(buf, r, compat)
		}
		u.reorder(buf)
		out := buf
		if compose {
			out = u.recompose(buf)
		}
		for _, r := range out {
			b.WriteRune(r)
		}
		i = end
	}
	return b.String()
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// Algorithmic Hangul composition (The Unicode Standard, section 3.12).
const (
	hangulS      = 0xAC00
	hangulL      = 0x1100
	hangulV      = 0x1161
	hangulT      = 0x11A7 // one before the first trailing consonant
	hangulLCount = 19
	hangulVCount = 21
	hangulTCount = 28
	hangulSCount = hangulLCount * hangulVCount * hangulTCount
)

// normalizeNFC returns s in Unicode Normalization Form C (UAX #15) by the
// tables of [NormalizationVersion]. Unlike golang.org/x/text/unicode/norm it
// does not cut long runs of combining marks (the Stream-Safe Text Format), and
// neither does Hugging Face.
func normalizeNFC(u *unicodeTables, s string) string {
	i := nextActive(u, s, 0)
	if i == len(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + len(s)/8)
	done := 0
	var buf []rune
	for i < len(s) {
		// The character before an active one is a starter that may compose
		// with it; the first inactive character after it starts anew.
		start := i
		if i > done {
			_, n := u.before(s, i)
			start = i - n
		}
		end := i
		for end < len(s) {
			c, n := u.at(s, end)
			if c&classActive == 0 {
				break
			}
			end += n
		}
		b.WriteString(s[done:start])
		buf = buf[:0]
		for _, r := range s[start:end] {
			buf = u.decompose(buf, r, false)
		}
		u.reorder(buf)
		for _, r := range u.recompose(buf) {
			b.WriteRune(r)
		}
		done = end
		i = nextActive(u, s, end)
	}
	b.WriteString(s[done:])
	return b.String()
}

// nextActive returns the index of the first active character of s from i on.
func nextActive(u *unicodeTables, s string, i int) int {
	for i < len(s) {
		if s[i] < utf8.RuneSelf { // no ASCII character is active
			i++
			continue
		}
		c, n := u.at(s, i)
		if c&classActive != 0 {
			return i
		}
		i += n
	}
	return i
}

// decompose appends the full canonical decomposition of r, or that by
// compatibility.
func (u *unicodeTables) decompose(dst []rune, r rune, compat bool) []rune {
	if compat {
		if to, ok := u.compat[r]; ok {
			return append(dst, to...)
		}
	}
	if s := r - hangulS; 0 <= s && s < hangulSCount {
		dst = append(dst, hangulL+s/(hangulVCount*hangulTCount), hangulV+s/hangulTCount%hangulVCount)
		if t := s % hangulTCount; t > 0 {
			dst = append(dst, hangulT+t)
		}
		return dst
	}
	d, ok := u.decomp[r]
	if !ok {
		return append(dst, r)
	}
	dst = u.decompose(dst, d[0], false)
	if d[1] != 0 {
		dst = u.decompose(dst, d[1], false)
	}
	return dst
}

// reorder sorts each run of combining marks by class, keeping equals in order.
func (u *unicodeTables) reorder(rs []rune) {
	for i := 0; i < len(rs); {
		if u.ccc[rs[i]] == 0 {
			i++
			continue
		}
		j, sorted := i+1, true
		for j < len(rs) {
			c := u.ccc[rs[j]]
			if c == 0 {
				break
			}
			sorted = sorted && u.ccc[rs[j-1]] <= c
			j++
		}
		if !sorted {
			slices.SortStableFunc(rs[i:j], func(a, b rune) int { return int(u.ccc[a]) - int(u.ccc[b]) })
		}
		i = j
	}
}

// recompose replaces, in place, every starter and the marks that compose with
// it by their primary composites.
func (u *unicodeTables) recompose(rs []rune) []rune {
	out := rs[:0]
	starter := -1  // index in out of the last starter
	var last uint8 // class of the last character kept
	for _, r := range rs {
		c := u.ccc[r]
		// A character of the same or a higher class in between blocks it.
		if starter >= 0 && (starter == len(out)-1 || last < c) {
			if m, ok := u.pair(out[starter], r); ok {
				out[starter] = m
				continue
			}
		}
		if c == 0 {
			starter = len(out)
		}
		last = c
		out = append(out, r)
	}
	return out
}

// pair returns the primary composite of a and b.
func (u *unicodeTables) pair(a, b rune) (rune, bool) {
	if l, v := a-hangulL, b-hangulV; 0 <= l && l < hangulLCount && 0 <= v && v < hangulVCount {
		return hangulS + (l*hangulVCount+v)*hangulTCount, true
	}
	if s, t := a-hangulS, b-hangulT; 0 <= s && s < hangulSCount && s%hangulTCount == 0 && 0 < t && t < hangulTCount {
		return a + t, true
	}
	m, ok := u.compose[[2]rune{a, b}]
	return m, ok
}
