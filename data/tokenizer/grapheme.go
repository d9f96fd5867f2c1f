package tokenizer

import (
	"sync"
	"unicode/utf8"
)

// Classes of grapheme clusters (UAX #29): Grapheme_Cluster_Break in the low
// bits, Indic_Conjunct_Break above.
const (
	gcbOther uint8 = iota
	gcbCR
	gcbLF
	gcbControl
	gcbExtend
	gcbZWJ
	gcbRI
	gcbPrepend
	gcbSpacingMark
	gcbL
	gcbV
	gcbT
	gcbLV
	gcbLVT
	gcbPictographic

	gcbMask       = 0x0f
	incbLinker    = 0x10
	incbConsonant = 0x20
	incbExtend    = 0x40
)

// graphemes holds the class of every code point, in pages of 256.
type graphemes struct {
	page  [(utf8.MaxRune + 1) >> 8]uint16
	class []uint8
}

// graphemeTable is built on first use: few tokenizers need it.
var graphemeTable = sync.OnceValue(func() *graphemes {
	u := tables()
	g := &graphemes{class: make([]uint8, 256)}
	mark := func(set ranges, bits uint8) {
		for _, r := range set {
			for c := r.lo; c <= r.hi; c++ {
				p := &g.page[c>>8]
				if *p == 0 {
					*p = uint16(len(g.class) >> 8)
					g.class = append(g.class, make([]uint8, 256)...)
				}
				g.class[int(*p)<<8|int(c&0xff)] |= bits
			}
		}
	}
	for name, bits := range map[string]uint8{
		"gcb Control": gcbControl, "gcb Extend": gcbExtend, "gcb RI": gcbRI, "gcb Prepend": gcbPrepend,
		"gcb SpacingMark": gcbSpacingMark, "gcb L": gcbL, "gcb V": gcbV, "gcb T": gcbT, "gcb Pictographic": gcbPictographic,
		"incb Linker": incbLinker, "incb Consonant": incbConsonant, "incb Extend": incbExtend,
	} {
		mark(u.sets[name], bits)
	}
	mark(ranges{{'\r', '\r'}}, gcbCR)
	mark(ranges{{'\n', '\n'}}, gcbLF)
	mark(ranges{{0x200D, 0x200D}}, gcbZWJ)
	for s := range rune(hangulSCount) {
		bits := gcbLVT
		if s%hangulTCount == 0 {
			bits = gcbLV
		}
		mark(ranges{{hangulS + s, hangulS + s}}, bits)
	}
	return g
})

// nextGrapheme returns the end of the extended grapheme cluster of s that
// starts at byte i.
func (u *unicodeTables) nextGrapheme(s string, i int) int {
	g := graphemeTable()
	classAt := func(i int) (uint8, int) {
		r, n := utf8.DecodeRuneInString(s[i:])
		return g.class[int(g.page[r>>8])<<8|int(r&0xff)], n
	}
	c, n := classAt(i)
	i += n
	flags := 0 // regional indicators in a row
	if c&gcbMask == gcbRI {
		flags = 1
	}
	pict := c&gcbMask == gcbPictographic            // GB11: a pictograph, then Extend*
	conjunct, linked := c&incbConsonant != 0, false // GB9c
	for i < len(s) {
		d, n := classAt(i)
		a, b := c&gcbMask, d&gcbMask
		joins := false
		switch {
		case a == gcbCR:
			joins = b == gcbLF
		case a == gcbLF || a == gcbControl || b == gcbCR || b == gcbLF || b == gcbControl:
		case b == gcbExtend || b == gcbZWJ || b == gcbSpacingMark || a == gcbPrepend:
			joins = true
		case a == gcbL:
			joins = b == gcbL || b == gcbV || b == gcbLV || b == gcbLVT
		case a == gcbLV || a == gcbV:
			joins = b == gcbV || b == gcbT
		case a == gcbLVT || a == gcbT:
			joins = b == gcbT
		case conjunct && linked && d&incbConsonant != 0:
			joins = true
		case a == gcbZWJ && b == gcbPictographic:
			joins = pict
		case a == gcbRI && b == gcbRI:
			joins = flags%2 == 1
		}
		if !joins {
			return i
		}
		if b == gcbRI {
			flags++
		} else {
			flags = 0
		}
		switch {
		case b == gcbPictographic:
			pict = true
		case b != gcbExtend && b != gcbZWJ, a == gcbZWJ:
			pict = false
		}
		switch {
		case d&incbConsonant != 0:
			conjunct, linked = true, false
		case d&incbLinker != 0:
			linked = true
		case d&incbExtend == 0:
			conjunct = false
		}
		c = d
		i += n
	}
	return i
}
