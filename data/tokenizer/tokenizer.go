// Package tokenizer reads tokenizers and encodes with them exactly as their
// reference does, without needing it. It also trains small byte-level
// tokenizers and writes them.
//
// It reads ([Load]):
//
//   - tokenizer.json of Hugging Face, the reference being its library (Rust
//     tokenizers 0.23): BPE models, byte level (GPT-2, OPT, RoBERTa, Llama-3, Qwen,
//     Phi-2, o200k, DeepSeek) or SentencePiece style with byte fallback (Llama-2,
//     Phi-3, Mistral), and Unigram models (T5, XLM-R);
//   - SentencePiece model files of type BPE and Unigram, the reference being
//     SentencePiece 0.2;
//   - tiktoken ranks (Llama-3, Qwen, OpenAI's) and GPT-2's vocab.json with
//     merges.txt, as transformers converts them. Such files leave out how text is
//     cut and which tokens are special; that comes from tokenizer_config.json
//     beside them or from the family that their size tells.
//
// Normalizers: NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Nmt, Prepend,
// Replace, Precompiled, Sequence. Pre-tokenizers: ByteLevel, Metaspace, Split,
// Digits, Punctuation, Whitespace, WhitespaceSplit, Sequence. Decoders: ByteLevel,
// ByteFallback, Metaspace, Replace, Strip, Fuse, Sequence. Regular expressions are
// those of Oniguruma without backward references, lookbehind, lazy quantifiers,
// anchors and repeated groups.
//
// Everything else (another model type, dropout, a setting that is not listed) is
// refused with an InputError that names the file and the field: an approximation
// would train on ids the model never saw.
//
// What tokenizer.json says about truncation, padding and post-processing is
// ignored: files often carry the settings of the last call made with them
// (GPT-2's truncates at 50 tokens). Callers add BOS and EOS and cut themselves.
//
// Special tokens are a matter of who wrote the text: [Tokenizer.Encode] takes all
// of it as text, [Tokenizer.EncodeSpecial] recognises the tokens, and
// [Tokenizer.EncodeMarked] does so in the parts that are a template's.
//
// Unicode tables are pinned ([ClassVersion], [NormalizationVersion],
// [GraphemeVersion]), so ids do not depend on the Go release.
//
// For byte-level tokenizers without normalizer and prefix space, pieces of
// text are encoded one by one: if the pre-tokenizer cuts s into p1, p2, …, then
// Encode(s) is Encode(p1), Encode(p2), … joined.
package tokenizer

import (
	"fmt"

	"github.com/specstream/specstream"
)

// Tokenizer is an immutable tokenizer. All methods are safe for concurrent use.
type Tokenizer struct {
	uni           *unicodeTables
	preTokenizers []preTokenizer
	mapped        bool // pieces reach the model in GPT-2's byte alphabet
	decoders      []decoder
	spm           *spmModel // of a SentencePiece model file, which decodes by itself; else nil
	joiner        string    // between decoded tokens: a space when the file has no decoder
	plain         mode      // of Encode
	special       mode      // of EncodeSpecial

	tokens   []string // by id
	decodeAs []string // by id: what the decoders get; added tokens in their normalised form
	text     []string // by id: decoded bytes when the only decoder is ByteLevel, else nil
	present  []bool   // by id: is there such a token
	skip     []bool   // by id: special, so not decoded
	ids      map[string]int32

	bos, eos int32 // -1 when absent
	digest   specstream.Digest
	raw      []byte        // the file
	file     string        // the name that Save gives it in a folder
	extra    []*addedToken // added beside a SentencePiece model
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

// setDigest works out the digest of what the tokenizer is made of.
func (t *Tokenizer) setDigest() {
	b := t.raw
	for _, a := range t.extra {
		b = fmt.Appendf(b[:len(b):len(b)], "\n%d %q %v %v %v %v", a.id, a.content, a.special, a.lstrip, a.rstrip, a.singleWord)
	}
	t.digest = specstream.DigestBytes(b)
}

// Digest returns the digest of the file's bytes, uncompressed. For ranks and for
// a vocabulary with merges it is the digest of the tokenizer.json made of them,
// and for a SentencePiece model with tokens added beside it, of both.
func (t *Tokenizer) Digest() specstream.Digest { return t.digest }
