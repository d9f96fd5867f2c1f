package inspect

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

func escaped(r rune) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\r':
		return `\r`
	case r == '\t':
		return `\t`
	case r < 0x20 || r == 0x7f:
		return fmt.Sprintf(`\x%02x`, r)
	case unicode.IsPrint(r), r == '\u3000', r == '\u00a0':
		return string(r)
	}
	// Among them what reverses the direction of text, and the zero-width
	// characters that nobody sees.
	return fmt.Sprintf(`\u{%x}`, r)
}

// Colours of the parts, as ANSI escapes.
const (
	dim, green, red, cyan, bold, reset = "\x1b[2m", "\x1b[32m", "\x1b[31m", "\x1b[36m", "\x1b[1m", "\x1b[0m"
)

// Options configures [Write].
type Options struct {
	// Color colours the parts: prompt dim, completion green, end tokens red,
	// other special tokens cyan. Without, completions are in ⟦⟧.
	Color bool
	// Width is the columns of a line. Default 100.
	Width int
}

// Write writes a sample for a terminal: a line about it, its tokens, and its
// targets if it has some. Line breaks of the text end lines.
func Write(w io.Writer, s Sample, o Options) error {
	if o.Width <= 0 {
		o.Width = 100
	}
	p := printer{w: w, o: o}
	loss := 0
	for _, sp := range s.Spans {
		loss += sp.Len()
	}
	p.line(p.in(bold, Escape(s.ID)) + fmt.Sprintf("  %d tokens, %d with loss", len(s.Tokens), loss))
	p.tokens(s)
	if s.Targets != nil {
		p.targets(s)
	}
	p.line("")
	return p.err
}

type printer struct {
	w   io.Writer
	o   Options
	err error
}

func (p *printer) line(s string) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, s)
	}
}

func (p *printer) in(color, s string) string {
	if !p.o.Color || s == "" {
		return s
	}
	return color + s + reset
}

func (t Token) color() string {
	switch {
	case t.Part == End:
		return red
	case t.Special:
		return cyan
	case t.Part == Completion:
		return green
	}
	return dim
}

// tokens writes the text. Token bounds are marked by "·", but for those that a
// space or line break shows.
func (p *printer) tokens(s Sample) {
	var line strings.Builder
	width := 0
	flush := func() {
		p.line(line.String())
		line.Reset()
		width = 0
	}
	opens, shuts := map[int]bool{}, map[int]bool{}
	for _, sp := range s.Spans {
		opens[sp.Start], shuts[sp.End-1] = !p.o.Color, !p.o.Color
	}
	tokens := s.Tokens
	for i, t := range tokens {
		text := Escape(t.Text)
		open, shut := opens[i], shuts[i]
		bound := width > 0 && !open && !strings.HasPrefix(text, " ") && !t.Special && !tokens[i-1].Special
		n := utf8.RuneCountInString(text)
		if width > 0 && width+n+3 > p.o.Width {
			flush()
			bound = false
		}
		if bound {
			line.WriteString(p.in(dim, "·"))
			width++
		}
		if open {
			line.WriteString("⟦")
		}
		line.WriteString(p.in(t.color(), text))
		if shut {
			line.WriteString("⟧")
		}
		width += n + 1
		if strings.HasSuffix(t.Text, "\n") {
			flush()
		}
	}
	if width > 0 {
		flush()
	}
}

func (p *printer) targets(s Sample) {
	t := s.Targets
	at := "outside of the sample"
	if t.Position >= 0 && t.Position < len(s.Tokens) {
		at = quoted(s.Tokens[t.Position])
	}
	p.line(fmt.Sprintf("at position %d, %s:", t.Position, at))
	for _, x := range t.Streams {
		name := "main    "
		if x.Stream > 0 {
			name = fmt.Sprintf("stream %d", x.Stream)
		}
		if x.Masked {
			p.line("  " + name + "  " + p.in(dim, "masked"))
			continue
		}
		p.line(fmt.Sprintf("  %s  %s  %s", name, p.in(x.Token.color(), quoted(*x.Token)), p.in(dim, fmt.Sprintf("token %d, id %d", x.Token.Position, x.Token.ID))))
	}
}

func quoted(t Token) string { return `"` + Escape(t.Text) + `"` }
