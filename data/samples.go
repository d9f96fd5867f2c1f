package data

import (
	"fmt"
	"slices"

	"github.com/specstream/specstream"
)

// Codes of alterations that samples come with (Encoded.Changed).
const (
	// ChangedHistory: the oldest turns of a sample's history were left out.
	ChangedHistory = "history_truncated"
	// ChangedSplit: a conversation became several.
	ChangedSplit = "conversation_split"
	// ChangedCut: a completion was cut and has no end token.
	ChangedCut = "completion_cut"
	// ChangedLaterTurns: the turns behind the last that fits were left out.
	ChangedLaterTurns = "later_turns_removed"
)

// Encoded is what a record gives.
type Encoded struct {
	// Samples are in the order of the record's turns.
	Samples []Sample
	// Dropped counts the samples left out, by reason; nil when there are none.
	Dropped map[string]int64
	// Changed are the Changed… codes of what was done to samples, each once.
	Changed []string
}

func (e *Encoded) drop(n int64) {
	if n > 0 {
		if e.Dropped == nil {
			e.Dropped = map[string]int64{}
		}
		e.Dropped[SkipTooLong] += n
	}
}

func (e *Encoded) change(code string) {
	if !slices.Contains(e.Changed, code) {
		e.Changed = append(e.Changed, code)
	}
}

// conversation is a record taken apart: each exchange goes up to an assistant
// turn.
type conversation struct {
	record    Record
	system    []Turn
	exchanges [][]Turn
	tail      []Turn // user turns that nothing answers
}

func takeApart(r Record) conversation {
	c := conversation{record: r}
	turns := r.Turns
	for len(turns) > 0 && turns[0].Role == System {
		c.system, turns = append(c.system, turns[0]), turns[1:]
	}
	start := 0
	for i, t := range turns {
		if t.Role == Assistant {
			c.exchanges = append(c.exchanges, turns[start:i+1])
			start = i + 1
		}
	}
	c.tail = turns[start:]
	return c
}

// turns are the system turn and exchanges [from, to).
func (c conversation) turns(from, to int) []Turn {
	return slices.Concat(c.system, slices.Concat(c.exchanges[from:to]...))
}

// Samples returns the samples of a record.
//
// With turns expanded every assistant turn is one sample, with all before it as
// prompt; inline, all of a record is one sample with a span for each assistant
// turn. What is longer than MaxLength is dropped, split, cut or robbed of its
// history by policy, and told. Errors are a [BadRecordError] or [SkipError] that
// names file and record, or a [specstream.InputError] when the template can't be
// rendered at all.
func (e *Encoder) Samples(r Record) (Encoded, error) {
	c := takeApart(r)
	var out Encoded
	if len(c.exchanges) == 0 && (!e.o.AllowUnanswered || len(c.tail) == 0) {
		return out, located(skip(SkipNoPair, "", "has no assistant turn"), r.Source, r.Number)
	}
	from, err := 0, error(nil)
	if e.o.Turns == specstream.TurnsInline {
		err = e.inline(c, &out)
	} else {
		from, err = e.expand(c, &out)
	}
	switch {
	case err != nil || len(c.tail) == 0:
	case e.o.AllowUnanswered:
		err = e.unanswered(c, from, &out)
	default:
		out.change(ChangedTrailingTurns)
	}
	if err != nil {
		return Encoded{}, located(err, r.Source, r.Number)
	}
	return out, nil
}

func (e *Encoder) fits(c coded) bool { return len(c.ids) <= e.o.MaxLength }

// exchanges encodes exchanges [from, to).
func (e *Encoder) exchanges(c conversation, from, to int) (coded, error) {
	x, _, err := e.encode(c.record, c.turns(from, to), e.o.Turns == specstream.TurnsExpand)
	return x, err
}

// sample makes the sample of a coded conversation that ends with exchange turn
// (from 1).
func (c conversation) sample(x coded, turn int) Sample {
	s := Sample{ID: fmt.Sprintf("%s/%d", c.record.ID, turn), Tokens: x.ids}
	for _, k := range x.completions {
		s.Spans = append(s.Spans, k.span)
	}
	last := x.completions[len(x.completions)-1]
	s.Prompt, s.Reference = last.prompt, last.reference
	if turn == len(c.exchanges) {
		s.Alternatives = c.record.Alternatives
	}
	return s
}

// expand makes one sample an exchange. It returns the first exchange that the
// history of what follows still has.
func (e *Encoder) expand(c conversation, out *Encoded) (from int, err error) {
	n := len(c.exchanges)
	for k := range n {
		x, err := e.exchanges(c, from, k+1)
		if err != nil {
			return 0, err
		}
		if !e.fits(x) && from < k {
			code := ""
			switch e.o.Overlong {
			case specstream.OverlongSplit:
				code, from = ChangedSplit, k
				x, err = e.exchanges(c, from, k+1)
			case specstream.OverlongHistory:
				code = ChangedHistory
				from, x, err = e.shortest(c, from, k)
			}
			if err != nil {
				return 0, err
			}
			if code != "" && e.fits(x) {
				out.change(code)
			}
		}
		cut := e.o.Overlong == specstream.OverlongCut && e.cut(&x, out)
		switch {
		case e.fits(x) || cut:
			out.Samples = append(out.Samples, c.sample(x, k+1))
		case e.o.Overlong == specstream.OverlongSplit:
			out.drop(1)
			from = k + 1 // an exchange that is left out is no history
		case e.o.Overlong == specstream.OverlongHistory, e.template.single:
			out.drop(1)
		default:
			out.drop(int64(n - k)) // what follows is longer still
			return from, nil
		}
	}
	return from, nil
}

