package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/specstream/specstream"
)

func (l *loader) loadAdded(b json.RawMessage, spec modelSpec) error {
	if isNull(b) {
		return nil
	}
	var items []struct {
		ID         *int32
		Content    string
		SingleWord bool `json:"single_word"`
		Lstrip     bool
		Rstrip     bool
		Normalized bool
		Special    bool
	}
	if err := l.value("added_tokens", b, &items); err != nil {
		return err
	}
	byContent := make(map[string]*addedToken, len(items))
	patterns := make(map[string]string, len(items))
	// Hugging Face gives tokens that the model lacks the ids after its own, in
	// order, whatever the file says.
	vocab := spec.vocabulary()
	next := int32(len(vocab))
	for i, it := range items {
		field := fmt.Sprintf("added_tokens[%d]", i)
		switch {
		case it.ID == nil:
			return l.bad(field+".id", "missing")
		case it.Content == "":
			return l.bad(field+".content", "missing or empty")
		case byContent[it.Content] != nil:
			return l.bad(field+".content", "%q is there twice", it.Content)
		}
		want, ok := vocab[it.Content]
		if !ok {
			want = next
			next++
		}
		if *it.ID != want {
			return &specstream.InputError{
				File: l.name, Field: field + ".id",
				Reason: fmt.Sprintf("%q has id %d, where Hugging Face's library would load it as %d", it.Content, *it.ID, want),
				Hint:   "add the tokens that are missing in between, or correct the id",
			}
		}
		a := &addedToken{
			id: want, content: it.Content, pattern: it.Content, singleWord: it.SingleWord,
			lstrip: it.Lstrip, rstrip: it.Rstrip, normalized: it.Normalized, special: it.Special,
		}
		if a.normalized {
			a.pattern = normalize(l.t.uni, l.normalizers, a.content)
		}
		// Tokens with one pattern would be one entry of the automaton.
		key := fmt.Sprint(a.normalized, a.pattern)
		if other, ok := patterns[key]; ok || a.pattern == "" {
			return l.bad(field+".content", "%q is recognised as %q, like %q", a.content, a.pattern, other)
		}
		patterns[key] = a.content
		byContent[a.content] = a
		l.added = append(l.added, a)
	}
	return nil
}

// buildModes makes the matchers and models of Encode and EncodeSpecial.
func (l *loader) buildModes(spec modelSpec) {
	t := l.t
	if len(l.normalizers) == 0 && !slices.ContainsFunc(l.added, func(a *addedToken) bool { return !a.normalized }) {
		// Before or after makes no difference, and only tokens found before let
		// EncodeMarked look at what is between two of them alone.
		for _, a := range l.added {
			a.normalized = false
		}
	}
	control := make(map[int32]bool)
	var plain []*addedToken
	for _, a := range l.added {
		switch {
		case a.onlySpace(t.uni):
			plain = append(plain, a)
		case a.special:
			control[a.id] = true
		}
	}
	t.special = newMode(l.added, l.normalizers, spec.build(nil))
	model := t.special.model
	if spec.makes(control) {
		model = spec.build(func(id int32) bool { return control[id] })
	}
	t.plain = newMode(plain, l.normalizers, model)
}

func newMode(tokens []*addedToken, normalizers []normalizer, m model) mode {
	var raw, normalized []*addedToken
	for _, a := range tokens {
		if a.normalized {
			normalized = append(normalized, a)
		} else {
			raw = append(raw, a)
		}
	}
	return mode{raw: newMatcher(raw), normalized: newMatcher(normalized), normalizers: normalizers, model: m}
}
