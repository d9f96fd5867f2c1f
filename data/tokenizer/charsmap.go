package tokenizer

import (
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf8"
)

// charsmap is a precompiled_charsmap: a double-array trie (Darts-clone) of
// strings and what they become, as SentencePiece writes it.
type charsmap struct {
	units []uint32
	blob  string // replacements, each up to a NUL
}

// parseCharsmap reads <size of the trie in bytes, 4 bytes><trie><replacements>,
// all little-endian.
func parseCharsmap(b []byte) (*charsmap, error) {
	if len(b) < 4 {
		return nil, errors.New("shorter than its header")
	}
	size := uint64(binary.LittleEndian.Uint32(b))
	b = b[4:]
	if size >= uint64(len(b)) || size%4 != 0 || size < 4 {
		return nil, errors.New("the size of the trie is wrong")
	}
	m := &charsmap{units: make([]uint32, size/4), blob: string(b[size:])}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	if !utf8.ValidString(m.blob) {
		return nil, errors.New("a replacement is not valid UTF-8")
	}
	return m, m.check()
}

// check walks the trie: every key must lead to a replacement.
func (m *charsmap) check() error {
	seen := make([]bool, len(m.units)) // nodes may be shared
	stack := []uint32{0}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		unit := m.units[at]
		base := at ^ unitOffset(unit)
		if unit>>8&1 != 0 && at > 0 {
			if uint64(base) >= uint64(len(m.units)) {
				return errors.New("the trie is damaged")
			}
			if start := m.units[base] &^ (1 << 31); uint64(start) >= uint64(len(m.blob)) || !utf8.RuneStart(m.blob[start]) {
				return errors.New("a key has no replacement")
			}
		}
		for c := uint32(1); c < 256; c++ {
			if to := base ^ c; uint64(to) < uint64(len(m.units)) && unitLabel(m.units[to]) == c && !seen[to] {
				seen[to] = true
				stack = append(stack, to)
			}
		}
	}
	return nil
}

func unitOffset(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }
func unitLabel(u uint32) uint32  { return u & (1<<31 | 0xFF) }

// lookup finds keys that s begins with: the shortest, or the longest. It
// returns the length of the key and its replacement; n is 0 when there is none.
func (m *charsmap) lookup(s string, longest bool) (n int, to string) {
	at := unitOffset(m.units[0])
	value := -1
	for i := range len(s) {
		c := uint32(s[i])
		at ^= c
		if c == 0 || uint64(at) >= uint64(len(m.units)) {
			break
		}
		unit := m.units[at]
		if unitLabel(unit) != c {
			break
		}
		at ^= unitOffset(unit)
		if unit>>8&1 != 0 && uint64(at) < uint64(len(m.units)) {
			n, value = i+1, int(m.units[at]&^(1<<31))
			if !longest {
				break
			}
		}
	}
	if n == 0 {
		return 0, ""
	}
	to = m.blob[value:]
	if k := strings.IndexByte(to, 0); k >= 0 {
		to = to[:k]
	}
	return n, to
}

// normalize is the Precompiled normalizer of Hugging Face's library, which is
// not SentencePiece's: it goes by grapheme clusters, and one of fewer than six
// bytes that begins with a key becomes what the shortest such key maps to, the
// rest of the cluster being lost.
func (m *charsmap) normalize(u *unicodeTables, s string) string {
	var b strings.Builder
	changed := false
	for i := 0; i < len(s); {
		if i+1 < len(s) && s[i] < utf8.RuneSelf && s[i+1] < utf8.RuneSelf && (s[i] != '\r' || s[i+1] != '\n') {
			// Between ASCII characters there is always a boundary.
			i = m.char(&b, s, i, i+1, &changed)
			continue
		}
		end := u.nextGrapheme(s, i)
		if end-i < 6 {
			if n, to := m.lookup(s[i:end], false); n > 0 {
				b.WriteString(to)
				changed = true
				i = end
				continue
			}
		}
		for i < end {
			_, n := utf8.DecodeRuneInString(s[i:])
			i = m.char(&b, s, i, i+n, &changed)
		}
	}
	if !changed {
		return s
	}
	return b.String()
}

// char writes what the character s[i:end] becomes.
func (m *charsmap) char(b *strings.Builder, s string, i, end int, changed *bool) int {
	if n, to := m.lookup(s[i:end], false); n > 0 {
		b.WriteString(to)
		*changed = true
	} else {
		b.WriteString(s[i:end])
	}
	return end
}
