package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data/jinja"
)

// chat is a Jinja chat template.
//
// Completions are found from rendering: the prompt of an assistant turn is what
// the template renders of the turns before it with add_generation_prompt, and
// must begin the rendering of the whole; the completion goes from there to the
// end token behind the turn's text. A template with {% generation %} blocks says
// itself what completions are; they must begin where that prompt ends.
type chat struct {
	id   string
	file string
	tmpl *jinja.Template
	vars jinja.Map // special tokens, from the tokenizer's configuration
	end  string    // the end token, once bound
}

// modelTemplate is the chat template of the tokenizer in dir.
func modelTemplate(dir string) (Template, error) {
	if dir == "" {
		return nil, &specstream.InputError{Field: "template", Reason: "\"model\" wants a tokenizer in a folder", Hint: "the template is read from its tokenizer_config.json"}
	}
	file := filepath.Join(dir, "chat_template.jinja")
	source, err := os.ReadFile(file)
	if err == nil {
		return newChat("model", file, string(source), dir)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read template: %w", err)
	}
	config, file, err := tokenizerConfig(dir)
	if err != nil {
		return nil, err
	}
	text, err := chatTemplate(file, config["chat_template"])
	if err != nil {
		return nil, err
	}
	return newChat("model", file, text, dir)
}

// jinjaFile is the chat template in a file.
func jinjaFile(file, dir string) (Template, error) {
	source, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &specstream.InputError{File: file, Field: "template", Reason: "no such template file"}
	}
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	return newChat("jinja", file, string(source), dir)
}

// tokenizerConfig reads the tokenizer_config.json of a folder; nil when there
// is none.
func tokenizerConfig(dir string) (map[string]json.RawMessage, string, error) {
	file := filepath.Join(dir, "tokenizer_config.json")
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, file, nil
	}
	if err != nil {
		return nil, file, fmt.Errorf("read tokenizer config: %w", err)
	}
	var config map[string]json.RawMessage
	if err := json.Unmarshal(b, &config); err != nil {
		return nil, file, &specstream.InputError{File: file, Reason: "invalid JSON", Err: err}
	}
	return config, file, nil
}

// chatTemplate takes the template, or the one named "default" of several.
func chatTemplate(file string, raw json.RawMessage) (string, error) {
	var one string
	var several []struct{ Name, Template string }
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return "", &specstream.InputError{File: file, Field: "chat_template", Reason: "is missing", Hint: "name a template, such as chatml, or the path of a .jinja file"}
	case json.Unmarshal(raw, &one) == nil:
		return one, nil
	case json.Unmarshal(raw, &several) == nil:
		for _, t := range several {
			if t.Name == "default" {
				return t.Template, nil
			}
		}
	}
	return "", &specstream.InputError{File: file, Field: "chat_template", Reason: "is neither a string nor a list with a template named \"default\""}
}

func newChat(kind, file, source, dir string) (*chat, error) {
	tmpl, err := jinja.Parse(filepath.Base(file), source)
	if err != nil {
		return nil, &specstream.InputError{File: file, Field: "template", Err: err, Hint: "templates are rendered exactly or not at all; mend it or choose another"}
	}
	c := &chat{file: file, tmpl: tmpl}
	config := map[string]json.RawMessage{}
	if dir != "" {
		if config, _, err = tokenizerConfig(dir); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"} {
		if text := tokenText(config[name]); text != "" {
			c.vars = append(c.vars, jinja.Entry{Key: name, Value: text})
		}
	}
	id, err := json.Marshal([]any{source, c.vars})
	if err != nil {
		return nil, fmt.Errorf("name template: %w", err)
	}
	c.id = kind + "-" + specstream.DigestBytes(id).Hex()[:12] + "/1"
	return c, nil
}

// tokenText is a special token of a tokenizer_config.json: a string or an
// object with its content.
func tokenText(raw json.RawMessage) string {
	var text string
	var object struct{ Content string }
	if json.Unmarshal(raw, &text) != nil && json.Unmarshal(raw, &object) == nil {
		text = object.Content
	}
	return text
}

