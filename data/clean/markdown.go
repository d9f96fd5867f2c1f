package clean

import (
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/net/html/atom"
)

// toMarkdown renders HTML as Markdown. It does not escape characters that mean
// something in Markdown: the text was Markdown before a chat service rendered
// it, and a model should learn to write "snake_case" as it stands.
func toMarkdown(s string) string {
	var out []string
	blocks(&out, parse(s).kids)
	return strings.Join(out, "\n\n")
}

// blocks appends the blocks of nodes; inline ones between blocks make a
// paragraph.
func blocks(out *[]string, nodes []*node) {
	start := 0
	flush := func(end int) {
		if text := inlineText(nodes[start:end]); text != "" {
			*out = append(*out, text)
		}
		start = end + 1
	}
	for i, n := range nodes {
		if !n.block {
			continue
		}
		flush(i)
		if b, ok := blockText(n); !ok {
			blocks(out, n.kids)
		} else if b != "" {
			*out = append(*out, b)
		}
	}
	flush(len(nodes))
}

// blockText renders an element that Markdown has a block for.
func blockText(n *node) (text string, ok bool) {
	switch n.tag {
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		title := oneLine(inlineText(n.kids), " ")
		if title == "" {
			return "", true
		}
		return strings.Repeat("#", int(n.tag.String()[1]-'0')) + " " + title, true
	case atom.Hr:
		return "---", true
	case atom.Pre:
		return codeBlock(n), true
	case atom.Ul, atom.Ol:
		return list(n), true
	case atom.Blockquote:
		var inner []string
		blocks(&inner, n.kids)
		if len(inner) == 0 {
			return "", true
		}
		lines := strings.Split(strings.Join(inner, "\n\n"), "\n")
		for i, l := range lines {
			lines[i] = strings.TrimRight("> "+l, " ")
		}
		return strings.Join(lines, "\n"), true
	case atom.Table:
		return table(n), true
	}
	return "", false
}

// oneLine joins the lines of inline text.
func oneLine(s, by string) string {
	if !strings.Contains(s, "\n") {
		return s
	}
	lines := strings.Split(s, "\n")
	kept := lines[:0]
	for _, l := range lines {
		if l = strings.TrimSpace(l); l != "" {
			kept = append(kept, l)
		}
	}
	return strings.Join(kept, by)
}

// inlineText renders inline nodes, without the white space around them and at
// the ends of lines.
func inlineText(nodes []*node) string {
	var w inlineWriter
	for _, n := range nodes {
		w.node(n)
	}
	lines := strings.Split(w.b.String(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " \t")
	}
	text := strings.TrimRight(strings.Join(lines, "\n"), " \t\n")
	for {
		line, rest, ok := strings.Cut(text, "\n")
		if ok && strings.Trim(line, " \t") == "" {
			text = rest
			continue
		}
		return strings.TrimLeft(text, " \t")
	}
}

type inlineWriter struct {
	b            strings.Builder
	bold, italic bool
}

func (w *inlineWriter) node(n *node) {
	switch n.tag {
	case 0:
		w.text(n)
	case atom.Br:
		w.b.WriteByte('\n')
	case atom.Wbr, atom.Rp, atom.Button, atom.Svg, atom.Script, atom.Style:
	case atom.Input:
		if n.get("type") == "checkbox" {
			w.b.WriteString(checkbox(n))
		}
	case atom.Img:
		w.b.WriteString(image(n))
	case atom.Math:
		w.b.WriteString(formula(n))
	case atom.Code, atom.Kbd, atom.Samp, atom.Tt:
		w.b.WriteString(codeSpan(n))
	case atom.A:
		w.link(n)
	case atom.Strong, atom.B:
		w.emphasis(n, "**", &w.bold)
	case atom.Em, atom.I:
		w.emphasis(n, "*", &w.italic)
	case atom.Del, atom.S, atom.Strike:
		w.emphasis(n, "~~", new(bool))
	case atom.Sub, atom.Sup: // Markdown has no words of its own for them
		if inner := w.inner(n); inner != "" {
			w.b.WriteString("<" + n.tag.String() + ">" + inner + "</" + n.tag.String() + ">")
		}
	default:
		if n.hasClass("katex-html") || n.hasClass("sr-only") { // a second time for eyes or ears
			return
		}
		w.b.WriteString(w.inner(n))
	}
}

// inner renders what an element holds. A block inside stands on lines of its own.
func (w *inlineWriter) inner(n *node) string {
	in := inlineWriter{bold: w.bold, italic: w.italic}
	for _, k := range n.kids {
		if k.block && in.b.Len() > 0 {
			in.b.WriteByte('\n')
		}
		in.node(k)
	}
	return in.b.String()
}

