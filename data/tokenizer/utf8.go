package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// toValidUTF8 replaces each maximal subpart of an ill-formed sequence by
// U+FFFD (The Unicode Standard, section 3.9), as Rust's from_utf8_lossy does;
// strings.ToValidUTF8 would put one for a whole run.
func toValidUTF8(s string) string {
	var b strings.Builder
	b.Grow(len(s) + 8)
	for s != "" {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			n, _ = invalidPrefix(s)
		}
		if r == utf8.RuneError {
			b.WriteRune(utf8.RuneError)
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// invalidPrefix returns the length of the maximal subpart of an ill-formed
// sequence at the start of s: the longest prefix of some well-formed sequence,
// at least one byte. cut says that s ends before the sequence does: more bytes
// could make it well-formed.
func invalidPrefix(s string) (n int, cut bool) {
	need, lo, hi := 0, byte(0x80), byte(0xBF)
	switch b := s[0]; {
	case b >= 0xC2 && b <= 0xDF:
		need = 1
	case b >= 0xE0 && b <= 0xEF:
		need = 2
		if b == 0xE0 {
			lo = 0xA0
		} else if b == 0xED {
			hi = 0x9F
		}
	case b >= 0xF0 && b <= 0xF4:
		need = 3
		if b == 0xF0 {
			lo = 0x90
		} else if b == 0xF4 {
			hi = 0x8F
		}
	}
	n = 1
	for n <= need && n < len(s) && lo <= s[n] && s[n] <= hi {
		n++
		lo, hi = 0x80, 0xBF
	}
	return n, n == len(s) && n <= need
}

// utf8Stream repairs text that arrives in parts: what it writes joined is
// toValidUTF8 of all parts joined.
type utf8Stream struct{ held string }

// write passes on what is certain of the text so far.
func (u *utf8Stream) write(out func(string), s string) {
	if u.held != "" {
		s = u.held + s
		u.held = ""
	}
	// Only the last three bytes can be the beginning of more.
	end := len(s)
	for k := 1; k <= 3 && k <= len(s); k++ {
		if !utf8.RuneStart(s[len(s)-k]) {
			continue
		}
		if n, cut := invalidPrefix(s[len(s)-k:]); cut && n == k {
			end = len(s) - k
		}
		break
	}
	u.held = strings.Clone(s[end:])
	if end > 0 {
		out(validOrReplaced(s[:end]))
	}
}

// flush passes on the rest.
func (u *utf8Stream) flush(out func(string)) {
	if u.held != "" {
		out(validOrReplaced(u.held))
		u.held = ""
	}
}
