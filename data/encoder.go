package data

import (
	"fmt"
	"slices"
	"strings"

	"github.com/specstream/specstream"
)

// EncoderOptions configures an [Encoder].
type EncoderOptions struct {
	Tokenizer Tokenizer
	Template  Template
	// Turns is [specstream.TurnsExpand] or [specstream.TurnsInline].
	Turns string
	// MaxLength is the most tokens of a sample.
	MaxLength int
	// Overlong is one of the Overlong policies of package specstream, default
	// [specstream.OverlongDrop].
	Overlong string
	// SpecialTokens is [specstream.SpecialAsText] (the default) or
	// [specstream.SpecialAsControl].
	SpecialTokens string
	// AllowUnanswered makes a record that ends with a user turn give a sample
	// without an answer besides: no spans, no reference. It is for evaluation;
	// such turns are else left out, and a record that has no other skipped.
	AllowUnanswered bool
}

// Encoder renders records and tokenises them into samples. It is safe for
// concurrent use.
//
// The tokens of a sample are those of the template's whole text, as Hugging
// Face's apply_chat_template(tokenize=True) gives them. A completion begins
// where the tokens of the whole part from those of the prompt alone, and ends
// with its end token. Nearly always the prompt's tokens begin the whole, so that
// [Sample.PromptTokens] are what [Encoder.Prompt] gives. Where a tokenizer joins
// the answer's first characters with the prompt's last (a blank line with
// ChatML's line break, a quotation mark with Mistral's bracket), the joined token
// is the completion's first, and the sample's prompt is shorter by what it took.
//
// The template "plain" is tokenised in pieces, prompt and answer apart. One rule
// concerns the single space a prompt ends with. Tokenizers that mark the
// beginning of a word themselves (SentencePiece models such as Llama's put "▁"
// before the first word of any text) already have that space in the
// completion's first token, so there the prompt is tokenised without it; with
// byte-level BPE it stays the prompt's last character.
type Encoder struct {
	o          EncoderOptions
	tok        Tokenizer
	template   bound
	begin, end string // text of TokenBegin and TokenEnd, "" for none
	beginIDs   []int32
	endIDs     []int32
	endID      int32 // of the token that completions end with
	marksWords bool
}

// NewEncoder returns an encoder. The tokenizer must have the template's end
// token, or a model could not learn where a completion ends.
func NewEncoder(o EncoderOptions) (*Encoder, error) {
	if o.Overlong == "" {
		o.Overlong = specstream.OverlongDrop
	}
	if o.SpecialTokens == "" {
		o.SpecialTokens = specstream.SpecialAsText
	}
	for _, f := range []struct {
		name, v string
		choices []string
	}{
		{"turns", o.Turns, []string{specstream.TurnsExpand, specstream.TurnsInline}},
		{"overlong", o.Overlong, []string{specstream.OverlongDrop, specstream.OverlongSplit, specstream.OverlongHistory, specstream.OverlongCut}},
		{"special_tokens", o.SpecialTokens, []string{specstream.SpecialAsText, specstream.SpecialAsControl}},
	} {
		if !slices.Contains(f.choices, f.v) {
			return nil, specstream.Invalid(f.name, "%q is not one of %s", f.v, strings.Join(f.choices, ", "))
		}
	}
	if o.MaxLength < 2 {
		return nil, specstream.Invalid("max_length", "%d tokens hold no prompt and completion", o.MaxLength)
	}
	t, err := bind(o.Template, o.Tokenizer)
	if err != nil {
		return nil, err
	}
	e := &Encoder{o: o, tok: o.Tokenizer, template: t}
	if t.apart {
		e.marksWords = marksWords(e.tok)
	}
	return e, e.tokens()
}

