package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// nullable is a string member that tells null and absent apart from empty.
type nullable struct {
	set   bool
	value string
}

func (n *nullable) UnmarshalJSON(b []byte) error {
	n.set = true
	return json.Unmarshal(b, &n.value)
}

// pattern is a {"String": …} or {"Regex": …} member.
type pattern struct{ String, Regex *string }

func (p *pattern) UnmarshalJSON(b []byte) error {
	var m map[string]string
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	for k, v := range m {
		switch k {
		case "String":
			p.String = &v
		case "Regex":
			p.Regex = &v
		default:
			return fmt.Errorf("unknown kind of pattern %q", k)
		}
	}
	return nil
}

// maxNesting bounds sequences within sequences, each of which is parsed again.
const maxNesting = 4

// sequence decodes the members of a "Sequence" component and hands them on.
func (l *loader) sequence(field string, items []json.RawMessage, each func(field string, b json.RawMessage) error) error {
	if strings.Count(field, "[") > maxNesting {
		return l.bad(field, "sequences are nested more than %d deep", maxNesting)
	}
	for i, b := range items {
		if err := each(fmt.Sprintf("%s[%d]", field, i), b); err != nil {
			return err
		}
	}
	return nil
}

// regex compiles the expression of a component.
func (l *loader) regex(field, expr string) (*regex, error) {
	r, err := compileRegex(l.t.uni, expr)
	if err != nil {
		return nil, l.unsupported(field, "the regular expression %q: %v:", expr, err)
	}
	return r, nil
}

// replacement returns what a Replace step looks for: a string or an expression.
func (l *loader) replacement(field string, pat pattern, content nullable) (string, *regex, error) {
	switch {
	case !content.set:
		return "", nil, l.bad(field+".content", "missing")
	case pat.Regex != nil:
		r, err := l.regex(field+".pattern", *pat.Regex)
		return "", r, err
	case pat.String == nil || *pat.String == "":
		return "", nil, l.bad(field+".pattern", "want a non-empty String or a Regex")
	}
	return *pat.String, nil, nil
}

// metaspace checks the settings of a Metaspace pre-tokenizer or decoder.
func (l *loader) metaspace(field, replacement, scheme string, prefixSpace, split bool) (preTokenizer, error) {
	p := preTokenizer{meta: replacement, metaSplit: split}
	switch scheme {
	case "always":
		p.metaPrepend = prependAlways
	case "first":
		p.metaPrepend = prependFirst
	case "never":
		p.metaPrepend = prependNever
	default:
		return p, l.bad(field+".prepend_scheme", "want always, first or never, got %q", scheme)
	}
	if !isOneRune(replacement) {
		return p, l.bad(field+".replacement", "want one character, got %q", replacement)
	}
	if !prefixSpace && p.metaPrepend != prependNever {
		// Older files have add_prefix_space alone. Hugging Face refuses it
		// beside another scheme, also when that is the default.
		return p, l.bad(field+".add_prefix_space", "contradicts prepend_scheme %q", scheme)
	}
	return p, nil
}

func (l *loader) loadDecoder(b json.RawMessage) error {
	if isNull(b) {
		l.t.joiner = " "
		return nil
	}
	return l.addDecoder("decoder", b)
}

func (l *loader) addDecoder(field string, b json.RawMessage) error {
	var (
		items       []json.RawMessage
		pat         pattern
		content     nullable
		start, stop uint16
		prefixSpace = true
		replacement = metaSymbol
		scheme      = "always"
		split       = true
	)
	kind, err := l.component(field, b, func(kind string) map[string]any {
		switch kind {
		case "Sequence":
			return map[string]any{"decoders": &items}
		case "ByteLevel":
			return map[string]any{"add_prefix_space": nil, "use_regex": nil, "trim_offsets": nil}
		case "ByteFallback", "Fuse":
			return map[string]any{}
		case "Replace":
			return map[string]any{"pattern": &pat, "content": &content}
		case "Strip":
			return map[string]any{"content": &content, "start": &start, "stop": &stop}
		case "Metaspace":
			return map[string]any{"replacement": &replacement, "add_prefix_space": &prefixSpace, "prepend_scheme": &scheme, "split": &split, "str_rep": nil}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var d decoder
	switch kind {
	case "Sequence":
		return l.sequence(field+".decoders", items, l.addDecoder)
	case "ByteLevel":
		d.kind = decByteLevel
	case "ByteFallback":
		d.kind = decByteFallback
	case "Fuse":
		d.kind = decFuse
	case "Replace":
		d.kind = decReplace
		if d.pattern, d.regex, err = l.replacement(field, pat, content); err != nil {
			return err
		}
		d.content = content.value
	case "Strip":
		if !isOneRune(content.value) {
			return l.bad(field+".content", "want one character, got %q", content.value)
		}
		d = decoder{kind: decStrip, content: content.value, start: int(start), stop: int(stop)}
	case "Metaspace":
		p, err := l.metaspace(field, replacement, scheme, prefixSpace, split)
		if err != nil {
			return err
		}
		d = decoder{kind: decMetaspace, content: p.meta, dropFirst: p.metaPrepend != prependNever}
	}
	l.t.decoders = append(l.t.decoders, d)
	return nil
}
