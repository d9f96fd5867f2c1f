package data

import (
	"context"

	"github.com/specstream/specstream"
)

// Span is a half-open range [Start, End) of token positions of a sample.
type Span struct {
	Start int `json:"start"`
	End   int `json:"end"`
}

// Len returns the number of tokens in the span.
func (s Span) Len() int { return s.End - s.Start }

// Sample is one training or evaluation example: token ids and the ranges of
// them that carry loss.
type Sample struct {
	// ID is the record's ID, "/" and the 1-based number of the last assistant
	// turn in the sample. It is as unique as the ids of the source are.
	ID string
	// Tokens are all token ids, as the template has them; what it puts behind
	// the last end token (a line break) is there too.
	Tokens []int32
	// Spans are the completions, in order, disjoint, none empty, none at
	// position 0; the end token of a turn is the last token of its span, unless
	// a completion was cut. Every other token is prompt. A sample for evaluation
	// that has no answer has none.
	Spans []Span
	// Prompt is the text before the last completion, for people. To decode from
	// the prompt use PromptTokens.
	Prompt string
	// Reference is the text of the last completion, without the end token.
	Reference string
	// Alternatives are further references for evaluation; usually none.
	Alternatives []string
}

// PromptTokens returns the tokens before the last completion: what decoding
// starts from. The slice aliases Tokens.
func (s Sample) PromptTokens() []int32 {
	if len(s.Spans) == 0 {
		return s.Tokens
	}
	return s.Tokens[:s.Spans[len(s.Spans)-1].Start]
}

// CompletionTokens counts the tokens that carry loss.
func (s Sample) CompletionTokens() int {
	n := 0
	for _, sp := range s.Spans {
		n += sp.Len()
	}
	return n
}

// SampleWriter takes samples in order. data/shard implements it.
type SampleWriter interface {
	// Write takes one sample; it does not keep s.Tokens after it returns.
	Write(ctx context.Context, s Sample) error
}

// Tokenizer turns text into token ids and back. Implementations are safe for
// concurrent use.
type Tokenizer interface {
	// Encode appends the ids of text to dst. The text is data: the strings of
	// special tokens inside it are encoded like any other text, never as
	// control tokens, and no begin or end token is added.
	Encode(dst []int32, text string) []int32
	// EncodeMarked appends the ids of the concatenation of texts, encoded as one
	// text. Special tokens are recognised except where a match would touch text
	// i with literal[i] true. marks[i] is the number of leading tokens, of those
	// appended, that the encoding of texts[0..i] alone shares with the whole.
	EncodeMarked(dst []int32, texts []string, literal []bool) (ids []int32, marks []int)
	// Decode returns the text of ids.
	Decode(ids []int32) string
	// BOS returns the token that begins a sequence, if the model wants one.
	BOS() (int32, bool)
	// EOS returns the token that ends a completion, if there is one.
	EOS() (int32, bool)
	// Token returns the token of an id as the vocabulary spells it, "" when
	// there is none.
	Token(id int32) string
	// VocabSize is one more than the largest id.
	VocabSize() int
	// Digest names the tokenizer's definition.
	Digest() specstream.Digest
}
