// Package synth generates sample data in the four source formats: questions
// with SQL, dialogues with summaries, multi-turn chat, and restaurant
// descriptions. It stands in for the public data sets, whose licences don't
// allow them to be shipped, in demonstrations and tests.
//
// Data is a function of (format, seed, split, n): the same arguments give the
// same bytes on every machine, and the first n records are the same for every
// larger n. A record does not depend on the others.
//
// # What is held out
//
// The splits Train and HeldOut share the grammar and most of the words, or
// nothing could be learned from the one for the other; whole building blocks
// are kept apart:
//
//   - SQL: table definitions (the table's name, what its rows are called, and
//     its pool of columns) and question templates (a form of SQL with all its
//     paraphrases). A held-out record has both from the held-out side: its
//     table and its template never occur in training. Some column
//     names such as "city", four fifths of the words that column names are made
//     of, the clauses of SQL (each occurs in training within some other
//     template) and the vocabularies of values are shared.
//   - DialogSum: whole scenarios (their lines and summaries). Names and times
//     are shared.
//   - ShareGPT: whole topics (their questions and answers). System messages
//     are shared.
//   - E2E: the restaurants' names and the landmarks near them. Attributes,
//     their values and sentence patterns are shared, as in the challenge itself.
//
// All text is ASCII, but for the pound sign in E2E prices.
package synth

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"github.com/specstream/specstream"
)

// Split names a part of what the generator can make. Train and HeldOut are disjoint.
type Split string

// The splits.
const (
	Train   Split = "train"
	HeldOut Split = "heldout"
	// Renamed is Train for SQL with the names of tables and columns drawn anew in
	// every record. A base pretrained on it learns to copy names from the schema it
	// is shown, where Train's 63 tables could be remembered.
	Renamed Split = "renamed"
)

// Formats are the formats that can be generated.
var Formats = []string{"sharegpt", "dialogsum", "sql", "e2e"}

// Write writes n records of a format of [Formats].
func Write(w io.Writer, format string, seed uint64, n int, split Split) error {
	switch format {
	case "sql":
		return SQL(w, seed, n, split)
	case "dialogsum":
		return DialogSum(w, seed, n, split)
	case "sharegpt":
		return ShareGPT(w, seed, n, split)
	case "e2e":
		return E2E(w, seed, n, split)
	}
	return specstream.Invalid("format", "%q is not one of %s", format, strings.Join(Formats, ", "))
}

// SQL writes n records as a JSON array in the form of sql-create-context, one
// record a line: {"question", "context", "answer"}.
func SQL(w io.Writer, seed uint64, n int, split Split) error {
	return writeArray(w, "sql", seed, n, split, func(r *rng, i int) any { return sqlRecord(r, split) })
}

// ShareGPT writes n conversations as a JSON array: {"id", "conversations":
// [{"from", "value"}]}.
func ShareGPT(w io.Writer, seed uint64, n int, split Split) error {
	return writeArray(w, "sharegpt", seed, n, split, func(r *rng, i int) any { return chatRecord(r, split, i) })
}

// DialogSum writes n records as JSON Lines: {"fname", "dialogue", "summary",
// "topic"}. Held-out records have three summaries, summary1 to summary3, as the
// test set of DialogSum does.
func DialogSum(w io.Writer, seed uint64, n int, split Split) error {
	return generate(w, "dialogsum", seed, n, split, func(w *bufio.Writer, r *rng, i int) error {
		return writeJSON(w, dialogueRecord(r, split, i), "\n")
	})
}

// E2E writes n rows as CSV with the header mr,ref and CRLF line ends.
func E2E(w io.Writer, seed uint64, n int, split Split) error {
	var c *csv.Writer
	err := generate(w, "e2e", seed, n, split, func(w *bufio.Writer, r *rng, i int) error {
		if c == nil {
			c = csv.NewWriter(w)
			c.UseCRLF = true
			if err := c.Write([]string{"mr", "ref"}); err != nil {
				return err
			}
		}
		mr, ref := restaurantRow(r, split)
		err := c.Write([]string{mr, ref})
		c.Flush()
		return err
	})
	if err == nil && n == 0 {
		_, err = io.WriteString(w, "mr,ref\r\n")
	}
	return err
}

