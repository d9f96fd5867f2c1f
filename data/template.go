package data

import (
	"fmt"
	"slices"
	"strings"

	"github.com/specstream/specstream"
)

// Piece is a stretch of the text that a template renders.
type Piece struct {
	// Text is the piece's text. It is empty for a Token other than TokenNone.
	Text string
	// Token says that the piece is the tokenizer's begin or end token.
	Token Token
	// Literal says that the text is the record's, not the template's: strings of
	// special tokens in it are text unless the specification says otherwise.
	Literal bool
	// Completion says that a model is to produce the piece: assistant text or
	// its end token. Pieces in between are its prompt.
	Completion bool
	// End says that the piece is the end token of a completion.
	End bool
}

// Token is a token that templates leave to the tokenizer.
type Token uint8

// The tokens of a tokenizer that templates ask for.
const (
	TokenNone  Token = iota
	TokenBegin       // the begin token; left out where the tokenizer has none
	TokenEnd         // the end token
)

// Template renders conversations.
type Template interface {
	// ID is the template's name and version, such as "plain/1". The version
	// changes whenever what the template renders does.
	ID() string
	// Render returns the pieces of r. A record that ends with a user turn renders
	// to pieces that end with the prompt to decode from. With last, only the
	// pieces of the last assistant turn need be marked as completion, and none
	// if a user turn is last.
	//
	// What the template refuses is a [BadRecordError] or [SkipError] without a
	// place.
	Render(r Record, last bool) ([]Piece, error)
}

// Codes of records that a template refuses.
const (
	// SkipSystem: the template has no place for a system turn.
	SkipSystem = "system_turn_not_in_template"
	// BadRefused: the model's own template refuses the conversation.
	BadRefused = "refused_by_template"
)

// Templates are the names of templates. Besides these, DataSpec.Template may be
// "model" or the path of a .jinja file.
var Templates = []string{"plain", "vicuna", "llama2", "llama3", "mistral", "phi3", "chatml"}

// TemplateFor returns the template of a completed specification for records of
// format f. dir is the folder of the tokenizer, for the tokenizer_config.json
// that the templates of models are in.
//
// "plain" is the prompt usual in each format's literature; ␠ stands for the
// space each ends with. SQL:
//
//	{context}\n\nQuestion: {question}\nSQL:␠
//
// DialogSum:
//
//	Summarize the following conversation.\n\n{dialogue}\n\nSummary:␠
//
// E2E:
//
//	name : The Vaults | Type : pub | price : more than £30\nText:␠
//
// and for conversations the same as "vicuna".
//
// The others are the chat formats of model families, rendered as transformers'
// apply_chat_template renders the models' own templates: Vicuna 1.1, Llama-2
// chat, Llama-3, Mistral (of v0.3 if the tokenizer has the control token
// [INST], else of v0.1), Phi-3 and ChatML with Qwen2.5's default system turn.
// "model" is the chat_template beside the tokenizer, and a path that of a Jinja
// file; see package jinja for what these can hold.
func TemplateFor(spec specstream.DataSpec, f Format, dir string) (Template, error) {
	name := spec.Template
	switch {
	case name == "model":
		return modelTemplate(dir)
	case strings.HasSuffix(name, ".jinja"):
		return jinjaFile(name, dir)
	case !slices.Contains(Templates, name):
		return nil, specstream.Invalid("template", "%q is not one of %s, model, or the path of a .jinja file", name, strings.Join(Templates, ", "))
	case name == "plain" && !f.conversations(spec):
		return plain{}, nil
	case name == "plain":
		name = "vicuna"
	}
	return families[name], nil
}

// conversations reports whether records of the format may have several turns.
func (f Format) conversations(spec specstream.DataSpec) bool {
	return f.name == "sharegpt" || f.name == "specbench" || f.name == "mapping" && spec.Mapping != nil && spec.Mapping.Messages != ""
}

// plain renders task records: their one user turn is the whole prompt.
type plain struct{}

func (plain) ID() string { return "plain/1" }

func (plain) Render(r Record, _ bool) ([]Piece, error) {
	if len(r.Turns) == 0 || len(r.Turns) > 2 || r.Turns[0].Role != User || len(r.Turns) == 2 && r.Turns[1].Role != Assistant {
		return nil, bad(BadType, "", "the plain template wants one user turn and its answer")
	}
	out := []Piece{{Token: TokenBegin}, {Text: r.Turns[0].Text, Literal: true}}
	if len(r.Turns) == 2 {
		out = append(out, Piece{Text: r.Turns[1].Text, Literal: true, Completion: true}, Piece{Token: TokenEnd, Completion: true, End: true})
	}
	return out, nil
}

// bound is a template made ready for a tokenizer.
type bound struct {
	Template
	end    string // text of the end token of completions; "" stands for TokenEnd
	apart  bool   // pieces are tokenised one by one
	single bool   // renderings of a conversation's beginning need not begin that of the whole
}

// bind makes t ready for a tokenizer.
func bind(t Template, tok Tokenizer) (bound, error) {
	switch t := t.(type) {
	case plain:
		return bound{Template: t, apart: true}, nil
	case family:
		if t.variant != nil {
			t = t.variant(tok)
		}
		for _, s := range t.tokens {
			if !isControl(tok, s) {
				return bound{}, otherModel(t.id, s)
			}
		}
		return bound{Template: t, end: t.end}, nil
	case *chat:
		return t.bind(tok)
	}
	return bound{Template: t}, nil
}

// otherModel is the error of a template whose tokens a tokenizer does not have.
func otherModel(template, token string) error {
	return &specstream.InputError{Field: "template", Reason: fmt.Sprintf("%s uses %q, which is no control token of the tokenizer", template, token),
		Hint: "choose the template of the tokenizer's model"}
}

// isControl reports whether text is one token that the same characters in a
// record do not become.
func isControl(tok Tokenizer, text string) bool {
	ids, _ := tok.EncodeMarked(nil, []string{text}, []bool{false})
	return len(ids) == 1 && !slices.Equal(ids, tok.Encode(nil, text))
}

// pieces collects what a template renders.
type pieces []Piece

// own adds the template's own text.
func (p *pieces) own(text string) {
	if n := len(*p); n > 0 && (*p)[n-1] == (Piece{Text: (*p)[n-1].Text}) && (*p)[n-1].Text != "" {
		(*p)[n-1].Text += text
		return
	}
	*p = append(*p, Piece{Text: text})
}

// said adds text of the record that is prompt.
func (p *pieces) said(text string) {
	if text != "" {
		*p = append(*p, Piece{Text: text, Literal: true})
	}
}

func (p *pieces) token(t Token) { *p = append(*p, Piece{Token: t}) }

// answer adds assistant text, with the template's text around it, and its end
// token; "" stands for the tokenizer's.
func (p *pieces) answer(lead, text, tail, end string) {
	for _, x := range []Piece{{Text: lead}, {Text: text, Literal: true}, {Text: tail}} {
		if x.Text != "" {
			x.Completion = true
			*p = append(*p, x)
		}
	}
	x := Piece{Text: end, Completion: true, End: true}
	if end == "" {
		x.Token = TokenEnd
	}
	*p = append(*p, x)
}
