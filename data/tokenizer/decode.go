package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// decoder is one step of a tokenizer's decoder.
type decoder struct {
	kind             decoderKind
	pattern, content string // Replace: from, to; Strip and Metaspace: the character
	regex            *regex // Replace: instead of pattern
	start, stop      int    // Strip: the most characters removed at each end
	dropFirst        bool   // Metaspace: drop the characters of the first token
}

type decoderKind uint8

const (
	decByteLevel decoderKind = iota
	decByteFallback
	decFuse
	decReplace
	decStrip
	decMetaspace
)

// Decode returns the text of ids as Hugging Face's decode(ids,
// skip_special_tokens=True, clean_up_tokenization_spaces=False) does: special
// tokens and ids outside the vocabulary give nothing, and bytes that are no
// UTF-8 give U+FFFD. For byte-level tokenizers without normalizer and prefix
// space, Decode(Encode(s)) == s for every valid UTF-8 string s.
//
// One difference is deliberate: special tokens declared `normalized` are
// skipped too. Hugging Face 0.23 compares their normalised form with their
// plain one and lets them through.
//
// A SentencePiece model decodes as SentencePiece does: control pieces give
// nothing, the unknown piece its surface (" ⁇ " unless the model says
// otherwise).
func (t *Tokenizer) Decode(ids []int32) string {
	if t.text == nil {
		s := t.NewStream()
		for _, id := range ids {
			s.put(id)
		}
		return s.Flush()
	}
	n := 0
	for _, id := range ids {
		if t.decodes(id) {
			n += len(t.text[id])
		}
	}
	var b strings.Builder
	b.Grow(n)
	for _, id := range ids {
		if t.decodes(id) {
			b.WriteString(t.text[id])
		}
	}
	return validOrReplaced(b.String())
}

// decodes reports whether id gives any text: it exists and is not special.
func (t *Tokenizer) decodes(id int32) bool {
	return id >= 0 && int(id) < len(t.tokens) && t.present[id] && !t.skip[id]
}

func validOrReplaced(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return toValidUTF8(s)
}

// byteToken returns the byte that a token such as <0x0A> spells. Hexadecimal
// digits of either case count.
func byteToken(s string) (byte, bool) {
	if len(s) != 6 || s[:3] != "<0x" || s[5] != '>' {
		return 0, false
	}
	hi, ok1 := hexDigit(s[3])
	lo, ok2 := hexDigit(s[4])
	if s[3] == '+' { // Rust's parser takes a sign
		hi, ok1 = 0, true
	}
	return hi<<4 | lo, ok1 && ok2
}

func hexDigit(b byte) (byte, bool) {
	switch {
	case '0' <= b && b <= '9':
		return b - '0', true
	case 'a' <= b && b <= 'f':
		return b - 'a' + 10, true
	case 'A' <= b && b <= 'F':
		return b - 'A' + 10, true
	}
	return 0, false
}

// byteRunes is GPT-2's alphabet: the printable character that stands for each
// byte. Printable Latin-1 stands for itself, the rest follow from U+0100 on.
var byteRunes = func() (table [256]rune) {
	next := rune(256)
	for b := range table {
		switch {
		case b >= '!' && b <= '~', b >= 0xA1 && b <= 0xAC, b >= 0xAE:
			table[b] = rune(b)
		default:
			table[b] = next
			next++
		}
	}
	return table
}()

// runeBytes is the inverse of byteRunes; -1 for other characters.
var runeBytes = func() (table [324]int16) {
	for i := range table {
		table[i] = -1
	}
	for b, r := range byteRunes {
		table[r] = int16(b)
	}
	return table
}()

// fromByteLevel maps a token in GPT-2's alphabet to its bytes; a token with any
// other character stands for itself.
func fromByteLevel(s string) string {
	if raw, ok := exactByteLevel(s); ok {
		return raw
	}
	return s
}

// exactByteLevel is fromByteLevel that reports tokens with other characters.
func exactByteLevel(s string) (string, bool) {
	out := make([]byte, 0, len(s))
	for _, r := range s {
		if int(r) >= len(runeBytes) || runeBytes[r] < 0 {
			return "", false
		}
		out = append(out, byte(runeBytes[r]))
	}
	return string(out), true
}

// toByteLevel maps bytes to GPT-2's alphabet.
func toByteLevel(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(byteRunes[s[i]])
	}
	return b.String()
}
