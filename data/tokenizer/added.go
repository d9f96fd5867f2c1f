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
	first [256]bool
	next  map[uint64]int32 // node<<8|byte → node
	token []*addedToken    // at each node the token that ends there
	only  int              // the single first byte, else -1
}

func newMatcher(tokens []*addedToken) *matcher {
	if len(tokens) == 0 {
		return nil
	}
	m := &matcher{next: make(map[uint64]int32), token: make([]*addedToken, 1), only: -1}
	for _, a := range tokens {
		node := int32(0)
		for i := range len(a.pattern) {
			key := uint64(node)<<8 | uint64(a.pattern[i])
			to, ok := m.next[key]
			if !ok {
				to = int32(len(m.token))
				m.token = append(m.token, nil)
				m.next[key] = to
			}
			node = to
		}
		m.token[node] = a
		m.first[a.pattern[0]] = true
	}
	n := 0
	for b, ok := range m.first {
		if ok {
			n++
			m.only = b
		}
	}
	if n > 1 {
		m.only = -1
	}
	return m
}

// longest returns the longest token whose pattern s begins with, nil if none.
func (m *matcher) longest(s string) *addedToken {
	var found *addedToken
	node := int32(0)
	for i := range len(s) {
		to, ok := m.next[uint64(node)<<8|uint64(s[i])]
		if !ok {
			break
		}
		node = to
		if a := m.token[node]; a != nil {
			found = a
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
		if m.only >= 0 {
			k := strings.IndexByte(s[i:], byte(m.only))
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
		start, end := i, i+len(a.pattern)
		i = end // strips do not move where the search goes on
		if a.singleWord && !m.standsAlone(u, s, start, end) {
			continue
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

// standsAlone reports whether no word character touches s[start:end].
func (m *matcher) standsAlone(u *unicodeTables, s string, start, end int) bool {
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
