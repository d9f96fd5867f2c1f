package clean

import (
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// folder brings texts into the form they are compared in: Unicode's NFKC_Casefold
// (compatibility characters resolved, case folded, characters without a shape
// left out), with every run of white space as one space and none at the ends.
// So the form holds no line break.
type folder struct {
	a, b []byte
}

var fold = cases.Fold() // keeps no state, so that one does for all

// append appends the form of s to dst.
func (f *folder) append(dst []byte, s string) []byte {
	begin, space := len(dst), false
	for s != "" {
		n := 0
		for n < len(s) && s[n] < utf8.RuneSelf {
			n++
		}
		han := ideographs(s[n:])
		// Other characters go with the ASCII one before them, which a mark may
		// combine with. None combines with an ASCII one or an ideograph behind it.
		if han == 0 && n < len(s) && n > 0 {
			n--
		}
		dst, space = appendASCII(dst, s[:n], begin, space)
		s = s[n:]
		if han > 0 {
			if space && len(dst) > begin {
				dst = append(dst, ' ')
			}
			space = false
			dst = append(dst, s[:han]...)
			s = s[han:]
			continue
		}
		for n = min(1, len(s)); n < len(s) && s[n] >= utf8.RuneSelf && (s[n] < 0xE4 || s[n] > 0xE9 || ideographs(s[n:n+min(3, len(s)-n)]) == 0); {
			n++
		}
		for part := f.casefold(s[:n]); len(part) > 0; {
			r, n := utf8.DecodeRune(part)
			switch {
			case unicode.IsSpace(r):
				space = true
			case !ignorable(r): // x/text parts long rows of marks with one
				if space && len(dst) > begin {
					dst = append(dst, ' ')
				}
				space = false
				dst = append(dst, part[:n]...)
			}
			part = part[n:]
		}
		s = s[n:]
	}
	return dst
}

// ideographs is the length of the ideographs that s begins with: those of
// U+4E00..U+9FFF, which are their own form and combine with nothing.
func ideographs(s string) int {
	n := 0
	for n+3 <= len(s) && s[n] >= 0xE4 && s[n] <= 0xE9 && s[n+1]&0xC0 == 0x80 && s[n+2]&0xC0 == 0x80 && (s[n] > 0xE4 || s[n+1] >= 0xB8) {
		n += 3
	}
	return n
}

// lower maps ASCII bytes to lower case, and white space to 0 where NUL is 0 too.
var lower = func() (t [utf8.RuneSelf]byte) {
	for c := range t {
		t[c] = byte(unicode.ToLower(rune(c)))
		if unicode.IsSpace(rune(c)) {
			t[c] = 0
		}
	}
	return t
}()

// appendASCII is append for ASCII text; space says that white space came before it.
func appendASCII(dst []byte, s string, begin int, space bool) ([]byte, bool) {
	n := len(dst)
	dst = slices.Grow(dst, len(s)+1)[:n+len(s)+1]
	for i := range len(s) {
		c := lower[s[i]&0x7F]
		if c == 0 && s[i] != 0 {
			space = true
			continue
		}
		if space {
			space = false
			if n > begin {
				dst[n] = ' '
				n++
			}
		}
		dst[n] = c
		n++
	}
	return dst[:n], space
}

// casefold returns NFKC(fold(NFKC(s))), with ignorable characters left out before
// the last step, valid until the next call.
func (f *folder) casefold(s string) []byte {
	f.a = norm.NFKC.AppendString(f.a[:0], s)
	if need := 3 * len(f.a); cap(f.b) < need { // folding makes no character more than three
		f.b = make([]byte, need+64)
	}
	n, _, err := fold.Transform(f.b[:cap(f.b)], f.a, true)
	if err != nil {
		panic("clean: folding case: " + err.Error()) // the buffer holds any result
	}
	shown := f.b[:0]
	for part := f.b[:n]; len(part) > 0; {
		r, n := utf8.DecodeRune(part)
		if !ignorable(r) {
			shown = append(shown, part[:n]...)
		}
		part = part[n:]
	}
	f.a = norm.NFKC.Append(f.a[:0], shown...)
	return f.a
}

// ignorable reports whether r is of Unicode's Default_Ignorable_Code_Point:
// soft hyphens, joiners, direction marks, variation selectors, byte-order marks.
func ignorable(r rune) bool {
	switch {
	case r < 0xAD:
		return false
	case r == 0xAD, r == 0x034F, r == 0x061C, r == 0x115F, r == 0x1160, r == 0x17B4, r == 0x17B5, r == 0x3164, r == 0xFEFF, r == 0xFFA0:
		return true
	}
	return r >= 0x180B && r <= 0x180F || r >= 0x200B && r <= 0x200F || r >= 0x202A && r <= 0x202E || r >= 0x2060 && r <= 0x206F ||
		r >= 0xFE00 && r <= 0xFE0F || r >= 0xFFF0 && r <= 0xFFF8 || r >= 0x1BCA0 && r <= 0x1BCA3 || r >= 0x1D173 && r <= 0x1D17A ||
		r >= 0xE0000 && r <= 0xE0FFF
}
