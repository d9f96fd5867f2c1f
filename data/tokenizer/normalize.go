package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// normalizer is one step of a tokenizer's normalizer.
type normalizer struct {
	kind             normalizerKind
	pattern, content string    // Replace: from, to; Prepend: content
	regex            *regex    // Replace: instead of pattern
	left, right      bool      // Strip
	chars            *charsmap // Precompiled
	spm              *spmNormalizer
}

type normalizerKind uint8

const (
	normNFC normalizerKind = iota
	normNFD
	normNFKC
	normNFKD
	normLowercase
	normPrepend
	normReplace
	normStrip
	normStripAccents
	normNmt
	normPrecompiled
	normSentencePiece
)

// normalize applies the steps in order to one segment of text.
func normalize(u *unicodeTables, steps []normalizer, s string) string {
	for i := range steps {
		s = steps[i].apply(u, s)
	}
	return s
}

func (n *normalizer) apply(u *unicodeTables, s string) string {
	switch n.kind {
	case normNFC:
		return normalizeNFC(u, s)
	case normNFD:
		return u.normalForm(s, false, false)
	case normNFKC:
		return u.normalForm(s, true, true)
	case normNFKD:
		return u.normalForm(s, true, false)
	case normLowercase:
		return u.lowercase(s)
	case normPrepend:
		if s != "" {
			return n.content + s
		}
	case normReplace:
		if n.regex != nil {
			return n.regex.replaceAll(s, n.content)
		}
		return strings.ReplaceAll(s, n.pattern, n.content)
	case normStrip:
		return u.strip(s, n.left, n.right)
	case normStripAccents:
		return strings.Map(func(r rune) rune {
			if u.classOf(r)&classMark != 0 {
				return -1
			}
			return r
		}, s)
	case normNmt:
		return strings.Map(nmtRune, s)
	case normPrecompiled:
		return n.chars.normalize(u, s)
	case normSentencePiece:
		return n.spm.normalize(s)
	}
	return s
}

// lowercase maps each character by itself: a final sigma is one like any other.
func (u *unicodeTables) lowercase(s string) string {
	var b strings.Builder
	done := 0
	for i, r := range s {
		if r < utf8.RuneSelf {
			if r < 'A' || r > 'Z' {
				continue
			}
			b.WriteString(s[done:i])
			b.WriteByte(byte(r) | 0x20)
			done = i + 1
			continue
		}
		to, ok := u.lower[r]
		if !ok {
			continue
		}
		b.WriteString(s[done:i])
		for _, r := range to {
			b.WriteRune(r)
		}
		done = i + utf8.RuneLen(r)
	}
	if done == 0 {
		return s
	}
	b.WriteString(s[done:])
	return b.String()
}

// strip removes white space at the ends.
func (u *unicodeTables) strip(s string, left, right bool) string {
	if left {
		end, _ := u.runOfSpace(s, 0)
		s = s[end:]
	}
	for right && s != "" {
		c, n := u.before(s, len(s))
		if c&classSpace == 0 {
			break
		}
		s = s[:len(s)-n]
	}
	return s
}

// nmtRune is the normalizer named Nmt: control characters go, other characters
// of no width or odd width become spaces.
func nmtRune(r rune) rune {
	switch {
	case r >= 0x01 && r <= 0x08, r == 0x0B, r >= 0x0E && r <= 0x1F, r == 0x7F, r == 0x8F, r == 0x9F:
		return -1
	case r == '\t', r == '\n', r == '\f', r == '\r', r == 0x1680, r >= 0x200B && r <= 0x200F,
		r == 0x2028, r == 0x2029, r == 0x2581, r == 0xFEFF, r == 0xFFFD:
		return ' '
	}
	return r
}
