package tokenizer

import (
	"strings"
)

// Stream decodes token by token. Not safe for concurrent use.
type Stream struct {
	t    *Tokenizer
	out  textSink
	head sink       // the decoders; nil when the tokenizer needs none of them
	utf8 utf8Stream // for tokenizers whose only decoder is ByteLevel
	spm  spmDecoder
}

// NewStream returns a stream with nothing in it.
func (t *Tokenizer) NewStream() *Stream {
	s := &Stream{t: t}
	s.reset()
	return s
}

func (s *Stream) reset() {
	t := s.t
	s.out = textSink{joiner: t.joiner}
	s.head, s.utf8 = nil, utf8Stream{}
	switch {
	case t.spm != nil:
		s.spm = spmDecoder{m: t.spm, text: t.decodeAs, isBOS: true}
	case t.text == nil:
		s.head = &s.out
		for i := len(t.decoders) - 1; i >= 0; i-- {
			s.head = t.decoders[i].stage(s.head)
		}
	}
}

// Next takes the next token and returns the text that is certain now: text that
// no later token can change. What it and [Stream.Flush] return, joined, is
// [Tokenizer.Decode] of all the tokens.
func (s *Stream) Next(id int32) string {
	s.put(id)
	return s.out.take()
}

// Flush returns the rest of the text: what waited for tokens that did not come.
// The stream is then as new.
func (s *Stream) Flush() string {
	switch {
	case s.t.spm != nil:
		s.spm.flushBytes(s.out.write)
	case s.head != nil:
		s.head.close()
	default:
		s.utf8.flush(s.out.write)
	}
	text := s.out.take()
	s.reset()
	return text
}

// put decodes one token into s.out.
func (s *Stream) put(id int32) {
	t := s.t
	switch {
	case t.spm != nil:
		if id >= 0 && int(id) < len(t.tokens) && t.present[id] {
			s.spm.put(s.out.write, id)
		}
	case !t.decodes(id):
	case t.text != nil:
		s.utf8.write(s.out.write, t.text[id])
	default:
		s.head.put(t.decodeAs[id], true)
	}
}

// sink takes tokens, each in one or more parts of which the last has end set.
// Decoders that join tokens give one token that ends with the text.
type sink interface {
	put(part string, end bool)
	close() // no more tokens
}

// textSink joins tokens.
type textSink struct {
	b      strings.Builder
	joiner string // between tokens
	inside bool   // a token has begun and not ended
	some   bool   // a token has begun
}

func (t *textSink) write(s string) { t.b.WriteString(s) }

func (t *textSink) put(part string, end bool) {
	if !t.inside && t.some {
		t.b.WriteString(t.joiner)
	}
	t.some, t.inside = true, !end
	t.b.WriteString(part)
}

func (t *textSink) close() {}

// take returns what was written since the last call.
func (t *textSink) take() string {
	s := t.b.String()
	t.b.Reset()
	return s
}

// stage returns a sink that runs one decoder and passes the result on.
func (d *decoder) stage(next sink) sink {
	switch d.kind {
	case decByteLevel:
		return &byteLevelStage{next: next}
	case decByteFallback:
		return &byteFallbackStage{next: next}
	case decFuse:
		return &fuseStage{next: next}
	case decReplace:
		if d.regex != nil {
			return &regexStage{d: d, next: next}
		}
		return &replaceStage{d: d, next: next}
	case decStrip:
		return &stripStage{d: d, next: next}
	default:
		return &metaspaceStage{d: d, next: next}
	}
}

// byteLevelStage maps GPT-2's alphabet to bytes and joins all tokens.
type byteLevelStage struct {
	next  sink
	token strings.Builder
	utf8  utf8Stream
}

func (g *byteLevelStage) pass(s string) { g.next.put(s, false) }

func (g *byteLevelStage) put(part string, end bool) {
	g.token.WriteString(part)
	if end {
		g.utf8.write(g.pass, fromByteLevel(g.token.String()))
		g.token.Reset()
	}
}

func (g *byteLevelStage) close() {
	if g.token.Len() > 0 {
		g.put("", true)
	}
	g.utf8.flush(g.pass)
	g.next.put("", true)
	g.next.close()
}

