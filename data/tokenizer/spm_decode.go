package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// spmModel is what decoding needs of a SentencePiece model.
type spmModel struct {
	kinds      []pieceKind // by id; tokens added beside the file lie beyond
	unkSurface string
	strip      bool // the first ▁ of a text goes
	stripAll   bool // all of them at the beginning do
}

// spmDecoder decodes a run of tokens as SentencePiece does.
type spmDecoder struct {
	m       *spmModel
	text    []string // by id
	bytes   []byte   // of byte pieces, not yet text
	isBOS   bool     // a ▁ now would be at the beginning
	seenBOS bool     // the ▁ at the beginning has gone
	some    bool     // there was text
}

// put decodes one token, which exists.
func (d *spmDecoder) put(out func(string), id int32) {
	kind := pieceControl // of tokens added beside the file
	if int(id) < len(d.m.kinds) {
		kind = d.m.kinds[id]
	}
	if kind == pieceByte {
		b, _ := byteToken(d.text[id])
		d.bytes = append(d.bytes, b)
		d.takeBytes(out, true)
		return
	}
	d.flushBytes(out)
	if d.seenBOS || d.some {
		d.isBOS = false
	}
	d.seenBOS = false
	switch kind {
	case pieceControl:
	case pieceUnknown:
		d.write(out, d.m.unkSurface)
	default:
		piece := d.text[id]
		if d.isBOS && d.m.strip {
			if after, ok := strings.CutPrefix(piece, metaSymbol); ok {
				piece = after
				d.seenBOS = !d.m.stripAll
			}
		}
		d.write(out, strings.ReplaceAll(piece, metaSymbol, " "))
	}
}

func (d *spmDecoder) write(out func(string), s string) {
	if s != "" {
		d.some = true
		out(s)
	}
}

// takeBytes passes on the characters that the bytes so far spell, and U+FFFD
// for each byte that begins none. When more bytes may come it keeps the
// beginning of a character.
func (d *spmDecoder) takeBytes(out func(string), more bool) {
	for len(d.bytes) > 0 {
		r, n := utf8.DecodeRune(d.bytes)
		if r == utf8.RuneError && n == 1 {
			if _, cut := invalidPrefix(string(d.bytes)); cut && more {
				return
			}
		}
		d.write(out, string(r))
		d.bytes = d.bytes[n:]
	}
}

func (d *spmDecoder) flushBytes(out func(string)) { d.takeBytes(out, false) }
