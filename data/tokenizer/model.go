package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/specstream/specstream"
)

// modelSpec is the model of a file before it is built. It is built twice where
// Encode must not make control tokens that EncodeSpecial may.
type modelSpec interface {
	// vocabulary returns the ids of tokens as the file spells them.
	vocabulary() map[string]int32
	// build makes the model. Nothing in a text gives an id that forbidden
	// reports; nil forbids none.
	build(forbidden func(id int32) bool) model
	// makes reports whether plain characters can give one of the ids.
	makes(ids map[int32]bool) bool
}

// bpeSpec is a byte-pair-encoding model.
type bpeSpec struct {
	vocab        map[string]int32
	merges       []mergeSpec // in order of rank
	byteLevel    bool
	fallback     bool
	unk          int32 // -1: none
	fuseUnk      bool
	ignoreMerges bool
}

// mergeSpec is one merge by ids.
type mergeSpec struct{ left, right, product int32 }

func (l *loader) parseModel(b json.RawMessage, byteLevel bool) (modelSpec, error) {
	m, err := l.object("model", b)
	if err != nil {
		return nil, err
	}
	kind := "BPE" // files of 2019 and 2020 have none
	if v, ok := m["type"]; ok {
		if err := l.value("model.type", v, &kind); err != nil {
			return nil, err
		}
	}
	switch kind {
	case "BPE":
		return l.parseBPE(m, byteLevel)
	case "Unigram":
		return l.parseUnigram(m, byteLevel)
	}
	return nil, l.unsupported("model.type", "model type %q", kind)
}

func (l *loader) parseBPE(m map[string]json.RawMessage, byteLevel bool) (modelSpec, error) {
	s := &bpeSpec{byteLevel: byteLevel, unk: -1}
	var (
		dropout        float64
		unk            nullable
		prefix, suffix string
		merges         json.RawMessage
	)
	into := map[string]any{
		"type": nil, "dropout": &dropout, "unk_token": &unk, "continuing_subword_prefix": &prefix,
		"end_of_word_suffix": &suffix, "fuse_unk": &s.fuseUnk, "byte_fallback": &s.fallback,
		"ignore_merges": &s.ignoreMerges, "vocab": &s.vocab, "merges": &merges,
	}
	if err := l.settings("BPE", m, into); err != nil {
		return nil, err
	}
	switch {
	case dropout != 0:
		return nil, l.unsupported("model.dropout", "dropout")
	case prefix != "":
		return nil, l.unsupported("model.continuing_subword_prefix", "a prefix (%q) of continuing tokens", prefix)
	case suffix != "":
		return nil, l.unsupported("model.end_of_word_suffix", "a suffix (%q) of words", suffix)
	case len(s.vocab) == 0:
		return nil, l.bad("model.vocab", "missing or empty")
	case merges == nil:
		return nil, l.bad("model.merges", "missing")
	}
	for token, id := range s.vocab {
		if id < 0 {
			return nil, l.bad("model.vocab", "token %q has id %d", token, id)
		}
	}
	if err := l.parseMerges(s, merges); err != nil {
		return nil, err
	}
	if unk.set {
		id, ok := s.vocab[unk.value]
		if !ok {
			return nil, l.bad("model.unk_token", "%q is not in the vocabulary", unk.value)
		}
		s.unk = id
	}
	return s, l.checkUnknown(s)
}

// settings decodes the members of a model, which must be among those known.
func (l *loader) settings(kind string, m map[string]json.RawMessage, into map[string]any) error {
	for name, v := range m {
		p, ok := into[name]
		if !ok {
			return l.unsupported("model."+name, "this setting of %s", kind)
		}
		if p == nil || isNull(v) {
			continue
		}
		if err := l.value("model."+name, v, p); err != nil {
			return err
		}
	}
	return nil
}

func (s *bpeSpec) vocabulary() map[string]int32 { return s.vocab }

// parseMerges reads merges in either form: ["a b", …] or [["a","b"], …].
func (l *loader) parseMerges(s *bpeSpec, b json.RawMessage) error {
	const field = "model.merges"
	var lines []string
	var pairs [][]string
	first := bytes.TrimLeft(b, "[ \t\r\n")
	if len(first) > 0 && first[0] == '"' && bytes.Count(b[:len(b)-len(first)], []byte("[")) == 1 {
		if err := l.value(field, b, &lines); err != nil {
			return err
		}
		pairs = make([][]string, 0, len(lines))
		for _, line := range lines {
			if strings.HasPrefix(line, "#version") {
				continue
			}
			left, right, err := s.cutMerge(line)
			if err != nil {
				return l.badMerge(len(pairs), "%q %v", line, err)
			}
			pairs = append(pairs, []string{left, right})
		}
	} else if err := l.value(field, b, &pairs); err != nil {
		return err
	}
	s.merges = make([]mergeSpec, 0, len(pairs))
	for i, p := range pairs {
		if len(p) != 2 {
			return l.badMerge(i, "has %d parts, want 2", len(p))
		}
		if p[0] == "" || p[1] == "" {
			return l.badMerge(i, "%q has an empty part", p)
		}
		var m mergeSpec
		for _, part := range []struct {
			token string
			id    *int32
		}{{p[0], &m.left}, {p[1], &m.right}, {p[0] + p[1], &m.product}} {
			id, ok := s.vocab[part.token]
			if !ok {
				return l.badMerge(i, "needs the token %q, which is not in the vocabulary", part.token)
			}
			*part.id = id
		}
		s.merges = append(s.merges, m)
	}
	return nil
}

func (l *loader) badMerge(i int, format string, args ...any) error {
	return &specstream.InputError{File: l.name, Record: int64(i) + 1, Field: "model.merges", Reason: "merge " + fmt.Sprintf(format, args...)}
}

