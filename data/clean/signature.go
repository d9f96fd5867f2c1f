package clean

import (
	"encoding/binary"
	"math/bits"
	"unicode"
	"unicode/utf8"

	"github.com/zeebo/xxh3"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
)

const (
	// permutations is the number of hash functions of a MinHash: similarities
	// are told in steps of 1/128, with a standard error of at most 0.044.
	permutations = 128
	// gram is how many words in a row are one element of a record's set.
	gram = 5
	// minGrams is the fewest of them for which similarity means anything: texts
	// of fewer than 24 words are duplicates only of what equals them.
	minGrams = 20
)

// Signature stands for a record in the search for duplicates: a hash of the
// whole, and for near duplicates the MinHash of its word 5-grams. The set is
// that of the turns' words in a row, whoever speaks. A word is a run of letters,
// marks and digits in the form that folder gives; every character of a script
// written without spaces (Chinese, Japanese, Thai and others) is a word, and so
// is every symbol; punctuation is none.
type Signature struct {
	exact [16]byte
	kind  signatureKind
	near  [permutations]uint16 // 16 bits of each least hash
}

type signatureKind uint8

const (
	exactOnly signatureKind = iota // near duplicates were not asked for
	tooShort                       // for near duplicates
	full
	kindsEnd
)

// Dedupes reports whether duplicates are to be found, so that records need
// signatures.
func (c *Cleaner) Dedupes() bool { return c.spec.Dedupe != specstream.DedupeNone }

// Sign returns a record's signature, the same for equal turns whatever else the
// records hold. It is safe for concurrent use.
func (c *Cleaner) Sign(r data.Record) Signature {
	s := c.scratch.Get().(*signer)
	defer c.scratch.Put(s)
	return s.sign(r.Turns, c.spec.Dedupe == specstream.DedupeNear)
}

// signer holds the buffers of signing.
type signer struct {
	fold folder
	text []byte
	mins minHash
}

func (s *signer) sign(turns []data.Turn, near bool) (sig Signature) {
	s.text = s.text[:0]
	for _, t := range turns {
		// No line break comes from a text, so that no two records run together
		// to the same bytes.
		s.text = append(s.text, string(t.Role)+"\n"...)
		s.text = append(s.fold.append(s.text, t.Text), '\n')
	}
	h := xxh3.Hash128(s.text)
	sig.exact = h.Bytes()
	if !near {
		return sig
	}
	sig.kind = tooShort
	s.mins.reset()
	if s.grams() >= minGrams {
		sig.kind = full
		for i, m := range s.mins.least {
			sig.near[i] = uint16(mix(m))
		}
	}
	return sig
}

// grams takes the 5-grams of the text's words into the minima and returns their
// number.
func (s *signer) grams() int {
	var last [gram]uint64 // a ring of words' hashes
	var roll uint64
	words, role := 0, true // the role line of a turn is not its text
	add := func(h uint64) {
		// A polynomial of the hashes in the window, rolled on by one word.
		slot := &last[words%gram]
		roll = (roll-*slot*rollTop)*rollBase + h
		*slot = h
		words++
		if words >= gram {
			s.mins.take(mix(roll))
		}
	}
	for i, t := 0, s.text; i < len(t); {
		if role || t[i] == '\n' {
			for t[i] != '\n' {
				i++
			}
			i, role = i+1, !role
			continue
		}
		class, n := classOf(t[i:])
		j := i + n
		if class == partOfWord {
			for j < len(t) {
				c, n := classOf(t[j:])
				if c != partOfWord {
					break
				}
				j += n
			}
		}
		if class != betweenWords {
			add(xxh3.Hash(t[i:j]))
		}
		i = j
	}
	return max(0, words-gram+1)
}

type wordClass uint8

const (
	betweenWords wordClass = iota
	partOfWord
	wholeWord
)

var asciiClass = func() (c [utf8.RuneSelf]wordClass) {
	for r := range c {
		c[r] = runeClass(rune(r))
	}
	return c
}()

// unspaced are the scripts written without spaces between words.
var unspaced = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar}

func runeClass(r rune) wordClass {
	switch {
	case r == '_':
		return partOfWord
	case r >= 0x4E00 && r <= 0x9FFF: // most of Han
		return wholeWord
	case r >= 0x0E00 && unicode.In(r, unspaced...):
		return wholeWord
	case unicode.IsLetter(r), unicode.IsNumber(r), unicode.IsMark(r):
		return partOfWord
	case unicode.IsSymbol(r):
		return wholeWord
	}
	return betweenWords
}

func classOf(t []byte) (wordClass, int) {
	if t[0] < utf8.RuneSelf {
		return asciiClass[t[0]], 1
	}
	r, n := utf8.DecodeRune(t)
	return runeClass(r), n
}

const rollBase uint64 = 0x9E3779B97F4A7C15

// rollTop is rollBase to the power of gram−1.
var rollTop = func() uint64 {
	p := uint64(1)
	for range gram - 1 {
		p *= rollBase
	}
	return p
}()

// mix is the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// matches counts the equal 16-bit values of two MinHashes as stored; it gives up
// with a count below need once need is out of reach.
func matches(a, b []byte, need int) int {
	const lows, highs = 0x7FFF7FFF7FFF7FFF, 0x8000800080008000
	n := 0
	for i := 0; i < 2*permutations; i += 32 {
		for k := i; k < i+32; k += 8 {
			x := binary.LittleEndian.Uint64(a[k:]) ^ binary.LittleEndian.Uint64(b[k:])
			// The top bit of every lane that is not zero.
			x = ((x&lows + lows) | x) & highs
			n += 4 - bits.OnesCount64(x)
		}
		if n+(2*permutations-i-32)/2 < need {
			return n
		}
	}
	return n
}
