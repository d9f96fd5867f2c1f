package tokenizer

import (
	"slices"
	"unicode/utf8"
)

// runeRange is an inclusive range of code points.
type runeRange struct{ lo, hi rune }

// ranges is a set of code points: sorted ranges that neither overlap nor touch.
type ranges []runeRange

// normalized sorts ranges and joins those that overlap or touch, in place.
func (rs ranges) normalized() ranges {
	slices.SortFunc(rs, func(a, b runeRange) int { return int(a.lo) - int(b.lo) })
	out := rs[:0]
	for _, r := range rs {
		if n := len(out); n > 0 && r.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, r.hi)
			continue
		}
		out = append(out, r)
	}
	return out
}

func union(sets ...ranges) ranges { return slices.Concat(sets...).normalized() }

// not returns the code points outside rs.
func (rs ranges) not() ranges {
	var out ranges
	next := rune(0)
	for _, r := range rs {
		if r.lo > next {
			out = append(out, runeRange{next, r.lo - 1})
		}
		next = r.hi + 1
	}
	if next <= utf8.MaxRune {
		out = append(out, runeRange{next, utf8.MaxRune})
	}
	return out
}

func intersect(a, b ranges) ranges { return union(a.not(), b.not()).not() }

func (rs ranges) overlaps(other ranges) bool { return len(intersect(rs, other)) > 0 }

// runeSet is a set made for lookup: a bitmap in pages of 256 code points, of
// which equal ones are stored once.
type runeSet struct {
	ascii [2]uint64
	page  [(utf8.MaxRune + 1) >> 8]uint16
	bits  [][4]uint64
	all   ranges
}

func newRuneSet(rs ranges) *runeSet {
	s := &runeSet{all: rs}
	seen := make(map[[4]uint64]uint16)
	k := 0
	for p := range s.page {
		var bits [4]uint64
		lo, hi := rune(p)<<8, rune(p)<<8|0xff
		for k < len(rs) && rs[k].hi < lo {
			k++
		}
		for i := k; i < len(rs) && rs[i].lo <= hi; i++ {
			for r := max(lo, rs[i].lo); r <= min(hi, rs[i].hi); r++ {
				bits[r>>6&3] |= 1 << (r & 63)
			}
		}
		at, ok := seen[bits]
		if !ok {
			at = uint16(len(s.bits))
			seen[bits] = at
			s.bits = append(s.bits, bits)
		}
		s.page[p] = at
	}
	copy(s.ascii[:], s.bits[s.page[0]][:2])
	return s
}

// has reports whether r is in the set.
func (s *runeSet) has(r rune) bool {
	return s.bits[s.page[r>>8]][r>>6&3]>>(r&63)&1 != 0
}

// at decodes the character of s at byte i: whether it is in the set, and its
// length.
func (s *runeSet) at(text string, i int) (ok bool, n int) {
	if b := text[i]; b < utf8.RuneSelf {
		return s.ascii[b>>6]>>(b&63)&1 != 0, 1
	}
	r, n := utf8.DecodeRuneInString(text[i:])
	return s.has(r), n
}
