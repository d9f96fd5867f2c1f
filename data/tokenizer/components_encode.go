package tokenizer

import (
	"encoding/json"
)

func (l *loader) loadNormalizer(b json.RawMessage) error {
	if isNull(b) {
		return nil
	}
	return l.addNormalizer("normalizer", b)
}

// simpleNormalizers have no settings.
var simpleNormalizers = map[string]normalizerKind{
	"NFC": normNFC, "NFD": normNFD, "NFKC": normNFKC, "NFKD": normNFKD,
	"Lowercase": normLowercase, "StripAccents": normStripAccents, "Nmt": normNmt,
}

func (l *loader) addNormalizer(field string, b json.RawMessage) error {
	var (
		items            []json.RawMessage
		prepend, content nullable
		pat              pattern
		chars            []byte
		left, right      *bool
	)
	kind, err := l.component(field, b, func(kind string) map[string]any {
		switch kind {
		case "Sequence":
			return map[string]any{"normalizers": &items}
		case "Prepend":
			return map[string]any{"prepend": &prepend}
		case "Replace":
			return map[string]any{"pattern": &pat, "content": &content}
		case "Strip":
			return map[string]any{"strip_left": &left, "strip_right": &right}
		case "Precompiled":
			return map[string]any{"precompiled_charsmap": &chars}
		}
		if _, ok := simpleNormalizers[kind]; ok {
			return map[string]any{}
		}
		return nil
	})
	if err != nil {
		return err
	}
	n := normalizer{kind: simpleNormalizers[kind]}
	switch kind {
	case "Sequence":
		return l.sequence(field+".normalizers", items, l.addNormalizer)
	case "Prepend":
		if !prepend.set {
			return l.bad(field+".prepend", "missing")
		}
		n = normalizer{kind: normPrepend, content: prepend.value}
	case "Replace":
		n.kind = normReplace
		if n.pattern, n.regex, err = l.replacement(field, pat, content); err != nil {
			return err
		}
		n.content = content.value
	case "Strip":
		if left == nil || right == nil {
			return l.bad(field, "want strip_left and strip_right")
		}
		n = normalizer{kind: normStrip, left: *left, right: *right}
	case "Precompiled":
		n.kind = normPrecompiled
		if n.chars, err = parseCharsmap(chars); err != nil {
			return l.bad(field+".precompiled_charsmap", "%v", err)
		}
	}
	l.normalizers = append(l.normalizers, n)
	return nil
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
	steps := l.t.preTokenizers
	for i, p := range steps {
		if p.meta == "" {
			continue
		}
		if byteLevel {
			return false, l.unsupported("pre_tokenizer", "Metaspace together with ByteLevel")
		}
		for _, n := range l.normalizers {
			// Hugging Face asks whether the piece begins where the original text
			// does, which these steps can move.
			switch n.kind {
			case normPrepend, normStrip, normStripAccents, normNmt, normPrecompiled, normReplace:
				if p.metaPrepend == prependFirst && !(n.kind == normReplace && n.pattern != "" && n.content != "") {
					return false, l.unsupported("pre_tokenizer.prepend_scheme", "scheme \"first\" after a normalizer that moves the beginning")
				}
			}
		}
		if p.metaPrepend == prependFirst && i > 0 && steps[i-1].meta != "" {
			return false, l.unsupported("pre_tokenizer", "scheme \"first\" after another Metaspace")
		}
	}
	// Steps after ByteLevel see its alphabet; without any it is left implicit.
	for i := range steps {
		if steps[i].mapBytes {
			if i == len(steps)-1 {
				steps[i].mapBytes = false
			} else {
				l.t.mapped = true
			}
		}
	}
	if n := len(steps); byteLevel && !l.t.mapped && steps[n-1].split == nil && !steps[n-1].prefixSpace && steps[n-1].find == nil {
		l.t.preTokenizers = steps[:n-1] // it does nothing more
	}
	return byteLevel, nil
}

func (l *loader) addPreTokenizer(field string, b json.RawMessage, byteLevel bool) (bool, error) {
	var (
		items       []json.RawMessage
		pat         pattern
		behavior    string
		invert      bool
		individual  bool
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
		case "Digits":
			return map[string]any{"individual_digits": &individual}
		case "Punctuation":
			behavior = "Isolated"
			return map[string]any{"behavior": &behavior}
		case "Whitespace", "WhitespaceSplit":
			return map[string]any{}
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	var p preTokenizer
	switch kind {
	case "Sequence":
		err := l.sequence(field+".pretokenizers", items, func(field string, b json.RawMessage) (err error) {
			byteLevel, err = l.addPreTokenizer(field, b, byteLevel)
			return err
		})
		return byteLevel, err
	case "ByteLevel", "Metaspace":
		if byteLevel {
			return false, l.unsupported(field, "%s after ByteLevel", kind)
		}
		if kind == "Metaspace" {
			p, err = l.metaspace(field, replacement, scheme, prefixSpace, split)
			break
		}
		p = preTokenizer{prefixSpace: prefixSpace, mapBytes: true}
		if useRegex {
			p.split = splitGPT2
		}
		byteLevel = true
	case "Split":
		p, err = l.splitStep(field, pat, behavior, invert)
	case "Digits":
		p = preTokenizer{find: findClass(classNumeric), behavior: contiguous}
		if individual {
			p.behavior = isolated
		}
	case "Punctuation":
		p.find = findClass(classPunct)
		p.behavior, err = l.behavior(field, behavior)
	case "Whitespace":
		p = preTokenizer{find: findWord, behavior: removed, invert: true}
	case "WhitespaceSplit":
		p = preTokenizer{find: findClass(classSpace), behavior: removed}
	}
	if err != nil {
		return false, err
	}
	l.t.preTokenizers = append(l.t.preTokenizers, p)
	return byteLevel, nil
}

func (l *loader) behavior(field, name string) (behavior, error) {
	b, ok := behaviors[name]
	if !ok {
		return 0, l.bad(field+".behavior", "want Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous, got %q", name)
	}
	return b, nil
}

// splitStep makes a Split.
func (l *loader) splitStep(field string, pat pattern, name string, invert bool) (preTokenizer, error) {
	var none preTokenizer
	b, err := l.behavior(field, name)
	if err != nil {
		return none, err
	}
	switch {
	case pat.String != nil && *pat.String != "":
		return preTokenizer{find: findString(*pat.String), behavior: b, invert: invert}, nil
	case pat.Regex == nil:
		return none, l.bad(field+".pattern", "want a non-empty String or a Regex")
	}
	if s, ok := splitters[*pat.Regex]; ok {
		// These match every character. Without gaps, whatever keeps matches and
		// does not join them keeps all pieces.
		switch {
		case b == isolated, b == removed && invert, (b == mergedWithPrevious || b == mergedWithNext) && !invert:
			return preTokenizer{split: s}, nil
		}
		return preTokenizer{find: func(u *unicodeTables, text string, i int) (int, int) { return i, s(u, text, i) }, behavior: b, invert: invert}, nil
	}
	r, err := l.regex(field+".pattern", *pat.Regex)
	return preTokenizer{find: findRegex(r), behavior: b, invert: invert}, err
}
