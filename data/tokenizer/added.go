package tokenizer

import "strings"

// addedToken is an entry of added_tokens.
type addedToken struct {
	id                                              int32
	content                                         string
	singleWord, lstrip, rstrip, normalized, special bool
	pattern                                         string // content, normalised when normalized is set
}

// onlySpace reports whether the token is nothing but white space. Such tokens
// (indentation, in tokenizers for code) are text, never control.
func (a *addedToken) onlySpace(u *unicodeTables) bool {
	for i := 0; i < len(a.content); {
		c, n := u.at(a.content, i)
		if c&classSpace == 0 {
			return false
		}
		i += n
	}
	return true
}

// matcher finds added tokens in text: the leftmost, and of those that start
// there the longest, as Hugging Face's Aho-Corasick automaton does.
type matcher struct {
	first  [256]bool
	prefix string // what all patterns begin with
	trie   trie
	tokens []*addedToken // by the trie's ids
}

func newMatcher(tokens []*addedToken) *matcher {
	if len(tokens) == 0 {
		return nil
	}
	m := &matcher{tokens: tokens, prefix: tokens[0].pattern}
	b := newTrieBuilder()
	for i, a := range tokens {
		b.add(a.pattern, int32(i))
		m.first[a.pattern[0]] = true
		m.prefix = m.prefix[:commonPrefix(m.prefix, a.pattern)]
	}
	m.trie = b.build()
	return m
}

// longest returns the longest token whose pattern s begins with, nil if none.
func (m *matcher) longest(s string) *addedToken {
	var found *addedToken
	node := int32(0)
	for i := range len(s) {
		if node = m.trie.step(node, s[i]); node < 0 {
			break
		}
		if id := m.trie.id[node]; id >= 0 {
			found = m.tokens[id]
		}
	}
	return found
}

// split yields the stretches of s between added tokens and, as a non-nil
// token, the added tokens themselves. start is the stretch's first byte in s.
// A nil matcher yields s whole.
func (m *matcher) split(u *unicodeTables, s string, yield func(text string, start int, a *addedToken)) {
	done := 0
	for i := 0; m != nil && i < len(s); {
		if m.prefix != "" {
			k := strings.Index(s[i:], m.prefix)
			if k < 0 {
				break
			}
			i += k
		} else if !m.first[s[i]] {
			i++
			continue
		}
		a := m.longest(s[i:])
		if a == nil {
			i++
			continue
		}
		start, end, ok := a.place(u, s, i, done)
		i += len(a.pattern) // strips do not move where the search goes on
		if !ok {
			continue
		}
		if start > done {
			yield(s[done:start], done, nil)
		}
		yield("", start, a)
		done = end
	}
	if done < len(s) {
		yield(s[done:], done, nil)
	}
}

// place returns what the token takes of s when its pattern is at byte i and the
// text up to done is taken; ok is false when it must stand alone and does not.
func (a *addedToken) place(u *unicodeTables, s string, i, done int) (start, end int, ok bool) {
	start, end = i, i+len(a.pattern)
	if a.singleWord && !standsAlone(u, s, start, end) {
		return 0, 0, false
	}
	if a.lstrip {
		for start > done {
			c, n := u.before(s, start)
			if c&classSpace == 0 {
				break
			}
			start -= n
		}
		start = max(start, done)
	}
	if a.rstrip {
		end, _ = u.runOfSpace(s, end)
	}
	return start, end, true
}

// standsAlone reports whether no word character touches s[start:end].
func standsAlone(u *unicodeTables, s string, start, end int) bool {
	if start > 0 {
		if c, _ := u.before(s, start); c&classWord != 0 {
			return false
		}
	}
	if end < len(s) {
		if c, _ := u.at(s, end); c&classWord != 0 {
			return false
		}
	}
	return true
}