func (c *chat) ID() string { return c.id }

// bind gives the template the tokenizer's tokens where no configuration names
// them, and finds the end token that it puts behind answers.
func (c *chat) bind(tok Tokenizer) (bound, error) {
	b := *c
	b.vars = slices.Clone(c.vars)
	for _, t := range []struct {
		name string
		get  func() (int32, bool)
	}{{"bos_token", tok.BOS}, {"eos_token", tok.EOS}} {
		if slices.ContainsFunc(b.vars, func(e jinja.Entry) bool { return e.Key == t.name }) {
			continue
		}
		if id, ok := t.get(); ok {
			b.vars = append(b.vars, jinja.Entry{Key: t.name, Value: tok.Token(id)})
		}
	}
	probe := []Turn{{User, "question"}, {Assistant, "answer"}}
	out, err := b.render(probe, false)
	if err != nil {
		return bound{}, c.input("can't render a question and its answer: %v", err)
	}
	at := contentEnd(out, 2, 0)
	if at < 0 {
		return bound{}, c.input("leaves the text of assistant turns out")
	}
	tail := strings.TrimLeft(out.Text[at:], " \n")
	whole, _ := tok.EncodeMarked(nil, []string{tail}, []bool{false})
	for n := 1; n <= min(len(tail), 64) && b.end == ""; n++ {
		if ids, _ := tok.EncodeMarked(nil, []string{tail[:n]}, []bool{false}); isControl(tok, tail[:n]) && ids[0] == whole[0] {
			b.end = tail[:n]
		}
	}
	if b.end == "" {
		return bound{}, c.input("puts no token of the tokenizer behind an answer, so that a model could not learn where it ends; %q follows it", clip(tail))
	}
	return bound{Template: &b, end: b.end, single: true}, nil
}

// contentEnd is where the last part of the text of that origin ends, behind
// position from; -1 if there is none.
func contentEnd(out jinja.Output, origin, from int) int {
	for _, r := range slices.Backward(out.Runs) {
		if r.Origin == origin && r.Start >= from {
			return r.End
		}
	}
	return -1
}

func (c *chat) input(format string, args ...any) error {
	return &specstream.InputError{Field: "template", Reason: c.file + ": " + fmt.Sprintf(format, args...)}
}

// render renders turns; the text of turn i has the origin i+1.
func (c *chat) render(turns []Turn, prompt bool) (jinja.Output, error) {
	messages := make([]any, len(turns))
	size := 0
	for i, t := range turns {
		messages[i] = jinja.Map{{Key: "role", Value: string(t.Role)}, {Key: "content", Value: jinja.Text{S: t.Text, Origin: i + 1}}}
		size += len(t.Text)
	}
	vars := append(jinja.Map{{Key: "messages", Value: messages}, {Key: "tools", Value: nil}, {Key: "documents", Value: nil},
		{Key: "add_generation_prompt", Value: prompt}}, c.vars...)
	out, err := c.tmpl.Render(vars, jinja.Limits{Steps: 1<<20 + 4096*len(turns), Bytes: 64<<20 + 64*size})
	var e *jinja.Error
	if errors.As(err, &e) && e.Raised {
		return out, bad(BadRefused, "", "%v", err)
	}
	if err != nil {
		return out, &specstream.InputError{Field: "template", Err: err, Hint: "templates are rendered exactly or not at all; mend it or choose another"}
	}
	return out, nil
}

// maxChatTurns bounds the work on one record: it grows with the square of the
// turns.
const maxChatTurns = 4096

// stretch is a range of a rendered text that is completion; End is where its
// end token begins.
type stretch struct{ start, token, end int }