// text writes text with every run of white space that holds a line break as one
// line break. Other runs stay: they are the author's.
func (w *inlineWriter) text(n *node) {
	s := n.text
	if n.wrap || !strings.ContainsAny(s, "\n\r") {
		w.b.WriteString(strings.ReplaceAll(s, "\r\n", "\n"))
		return
	}
	for s != "" {
		i := strings.IndexAny(s, " \t\n\r\f")
		if i < 0 {
			i = len(s)
		}
		w.b.WriteString(s[:i])
		s = s[i:]
		rest := strings.TrimLeft(s, " \t\n\r\f")
		space := s[:len(s)-len(rest)]
		if strings.ContainsAny(space, "\n\r") {
			space = "\n"
		}
		w.b.WriteString(space)
		s = rest
	}
}

// emphasis sets marks around what an element holds, inside its white space and
// not twice.
func (w *inlineWriter) emphasis(n *node, mark string, on *bool) {
	if *on {
		w.b.WriteString(w.inner(n))
		return
	}
	*on = true
	inner := w.inner(n)
	*on = false
	core := strings.TrimSpace(inner)
	if core == "" {
		w.b.WriteString(inner)
		return
	}
	i := strings.Index(inner, core)
	w.b.WriteString(inner[:i] + mark + core + mark + inner[i+len(core):])
}

func (w *inlineWriter) link(n *node) {
	inner := w.inner(n)
	text, href := oneLine(strings.TrimSpace(inner), " "), strings.TrimSpace(n.get("href"))
	scheme, _, _ := strings.Cut(strings.ToLower(href), ":")
	if text == "" || href == "" || href == text || strings.HasPrefix(href, "#") || scheme == "javascript" || scheme == "data" {
		w.b.WriteString(inner)
		return
	}
	w.b.WriteString("[" + text + "](" + target(href, n.get("title")) + ")")
}

func image(n *node) string {
	alt, src := oneLine(n.get("alt"), " "), strings.TrimSpace(n.get("src"))
	if src == "" || len(src) > 5 && strings.EqualFold(src[:5], "data:") {
		return alt
	}
	return "![" + alt + "](" + target(src, n.get("title")) + ")"
}

// target is the inside of a link's round brackets.
func target(address, title string) string {
	if strings.ContainsAny(address, " \t\n()<>") {
		address = "<" + strings.NewReplacer("<", "%3C", ">", "%3E", "\n", "", "\t", " ").Replace(address) + ">"
	}
	if title = oneLine(title, " "); title != "" {
		address += ` "` + strings.ReplaceAll(title, `"`, `\"`) + `"`
	}
	return address
}

func checkbox(n *node) string {
	for _, a := range n.attr {
		if a.Key == "checked" {
			return "[x] "
		}
	}
	return "[ ] "
}

// formula takes a formula's TeX source, which KaTeX keeps beside what it shows.
func formula(n *node) string {
	var b strings.Builder
	if a := n.find(atom.Annotation); a != nil {
		a.raw(&b, nil)
		tex := strings.TrimSpace(b.String())
		switch {
		case tex == "":
			return ""
		case n.shown:
			return "$$" + tex + "$$"
		}
		return "$" + tex + "$"
	}
	n.raw(&b, nil)
	return b.String()
}

func codeSpan(n *node) string {
	var b strings.Builder
	n.raw(&b, nil)
	code := oneLine(b.String(), " ")
	if strings.TrimSpace(code) == "" {
		return code
	}
	marks := strings.Repeat("`", longestRun(code)+1)
	if code[0] == '`' || code[len(code)-1] == '`' {
		code = " " + code + " "
	}
	return marks + code + marks
}

// longestRun is the length of the longest run of backticks in s.
func longestRun(s string) int {
	most, n := 0, 0
	for i := range len(s) {
		if s[i] == '`' {
			n++
			most = max(most, n)
		} else {
			n = 0
		}
	}
	return most
}

var (
	languageName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+#._-]{0,19}$`)
	// codeHeader is the head of a code block run together: "pythonCopy code".
	codeHeader = regexp.MustCompile(`^\s*([A-Za-z][A-Za-z0-9+#._-]{0,19}?(?:Copy code)+|(?:Copy code)+(?:\n|$))\n?`)
)

// cutHeader takes a code block's head off.
func cutHeader(code string) (language, rest string) {
	m := codeHeader.FindString(code)
	if m == "" {
		return "", code
	}
	language, _, _ = strings.Cut(strings.TrimSpace(m), "Copy code")
	return language, code[len(m):]
}

// codeBlock renders <pre>. A chat service's has a head with the language and a
// button beside the code.
func codeBlock(n *node) string {
	var b strings.Builder
	body, language := n.find(atom.Code), ""
	if body != nil {
		n.raw(&b, body)
		head := strings.TrimSpace(b.String())
		if l, rest := cutHeader(head); rest == "" {
			head = l
		}
		b.Reset()
		if head != "" && !languageName.MatchString(head) {
			body = nil // there is more to it than what is in <code>
		} else if language = codeLanguage(body, n); language == "" {
			language = head
		}
	}
	if body == nil {
		body, language = n, codeLanguage(n)
	}
	body.raw(&b, nil)
	head, code := cutHeader(strings.ReplaceAll(b.String(), "\r\n", "\n"))
	if language == "" {
		language = head
	}
	code = strings.TrimRight(strings.TrimLeft(code, "\n"), " \t\n")
	if strings.TrimSpace(code) == "" {
		return ""
	}
	fence := strings.Repeat("`", max(3, longestRun(code)+1))
	return fence + language + "\n" + code + "\n" + fence
}

