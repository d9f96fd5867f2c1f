package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
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

func (l *loader) loadNormalizer(b json.RawMessage) error {
	if isNull(b) {
		return nil
	}
	return l.addNormalizer("normalizer", b)
}

func (l *loader) addNormalizer(field string, b json.RawMessage) error {
	var items []json.RawMessage
	var prepend, content nullable
	var pat pattern
	kind, err := l.component(field, b, func(kind string) map[string]any {
		switch kind {
		case "Sequence":
			return map[string]any{"normalizers": &items}
		case "NFC":
			return map[string]any{}
		case "Prepend":
			return map[string]any{"prepend": &prepend}
		case "Replace":
			return map[string]any{"pattern": &pat, "content": &content}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var n normalizer
	switch kind {
	case "Sequence":
		return l.sequence(field+".normalizers", items, l.addNormalizer)
	case "NFC":
		n = normalizer{kind: normNFC}
	case "Prepend":
		if !prepend.set {
			return l.bad(field+".prepend", "missing")
		}
		n = normalizer{kind: normPrepend, content: prepend.value}
	case "Replace":
		if n.pattern, err = l.literal(field, pat, content); err != nil {
			return err
		}
		n.kind, n.content = normReplace, content.value
	}
	l.t.normalizers = append(l.t.normalizers, n)
	return nil
}

// literal returns the pattern of a Replace step, which must be a string.
func (l *loader) literal(field string, pat pattern, content nullable) (string, error) {
	switch {
	case !content.set:
		return "", l.bad(field+".content", "missing")
	case pat.Regex != nil:
		return "", l.unsupported(field+".pattern", "replacing the regular expression %q", *pat.Regex)
	case pat.String == nil || *pat.String == "":
		return "", l.bad(field+".pattern", "want a non-empty String")
	}
	return *pat.String, nil
}

// loadPreTokenizer returns whether text reaches the model in GPT-2's byte
// alphabet.
func (l *loader) loadPreTokenizer(b json.RawMessage) (byteLevel bool, err error) {
	if isNull(b) {
		return false, nil
	}
	if byteLevel, err = l.addPreTokenizer("pre_tokenizer", b, false); err != nil {
		return false, err
	}
	for _, p := range l.t.preTokenizers {
		if p.meta == "" {
			continue
		}
		if len(l.t.preTokenizers) > 1 || byteLevel {
			return false, l.unsupported("pre_tokenizer", "Metaspace together with another pre-tokenizer")
		}
		for _, n := range l.t.normalizers {
			if n.kind == normPrepend && p.metaPrepend == prependFirst {
				return false, l.unsupported("pre_tokenizer.prepend_scheme", "scheme \"first\" after a Prepend normalizer")
			}
		}
	}
	return byteLevel, nil
}

func (l *loader) addPreTokenizer(field string, b json.RawMessage, byteLevel bool) (bool, error) {
	if byteLevel {
		return false, l.unsupported(field, "a pre-tokenizer after ByteLevel")
	}
	var (
		items       []json.RawMessage
		pat         pattern
		behavior    string
		invert      bool
		prefixSpace = true // ByteLevel's and Metaspace's default
		useRegex    = true
		replacement = metaSymbol
		scheme      = "always"
		split       = true
	)
	kind, err := l.component(field, b, func(kind string) map[string]any {
		switch kind {
		case "Sequence":
			return map[string]any{"pretokenizers": &items}
		case "ByteLevel":
			return map[string]any{"add_prefix_space": &prefixSpace, "use_regex": &useRegex, "trim_offsets": nil}
		case "Split":
			return map[string]any{"pattern": &pat, "behavior": &behavior, "invert": &invert}
		case "Metaspace":
			return map[string]any{"replacement": &replacement, "add_prefix_space": &prefixSpace, "prepend_scheme": &scheme, "split": &split, "str_rep": nil}
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	switch kind {
	case "Sequence":
		err := l.sequence(field+".pretokenizers", items, func(field string, b json.RawMessage) (err error) {
			byteLevel, err = l.addPreTokenizer(field, b, byteLevel)
			return err
		})
		return byteLevel, err
	case "ByteLevel":
		p := preTokenizer{prefixSpace: prefixSpace}
		if useRegex {
			p.split = splitGPT2
		}
		if p.prefixSpace || p.split != nil {
			l.t.preTokenizers = append(l.t.preTokenizers, p)
		}
		return true, nil
	case "Split":
		s, err := l.splitter(field, pat, behavior, invert)
		if err != nil {
			return false, err
		}
		l.t.preTokenizers = append(l.t.preTokenizers, preTokenizer{split: s})
	case "Metaspace":
		p, err := l.metaspace(field, replacement, scheme, prefixSpace, split)
		if err != nil {
			return false, err
		}
		l.t.preTokenizers = append(l.t.preTokenizers, p)
	}
	return false, nil
}

func (l *loader) splitter(field string, pat pattern, behavior string, invert bool) (splitter, error) {
	if pat.Regex == nil {
		return nil, l.unsupported(field+".pattern", "splitting at a string")
	}
	s, ok := splitters[*pat.Regex]
	if !ok {
		return nil, l.unsupported(field+".pattern", "the regular expression %q", *pat.Regex)
	}
	// The expressions match every character, so keeping matches and gaps apart
	// and removing all but the matches are the same.
	if !(behavior == "Isolated" && !invert || behavior == "Removed" && invert) {
		return nil, l.unsupported(field+".behavior", "behavior %q with invert %v", behavior, invert)
	}
	return s, nil
}

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
	if utf8.RuneCountInString(replacement) != 1 {
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
		if d.pattern, err = l.literal(field, pat, content); err != nil {
			return err
		}
		d.content = content.value
	case "Strip":
		if utf8.RuneCountInString(content.value) != 1 {
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