func writeArray(w io.Writer, format string, seed uint64, n int, split Split, record func(r *rng, i int) any) error {
	if _, err := io.WriteString(w, "["); err != nil {
		return fmt.Errorf("synth: %w", err)
	}
	err := generate(w, format, seed, n, split, func(w *bufio.Writer, r *rng, i int) error {
		sep := ",\n"
		if i == 0 {
			sep = "\n"
		}
		if _, err := w.WriteString(sep); err != nil {
			return err
		}
		return writeJSON(w, record(r, i), "")
	})
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, "\n]\n"); err != nil {
		return fmt.Errorf("synth: %w", err)
	}
	return nil
}

// generate calls record n times, each with a random stream of its own.
func generate(w io.Writer, format string, seed uint64, n int, split Split, record func(w *bufio.Writer, r *rng, i int) error) error {
	if n < 0 {
		return specstream.Invalid("n", "%d is negative", n)
	}
	if split != Train && split != HeldOut && (split != Renamed || format != "sql") {
		return specstream.Invalid("split", "%q is neither %q nor %q", split, Train, HeldOut)
	}
	b := bufio.NewWriterSize(w, 64<<10)
	for i := range n {
		if err := record(b, newRNG(seed, format, split, i), i); err != nil {
			return fmt.Errorf("synth: record %d: %w", i+1, err)
		}
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("synth: %w", err)
	}
	return nil
}

// writeJSON writes v with characters such as < as they are.
func writeJSON(w io.Writer, v any, end string) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, strings.TrimSuffix(b.String(), "\n")+end)
	return err
}

// rng draws from lists and ranges.
type rng struct{ *rand.Rand }

// newRNG seeds PCG from a hash of what names the record, so that neighbouring
// seeds and records have unrelated streams.
func newRNG(seed uint64, format string, split Split, i int) *rng {
	h := mix(seed)
	for _, c := range []byte(format + "/" + string(split)) {
		h = mix(h ^ uint64(c))
	}
	h = mix(h ^ uint64(i))
	return &rng{rand.New(rand.NewPCG(h, mix(h+1)))}
}

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014) behind its
// increment: a bijection that spreads every input bit.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// pick draws one of the list.
func pick[T any](r *rng, list []T) T { return list[r.IntN(len(list))] }

// chance is true with probability p.
func (r *rng) chance(p float64) bool { return r.Float64() < p }

// between draws from [lo, hi] in multiples of step.
func (r *rng) between(lo, hi, step int) int { return lo + step*r.IntN((hi-lo)/step+1) }

// shuffled returns a shuffled copy.
func shuffled[T any](r *rng, list []T) []T {
	out := append([]T(nil), list...)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// fill replaces each {slot} of text by its value. Slots without a value stay,
// for tests to find.
func fill(text string, slots map[string]string) string {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(text, "{")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		name, rest, _ := strings.Cut(after, "}")
		v, known := slots[name]
		if !known {
			v = "{" + name + "}"
		}
		b.WriteString(v)
		text = rest
	}
}

// sentence mends the article before a filled slot and capitalises the first
// letter: "a average price" becomes "an average price".
func sentence(s string) string {
	var b strings.Builder
	words := strings.Split(s, " ")
	for i, w := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		article := w == "a" || w == "A" && (i == 0 || strings.HasSuffix(words[i-1], "."))
		if article && i+1 < len(words) && vowelSound(words[i+1]) {
			w += "n"
		}
		b.WriteString(w)
	}
	return upperFirst(b.String())
}

// vowelSound reports whether a word of the vocabularies is spoken with a vowel
// first.
func vowelSound(w string) bool {
	for _, p := range []string{"us", "uni", "one"} {
		if strings.HasPrefix(w, p) {
			return false
		}
	}
	return strings.HasPrefix(w, "hour") || w != "" && strings.Contains("aeiouAEIO", w[:1])
}

// upperFirst capitalises the first letter of a sentence.
func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
