package tokenizer

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// regex is a compiled regular expression: a backtracking matcher with the
// semantics of Oniguruma (the first alternative that matches wins). Groups do
// not repeat, so the stack stays as deep as the expression, whatever the text.
type regex struct {
	start matcherNode
	first *runeSet // what a match can begin with
}

// compileRegex compiles an expression. Those that match nothing at all in some
// text (like a*) are refused: they have no part in cutting text to pieces.
func compileRegex(u *unicodeTables, expr string) (*regex, error) {
	n, err := parseRegex(u, expr)
	if err != nil {
		return nil, err
	}
	first, empty := n.first()
	if empty {
		return nil, errors.New("it can match the empty string")
	}
	return &regex{start: n.compile(accept{}, nil, true), first: newRuneSet(first)}, nil
}

// find returns the first match that starts at byte i of s or later; start is
// negative when there is none.
func (r *regex) find(s string, i int) (start, end int) {
	for i < len(s) {
		ok, n := r.first.at(s, i)
		if ok {
			if end := r.start.match(s, i); end >= 0 {
				return i, end
			}
		}
		i += n
	}
	return -1, -1
}

// replaceAll replaces every match.
func (r *regex) replaceAll(s, by string) string {
	start, end := r.find(s, 0)
	if start < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	done := 0
	for start >= 0 {
		b.WriteString(s[done:start])
		b.WriteString(by)
		done = end
		start, end = r.find(s, end)
	}
	b.WriteString(s[done:])
	return b.String()
}

// first returns what a match of n can begin with and whether it can be empty.
func (n *syntax) first() (set ranges, empty bool) {
	switch n.op {
	case opSet:
		return n.set, false
	case opSeq:
		for _, sub := range n.subs {
			f, e := sub.first()
			set = union(set, f)
			if !e {
				return set, false
			}
		}
		return set, true
	case opAlt:
		for _, sub := range n.subs {
			f, e := sub.first()
			set, empty = union(set, f), empty || e
		}
		return set, empty
	case opRepeat:
		set, empty = n.subs[0].first()
		return set, empty || n.min == 0
	default: // assertions
		return nil, true
	}
}

// matcherNode matches the rest of an expression at byte i of s and returns the
// end of the match, -1 when there is none.
type matcherNode interface {
	match(s string, i int) int
}

// compile returns the matcher of n followed by next. after is what next can
// begin with, and open says that next can match nothing.
func (n *syntax) compile(next matcherNode, after ranges, open bool) matcherNode {
	switch n.op {
	case opSet:
		return &oneNode{newRuneSet(n.set), next}
	case opSeq:
		for i := len(n.subs) - 1; i >= 0; i-- {
			sub := n.subs[i]
			next = sub.compile(next, after, open)
			f, empty := sub.first()
			if empty {
				after = union(f, after)
			} else {
				after, open = f, false
			}
		}
		return next
	case opAlt:
		alt := &altNode{}
		for _, sub := range n.subs {
			f, empty := sub.first()
			if empty {
				f = union(f, after)
			}
			set := newRuneSet(f)
			if empty && open {
				set = nil // matches anywhere
			}
			alt.first = append(alt.first, set)
			alt.subs = append(alt.subs, sub.compile(next, after, open))
		}
		return alt
	case opRepeat:
		set := n.subs[0].set
		// What follows cannot begin with a character of the set: giving one
		// back would never help.
		possessive := n.possessive || !open && !set.overlaps(after)
		return &repeatNode{newRuneSet(set), n.min, n.max, possessive, next}
	case opLook:
		return &lookNode{n.subs[0].compile(accept{}, nil, true), n.negative, next}
	default:
		return &endNode{next}
	}
}

type accept struct{}

func (accept) match(_ string, i int) int { return i }

type oneNode struct {
	set  *runeSet
	next matcherNode
}

func (n *oneNode) match(s string, i int) int {
	if i >= len(s) {
		return -1
	}
	ok, k := n.set.at(s, i)
	if !ok {
		return -1
	}
	return n.next.match(s, i+k)
}

type altNode struct {
	first []*runeSet // nil: try always
	subs  []matcherNode
}

func (n *altNode) match(s string, i int) int {
	for k, sub := range n.subs {
		if f := n.first[k]; f != nil {
			if i >= len(s) {
				continue
			}
			if ok, _ := f.at(s, i); !ok {
				continue
			}
		}
		if end := sub.match(s, i); end >= 0 {
			return end
		}
	}
	return -1
}

type repeatNode struct {
	set        *runeSet
	min, max   int
	possessive bool
	next       matcherNode
}

func (n *repeatNode) match(s string, i int) int {
	count, least := 0, i // least: the end of the fewest repetitions
	for i < len(s) && count != n.max {
		ok, k := n.set.at(s, i)
		if !ok {
			break
		}
		i += k
		if count++; count <= n.min {
			least = i
		}
	}
	if count < n.min {
		return -1
	}
	for {
		if end := n.next.match(s, i); end >= 0 || n.possessive || i <= least {
			return end
		}
		_, k := utf8.DecodeLastRuneInString(s[:i])
		i -= k
	}
}

type lookNode struct {
	sub      matcherNode
	negative bool
	next     matcherNode
}

func (n *lookNode) match(s string, i int) int {
	if n.sub.match(s, i) >= 0 == n.negative {
		return -1
	}
	return n.next.match(s, i)
}

type endNode struct{ next matcherNode }

func (n *endNode) match(s string, i int) int {
	if i < len(s) {
		return -1
	}
	return n.next.match(s, i)
}
