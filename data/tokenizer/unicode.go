package tokenizer

import (
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// Unicode versions of the pinned tables. Tokenisation must not change with the
// Go release, whose unicode package and x/text follow versions of their own, so
// the tables are read off the Hugging Face library (testdata/make_unicode.py).
const (
	// ClassVersion is the Unicode version of \p{L}, \p{N}, \s and \w.
	ClassVersion = "16.0"
	// NormalizationVersion is the Unicode version of NFC, NFD, NFKC and NFKD.
	// Hugging Face is this far behind, and a model's ids were made with its
	// tables.
	NormalizationVersion = "9.0"
	// GraphemeVersion is the Unicode version of grapheme clusters, which the
	// Precompiled normalizer looks at.
	GraphemeVersion = "17.0"
)

// Bits of a code point's class.
const (
	classLetter  uint8 = 1 << iota // \p{L}
	classNumber                    // \p{N}
	classSpace                     // \s
	classWord                      // \w of Rust's regex crate
	classActive                    // takes part in NFC: see normalizeNFC
	classPunct                     // what the Punctuation pre-tokenizer splits at
	classNumeric                   // what the Digits pre-tokenizer splits at
	classMark                      // what StripAccents removes
)

//go:embed unicode.txt
var unicodeText string

// unicodeTables is the parsed form of unicode.txt.
type unicodeTables struct {
	ascii   [utf8.RuneSelf]uint8
	page    [(utf8.MaxRune + 1) >> 8]uint16 // code point / 256 → page of classes
	class   []uint8                         // pages of 256 classes
	ccc     map[rune]uint8                  // canonical combining class, when not 0
	decomp  map[rune][2]rune                // canonical decomposition, one step; second 0 for singletons
	compose map[[2]rune]rune                // primary composites
	compat  map[rune][]rune                 // full compatibility decomposition, where it differs
	lower   map[rune][]rune                 // lower-case mapping, where it differs
	sets    map[string]ranges               // "gc Lu", "script Han", "gcb Extend" and so on
}

// tables parses the embedded tables once.
var tables = sync.OnceValue(func() *unicodeTables {
	u, err := parseUnicode(unicodeText)
	if err != nil {
		panic("tokenizer: embedded unicode.txt: " + err.Error()) // a broken build, not bad input
	}
	return u
})

// classOf returns the class bits of r.
func (u *unicodeTables) classOf(r rune) uint8 {
	return u.class[int(u.page[r>>8])<<8|int(r&0xff)]
}

// at decodes the rune of s at byte i, returning its class and its length.
func (u *unicodeTables) at(s string, i int) (class uint8, n int) {
	if b := s[i]; b < utf8.RuneSelf {
		return u.ascii[b], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return u.classOf(r), n
}

// before decodes the rune that ends at byte i of s.
func (u *unicodeTables) before(s string, i int) (class uint8, n int) {
	r, n := utf8.DecodeLastRuneInString(s[:i])
	return u.classOf(r), n
}

func parseUnicode(text string) (*unicodeTables, error) {
	u := &unicodeTables{
		class:   make([]uint8, 256), // page 0 of the slice: nothing set
		ccc:     make(map[rune]uint8),
		decomp:  make(map[rune][2]rune),
		compose: make(map[[2]rune]rune),
		compat:  make(map[rune][]rune),
		lower:   make(map[rune][]rune),
		sets:    make(map[string]ranges),
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] == "#" {
			continue
		}
		var err error
		switch f[0] {
		case "gc":
			switch f[1][0] {
			case 'L':
				err = u.mark(f[2:], classLetter)
			case 'N':
				err = u.mark(f[2:], classNumber)
			}
			err = errors.Join(err, u.keep("gc "+f[1], f[2:]), u.keep("gc "+f[1][:1], f[2:]))
		case "script", "gcb", "incb":
			err = u.keep(f[0]+" "+f[1], f[2:])
		case "space":
			err = errors.Join(u.mark(f[1:], classSpace), u.keep("space", f[1:]))
		case "onigword":
			err = u.keep("word", f[1:])
		case "word":
			err = u.mark(f[1:], classWord)
		case "punct":
			err = u.mark(f[1:], classPunct)
		case "numeric":
			err = u.mark(f[1:], classNumeric)
		case "mark":
			err = u.mark(f[1:], classMark)
		case "lower":
			err = addMappings(u.lower, f[1:])
		case "compat":
			err = addMappings(u.compat, f[1:])
		case "ccc":
			err = u.addCombining(f[1], f[2:])
		case "decomp":
			err = u.addDecompositions(f[1:])
		default:
			err = fmt.Errorf("unknown table %q", f[0])
		}
		if err != nil {
			return nil, err
		}
	}
	for name, rs := range u.sets {
		u.sets[name] = rs.normalized()
	}
	// Second halves of compositions and decomposable code points that NFC does
	// not restore are active: text without any of them is already normal.
	for pair := range u.compose {
		u.set(pair[1], classActive)
	}
	for r, d := range u.decomp {
		if u.compose[d] != r {
			u.set(r, classActive)
		}
	}
	for r := range u.ccc {
		u.set(r, classActive)
	}
	for r := rune(hangulV); r < hangulV+hangulVCount; r++ {
		u.set(r, classActive)
	}
	for r := rune(hangulT + 1); r < hangulT+hangulTCount; r++ {
		u.set(r, classActive)
	}
	for r := range rune(utf8.RuneSelf) {
		u.ascii[r] = u.classOf(r)
	}
	return u, nil
}

// set adds bits to the class of r, giving its page memory of its own first.
func (u *unicodeTables) set(r rune, bits uint8) {
	p := &u.page[r>>8]
	if *p == 0 {
		*p = uint16(len(u.class) >> 8)
		u.class = append(u.class, make([]uint8, 256)...)
	}
	u.class[int(*p)<<8|int(r&0xff)] |= bits
}

func (u *unicodeTables) mark(items []string, bits uint8) error {
	return eachRange(items, func(r rune) { u.set(r, bits) })
}

// keep adds ranges to a named set.
func (u *unicodeTables) keep(name string, items []string) error {
	for _, it := range items {
		r, err := parseRange(it)
		if err != nil {
			return err
		}
		u.sets[name] = append(u.sets[name], r)
	}
	return nil
}

// addMappings reads "C4=E4" and "130=69+307".
func addMappings(into map[rune][]rune, items []string) error {
	for _, it := range items {
		left, right, ok := strings.Cut(it, "=")
		if !ok {
			return fmt.Errorf("mapping %q", it)
		}
		from, err := parseRune(left)
		if err != nil {
			return err
		}
		var to []rune
		for part := range strings.SplitSeq(right, "+") {
			r, err := parseRune(part)
			if err != nil {
				return err
			}
			to = append(to, r)
		}
		into[from] = to
	}
	return nil
}

func (u *unicodeTables) addCombining(class string, items []string) error {
	c, err := strconv.ParseUint(class, 10, 8)
	if err != nil {
		return err
	}
	return eachRange(items, func(r rune) { u.ccc[r] = uint8(c) })
}

// addDecompositions reads "C0=41+300" (composes again) and "340!300" (does not).
func (u *unicodeTables) addDecompositions(items []string) error {
	for _, it := range items {
		i := strings.IndexAny(it, "=!")
		if i < 0 {
			return fmt.Errorf("decomposition %q", it)
		}
		from, err := parseRune(it[:i])
		if err != nil {
			return err
		}
		first, second, two := strings.Cut(it[i+1:], "+")
		var d [2]rune
		if d[0], err = parseRune(first); err != nil {
			return err
		}
		if two {
			if d[1], err = parseRune(second); err != nil {
				return err
			}
		}
		u.decomp[from] = d
		if it[i] == '=' {
			u.compose[d] = from
		}
	}
	return nil
}

func eachRange(items []string, f func(rune)) error {
	for _, it := range items {
		r, err := parseRange(it)
		if err != nil {
			return err
		}
		for c := r.lo; c <= r.hi; c++ {
			f(c)
		}
	}
	return nil
}

// parseRange reads "41" or "41-5A".
func parseRange(s string) (runeRange, error) {
	lo, hi, ok := strings.Cut(s, "-")
	if !ok {
		hi = lo
	}
	a, err := parseRune(lo)
	if err != nil {
		return runeRange{}, err
	}
	b, err := parseRune(hi)
	if err != nil {
		return runeRange{}, err
	}
	if a > b {
		return runeRange{}, fmt.Errorf("range %s is empty", s)
	}
	return runeRange{a, b}, nil
}

func parseRune(s string) (rune, error) {
	n, err := strconv.ParseUint(s, 16, 32)
	if err != nil {
		return 0, err
	}
	if n > utf8.MaxRune {
		return 0, fmt.Errorf("code point %s out of range", s)
	}
	return rune(n), nil
}
