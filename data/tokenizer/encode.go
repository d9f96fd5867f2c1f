package tokenizer

import "unicode/utf8"

// mode is what Encode and EncodeSpecial differ in: which added tokens are
// recognised, and whether merges may make control tokens.
type mode struct {
	raw        *matcher // added tokens found before normalisation; nil: none
	normalized *matcher // added tokens found after it; nil: none

	forced *matcher // added tokens that the model itself finds, for EncodeMarked

	normalizers []normalizer
	model       model
}

// Encode appends the ids of text to dst. The text is plain: the strings of
// special and other added tokens inside it are encoded as the characters they
// are and never become those tokens, so data cannot forge control tokens. (The
// exception is added tokens of white space alone, which code tokenizers have
// for indentation: they are text.) No beginning- or end-of-sequence token is
// added and no post-processor runs. The ids are those of Hugging Face's
// encode(text, add_special_tokens=False) with the added tokens taken out of
// the file.
//
// A prefix that the tokenizer puts before text (Llama-2's "▁") is put before
// every non-empty text given to Encode.
//
// Invalid UTF-8 is read as U+FFFD, one for each maximal invalid subpart.
// Encode may be called by many goroutines at once.
func (t *Tokenizer) Encode(dst []int32, text string) []int32 {
	return t.encode(dst, text, &t.plain)
}

// EncodeSpecial is like [Tokenizer.Encode] but recognises added and special
// tokens, as Hugging Face's encode(text, add_special_tokens=False) does. It is
// for text that a prompt template made, never for users' text.
func (t *Tokenizer) EncodeSpecial(dst []int32, text string) []int32 {
	return t.encode(dst, text, &t.special)
}

func (t *Tokenizer) encode(dst []int32, text string, m *mode) []int32 {
	if text == "" {
		return dst
	}
	if !utf8.ValidString(text) {
		text = toValidUTF8(text)
	}
	e := m.model.get()
	m.raw.split(t.uni, text, func(s string, start int, a *addedToken) {
		if a != nil {
			dst = append(dst, a.id)
			return
		}
		s = normalize(t.uni, m.normalizers, s)
		m.normalized.split(t.uni, s, func(s string, at int, a *addedToken) {
			if a != nil {
				dst = append(dst, a.id)
				return
			}
			dst = t.pieces(e, dst, t.preTokenizers, s, start == 0 && at == 0, m.model)
		})
	})
	m.model.put(e)
	return dst
}

// pieces runs the remaining pre-tokenizers on s and encodes what they yield.
func (t *Tokenizer) pieces(e *encoder, dst []int32, steps []preTokenizer, s string, atStart bool, m model) []int32 {
	if len(steps) == 0 {
		if t.mapped {
			s = fromByteLevel(s)
		}
		return m.piece(e, dst, s)
	}
	if p := &steps[0]; len(steps) == 1 && p.split != nil && !p.prefixSpace && !t.mapped {
		// Every byte-level tokenizer of the GPT-2, Llama-3 and Qwen families.
		for i := 0; i < len(s); {
			j := p.split(t.uni, s, i)
			dst = m.piece(e, dst, s[i:j])
			i = j
		}
		return dst
	}
	steps[0].apply(t.uni, s, atStart, func(piece string, atStart bool) {
		dst = t.pieces(e, dst, steps[1:], piece, atStart, m)
	})
	return dst
}
