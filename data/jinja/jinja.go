// Package jinja renders the Jinja chat templates that models carry in their
// tokenizer_config.json, to the character as Hugging Face's transformers does
// (Jinja2 3.1 with trim_blocks and lstrip_blocks, its sandbox, its tojson,
// raise_exception, strftime_now and {% generation %}).
//
// It is an interpreter of the part of the language that chat templates use, and
// it is strict. A tag, filter, test or method outside of that part is an error
// when the template is read or the place is reached, and what Python would
// refuse (a string plus a number, an attribute of something undefined) is
// refused: an approximation would train a model on text that it never meets.
//
// Two things general engines do not do decided for an own one. Every character
// of the output is known to come from the template or from one of the texts
// given to it ([Run]), so that control tokens are told from text that looks
// like them. And rendering is bounded: no files are read, loops, recursion and
// the text made are limited, whatever the template says.
package jinja

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Error says what a template can't be read or rendered for.
type Error struct {
	// Name is the template's, Line the line of it; 0 when unknown.
	Name string
	Line int
	// Reason says what is wrong.
	Reason string
	// Raised says that the template itself refused its input, by
	// raise_exception; Reason is its message.
	Raised bool
}

// Error renders "name: line N: reason".
func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s: line %d: %s", e.Name, e.Line, e.Reason)
	}
	return e.Name + ": " + e.Reason
}

// fail ends parsing or rendering; recovered turns it into an error.
func fail(name string, line int, format string, args ...any) {
	panic(&Error{Name: name, Line: line, Reason: fmt.Sprintf(format, args...)})
}

func recovered(err *error) {
	switch r := recover().(type) {
	case nil:
	case *Error:
		*err = r
	default:
		panic(r)
	}
}

// maxSource bounds a template. The largest in use have some 20 KB.
const maxSource = 1 << 20

// Template is a chat template. It is safe for concurrent use.
type Template struct {
	name       string
	body       []stmt
	generation bool
}

// Parse reads a template; the name stands for it in errors. The error is an
// [*Error].
func Parse(name, source string) (t *Template, err error) {
	defer recovered(&err)
	if len(source) > maxSource {
		fail(name, 0, "larger than %d KiB", maxSource>>10)
	}
	if !utf8.ValidString(source) {
		fail(name, 0, "is not valid UTF-8")
	}
	p := &parser{name: name, toks: lex(name, source)}
	t = &Template{name: name}
	t.body, _ = p.statements()
	t.generation = p.generation
	return t, nil
}

// MarksGeneration reports whether the template has {% generation %} blocks.
func (t *Template) MarksGeneration() bool { return t.generation }

// Text is a string given to a template whose characters are to be found again
// in what is rendered.
type Text struct {
	S string
	// Origin names it; it is positive.
	Origin int
}

// Range is a range of bytes [Start, End) of the rendered text.
type Range struct{ Start, End int }

// Output is what a template renders.
type Output struct {
	Text string
	// Runs are the parts of Text that come from given texts, in order.
	Runs []Run
	// Generated are the {% generation %} blocks, in order.
	Generated []Range
}

// Map is a dictionary that keeps the order of its entries.
type Map []Entry

// Entry is one entry of a Map.
type Entry struct {
	Key   string
	Value any
}

// Limits bound one rendering.
type Limits struct {
	// Steps is the number of expressions, statements and items gone through.
	// Default: 1 million.
	Steps int
	// Bytes is how much text is made in all. Default: 64 MiB.
	Bytes int
	// Now is the time strftime_now tells. Default: [DefaultNow].
	Now time.Time
}

// DefaultNow is the time strftime_now tells unless told otherwise: that a
// template puts the date into the prompt must not make the same data set
// another one tomorrow. It is the date that Llama-3's templates fall back to.
var DefaultNow = time.Date(2024, time.July, 26, 0, 0, 0, 0, time.UTC)

// Render renders the template. Variables are nil, bool, int, int64, float64,
// string, [Text], []any and [Map]. The error is an [*Error].
func (t *Template) Render(vars Map, l Limits) (out Output, err error) {
	defer recovered(&err)
	if l.Steps == 0 {
		l.Steps = 1 << 20
	}
	if l.Bytes == 0 {
		l.Bytes = 64 << 20
	}
	if l.Now.IsZero() {
		l.Now = DefaultNow
	}
	b := &builder{}
	s := &state{t: t, scope: &scope{vars: map[string]value{}}, out: b, root: b, now: l.Now, steps: l.Steps, bytes: l.Bytes}
	for _, e := range vars {
		v, err := given(e.Value)
		if err != nil {
			return Output{}, &Error{Name: t.name, Reason: fmt.Sprintf("variable %q: %v", e.Key, err)}
		}
		s.scope.vars[e.Key] = v
	}
	s.run(t.body)
	r := b.done()
	return Output{Text: r.s, Runs: r.runs, Generated: s.generated}, nil
}

func given(v any) (value, error) {
	switch v := v.(type) {
	case nil, bool, int64, float64:
		return v, nil
	case int:
		return int64(v), nil
	case string:
		if !utf8.ValidString(v) {
			return nil, errors.New("is not valid UTF-8")
		}
		return plainText(v), nil
	case Text:
		if v.Origin < 1 {
			return nil, errors.New("the origin of a text is not positive")
		}
		if !utf8.ValidString(v.S) {
			return nil, errors.New("is not valid UTF-8")
		}
		return withOrigin(v.S, v.Origin), nil
	case []any:
		l := &list{items: make([]value, len(v))}
		for i, it := range v {
			var err error
			if l.items[i], err = given(it); err != nil {
				return nil, err
			}
		}
		return l, nil
	case Map:
		d := newDict()
		for _, e := range v {
			w, err := given(e.Value)
			if err != nil {
				return nil, err
			}
			d.set(plainText(e.Key), w)
		}
		return d, nil
	}
	return nil, fmt.Errorf("a %T is no value of a template", v)
}
