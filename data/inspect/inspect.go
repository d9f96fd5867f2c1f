// Package inspect shows samples to people: every token with the part it plays,
// and what each stream of a position has to predict.
package inspect

import (
	"strings"

	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/tokenizer"
)

// Part is what a token is in its sample.
type Part string

// The parts of a sample.
const (
	Prompt     Part = "prompt"     // carries no loss
	Completion Part = "completion" // carries loss
	End        Part = "end"        // the last token of a completion: its end token
)

// Token is one token of a sample.
type Token struct {
	Position int   `json:"position"`
	ID       int32 `json:"id"`
	// Text is the text that is certain with this token; a character of several
	// tokens is in its last one. Special tokens are spelled.
	Text string `json:"text"`
	Part Part   `json:"part"`
	// Special says that it is a control token.
	Special bool `json:"special,omitempty"`
}

// Sample is a sample to look at.
type Sample struct {
	ID     string  `json:"id"`
	Tokens []Token `json:"tokens"`
	// Spans are the completions.
	Spans     []data.Span `json:"spans"`
	Reference string      `json:"reference"`
	// Targets is set by [Sample.LookAhead].
	Targets *Targets `json:"targets,omitempty"`
}

// Targets is what the streams of a position have to predict.
type Targets struct {
	Position int `json:"position"`
	// Streams has the main stream first, then stream 1 to γ: stream j predicts
	// the token at Position+1+j.
	Streams []Target `json:"streams"`
}

// Target is what one stream has to predict.
type Target struct {
	Stream int `json:"stream"`
	// Masked says that there is nothing to predict: Position carries no streams,
	// or the token lies beyond its completion.
	Masked bool `json:"masked"`
	// Token is the target, nil when masked.
	Token *Token `json:"token,omitempty"`
}

// New spells out a sample with its tokenizer.
func New(s data.Sample, t *tokenizer.Tokenizer) Sample {
	out := Sample{ID: s.ID, Reference: s.Reference, Spans: s.Spans, Tokens: make([]Token, len(s.Tokens))}
	stream := t.NewStream()
	for i, id := range s.Tokens {
		tok := Token{Position: i, ID: id, Part: Prompt}
		text := stream.Next(id)
		switch {
		case t.IsSpecial(id):
			tok.Text, tok.Special = t.Token(id), true
			if i > 0 { // text that waited belongs before the special token
				out.Tokens[i-1].Text += text
			}
		case t.Token(id) == "":
			tok.Text, tok.Special = "<?>", true
		default:
			tok.Text = text
		}
		out.Tokens[i] = tok
	}
	if n := len(out.Tokens); n > 0 {
		out.Tokens[n-1].Text += stream.Flush()
	}
	for _, sp := range s.Spans {
		for i := sp.Start; i < sp.End; i++ {
			out.Tokens[i].Part = Completion
		}
		if last := &out.Tokens[sp.End-1]; last.Special { // a completion that was cut has no end token
			last.Part = End
		}
	}
	return out
}

// LookAhead finds what the main stream and γ further ones of a position have to
// predict: stream j the token j further on than the next, as long as it belongs
// to the same completion. Positions are those that training gives streams to:
// from the token before a completion to the last but one in it.
func (s *Sample) LookAhead(position, gamma int) {
	t := &Targets{Position: position}
	end := 0
	for _, sp := range s.Spans {
		if position >= sp.Start-1 && position+1 < sp.End {
			end = sp.End
		}
	}
	for j := range gamma + 1 {
		x := Target{Stream: j, Masked: end == 0 || position+1+j >= end}
		if !x.Masked {
			x.Token = &s.Tokens[position+1+j]
		}
		t.Streams = append(t.Streams, x)
	}
	s.Targets = t
}

// Escape makes the control characters of a text visible, so that it can't move
// the cursor or change colours: line breaks as \n, others as \xNN or \u{N}.
func Escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		b.WriteString(escaped(r))
	}
	return b.String()
}
