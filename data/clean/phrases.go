package clean

import (
	"slices"

	"github.com/specstream/specstream"
)

// defaultPhrases are what "default" stands for: refusals, and assistants that
// speak of themselves as somebody's model. Lists of this kind are in use for
// ShareGPT data since the first open models were tuned on it. Phrases that
// ordinary prose, stories and letters hold are left out of it.
var defaultPhrases = []string{
	"as an AI language model",
	"as an artificial intelligence language model",
	"as an artificial intelligence, I",
	"as a language model, I",
	"as a large language model",
	"as an AI model, I",
	"as an AI assistant, I",
	"as an AI, I",
	"as an AI chatbot, I",
	"I am an AI language model",
	"I'm an AI language model",
	"I am a large language model",
	"I'm a large language model",
	"I am just an AI",
	"I'm just an AI",
	"I am only an AI",
	"I'm only an AI",
	"I am ChatGPT",
	"I'm ChatGPT",
	"model trained by OpenAI",
	"model developed by OpenAI",
	"model created by OpenAI",
	"OpenAI's content policy",
	"OpenAI's use case policy",
	"against OpenAI",
	"violates OpenAI",
	"my programming does not allow",
	"my programming prohibits",
	"my training data only goes up to",
	"my knowledge cutoff",
	"my knowledge cut-off",
	"my last knowledge update",
	"I do not have personal beliefs",
	"I don't have personal beliefs",
	"I do not have personal opinions",
	"I don't have personal opinions",
	"I'm sorry, but I cannot",
	"I am sorry, but I cannot",
	"I'm sorry, but I can't",
	"I'm sorry, but as an AI",
	"I apologize, but I cannot",
	"I apologize, but I can't",
	"I cannot fulfill your request",
	"I can't fulfill your request",
	"I cannot fulfill that request",
	"I cannot fulfill this request",
	"I cannot comply with",
	"I cannot assist with that",
	"I can't assist with that",
	"I cannot engage in",
	"作为一个AI语言模型",
	"作为一名AI语言模型",
	"作为AI语言模型",
	"作为一个人工智能语言模型",
	"作为一个语言模型，我",
	"作为一个大型语言模型",
	"我是OpenAI",
}

// expandPhrases puts the built-in list in place of "default".
func expandPhrases(phrases []string) []string {
	i := slices.Index(phrases, "default")
	if i < 0 {
		return phrases
	}
	return slices.Concat(phrases[:i], defaultPhrases, phrases[i+1:])
}

// matcher finds any of many phrases in one pass over a text: the automaton of
// Aho and Corasick, over the classes of bytes that the phrases have.
type matcher struct {
	phrases []string
	class   [256]uint8
	classes int
	next    []int32 // state × classes + class
	found   []int32 // by state: 1 + index of a phrase that ends there
}

func newMatcher(phrases []string) (*matcher, error) {
	m := &matcher{phrases: phrases, classes: 1}
	var f folder
	keys := make([][]byte, len(phrases))
	for i, p := range phrases {
		if keys[i] = straighten(f.append(nil, p)); len(keys[i]) == 0 {
			return nil, specstream.Invalid("clean.blocked_phrases", "%q has no visible characters", p)
		}
		for _, c := range keys[i] {
			if m.class[c] == 0 {
				// Bytes of UTF-8 have 243 values, so that a class is a byte.
				m.class[c] = uint8(m.classes)
				m.classes++
			}
		}
	}
	grow := func() int32 {
		for range m.classes {
			m.next = append(m.next, 0)
		}
		m.found = append(m.found, 0)
		return int32(len(m.found) - 1)
	}
	grow()
	for i, key := range keys {
		at := int32(0)
		for _, c := range key {
			e := int(at)*m.classes + int(m.class[c])
			if m.next[e] == 0 {
				to := grow()
				m.next[e] = to
			}
			at = m.next[e]
		}
		if m.found[at] == 0 {
			m.found[at] = int32(i) + 1
		}
	}
	m.link()
	return m, nil
}

// link makes the tree of phrases an automaton, breadth first: where a state has
// no way on, it goes the way of the longest suffix that is a state too.
func (m *matcher) link() {
	fail := make([]int32, len(m.found))
	var queue []int32
	for _, to := range m.next[:m.classes] {
		if to != 0 {
			queue = append(queue, to)
		}
	}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		if m.found[at] == 0 {
			m.found[at] = m.found[fail[at]]
		}
		for c := range m.classes {
			e, back := int(at)*m.classes+c, m.next[int(fail[at])*m.classes+c]
			if to := m.next[e]; to != 0 {
				fail[to] = back
				queue = append(queue, to)
			} else {
				m.next[e] = back
			}
		}
	}
}

// find returns the phrase that ends first in a folded text, "" if it holds none.
// It changes the text's quotation marks.
func (m *matcher) find(folded []byte) string {
	at := 0
	for _, c := range straighten(folded) {
		at = int(m.next[at*m.classes+int(m.class[c])])
		if f := m.found[at]; f != 0 {
			return m.phrases[f-1]
		}
	}
	return ""
}

// straighten turns typographic apostrophes into plain ones, in place.
func straighten(s []byte) []byte {
	i := slices.Index(s, 0xE2)
	if i < 0 {
		return s
	}
	out := s[:i]
	for ; i < len(s); i++ {
		if s[i] == 0xE2 && i+2 < len(s) && s[i+1] == 0x80 && (s[i+2] == 0x98 || s[i+2] == 0x99) {
			out = append(out, '\'')
			i += 2
			continue
		}
		out = append(out, s[i])
	}
	return out
}