// tokens finds the begin and end tokens and checks that they are ones.
func (e *Encoder) tokens() error {
	if id, ok := e.tok.BOS(); ok {
		e.beginIDs = []int32{id}
		e.begin = e.tok.Token(id)
	}
	id, ok := e.tok.EOS()
	if ok {
		e.endIDs = []int32{id}
		e.end, e.endID = e.tok.Token(id), id
	}
	switch {
	case e.template.end != "":
		if !isControl(e.tok, e.template.end) {
			return otherModel(e.template.ID(), e.template.end)
		}
		ids, _ := e.tok.EncodeMarked(nil, []string{e.template.end}, []bool{false})
		e.endID = ids[0]
	case !ok:
		return &specstream.InputError{Field: "tokenizer", Reason: "has no end-of-sequence token", Hint: "name one: eos_token in tokenizer_config.json, or eos_token_id in config.json"}
	case !e.template.apart && !isControl(e.tok, e.end):
		return &specstream.InputError{Field: "tokenizer", Reason: fmt.Sprintf("its end-of-sequence token %q is not among its added tokens, so that it can't be told from text", e.end)}
	}
	return nil
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

// coded is a rendered and tokenised conversation.
type coded struct {
	ids         []int32
	completions []completionOf
}

// completionOf is one completion of a coded conversation.
type completionOf struct {
	span              Span
	prompt, reference string
}

// encode renders turns and tokenises them. With last, only the last answer is a
// completion.
func (e *Encoder) encode(r Record, turns []Turn, last bool) (coded, string, error) {
	r.Turns = turns
	p, err := e.template.Render(r, last)
	if err != nil {
		return coded{}, "", err
	}
	if last && !e.template.single {
		lastCompletion(p, turns[len(turns)-1].Role == Assistant)
	}
	text := e.spell(p)
	var ids []int32
	var marks []int
	if e.template.apart {
		ids, marks = e.encodeApart(p)
	} else {
		ids, marks = e.encodeWhole(p)
	}
	c, err := e.completions(p, ids, marks, text)
	return c, text, err
}

// lastCompletion leaves only the last completion marked, and none of a
// conversation whose last turn is not answered.
func lastCompletion(p []Piece, answered bool) {
	start := len(p)
	if answered {
		for start > 0 && !p[start-1].Completion {
			start--
		}
		for start > 0 && p[start-1].Completion {
			start--
		}
	}
	for i := range start {
		p[i].Completion, p[i].End = false, false
	}
}

// spell gives the begin and end tokens their text, and returns the whole.
func (e *Encoder) spell(p []Piece) string {
	var b strings.Builder
	for i := range p {
		switch {
		case e.template.apart:
		case p[i].Token == TokenBegin:
			p[i].Text = e.begin
		case p[i].Token == TokenEnd:
			p[i].Text = e.end
		}
		b.WriteString(p[i].Text)
	}
	return b.String()
}

// encodeWhole tokenises the pieces as one text; marks[i] is the number of tokens
// up to the end of piece i.
func (e *Encoder) encodeWhole(p []Piece) (ids []int32, marks []int) {
	texts, literal := make([]string, len(p)), make([]bool, len(p))
	for i, x := range p {
		texts[i], literal[i] = x.Text, x.Literal && e.o.SpecialTokens == specstream.SpecialAsText
	}
	return e.tok.EncodeMarked(nil, texts, literal)
}

// encodeApart tokenises each piece by itself.
func (e *Encoder) encodeApart(p []Piece) (ids []int32, marks []int) {
	for _, x := range p {
		switch {
		case x.Token == TokenBegin:
			ids = append(ids, e.beginIDs...)
		case x.Token == TokenEnd:
			ids = append(ids, e.endIDs...)
		case e.o.SpecialTokens == specstream.SpecialAsControl:
			ids, _ = e.tok.EncodeMarked(ids, []string{e.trimmed(x)}, []bool{false})
		default:
			ids = e.tok.Encode(ids, e.trimmed(x))
		}
		marks = append(marks, len(ids))
	}
	return ids, marks
}

// trimmed is the text of a piece that is tokenised by itself.
func (e *Encoder) trimmed(x Piece) string {
	if e.marksWords && !x.Completion {
		return strings.TrimSuffix(x.Text, " ") // see Encoder
	}
	return x.Text
}

// completions finds the completions of tokenised pieces.
func (e *Encoder) completions(p []Piece, ids []int32, marks []int, text string) (coded, error) {
	c := coded{ids: ids}
	at := 0 // in text
	for i := 0; i < len(p); {
		if !p[i].Completion {
			at += len(p[i].Text)
			i++
			continue
		}
		var x completionOf
		x.prompt = text[:at]
		if i > 0 {
			x.span.Start = marks[i-1]
		}
		literal, all := "", ""
		for first := true; i < len(p) && p[i].Completion && (first || !p[i-1].End || p[i].End); i++ {
			if p[i].Literal {
				literal += p[i].Text
			}
			if !p[i].End {
				all += p[i].Text
			}
			at += len(p[i].Text)
			x.span.End = marks[i]
			first = false
			if p[i].End && (p[i].Token == TokenEnd || p[i].Text == e.template.end) && (marks[i] == 0 || ids[marks[i]-1] != e.endID) {
				return c, &specstream.InputError{Field: "tokenizer", Reason: fmt.Sprintf("does not recognise the end token %q behind %q", p[i].Text, clip(x.prompt+all)),
					Hint: "an added token that is \"normalized\" is found at the beginning of a word alone: set it to false in tokenizer.json"}
			}
		}
		if x.reference = literal; literal == "" {
			x.reference = all
		}
		if x.span.Start == 0 {
			return c, bad(BadEmpty, "", "the prompt before the assistant turn %q has no tokens", clip(x.reference))
		}
		if x.span.Len() < 2 {
			return c, bad(BadEmptyCompletion, "", "the assistant turn %q has no tokens", clip(x.reference))
		}
		c.completions = append(c.completions, x)
	}
	return c, nil
}

// Prompt returns the tokens to decode from for a record that ends with a user
// turn: the tokens that [Samples] gives the same turns before their completion,
// but for the case told in [Encoder].
func (e *Encoder) Prompt(r Record) ([]int32, error) {
	if n := len(r.Turns); n > 0 && r.Turns[n-1].Role == Assistant {
		return nil, located(bad(BadType, "", "ends with an assistant turn: there is nothing to decode"), r.Source, r.Number)
	}
	c, _, err := e.encode(r, r.Turns, true)
	if err != nil {
		return nil, located(err, r.Source, r.Number)
	}
	return c.ids, nil
}
