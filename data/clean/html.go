package clean

import (
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/specstream/specstream/data"
)

// maxDepth is how deep elements nest before inner ones count for nothing but
// their text. Chat services need about a dozen; the bound keeps hostile input
// from growing with its depth.
const maxDepth = 64

// node is an element, or text when tag is 0.
type node struct {
	tag   atom.Atom
	text  string
	attr  []html.Attribute
	kids  []*node
	block bool // is or holds a block
	wrap  bool // white space is kept, as under CSS pre-wrap
	shown bool // stands in display mode (formulas)
}

// get returns an attribute's value, "" if it has none.
func (n *node) get(key string) string {
	for _, a := range n.attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func (n *node) hasClass(class string) bool {
	rest := n.get("class")
	for rest != "" {
		var c string
		if c, rest, _ = strings.Cut(rest, " "); c == class {
			return true
		}
	}
	return false
}

// find returns the first element of a tag under n, in document order.
func (n *node) find(tag atom.Atom) *node {
	for _, k := range n.kids {
		if k.tag == tag {
			return k
		}
		if f := k.find(tag); f != nil {
			return f
		}
	}
	return nil
}

// raw appends the text under n as it stands, but for what is under skip and for
// controls.
func (n *node) raw(b *strings.Builder, skip *node) {
	if n == skip || kinds[n.tag] == dropped {
		return
	}
	b.WriteString(n.text)
	if n.tag == atom.Br {
		b.WriteByte('\n')
	}
	for _, k := range n.kids {
		k.raw(b, skip)
	}
}

type kind uint8

const (
	unknown kind = iota // no element of HTML: its tag is text
	inline
	block
	void
	dropped // with all it holds: controls and pictures of the interface
)

var kinds = func() map[atom.Atom]kind {
	m := map[atom.Atom]kind{}
	for k, tags := range map[kind][]atom.Atom{
		inline: {atom.A, atom.Abbr, atom.Acronym, atom.B, atom.Bdi, atom.Bdo, atom.Big, atom.Cite, atom.Code, atom.Data, atom.Del,
			atom.Dfn, atom.Em, atom.Font, atom.I, atom.Ins, atom.Kbd, atom.Label, atom.Mark, atom.Math, atom.Nobr, atom.Output, atom.Q,
			atom.Rp, atom.Rt, atom.Ruby, atom.S, atom.Samp, atom.Small, atom.Span, atom.Strike, atom.Strong, atom.Sub, atom.Sup,
			atom.Time, atom.Tt, atom.U, atom.Var},
		block: {atom.Address, atom.Article, atom.Aside, atom.Blockquote, atom.Body, atom.Caption, atom.Center, atom.Dd, atom.Details,
			atom.Div, atom.Dl, atom.Dt, atom.Fieldset, atom.Figcaption, atom.Figure, atom.Footer, atom.Form, atom.H1, atom.H2, atom.H3,
			atom.H4, atom.H5, atom.H6, atom.Header, atom.Html, atom.Li, atom.Main, atom.Nav, atom.Ol, atom.P, atom.Pre, atom.Section,
			atom.Summary, atom.Table, atom.Tbody, atom.Td, atom.Tfoot, atom.Th, atom.Thead, atom.Tr, atom.Ul},
		void:    {atom.Br, atom.Hr, atom.Img, atom.Input, atom.Wbr, atom.Col},
		dropped: {atom.Button, atom.Svg, atom.Script, atom.Style},
	} {
		for _, t := range tags {
			m[t] = k
		}
	}
	return m
}()

// mathNames are elements of MathML: what formulas hold, their TeX source among it.
var mathNames = map[string]bool{"semantics": true, "annotation": true, "mrow": true, "mi": true, "mo": true, "mn": true, "mtext": true,
	"msup": true, "msub": true, "msubsup": true, "mfrac": true, "msqrt": true, "mroot": true, "mover": true, "munder": true,
	"munderover": true, "mtable": true, "mtr": true, "mtd": true, "mstyle": true, "mspace": true, "mpadded": true, "menclose": true}

// parse reads HTML as a tree. It asks less of it than a browser does, in return
// for time and memory in proportion to the text: no markup makes it re-open
// elements. A tag that is no element of HTML, such as <stdio.h>, is text.
func parse(s string) *node {
	root := &node{block: true}
	p := parser{src: s, stack: []*node{root}, ends: map[atom.Atom]int{}}
	z := html.NewTokenizer(strings.NewReader(s))
	for {
		tt := z.Next()
		if tt == html.ErrorToken { // the end: a string cannot fail
			p.text(s[p.pos:]) // of a tag without an end
			return root
		}
		raw := z.Raw()
		p.pos += len(raw)
		switch tt {
		case html.TextToken:
			p.text(string(z.Text()))
		case html.StartTagToken, html.SelfClosingTagToken:
			source := string(raw)
			p.start(z.Token(), source, tt == html.SelfClosingTagToken)
			if !p.inRaw {
				z.NextIsNotRawText()
			}
			p.inRaw = false
		case html.EndTagToken:
			source := string(raw)
			p.end(z.Token(), source)
		case html.CommentToken:
			if !strings.HasPrefix(string(raw), "<!--") {
				p.text(string(raw)) // such as <?php … ?>
			}
		case html.DoctypeToken:
		}
	}
}

type parser struct {
	src   string
	pos   int // bytes read
	stack []*node
	over  int               // elements open beyond maxDepth
	ends  map[atom.Atom]int // where the next end tag of a name is, as far as known
	inRaw bool              // what follows is the raw text of a dropped element
}

func (p *parser) top() *node { return p.stack[len(p.stack)-1] }

func (p *parser) text(s string) {
	if s != "" {
		p.top().kids = append(p.top().kids, &node{text: s, wrap: p.top().wrap})
	}
}

// closes reports whether an end tag of a name follows. All its calls for one
// name together read the text once.
func (p *parser) closes(tag atom.Atom) bool {
	at, known := p.ends[tag]
	if known && at >= p.pos {
		return at < len(p.src)
	}
	want := "</" + tag.String()
	at = p.pos
	for {
		i := strings.Index(p.src[at:], "</")
		if i < 0 || len(p.src)-at-i < len(want) {
			at = len(p.src)
			break
		}
		if at += i; strings.EqualFold(p.src[at:at+len(want)], want) {
			break
		}
		at += len("</")
	}
	p.ends[tag] = at
	return at < len(p.src)
}

// classify tells an element's kind by name.
func classify(t html.Token) (atom.Atom, kind) {
	if mathNames[t.Data] {
		if t.Data == "annotation" {
			return atom.Annotation, inline
		}
		return atom.Span, inline
	}
	return t.DataAtom, kinds[t.DataAtom]
}

func (p *parser) start(t html.Token, source string, selfClosing bool) {
	tag, k := classify(t)
	if k == unknown || k == dropped && !selfClosing && !p.closes(tag) {
		p.text(source)
		return
	}
	if k == block {
		p.closeFor(tag)
	}
	n := &node{tag: tag, attr: t.Attr, block: k == block || tag == atom.Hr}
	n.wrap = p.top().wrap || n.hasClass("whitespace-pre-wrap")
	n.shown = p.top().shown || n.hasClass("katex-display") || n.hasClass("math-display")
	if k == void || selfClosing && k != block {
		p.add(n)
		return
	}
	if len(p.stack) > maxDepth {
		p.over++
		return
	}
	p.add(n)
	p.stack = append(p.stack, n)
	p.inRaw = tag == atom.Script || tag == atom.Style
}

// add hangs n under the open element.
func (p *parser) add(n *node) {
	p.top().kids = append(p.top().kids, n)
	if n.block {
		for i := len(p.stack) - 1; i >= 0 && !p.stack[i].block; i-- {
			p.stack[i].block = true
		}
	}
}

func (p *parser) end(t html.Token, source string) {
	tag, k := classify(t)
	if k == unknown {
		p.text(source)
		return
	}
	if k == void {
		return
	}
	if p.over > 0 {
		p.over--
		return
	}
	for i := len(p.stack) - 1; i > 0; i-- {
		if n := p.stack[i]; n.tag == tag {
			p.stack = p.stack[:i]
			return
		}
	}
	if k == dropped {
		p.text(source)
	}
}

// closeFor ends the elements whose end tags HTML lets be left out, before
// another block begins.
func (p *parser) closeFor(tag atom.Atom) {
	ends, bounds := []atom.Atom{atom.P}, []atom.Atom(nil)
	switch tag {
	case atom.Li:
		ends, bounds = append(ends, atom.Li), []atom.Atom{atom.Ul, atom.Ol}
	case atom.Dt, atom.Dd:
		ends, bounds = append(ends, atom.Dt, atom.Dd), []atom.Atom{atom.Dl}
	case atom.Td, atom.Th:
		ends, bounds = append(ends, atom.Td, atom.Th), []atom.Atom{atom.Table, atom.Tr}
	case atom.Tr, atom.Tbody, atom.Thead, atom.Tfoot:
		ends, bounds = append(ends, atom.Td, atom.Th, atom.Tr), []atom.Atom{atom.Table}
	}
	for i := len(p.stack) - 1; i > 0; i-- {
		t := p.stack[i].tag
		for _, b := range bounds {
			if t == b {
				return
			}
		}
		for _, e := range ends {
			if t == e {
				p.stack = p.stack[:i]
			}
		}
		if bounds == nil && t != atom.P && p.stack[i].block {
			return
		}
	}
}

// isChatMarkup reports whether s holds the element that ChatGPT's pages show an
// answer in, outside Markdown code.
func isChatMarkup(s string) bool {
	i := strings.Index(s, `class="markdown`)
	if i < 0 {
		return false
	}
	before := s[:i]
	tag := strings.LastIndexByte(before, '<')
	if tag < 0 || strings.ContainsAny(before[tag:], ">`") {
		return false
	}
	line := before[strings.LastIndexByte(before, '\n')+1:]
	return strings.Count(before, "```")%2 == 0 && strings.Count(line, "`")%2 == 0
}

// textual are the elements that Markdown has words for, and attributes that
// converters from Markdown give them.
var (
	textual = func() map[atom.Atom]bool {
		m := map[atom.Atom]bool{}
		for _, t := range []atom.Atom{atom.A, atom.B, atom.Blockquote, atom.Br, atom.Code, atom.Del, atom.Div, atom.Em, atom.H1, atom.H2,
			atom.H3, atom.H4, atom.H5, atom.H6, atom.Hr, atom.I, atom.Img, atom.Kbd, atom.Li, atom.Ol, atom.P, atom.Pre, atom.S, atom.Span,
			atom.Strike, atom.Strong, atom.Sub, atom.Sup, atom.Table, atom.Tbody, atom.Td, atom.Th, atom.Thead, atom.Tr, atom.U, atom.Ul} {
			m[t] = true
		}
		return m
	}()
	textualAttr = map[string]bool{"href": true, "rel": true, "title": true, "src": true, "alt": true, "start": true, "align": true,
		"target": true, "width": true, "height": true, "class": true}
)

// isMarkup reports whether s is sound HTML that Markdown could say: blocks of
// text, with no element or attribute that only a page has. Text outside of all
// elements must have two closed blocks beside it, and no Markdown code; prose
// that speaks of tags closes none.
func isMarkup(s string) bool {
	s = strings.TrimSpace(s)
	if !strings.Contains(s, "</") || s[0] != '<' && strings.Contains(s, "`") {
		return false
	}
	z := html.NewTokenizer(strings.NewReader(s))
	var stack []atom.Atom
	bare, closed := false, 0
	for {
		switch tt := z.Next(); tt {
		case html.ErrorToken:
			return len(stack) == 0 && (closed > 1 || closed == 1 && !bare)
		case html.TextToken:
			bare = bare || len(stack) == 0 && !blank(string(z.Text()))
		case html.StartTagToken, html.SelfClosingTagToken:
			t := z.Token()
			if !textual[t.DataAtom] || len(stack) > maxDepth {
				return false
			}
			for _, a := range t.Attr {
				if !textualAttr[a.Key] || a.Key == "class" && (t.DataAtom == atom.Div || t.DataAtom == atom.Span) {
					return false
				}
			}
			if k := kinds[t.DataAtom]; k != void && tt != html.SelfClosingTagToken {
				stack = append(stack, t.DataAtom)
			}
			bare = bare || len(stack) == 1 && kinds[t.DataAtom] == inline
		case html.EndTagToken:
			t := z.Token()
			switch {
			case kinds[t.DataAtom] == void:
			case len(stack) > 0 && stack[len(stack)-1] == t.DataAtom:
				stack = stack[:len(stack)-1]
				if kinds[t.DataAtom] == block {
					closed++
				}
			case len(stack) > 0 || t.DataAtom != atom.P: // whose start may be lost
				return false
			}
		default:
			return false
		}
	}
}

// asksForMarkup reports whether a user turn speaks of HTML or of pages, or holds
// a tag: then an answer in HTML is HTML on purpose.
func asksForMarkup(turns []data.Turn) bool {
	for _, t := range turns {
		if t.Role != data.User {
			continue
		}
		text := strings.ToLower(t.Text)
		for _, word := range []string{"html", "web page", "webpage", "website", "</", "/>"} {
			if strings.Contains(text, word) {
				return true
			}
		}
	}
	return false
}
