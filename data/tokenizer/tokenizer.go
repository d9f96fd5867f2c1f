// Package tokenizer reads Hugging Face tokenizer.json files and encodes with
// them exactly as Hugging Face's library (Rust tokenizers 0.23) does, without
// needing it. It also trains small byte-level tokenizers and writes them in
// that format.
//
// Supported are byte-pair-encoding models of two families:
//
//   - byte level: GPT-2's, Llama-3's and Qwen's regular expressions, with or
//     without NFC normalisation and ignore_merges;
//   - SentencePiece style: Llama-2, Phi-3, Mistral; spaces become "▁" through
//     Prepend and Replace normalizers or a Metaspace pre-tokenizer, unknown
//     characters become <0xNN> bytes.
//
// Everything else (another model type, an unknown regular expression, dropout,
// a normalizer that is not listed) is refused with an InputError that names the
// file and the field: an approximation would train on ids the model never saw.
//
// What tokenizer.json says about truncation, padding and post-processing is
// ignored: files often carry the settings of the last call made with them
// (GPT-2's truncates at 50 tokens). Callers add BOS and EOS and cut themselves.
//
// Unicode tables are pinned ([ClassVersion], [NormalizationVersion]), so ids
// do not depend on the Go release.
//
// For byte-level tokenizers without normalizer and prefix space, pieces of
// text are encoded one by one: if the pre-tokenizer cuts s into p1, p2, …, then
// Encode(s) is Encode(p1), Encode(p2), … joined.
package tokenizer

import "github.com/specstream/specstream"

// Tokenizer is an immutable tokenizer. All methods are safe for concurrent use.
type Tokenizer struct {
	uni           *unicodeTables
	normalizers   []normalizer
	preTokenizers []preTokenizer
	decoders      []decoder
	joiner        string // between decoded tokens: a space when the file has no decoder
	plain         mode   // of Encode
	special       mode   // of EncodeSpecial

	tokens   []string // by id
	decodeAs []string // by id: what the decoders get; added tokens in their normalised form
	text     []string // by id: decoded bytes when the only decoder is ByteLevel, else nil
	present  []bool   // by id: is there such a token
	skip     []bool   // by id: special, so not decoded
	ids      map[string]int32

	bos, eos int32 // -1 when absent
	digest   specstream.Digest
	raw      []byte // the file
}

// Token returns the token of an id as the vocabulary spells it (in GPT-2's
// byte alphabet or with "▁" for spaces), "" when there is none.
func (t *Tokenizer) Token(id int32) string {
	if id < 0 || int(id) >= len(t.tokens) {
		return ""
	}
	return t.tokens[id]
}

// ID returns the id of a token as the vocabulary spells it.
func (t *Tokenizer) ID(token string) (int32, bool) {
	id, ok := t.ids[token]
	return id, ok
}

// IsSpecial reports whether id is a special token: one that Decode leaves out.
func (t *Tokenizer) IsSpecial(id int32) bool {
	return id >= 0 && int(id) < len(t.skip) && t.skip[id]
}

// BOS returns the id of the beginning-of-sequence token: the bos_token of the
// tokenizer_config.json beside the tokenizer, or, when nothing there says
// otherwise, the first of the conventional names that is in the vocabulary.
func (t *Tokenizer) BOS() (int32, bool) { return t.bos, t.bos >= 0 }

// EOS returns the id of the end-of-sequence token, found as [Tokenizer.BOS] is.
func (t *Tokenizer) EOS() (int32, bool) { return t.eos, t.eos >= 0 }

// VocabSize returns the highest id plus one, added tokens included.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// Digest returns the digest of the tokenizer.json's bytes, uncompressed.
func (t *Tokenizer) Digest() specstream.Digest { return t.digest }
