package data

import (
	"encoding/binary"
	"math/bits"
	"strings"
	"sync"
	"unicode/utf8"
)

// plainChat reads conversations of the plainest make, which nearly all are,
//
//	{"id": "…", "conversations": [{"from": "human", "value": "…"}, …]}
//	{"messages": [{"role": "user", "content": "…"}, …]}
//
// at several times the speed of a decoder for any: it goes over the bytes once
// and keeps all the texts of a record in one piece. It knows these keys, each
// once and in any order, and strings for values. Whatever else it meets, a
// further key, an odd escape, damage, it leaves to [decodeShareGPT], of which it
// is held to be no more than a shortcut.
type plainChat struct {
	b     []byte
	i     int
	texts strings.Builder
	turns []plainTurn
}

type plainTurn struct {
	who  speaker
	text string
}

var plainChats = sync.Pool{New: func() any { return new(plainChat) }}

// decodePlainChat decodes a conversation if it is a plain one.
func decodePlainChat(raw Raw, repeated string) (r Record, ok bool, err error) {
	if raw.Bad != nil || !utf8.Valid(raw.JSON) {
		return Record{}, false, nil
	}
	c := plainChats.Get().(*plainChat)
	defer func() {
		clear(c.turns)
		c.b, c.i, c.texts, c.turns = nil, 0, strings.Builder{}, c.turns[:0]
		plainChats.Put(c)
	}()
	c.b = raw.JSON
	c.texts.Grow(len(c.b)) // decoded, no text is longer
	id, field, ok := c.record()
	if !ok {
		return Record{}, false, nil
	}
	textKey := "value"
	if field == "messages" {
		textKey = "content"
	}
	r.ID = id
	d := dialogue{field: field, turns: make([]Turn, 0, len(c.turns)), index: make([]int, 0, len(c.turns))}
	for i := range c.turns {
		if err := d.add(&r, i, textKey, c.turns[i].who, &c.turns[i].text); err != nil {
			return Record{}, true, err
		}
	}
	if err := d.normalise(&r, repeated); err != nil {
		return Record{}, true, err
	}
	return r, true, nil
}

// token takes the byte c, which white space may stand before.
func (c *plainChat) token(want byte) bool {
	for c.i < len(c.b) {
		switch c.b[c.i] {
		case want:
			c.i++
			return true
		case ' ', '\n', '\t', '\r':
			c.i++
		default:
			return false
		}
	}
	return false
}

func (c *plainChat) record() (id, field string, ok bool) {
	if !c.token('{') {
		return "", "", false
	}
	hasID := false
	for {
		key, ok := c.raw()
		if !ok || !c.token(':') {
			return "", "", false
		}
		switch {
		case string(key) == "id" && !hasID:
			hasID = true
			id, ok = c.text()
		case string(key) == "conversations" && field == "":
			field = "conversations"
			ok = c.list("from", "value")
		case string(key) == "messages" && field == "":
			field = "messages"
			ok = c.list("role", "content")
		default:
			ok = false
		}
		if !ok {
			return "", "", false
		}
		if c.token('}') {
			break
		}
		if !c.token(',') {
			return "", "", false
		}
	}
	return id, field, c.i == len(c.b) && field != ""
}

// list reads turns of two keys.
func (c *plainChat) list(nameKey, textKey string) bool {
	if !c.token('[') {
		return false
	}
	for {
		if !c.token('{') {
			return false
		}
		var t plainTurn
		for n := 0; ; n++ {
			key, ok := c.raw()
			if !ok || n == 2 || !c.token(':') {
				return false
			}
			switch {
			case string(key) == nameKey && t.who.role == "":
				var name []byte
				if name, ok = c.raw(); ok {
					t.who, ok = speakers[string(name)]
				}
			case string(key) == textKey && (n == 0 || t.who.role != ""):
				t.text, ok = c.text()
			default:
				ok = false
			}
			if !ok {
				return false
			}
			if c.token('}') {
				if n != 1 {
					return false
				}
				break
			}
			if !c.token(',') {
				return false
			}
		}
		c.turns = append(c.turns, t)
		if c.token(']') {
			return true
		}
		if !c.token(',') {
			return false
		}
	}
}

// raw reads a string without escapes.
func (c *plainChat) raw() ([]byte, bool) {
	if !c.token('"') {
		return nil, false
	}
	end := special(c.b, c.i)
	if end == len(c.b) || c.b[end] != '"' {
		return nil, false
	}
	s := c.b[c.i:end]
	c.i = end + 1
	return s, true
}

// text reads any string.
func (c *plainChat) text() (string, bool) {
	if !c.token('"') {
		return "", false
	}
	start := c.texts.Len()
	for {
		end := special(c.b, c.i)
		c.texts.Write(c.b[c.i:end])
		if end+1 >= len(c.b) {
			return "", false
		}
		c.i = end + 2
		switch c.b[end] {
		case '"':
			c.i = end + 1
			return c.texts.String()[start:], true
		case '\\':
		default: // a control character
			return "", false
		}
		switch e := c.b[end+1]; e {
		case '"', '\\', '/':
			c.texts.WriteByte(e)
		case 'n':
			c.texts.WriteByte('\n')
		case 't':
			c.texts.WriteByte('\t')
		case 'r':
			c.texts.WriteByte('\r')
		case 'b':
			c.texts.WriteByte('\b')
		case 'f':
			c.texts.WriteByte('\f')
		case 'u':
			u, ok := escapedUnit(c.b[end:])
			if !ok {
				return "", false
			}
			r := rune(u)
			c.i = end + 6
			if u >= 0xd800 && u <= 0xdfff {
				low, ok := escapedUnit(c.b[c.i:])
				if !ok || u > 0xdbff || low < 0xdc00 || low > 0xdfff {
					return "", false
				}
				r = 0x10000 + (rune(u)-0xd800)<<10 + rune(low) - 0xdc00
				c.i += 6
			}
			c.texts.WriteRune(r)
		default:
			return "", false
		}
	}
}

// special returns where the next quote, backslash or control character is, from
// b[i] on; len(b) for none. It looks at eight bytes at a time.
func special(b []byte, i int) int {
	const low, high = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(b); i += 8 {
		v := binary.LittleEndian.Uint64(b[i:])
		quote, back := v^(low*'"'), v^(low*'\\')
		// The lowest high bit set is that of the first byte that is one of them.
		if hit := ((quote-low)&^quote | (back-low)&^back | (v-low*0x20)&^v) & high; hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= 0x20; i++ {
	}
	return i
}
