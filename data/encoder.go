package data

import (
	"fmt"
	"slices"
	"strings"

	"github.com/specstream/specstream"
)

// Encoder renders records and tokenises them into samples. It is safe for
// concurrent use.
//
// Each piece is tokenised by itself, and the same piece gives the same tokens
// wherever it stands: as history, as a completion, or in a prompt to decode
// from. One rule concerns the single space a prompt ends with. Tokenizers that
// mark the beginning of a word themselves (SentencePiece models such as
// Llama's put "▁" before the first word of any text) already have that space in
// the completion's first token, so there the prompt is tokenised without it;
// with byte-level BPE it stays the prompt's last character. Either way the
// tokens spell the template's text.
type Encoder struct {
	tok        Tokenizer
	template   Template
	turns      string
	maxLength  int
	bos        []int32
	eos        int32
	marksWords bool
}

// NewEncoder returns an encoder for samples of at most maxLength tokens. turns
// is [specstream.TurnsExpand] or [specstream.TurnsInline]. The tokenizer must
// have an end token, or a model could not learn where a completion ends.
func NewEncoder(tok Tokenizer, t Template, turns string, maxLength int) (*Encoder, error) {
	eos, ok := tok.EOS()
	if !ok {
		return nil, &specstream.InputError{Field: "tokenizer", Reason: "has no end-of-sequence token", Hint: "name one: eos_token in tokenizer_config.json, or eos_token_id in config.json"}
	}
	if turns != specstream.TurnsExpand && turns != specstream.TurnsInline {
		return nil, specstream.Invalid("turns", "%q is neither \"expand\" nor \"inline\"", turns)
	}
	if maxLength < 2 {
		return nil, specstream.Invalid("max_length", "%d tokens hold no prompt and completion", maxLength)
	}
	e := &Encoder{tok: tok, template: t, turns: turns, maxLength: maxLength, eos: eos, marksWords: marksWords(tok)}
	if bos, ok := tok.BOS(); ok {
		e.bos = []int32{bos}
	}
	return e, nil
}

// marksWords probes whether the tokenizer marks word beginnings of itself: "a"
// then has the tokens it has as a word of "b a", and not those it has inside
// "ba".
func marksWords(tok Tokenizer) bool {
	a, word, inside := tok.Encode(nil, "a"), tok.Encode(nil, "b a"), tok.Encode(nil, "ba")
	endsWith := func(s, end []int32) bool {
		return len(s) > len(end) && slices.Equal(s[len(s)-len(end):], end)
	}
	return endsWith(word, a) && !endsWith(inside, a)
}

// Samples returns the samples of a record, in the order of its turns, and the
// number of further ones that are left out because they have more than
// maxLength tokens. A sample is never truncated.
//
// With turns expanded every assistant turn is one sample, with all before it as
// prompt; inline, all of a record is one sample with a span for each assistant
// turn. Errors are a [BadRecordError] that names file and record.
func (e *Encoder) Samples(r Record) (samples []Sample, tooLong int, err error) {
	pieces, err := e.template.Render(r)
	if err != nil {
		return nil, 0, located(err, r.Source, r.Number)
	}
	completions := 0
	for _, p := range pieces {
		if p.Completion {
			completions++
		}
	}
	if completions == 0 {
		return nil, 0, located(skip(SkipNoPair, "", "has no assistant turn"), r.Source, r.Number)
	}

	// ids holds the record up to the piece at hand; text the same as text.
	ids := slices.Clone(e.bos)
	var text strings.Builder
	var spans []Span
	turn := 0
	for i, p := range pieces {
		start := len(ids)
		ids = e.encode(ids, pieces, i)
		if !p.Completion {
			if len(ids) == 0 {
				return nil, 0, located(bad(BadEmpty, "", "the prompt before assistant turn %d has no tokens", turn+1), r.Source, r.Number)
			}
			text.WriteString(p.Text)
			continue
		}
		turn++
		if len(ids) < start+2 {
			return nil, 0, located(bad(BadEmptyCompletion, "", "assistant turn %d has no tokens", turn), r.Source, r.Number)
		}
		spans = append(spans, Span{start, len(ids)})
		if len(ids) > e.maxLength {
			// What follows is longer still.
			if e.turns == specstream.TurnsInline {
				return nil, 1, nil
			}
			return samples, completions - turn + 1, nil
		}
		if e.turns == specstream.TurnsExpand || turn == completions {
			s := Sample{
				ID:        fmt.Sprintf("%s/%d", r.ID, turn),
				Tokens:    slices.Clone(ids),
				Spans:     slices.Clone(spans),
				Prompt:    text.String(),
				Reference: p.Text,
			}
			if e.turns == specstream.TurnsExpand {
				s.Spans = s.Spans[len(s.Spans)-1:]
			}
			if turn == completions {
				s.Alternatives = r.Alternatives
			}
			samples = append(samples, s)
		}
		text.WriteString(p.Text)
	}
	return samples, 0, nil
}

// Prompt returns the tokens to decode from for a record that ends with a user
// turn: the tokens [Samples] gives the same turns before their completion.
func (e *Encoder) Prompt(r Record) ([]int32, error) {
	pieces, err := e.template.Render(r)
	if err != nil {
		return nil, located(err, r.Source, r.Number)
	}
	if pieces[len(pieces)-1].Completion {
		return nil, located(bad(BadType, "", "ends with an assistant turn: there is nothing to decode"), r.Source, r.Number)
	}
	ids := slices.Clone(e.bos)
	for i := range pieces {
		ids = e.encode(ids, pieces, i)
	}
	return ids, nil
}

// encode appends the tokens of piece i.
func (e *Encoder) encode(ids []int32, pieces []Piece, i int) []int32 {
	p := pieces[i]
	text := p.Text
	if e.marksWords && !p.Completion {
		text = strings.TrimSuffix(text, " ") // see Encoder
	}
	ids = e.tok.Encode(ids, text)
	if p.End {
		ids = append(ids, e.eos)
	}
	return ids
}
