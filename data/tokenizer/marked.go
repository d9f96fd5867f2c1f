package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// EncodeMarked encodes the concatenation of texts as one text, appending its
// ids to dst. Special and other added tokens are recognised as by
// [Tokenizer.EncodeSpecial], except where a match would touch text i with
// literal[i] true (or missing): there text stays text, as by
// [Tokenizer.Encode]. (White space that the lstrip or rstrip of a recognised
// token takes may be literal, as it is with Hugging Face.) With no literal text
// the ids are those of EncodeSpecial, with nothing but literal text those of
// Encode.
//
// marks[i] is the number of leading ids that the encoding of texts[0] to
// texts[i] alone shares with the whole encoding, so that a loss mask for what
// follows text i begins there; it does not count what was in dst. No begin or
// end token is added.
//
// Stretches between added tokens are independent of each other, so only the one
// in which text i ends is encoded again for its mark. A text that is not valid
// UTF-8 by itself is repaired by itself.
func (t *Tokenizer) EncodeMarked(dst []int32, texts []string, literal []bool) (ids []int32, marks []int) {
	v := t.view(texts, literal)
	marks = make([]int, len(texts))
	base := len(dst)
	// Tokens found in the whole: where their pattern ends, where the text goes
	// on, and how many ids there are by then.
	type found struct{ pattern, end, ids int }
	var tokens []found
	e := v.model.get()
	defer v.model.put(e)
	dst = v.encode(e, dst, v.text, 0, func(pattern, end, n int) { tokens = append(tokens, found{pattern, end, n}) })
	var again []int32
	for i, end := range v.ends {
		if end == len(v.text) {
			marks[i] = len(dst) - base
			continue
		}
		// A token whose pattern lies within the first texts is one for them
		// alone, too.
		k, _ := slices.BinarySearchFunc(tokens, end+1, func(f found, end int) int { return f.pattern - end })
		from, n := 0, base
		if k > 0 {
			from, n = tokens[k-1].end, tokens[k-1].ids
		}
		marks[i] = n - base
		if from >= end {
			continue
		}
		again = v.encode(e, again[:0], v.text[:end], from, nil)
		for k := 0; k < len(again) && n+k < len(dst) && again[k] == dst[n+k]; k++ {
			marks[i]++
		}
	}
	return dst, marks
}

// view is a text of which parts are literal, and what is recognised in it.
type view struct {
	t    *Tokenizer
	text string
	ends []int    // of texts
	runs literals // of text
	mode
}

// literals are the parts of a text by where they end, alternately literal or
// not.
type literals []literalRun

type literalRun struct {
	end     int
	literal bool
}

func (t *Tokenizer) view(texts []string, literal []bool) *view {
	v := &view{t: t, ends: make([]int, len(texts)), mode: t.special}
	var b strings.Builder
	some := false
	for i, s := range texts {
		if !utf8.ValidString(s) {
			s = toValidUTF8(s)
		}
		b.WriteString(s)
		v.ends[i] = b.Len()
		lit := i >= len(literal) || literal[i]
		if s == "" {
			continue
		}
		some = some || lit
		if n := len(v.runs); n > 0 && v.runs[n-1].literal == lit {
			v.runs[n-1].end = b.Len()
		} else {
			v.runs = append(v.runs, literalRun{b.Len(), lit})
		}
	}
	v.text = b.String()
	switch {
	case !some:
		v.runs = nil
	case len(v.runs) == 1:
		v.mode, v.runs = t.plain, nil
	default:
		// Nothing but a match makes a control token here.
		v.model = t.plain.model
		if v.normalized == nil {
			v.normalized = v.forced
		}
	}
	return v
}

// encode appends the ids of s, a prefix of the text, from byte `from` on. When
// each is not nil it is told of every added token that is found in s itself.
func (v *view) encode(e *encoder, dst []int32, s string, from int, each func(pattern, end, ids int)) []int32 {
	u := v.t.uni
	splitMarked(u, s, from, v.runs, v.raw, v.t.plain.raw, func(start, end int, a *addedToken, pattern int) {
		if a != nil {
			dst = append(dst, a.id)
			if each != nil {
				each(pattern, end, len(dst))
			}
			return
		}
		section := s[start:end]
		text := normalize(u, v.normalizers, section)
		var runs literals
		if v.normalized != nil && v.runs != nil {
			runs = v.normalizedRuns(section, start, text)
		}
		splitMarked(u, text, 0, runs, v.normalized, v.t.plain.normalized, func(at, end int, a *addedToken, _ int) {
			if a != nil {
				dst = append(dst, a.id)
				return
			}
			dst = v.t.pieces(e, dst, v.t.preTokenizers, text[at:end], start == 0 && at == 0, v.model)
		})
	})
	return dst
}

// normalizedRuns returns which parts of a normalised section come from literal
// text. Where a boundary falls is found by normalising what is on either side
// of it alone; where that leaves room for doubt, the room counts as literal.
func (v *view) normalizedRuns(section string, start int, text string) literals {
	var out literals
	add := func(end int, literal bool) {
		end = min(end, len(text))
		if n := len(out); n > 0 && out[n-1].end >= end {
			return
		}
		if n := len(out); n > 0 && out[n-1].literal == literal {
			out[n-1].end = end
			return
		}
		out = append(out, literalRun{end, literal})
	}
	for i, r := range v.runs {
		if r.end <= start {
			continue
		}
		if len(v.normalizers) == 0 {
			add(r.end-start, r.literal)
			if r.end >= start+len(section) {
				break
			}
			continue
		}
		if r.end >= start+len(section) || i == len(v.runs)-1 {
			add(len(text), r.literal)
			break
		}
		left := normalize(v.t.uni, v.normalizers, section[:r.end-start])
		right := normalize(v.t.uni, v.normalizers, section[r.end-start:])
		lo, hi := commonPrefix(left, text), len(text)-commonSuffix(right, text)
		if lo > hi {
			lo, hi = hi, lo
		}
		if r.literal {
			add(hi, true)
		} else {
			add(lo, false)
		}
	}
	return out
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func commonSuffix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

// splitMarked is matcher.split for a text with literal parts: m's tokens are
// found only outside of these, those of text (white space) everywhere. Without
// runs nothing is literal. It begins at byte from; pattern is the end of the
// token's pattern, before rstrip.
func splitMarked(u *unicodeTables, s string, from int, runs literals, m, text *matcher, yield func(start, end int, a *addedToken, pattern int)) {
	done := from
	if runs == nil {
		text = nil // m has those too
	}
	k := 0
	for i := from; i < len(s) && (m != nil || text != nil); {
		for k < len(runs) && runs[k].end <= i {
			k++
		}
		var a *addedToken
		if m != nil && m.first[s[i]] && (k >= len(runs) || !runs[k].literal) {
			limit := len(s)
			if k < len(runs) {
				limit = min(limit, runs[k].end)
			}
			a = m.longest(s[i:limit])
		}
		if text != nil && text.first[s[i]] {
			if b := text.longest(s[i:]); b != nil && (a == nil || len(b.pattern) > len(a.pattern)) {
				a = b
			}
		}
		if a == nil {
			i++
			continue
		}
		start, end, ok := a.place(u, s, i, done)
		i += len(a.pattern)
		if !ok {
			continue
		}
		if start > done {
			yield(done, start, nil, 0)
		}
		yield(start, end, a, i)
		done = end
	}
	if done < len(s) {
		yield(done, len(s), nil, 0)
	}
}