// cutMerge cuts "left right" at its space. Where tokens themselves contain
// spaces (conversions that turned no-break spaces into spaces have such lines,
// and Hugging Face refuses them), it is cut at the one place that leaves tokens
// on both sides and joined; without exactly one the line is refused.
func (s *bpeSpec) cutMerge(line string) (left, right string, err error) {
	if strings.Count(line, " ") == 1 {
		left, right, _ = strings.Cut(line, " ")
		return left, right, nil
	}
	found := 0
	for i := range len(line) {
		if line[i] != ' ' || i == 0 || i == len(line)-1 {
			continue
		}
		a, b := line[:i], line[i+1:]
		_, ok1 := s.vocab[a]
		_, ok2 := s.vocab[b]
		_, ok3 := s.vocab[a+b]
		if ok1 && ok2 && ok3 {
			left, right = a, b
			found++
		}
	}
	switch found {
	case 1:
		return left, right, nil
	case 0:
		return "", "", fmt.Errorf("is no pair of tokens")
	}
	return "", "", fmt.Errorf("can be cut in %d ways", found)
}

// symbols begins a model with the ids of single characters and bytes.
func (s *bpeSpec) symbols(allowed func(id int32) bool) *bpe {
	m := &bpe{
		byteLevel: s.byteLevel,
		fallback:  s.fallback,
		unk:       s.unk,
		fuseUnk:   s.fuseUnk,
		chars:     newRuneTable(),
		cutMeta:   true,
	}
	for i := range m.bytes {
		m.bytes[i] = -1
	}
	for i := range m.ascii {
		m.ascii[i] = -1
	}
	for token, id := range s.vocab {
		if !allowed(id) {
			continue
		}
		r, n := utf8.DecodeRuneInString(token)
		switch {
		case n == len(token) && n > 0 && s.byteLevel:
			if int(r) < len(runeBytes) && runeBytes[r] >= 0 {
				m.bytes[runeBytes[r]] = id
			}
		case n == len(token) && n > 0 && r < utf8.RuneSelf:
			m.ascii[r] = id
		case n == len(token) && n > 0:
			m.chars.put(r, id)
		case !s.byteLevel && s.fallback:
			// Hugging Face looks for upper-case digits only.
			if b, ok := byteToken(token); ok && token == fmt.Sprintf("<0x%02X>", b) {
				m.bytes[b] = id
			}
		}
	}
	return m
}

func (s *bpeSpec) build(forbidden func(id int32) bool) model {
	allowed := func(id int32) bool { return forbidden == nil || !forbidden(id) }
	m := s.symbols(allowed)
	m.merges = newMergeTable(len(s.merges))
	if m.chars.id('▁') < 0 {
		m.cutMeta = false // unknown characters may fuse across a cut
	}
	strs := make(map[int32]string, len(s.vocab))
	for token, id := range s.vocab {
		strs[id] = token
	}
	for rank, p := range s.merges {
		if !allowed(p.product) {
			continue
		}
		// A repeated pair keeps its last rank, as in Hugging Face.
		m.merges.put(pairOf(p.left, p.right), int32(rank), p.product)
		if !s.byteLevel && m.cutMeta && crossesMeta(strs[p.product]) {
			m.cutMeta = false
		}
	}
	if s.byteLevel && !slices.Contains(m.bytes[:], -1) {
		m.bytePairs = make([]int32, 1<<16)
		for i := range m.bytePairs {
			m.bytePairs[i], _ = m.merges.merge(m.bytes[i>>8], m.bytes[i&0xff])
		}
	}
	if s.ignoreMerges {
		m.words = make(map[string]int32, len(s.vocab))
		for token, id := range s.vocab {
			if !allowed(id) {
				continue
			}
			if s.byteLevel {
				raw, ok := exactByteLevel(token)
				if !ok {
					continue // no piece of text is spelt like this
				}
				token = raw
			}
			m.words[token] = id
			m.longest = max(m.longest, len(token))
		}
	}
	return m
}

// crossesMeta reports whether a token has ▁ right after another character.
func crossesMeta(token string) bool {
	for i := strings.Index(token, metaSymbol); i >= 0; {
		if i > 0 && !strings.HasSuffix(token[:i], metaSymbol) {
			return true
		}
		k := strings.Index(token[i+len(metaSymbol):], metaSymbol)
		if k < 0 {
			return false
		}
		i += len(metaSymbol) + k
	}
	return false
}

// makes: as a character, as the product of a merge, or as a whole piece.
func (s *bpeSpec) makes(ids map[int32]bool) bool {
	for _, m := range s.merges {
		if ids[m.product] {
			return true
		}
	}
	for token, id := range s.vocab {
		if ids[id] && (s.ignoreMerges || utf8.RuneCountInString(token) == 1) {
			return true
		}
	}
	return false
}

// checkUnknown refuses models that could meet a character they have no id for.
// Hugging Face would drop such characters from the text without a word.
func (l *loader) checkUnknown(s *bpeSpec) error {
	if s.unk >= 0 {
		return nil
	}
	m := s.symbols(func(int32) bool { return true })
	if !m.byteLevel && !m.fallback {
		return l.bad("model.unk_token", "missing, and there is no byte_fallback: unknown characters would vanish")
	}
	for b, id := range m.bytes {
		if id >= 0 || neverInUTF8(byte(b)) || !m.byteLevel && b < utf8.RuneSelf && m.ascii[b] >= 0 {
			continue
		}
		return l.bad("model.vocab", "no token for byte %#02x and no unk_token: some characters would vanish", b)
	}
	return nil
}

// neverInUTF8 reports whether no UTF-8 text contains the byte.
func neverInUTF8(b byte) bool { return b == 0xC0 || b == 0xC1 || b >= 0xF5 }