// shortest drops the fewest exchanges behind from such that those up to k fit,
// or all before k.
func (e *Encoder) shortest(c conversation, from, k int) (int, coded, error) {
	lo, hi := from+1, k // the answer is in [lo, hi], hi if none fits
	best, err := e.exchanges(c, hi, k+1)
	for err == nil && lo < hi {
		mid := (lo + hi) / 2
		var x coded
		if x, err = e.exchanges(c, mid, k+1); e.fits(x) {
			hi, best = mid, x
		} else {
			lo = mid + 1
		}
	}
	return hi, best, err
}

// cut shortens x to the most tokens there may be. It reports false when nothing
// is left to learn, and leaves x as it is then.
func (e *Encoder) cut(x *coded, out *Encoded) bool {
	if e.fits(*x) {
		return false
	}
	kept := slices.Clone(x.completions)
	for len(kept) > 0 && kept[len(kept)-1].span.Start >= e.o.MaxLength {
		kept = kept[:len(kept)-1]
	}
	if len(kept) == 0 {
		return false
	}
	if len(kept) < len(x.completions) {
		out.change(ChangedLaterTurns)
	}
	last := &kept[len(kept)-1].span
	if last.End > e.o.MaxLength {
		last.End = e.o.MaxLength
		out.change(ChangedCut)
	}
	*x = coded{ids: x.ids[:last.End], completions: kept}
	return true
}

// inline makes one sample of the record, or several by the policy "split".
func (e *Encoder) inline(c conversation, out *Encoded) error {
	n := len(c.exchanges)
	if n == 0 {
		return nil
	}
	if e.o.Overlong == specstream.OverlongSplit {
		return e.split(c, out)
	}
	x, err := e.exchanges(c, 0, n)
	if err != nil {
		return err
	}
	if !e.fits(x) && e.o.Overlong == specstream.OverlongHistory && n > 1 {
		if _, x, err = e.shortest(c, 0, n-1); err != nil {
			return err
		}
		if e.fits(x) {
			out.change(ChangedHistory)
		}
	}
	turn := n
	if e.o.Overlong == specstream.OverlongCut && e.cut(&x, out) {
		turn = len(x.completions)
	}
	if !e.fits(x) {
		out.drop(1)
		return nil
	}
	out.Samples = append(out.Samples, c.sample(x, turn))
	return nil
}

// split makes samples of as many exchanges as fit, one after the other. An
// exchange that does not fit alone is left out, and the conversation goes on
// anew behind it.
func (e *Encoder) split(c conversation, out *Encoded) error {
	n := len(c.exchanges)
	for from := 0; from < n; {
		to, best, err := e.longest(c, from)
		if err != nil {
			return err
		}
		if to == from {
			out.drop(1)
			from++
			continue
		}
		if from > 0 || to < n {
			out.change(ChangedSplit)
		}
		out.Samples = append(out.Samples, c.sample(best, to))
		from = to
	}
	return nil
}

// longest returns the largest to such that exchanges [from, to) fit; from when
// not even the first does. It looks no farther than twice as far as it gets.
func (e *Encoder) longest(c conversation, from int) (to int, best coded, err error) {
	n := len(c.exchanges)
	lo, hi := from, n+1 // [from, lo) fits, [from, hi) does not
	for step := 1; lo < n; step *= 2 {
		try := min(lo+step, n)
		x, err := e.exchanges(c, from, try)
		if err != nil {
			return 0, coded{}, err
		}
		if !e.fits(x) {
			hi = try
			break
		}
		lo, best = try, x
	}
	for hi-lo > 1 && hi <= n {
		mid := (lo + hi) / 2
		x, err := e.exchanges(c, from, mid)
		if err != nil {
			return 0, coded{}, err
		}
		if e.fits(x) {
			lo, best = mid, x
		} else {
			hi = mid
		}
	}
	return lo, best, nil
}

// unanswered makes the sample of a record's last user turn.
func (e *Encoder) unanswered(c conversation, from int, out *Encoded) error {
	n := len(c.exchanges)
	code := func(from int) (coded, string, error) {
		return e.encode(c.record, append(c.turns(from, n), c.tail...), true)
	}
	x, text, err := code(from)
	for err == nil && !e.fits(x) && from < n && (e.o.Overlong == specstream.OverlongHistory || e.o.Overlong == specstream.OverlongSplit) {
		from++
		out.change(ChangedHistory)
		x, text, err = code(from)
	}
	if err != nil {
		return err
	}
	if !e.fits(x) {
		out.drop(1)
		return nil
	}
	out.Samples = append(out.Samples, Sample{ID: fmt.Sprintf("%s/%d", c.record.ID, n+1), Tokens: x.ids, Prompt: text, Alternatives: c.record.Alternatives})
	return nil
}
