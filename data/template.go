package data

import (
	"slices"
	"strings"

	"github.com/specstream/specstream"
)

// Piece is a stretch of rendered text that is tokenised by itself.
type Piece struct {
	// Text is the piece's text; it never contains control tokens.
	Text string
	// Completion says that the piece is assistant text: what a model is to
	// produce. Pieces in between are its prompt.
	Completion bool
	// End says that the end token follows the text. It does behind every
	// completion, and belongs to it.
	End bool
}

// Template renders a record. Pieces of prompt and completion alternate,
// beginning with a prompt; a record that ends with a user turn renders to
// pieces that end with the prompt to decode from.
type Template interface {
	// ID is the template's name and version, such as "plain/1". The version
	// changes whenever what the template renders does.
	ID() string
	// Render returns the pieces of r.
	Render(r Record) ([]Piece, error)
}

// Templates are the names TemplateFor knows.
var Templates = []string{"plain", "vicuna"}

// TemplateFor returns the template of a name for records of a format.
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
// and for ShareGPT the same as "vicuna", which is Vicuna 1.1, with the record's
// system turn or else Vicuna's own system message:
//
//	{system} USER: {user} ASSISTANT: {assistant}</s>USER: …
//
// where </s> stands for the tokenizer's end token.
func TemplateFor(format, name string) (Template, error) {
	if _, err := FormatOf(format); err != nil {
		return nil, err
	}
	switch {
	case !slices.Contains(Templates, name):
		return nil, specstream.Invalid("template", "%q is not one of %s", name, strings.Join(Templates, ", "))
	case name == "vicuna", format == "sharegpt":
		return vicuna{}, nil
	}
	return plain{}, nil
}

// plain renders task records: their one user turn is the whole prompt.
type plain struct{}

func (plain) ID() string { return "plain/1" }

func (plain) Render(r Record) ([]Piece, error) {
	if len(r.Turns) == 0 || len(r.Turns) > 2 || r.Turns[0].Role != User || len(r.Turns) == 2 && r.Turns[1].Role != Assistant {
		return nil, bad(BadType, "", "the plain template wants one user turn and its answer")
	}
	out := []Piece{{Text: r.Turns[0].Text}}
	if len(r.Turns) == 2 {
		out = append(out, Piece{Text: r.Turns[1].Text, Completion: true, End: true})
	}
	return out, nil
}

// VicunaSystem is the system message Vicuna 1.1 was trained with.
const VicunaSystem = "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the user's questions."

type vicuna struct{}

func (vicuna) ID() string { return "vicuna/1" }

func (vicuna) Render(r Record) ([]Piece, error) {
	system, turns := VicunaSystem, r.Turns
	if len(turns) > 0 && turns[0].Role == System {
		system, turns = turns[0].Text, turns[1:]
	}
	if len(turns) == 0 {
		return nil, bad(BadEmptyRecord, "", "has no user turn")
	}
	out := make([]Piece, 0, len(turns))
	lead := system + " "
	for i, t := range turns {
		switch {
		case i%2 == 0 && t.Role == User:
			// The prompt usual for a task ends with a cue and a space for the
			// answer; that space is the one before ASSISTANT.
			out = append(out, Piece{Text: lead + "USER: " + strings.TrimSuffix(t.Text, " ") + " ASSISTANT: "})
			lead = ""
		case i%2 == 1 && t.Role == Assistant:
			out = append(out, Piece{Text: t.Text, Completion: true, End: true})
		default:
			return nil, bad(BadRole, "", "turn %d: user and assistant turns must alternate, user first", i+1)
		}
	}
	return out, nil
}