// byteFallbackStage joins runs of <0xNN> tokens: the text they spell if it is
// valid UTF-8, else one U+FFFD for each. Only the end of a run tells.
type byteFallbackStage struct {
	next  sink
	token strings.Builder
	run   []byte
}

func (g *byteFallbackStage) put(part string, end bool) {
	if !end || g.token.Len() > 0 {
		g.token.WriteString(part)
		if !end {
			return
		}
		part = g.token.String()
		g.token.Reset()
	}
	if b, ok := byteToken(part); ok {
		g.run = append(g.run, b)
		return
	}
	g.flush()
	g.next.put(part, true)
}

func (g *byteFallbackStage) flush() {
	if len(g.run) == 0 {
		return
	}
	if s := string(g.run); validOrReplaced(s) == s {
		g.next.put(s, true)
	} else {
		for range g.run {
			g.next.put("\uFFFD", true)
		}
	}
	g.run = g.run[:0]
}

func (g *byteFallbackStage) close() {
	if g.token.Len() > 0 {
		g.put("", true)
	}
	g.flush()
	g.next.close()
}

// fuseStage joins all tokens.
type fuseStage struct{ next sink }

func (g *fuseStage) put(part string, _ bool) { g.next.put(part, false) }

func (g *fuseStage) close() {
	g.next.put("", true)
	g.next.close()
}

// replaceStage replaces a string within each token.
type replaceStage struct {
	d    *decoder
	next sink
	held string // the end of the last part, which may begin a match
}

func (g *replaceStage) put(part string, end bool) {
	s := g.held + part
	g.held = ""
	from := g.d.pattern
	if end {
		g.next.put(strings.ReplaceAll(s, from, g.d.content), true)
		return
	}
	var b strings.Builder
	for {
		k := strings.Index(s, from)
		if k < 0 {
			break
		}
		b.WriteString(s[:k])
		b.WriteString(g.d.content)
		s = s[k+len(from):]
	}
	keep := min(len(from)-1, len(s))
	for keep > 0 && !strings.HasPrefix(from, s[len(s)-keep:]) {
		keep--
	}
	b.WriteString(s[:len(s)-keep])
	g.held = strings.Clone(s[len(s)-keep:])
	g.next.put(b.String(), false)
}

func (g *replaceStage) close() { g.next.close() }

// regexStage replaces matches of an expression within each token. Only the end
// of a token tells where it matches.
type regexStage struct {
	d     *decoder
	next  sink
	token strings.Builder
}

func (g *regexStage) put(part string, end bool) {
	g.token.WriteString(part)
	if end {
		g.next.put(g.d.regex.replaceAll(g.token.String(), g.d.content), true)
		g.token.Reset()
	}
}

func (g *regexStage) close() { g.next.close() }

// stripStage removes a character at the ends of each token.
type stripStage struct {
	d       *decoder
	next    sink
	begun   bool // past the characters at the start
	removed int  // characters removed at the start
	tail    int  // characters at the end so far, which may have to go
}

func (g *stripStage) put(part string, end bool) {
	c := g.d.content
	for !g.begun && g.removed < g.d.start && strings.HasPrefix(part, c) {
		part = part[len(c):]
		g.removed++
	}
	if part != "" {
		g.begun = true
	}
	body := part
	for len(body) > 0 && strings.HasSuffix(body, c) {
		body = body[:len(body)-len(c)]
	}
	run := (len(part) - len(body)) / len(c)
	if body != "" {
		body = strings.Repeat(c, g.tail) + body
		g.tail = 0
	}
	g.tail += run
	if extra := g.tail - g.d.stop; extra > 0 {
		body += strings.Repeat(c, extra)
		g.tail -= extra
	}
	if end {
		*g = stripStage{d: g.d, next: g.next}
	}
	if body != "" || end {
		g.next.put(body, end)
	}
}

func (g *stripStage) close() { g.next.close() }

// metaspaceStage turns a character into spaces, in the first token to nothing.
type metaspaceStage struct {
	d     *decoder
	next  sink
	later bool // past the first token
}

func (g *metaspaceStage) put(part string, end bool) {
	by := " "
	if !g.later && g.d.dropFirst {
		by = ""
	}
	g.next.put(strings.ReplaceAll(part, g.d.content, by), end)
	g.later = g.later || end
}

func (g *metaspaceStage) close() { g.next.close() }