// codeLanguage is the language in the class of the first node that names one.
func codeLanguage(nodes ...*node) string {
	for _, n := range nodes {
		for _, c := range strings.Fields(n.get("class")) {
			for _, prefix := range []string{"language-", "lang-"} {
				if l, ok := strings.CutPrefix(c, prefix); ok && languageName.MatchString(l) {
					return l
				}
			}
		}
	}
	return ""
}

func list(n *node) string {
	var items []string
	number, loose := 1, false
	if s, err := strconv.Atoi(n.get("start")); err == nil && s >= 0 { // a bad start counts from 1, as in browsers
		number = s
	}
	for _, k := range n.kids {
		if k.tag == 0 && strings.TrimSpace(k.text) == "" {
			continue
		}
		kids := k.kids
		if k.tag != atom.Li {
			kids = []*node{k}
		}
		if last := len(items) - 1; last >= 0 && (k.tag == atom.Ul || k.tag == atom.Ol) { // belongs to the item before
			items[last] += "\n  " + indent(list(k), 2)
			continue
		}
		text, isLoose := item(kids)
		loose = loose || isLoose
		if text == "" {
			continue
		}
		mark := "- "
		if n.tag == atom.Ol {
			mark = strconv.Itoa(number) + ". "
			number++
		}
		items = append(items, mark+indent(text, len(mark)))
	}
	if loose {
		return strings.Join(items, "\n\n")
	}
	return strings.Join(items, "\n")
}

// item renders what an item holds; it is loose when paragraphs are marked in it.
func item(kids []*node) (text string, loose bool) {
	var b strings.Builder
	for i := 0; i < len(kids); {
		k, j := kids[i], i+1
		for !k.block && j < len(kids) && !kids[j].block {
			j++
		}
		var part []string
		blocks(&part, kids[i:j])
		i = j
		if len(part) == 0 {
			continue
		}
		loose = loose || k.tag == atom.P
		if b.Len() > 0 {
			b.WriteByte('\n')
			if k.tag != atom.Ul && k.tag != atom.Ol || loose {
				b.WriteByte('\n')
			}
		}
		b.WriteString(strings.Join(part, "\n\n"))
	}
	return b.String(), loose
}

// indent sets all lines but the first and empty ones in by n.
func indent(s string, n int) string {
	if !strings.Contains(s, "\n") {
		return s
	}
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if i > 0 && l != "" {
			lines[i] = strings.Repeat(" ", n) + l
		}
	}
	return strings.Join(lines, "\n")
}

// table renders a table with its first row as the head, for Markdown knows no
// table without one. Rows shorter than the head are sound Markdown.
func table(n *node) string {
	var rows []*node
	collectRows(n, &rows)
	var out []string
	width := 0
	cells := make([][]string, 0, len(rows))
	aligns := []string(nil)
	for _, r := range rows {
		var row, align []string
		for _, c := range r.kids {
			if c.tag != atom.Td && c.tag != atom.Th {
				continue
			}
			var inner []string
			blocks(&inner, c.kids)
			text := oneLine(strings.Join(inner, "\n"), "<br>")
			row = append(row, strings.ReplaceAll(text, "|", `\|`))
			align = append(align, alignment(c))
		}
		if len(row) == 0 {
			continue
		}
		if len(cells) == 0 {
			aligns = align
		}
		width = max(width, len(row))
		cells = append(cells, row)
	}
	for i, row := range cells {
		for i == 0 && len(row) < width {
			row = append(row, "")
		}
		out = append(out, "| "+strings.Join(row, " | ")+" |")
		if i == 0 {
			for len(aligns) < width {
				aligns = append(aligns, "---")
			}
			out = append(out, "| "+strings.Join(aligns, " | ")+" |")
		}
	}
	text := strings.Join(out, "\n")
	if c := n.find(atom.Caption); c != nil && text != "" {
		if title := oneLine(inlineText(c.kids), " "); title != "" {
			text = title + "\n\n" + text
		}
	}
	return text
}

// collectRows finds a table's own rows, not those of tables inside its cells.
func collectRows(n *node, rows *[]*node) {
	for _, k := range n.kids {
		switch k.tag {
		case atom.Tr:
			*rows = append(*rows, k)
		case atom.Thead, atom.Tbody, atom.Tfoot:
			collectRows(k, rows)
		}
	}
}

func alignment(n *node) string {
	style := strings.ReplaceAll(n.get("style"), " ", "")
	switch {
	case n.get("align") == "center" || strings.Contains(style, "text-align:center"):
		return ":---:"
	case n.get("align") == "right" || strings.Contains(style, "text-align:right"):
		return "---:"
	case n.get("align") == "left" || strings.Contains(style, "text-align:left"):
		return ":---"
	}
	return "---"
}
