package tokenizer

import (
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestTablesAgainstGo: on the code points that Go's version of Unicode and ours
// both assign, letters, numerals and white space are the same.
func TestTablesAgainstGo(t *testing.T) {
	u := tables()
	newer := 0
	for r := rune(0); r <= utf8.MaxRune; r++ {
		c := u.classOf(r)
		for _, k := range []struct {
			name string
			bit  uint8
			in   bool
		}{
			{"letter", classLetter, unicode.Is(unicode.L, r)},
			{"number", classNumber, unicode.Is(unicode.N, r)},
			{"space", classSpace, unicode.Is(unicode.White_Space, r)},
		} {
			if got := c&k.bit != 0; got != k.in {
				// Assigned in one version only.
				if assigned := unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z, unicode.Cc, unicode.Cf, unicode.Co); !assigned || c&(classLetter|classNumber|classSpace) == 0 {
					newer++
					continue
				}
				t.Errorf("%U: %s is %v here and %v in Go", r, k.name, got, k.in)
			}
		}
	}
	t.Logf("Unicode %s here, %s in Go: %d code points assigned in one only", ClassVersion, unicode.Version, newer)
	if newer > 20000 {
		t.Errorf("%d code points differ", newer)
	}
}

func TestParseUnicodeRefuses(t *testing.T) {
	for _, text := range []string{"letters 41", "gc Lu 4G", "space 110000", "ccc 999 300", "decomp C0", "decomp C0=41+x", "gc Lu 41-", "punct 5-4", "lower 41", "compat 41=x", "gcb Extend z"} {
		if _, err := parseUnicode(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestNFC(t *testing.T) {
	u := tables()
	for _, c := range []struct{ name, in, want string }{
		{"ASCII", "plain", "plain"},
		{"composes", "e\u0301", "\u00e9"},
		{"composed stays", "\u00e9", "\u00e9"},
		{"two marks", "a\u0301\u0327", "\u00e1\u0327"},
		{"order", "q\u0307\u0323", "q\u0323\u0307"},
		{"blocked", "a\u0334\u0334\u0301", "\u00e1\u0334\u0334"},
		{"blocked by equal class", "a\u0315\u0300", "\u00e0\u0315"},
		{"singleton", "\u212b", "\u00c5"},
		{"exclusion", "\u0958", "\u0915\u093c"},
		{"Hangul", "\u1112\u1161\u11ab", "\ud55c"},
		{"Hangul syllable and final", "\ud558\u11ab", "\ud55c"},
		{"mark first", "\u0301a", "\u0301a"},
		{"newer than the tables", "\U00011935\U00011930", "\U00011935\U00011930"},
		{"long run is not cut", "e" + repeat("\u0316", 40) + "\u0301x", "\u00e9" + repeat("\u0316", 40) + "x"},
		{"between plain text", "xxe\u0301yyo\u0308zz", "xx\u00e9yy\u00f6zz"},
	} {
		if got := normalizeNFC(u, c.in); got != c.want {
			t.Errorf("%s: %+q, want %+q", c.name, got, c.want)
		}
	}
}

func repeat(s string, n int) string {
	out := ""
	for range n {
		out += s
	}
	return out
}