func (c *chat) Render(r Record, last bool) ([]Piece, error) {
	n := len(r.Turns)
	if n == 0 {
		return nil, bad(BadEmptyRecord, "", "has no turns")
	}
	if n > maxChatTurns {
		return nil, skip(SkipTooLong, "", "has %d turns, and a Jinja template, which renders every prompt anew, is given %d at most", n, maxChatTurns)
	}
	open := r.Turns[n-1].Role != Assistant
	out, err := c.render(r.Turns, open)
	if err != nil {
		return nil, err
	}
	var found []stretch
	for i, t := range r.Turns {
		if t.Role != Assistant || last && i != n-1 {
			continue
		}
		if i == 0 {
			return nil, bad(BadRole, "", "begins with an assistant turn: there is no prompt for it")
		}
		more, err := c.completions(out, r.Turns, i)
		if err != nil {
			return nil, err
		}
		if k := len(found); k > 0 && found[k-1].end > more[0].start {
			return nil, c.input("the completion of turn %d begins before that of the turn before it ends", i+1)
		}
		found = append(found, more...)
	}
	return cutPieces(out, found), nil
}

// completions finds the completion of turn i in the rendering of all turns.
func (c *chat) completions(out jinja.Output, turns []Turn, i int) ([]stretch, error) {
	prompt, err := c.render(turns[:i], true)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(out.Text, prompt.Text) {
		return nil, c.input("what it renders before assistant turn %d with add_generation_prompt does not begin what it renders of the whole: a model would be trained on other prompts than it gets", i+1)
	}
	start := len(prompt.Text)
	at := contentEnd(out, i+1, start)
	if at < 0 {
		return nil, bad(BadEmptyCompletion, "", "assistant turn %d is empty: there is nothing to train on", i+1)
	}
	if c.tmpl.MarksGeneration() {
		return c.marked(out, start, at, i)
	}
	tail := out.Text[at:]
	token := at + len(tail) - len(strings.TrimLeft(tail, " \n"))
	if !strings.HasPrefix(out.Text[token:], c.end) {
		return nil, c.input("assistant turn %d is followed by %q, and not by the end token %q", i+1, clip(tail), c.end)
	}
	return []stretch{{start, token, token + len(c.end)}}, nil
}

// marked takes the {% generation %} blocks between a prompt's end and the end of
// the turn's text.
func (c *chat) marked(out jinja.Output, start, at, i int) ([]stretch, error) {
	var found []stretch
	for _, g := range out.Generated {
		if g.Start >= start && g.Start < at {
			found = append(found, stretch{g.Start, g.End, g.End})
		}
	}
	if len(found) == 0 || found[0].start != start {
		return nil, c.input("no {%% generation %%} block begins where the prompt of assistant turn %d ends", i+1)
	}
	l := &found[len(found)-1]
	k := -1
	if l.end >= at {
		k = strings.Index(out.Text[at:l.end], c.end)
	}
	if k < 0 {
		return nil, c.input("the {%% generation %%} block of assistant turn %d holds no end token %q: a model could not learn where to end", i+1, c.end)
	}
	l.token = at + k
	return found, nil
}

// cutPieces cuts a rendered text where who says it, or whether it is
// completion, changes.
func cutPieces(out jinja.Output, found []stretch) []Piece {
	cuts := []int{0, len(out.Text)}
	for _, r := range out.Runs {
		cuts = append(cuts, r.Start, r.End)
	}
	for _, f := range found {
		cuts = append(cuts, f.start, f.token, f.end)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	p := make([]Piece, 0, len(cuts))
	runs := out.Runs
	for k := 1; k < len(cuts); k++ {
		a, b := cuts[k-1], cuts[k]
		for len(runs) > 0 && runs[0].End <= a {
			runs = runs[1:]
		}
		for len(found) > 0 && found[0].end <= a {
			found = found[1:]
		}
		x := Piece{Text: out.Text[a:b], Literal: len(runs) > 0 && runs[0].Start <= a}
		if len(found) > 0 && found[0].start <= a {
			x.Completion, x.End = true, a >= found[0].token
		}
		p = append(p, x)
	}
	return p
}
