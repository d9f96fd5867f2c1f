// Package clean mends records, leaves out those that a specification does not
// want, and finds duplicates among any number of them. Nothing happens in
// silence: every change has a code in [data.Record.Changed], every record left
// out a reason in a [data.SkipError] or a [Duplicate].
//
// What it does to ShareGPT records is what FastChat's clean_sharegpt and
// optional_clean do in effect, without touching text that only looks like the
// left-overs they remove.
package clean

import (
	"fmt"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
)

// Codes of alterations that Clean adds to [data.Record.Changed].
const (
	// ChangedHTML: an assistant turn was HTML and became Markdown.
	ChangedHTML = "html_to_markdown"
	// ChangedInterface: text of a chat service's user interface was removed from
	// an assistant turn.
	ChangedInterface = "interface_text_removed"
)

// Reasons for leaving out a record: those of Clean, in [data.SkipError], and
// those of Dedupe.
const (
	SkipEmpty    = "empty_after_cleaning" // nothing but markup or interface text in an assistant turn
	SkipLanguage = "language"             // in a language that is not wanted
	SkipPhrase   = "blocked_phrase"       // an assistant turn holds a blocked phrase

	ReasonExact = "duplicate"      // equal to an earlier record up to case, white space and Unicode compatibility
	ReasonNear  = "near_duplicate" // similar to an earlier record
)

// rules counts the versions of this package's rules. It must grow whenever a
// change alters a text, a decision or a signature; the golden test notices.
const rules = 1

// Cleaner applies a CleanSpec. It is safe for concurrent use.
type Cleaner struct {
	spec    specstream.CleanSpec
	phrases *matcher // nil: none is blocked
	want    *languages
	limits  limits
	scratch sync.Pool // *signer
}

// New prepares a completed specification.
func New(spec specstream.CleanSpec) (*Cleaner, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	c := &Cleaner{spec: spec, limits: defaultLimits}
	c.scratch.New = func() any { return new(signer) }
	var err error
	if c.want, err = newLanguages(spec.Languages, spec.SkipLanguages); err != nil {
		return nil, err
	}
	if len(spec.BlockedPhrases) > 0 {
		if c.phrases, err = newMatcher(expandPhrases(spec.BlockedPhrases)); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Version names the version of the rules and of the Unicode tables under them.
// Records cleaned or signed under different versions do not belong in one data
// set.
func (c *Cleaner) Version() string {
	return fmt.Sprintf("%d+unicode%s+norm%s", rules, unicode.Version, norm.Version)
}

// Clean mends r in place, or says with a [*data.SkipError] why it is left out.
func (c *Cleaner) Clean(r *data.Record) error {
	if c.spec.HTML {
		if err := mend(r); err != nil {
			return err
		}
	}
	if c.want != nil {
		if why := c.want.objection(r.Turns); why != "" {
			return skip(r, SkipLanguage, "", "%s", why)
		}
	}
	if c.phrases != nil {
		s := c.scratch.Get().(*signer)
		defer c.scratch.Put(s)
		for i, t := range r.Turns {
			if t.Role != data.Assistant {
				continue
			}
			s.text = s.fold.append(s.text[:0], t.Text)
			if p := c.phrases.find(s.text); p != "" {
				return skip(r, SkipPhrase, turn(i), "holds the blocked phrase %q", p)
			}
		}
	}
	return nil
}

// mend converts HTML and removes interface text from the assistant turns.
func mend(r *data.Record) error {
	for i := range r.Turns {
		t := &r.Turns[i]
		if t.Role != data.Assistant {
			continue
		}
		text, converted := t.Text, false
		if isChatMarkup(text) || isMarkup(text) && !asksForMarkup(r.Turns[:i]) {
			text, converted = toMarkdown(text), true
		}
		text, removed := stripInterface(text)
		if !converted && !removed {
			continue
		}
		if blank(text) {
			return skip(r, SkipEmpty, turn(i), "has no text but markup and what a user interface left")
		}
		t.Text = text
		if converted {
			changed(r, ChangedHTML)
		}
		if removed {
			changed(r, ChangedInterface)
		}
	}
	return nil
}

// turn names a turn in a message.
func turn(i int) string { return fmt.Sprintf("turns[%d]", i) }

func skip(r *data.Record, reason, field, format string, args ...any) error {
	return &data.SkipError{Reason: reason, Input: &specstream.InputError{
		File: r.Source, Record: r.Number, Field: field, Reason: fmt.Sprintf(format, args...),
	}}
}

func changed(r *data.Record, code string) {
	for _, c := range r.Changed {
		if c == code {
			return
		}
	}
	r.Changed = append(r.Changed, code)
}

// invisible reports whether a character shows nothing: white space, zero-width
// characters and byte-order marks.
func invisible(r rune) bool {
	return unicode.IsSpace(r) || r == '\ufeff' || r >= '\u200b' && r <= '\u200d' || r == '\u2060'
}

// blank reports whether s has no visible text.
func blank(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return !invisible(r) }) < 0
}
