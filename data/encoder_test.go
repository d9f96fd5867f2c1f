package data

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
)

// runeTokenizer has a token for each code point; 1 begins and 2 ends a sequence,
// and the other control tokens follow.
type runeTokenizer struct{ noBOS, noEOS bool }

var controls = []string{"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"}

func (runeTokenizer) Encode(dst []int32, text string) []int32 {
	for _, r := range text {
		dst = append(dst, r+10)
	}
	return dst
}

func (t runeTokenizer) EncodeMarked(dst []int32, texts []string, literal []bool) ([]int32, []int) {
	return marked(t.Encode, dst, texts, literal)
}

// marked encodes control tokens, and what is between them by enc. A control token
// has to lie in one text.
func marked(enc func([]int32, string) []int32, dst []int32, texts []string, literal []bool) ([]int32, []int) {
	encode := func(texts []string) []int32 {
		var ids []int32
		var plain strings.Builder
		for i, s := range texts {
			for s != "" {
				at, which := len(s), -1
				for k, c := range controls {
					if j := strings.Index(s, c); j >= 0 && j < at && !literal[i] {
						at, which = j, k
					}
				}
				plain.WriteString(s[:at])
				if s = s[at:]; which >= 0 {
					ids = append(enc(ids, plain.String()), int32(which+1))
					plain.Reset()
					s = s[len(controls[which]):]
				}
			}
		}
		return enc(ids, plain.String())
	}
	whole := encode(texts)
	var marks []int
	for i := range texts {
		part := encode(texts[:i+1])
		n := 0
		for n < len(part) && n < len(whole) && part[n] == whole[n] {
			n++
		}
		marks = append(marks, n)
	}
	return append(dst, whole...), marks
}

func (runeTokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if id <= int32(len(controls)) {
			b.WriteString(controls[id-1])
		} else {
			b.WriteRune(id - 10)
		}
	}
	return b.String()
}

func (runeTokenizer) Token(id int32) string     { return runeTokenizer{}.Decode([]int32{id}) }
func (t runeTokenizer) BOS() (int32, bool)      { return 1, !t.noBOS }
func (t runeTokenizer) EOS() (int32, bool)      { return 2, !t.noEOS }
func (runeTokenizer) VocabSize() int            { return 0x110000 + 10 }
func (runeTokenizer) Digest() specstream.Digest { return specstream.DigestBytes([]byte("runes")) }

// wordTokenizer is like SentencePiece's: every text gets a space in front, and a
// space belongs to the word behind it.
type wordTokenizer struct{ runeTokenizer }

func (wordTokenizer) Encode(dst []int32, text string) []int32 {
	if text == "" {
		return dst
	}
	for _, word := range strings.Split(text, " ") {
		dst = append(dst, runeTokenizer{}.Encode(nil, "▁"+word)...)
	}
	return dst
}

func (t wordTokenizer) EncodeMarked(dst []int32, texts []string, literal []bool) ([]int32, []int) {
	return marked(t.Encode, dst, texts, literal)
}

// gptTokenizer is like byte-level BPE: a space belongs to the word behind it,
// and is only there if it is in the text. Two line breaks are one token.
type gptTokenizer struct{ runeTokenizer }

func (gptTokenizer) Encode(dst []int32, text string) []int32 {
	return runeTokenizer{}.Encode(dst, strings.NewReplacer(" ", "Ġ", "\n\n", "Ċ").Replace(text))
}

func (t gptTokenizer) EncodeMarked(dst []int32, texts []string, literal []bool) ([]int32, []int) {
	return marked(t.Encode, dst, texts, literal)
}

func templateFor(t testing.TB, format, name string) Template {
	t.Helper()
	f, err := FormatOf(format)
	require.NoError(t, err)
	tmpl, err := TemplateFor(specstream.DataSpec{Format: format, Template: name}, f, "")
	require.NoError(t, err)
	return tmpl
}

func newEncoder(t testing.TB, o EncoderOptions) *Encoder {
	t.Helper()
	if o.Tokenizer == nil {
		o.Tokenizer = runeTokenizer{}
	}
	if o.Turns == "" {
		o.Turns = specstream.TurnsExpand
	}
	if o.MaxLength == 0 {
		o.MaxLength = 1 << 20
	}
	e, err := NewEncoder(o)
	require.NoError(t, err)
	return e
}

// mark renders a sample with its spans in brackets.
func mark(s Sample) string {
	var b strings.Builder
	at := 0
	for _, sp := range s.Spans {
		b.WriteString(runeTokenizer{}.Decode(s.Tokens[at:sp.Start]) + "[" + runeTokenizer{}.Decode(s.Tokens[sp.Start:sp.End]) + "]")
		at = sp.End
	}
	b.WriteString(runeTokenizer{}.Decode(s.Tokens[at:]))
	return b.String()
}

func markAll(samples []Sample) (out []string) {
	for _, s := range samples {
		out = append(out, mark(s))
	}
	return out
}

var twoTurns = Record{ID: "r", Turns: []Turn{{System, "S."}, {User, "hi"}, {Assistant, "hello you"}, {User, "and "}, {Assistant, "</s>"}}}

func TestSamples(t *testing.T) {
	sql := Record{ID: "r", Turns: []Turn{{User, "CREATE TABLE t (a)\n\nQuestion: q?\nSQL: "}, {Assistant, "SELECT a"}}, Alternatives: []string{"SELECT t.a"}}
	for _, c := range []struct {
		name             string
		tok              Tokenizer
		format, template string
		turns            string
		rec              Record
		want             []string
	}{
		{"plain", runeTokenizer{}, "sql", "plain", specstream.TurnsExpand, sql, []string{"<s>CREATE TABLE t (a)\n\nQuestion: q?\nSQL: [SELECT a</s>]"}},
		{"no begin token", runeTokenizer{noBOS: true}, "sql", "plain", specstream.TurnsInline, sql, []string{"CREATE TABLE t (a)\n\nQuestion: q?\nSQL: [SELECT a</s>]"}},
		{"plain words carry their space", wordTokenizer{}, "sql", "plain", specstream.TurnsExpand, sql, []string{"<s>▁CREATE▁TABLE▁t▁(a)\n\nQuestion:▁q?\nSQL:[▁SELECT▁a</s>]"}},
		{"vicuna for a task", runeTokenizer{}, "sql", "vicuna", specstream.TurnsExpand, sql,
			[]string{"<s>" + VicunaSystem + " USER: CREATE TABLE t (a)\n\nQuestion: q?\nSQL:  ASSISTANT:[ SELECT a</s>]"}},
		// The text "</s>" of the last turn is text: its span ends with the real
		// end token besides.
		{"inline", runeTokenizer{}, "sharegpt", "vicuna", specstream.TurnsInline, twoTurns,
			[]string{"<s>S. USER: hi ASSISTANT:[ hello you</s>]USER: and  ASSISTANT:[ </s></s>]"}},
		{"expand", runeTokenizer{}, "sharegpt", "plain", specstream.TurnsExpand, twoTurns,
			[]string{"<s>S. USER: hi ASSISTANT:[ hello you</s>]", "<s>S. USER: hi ASSISTANT: hello you</s>USER: and  ASSISTANT:[ </s></s>]"}},
		{"words carry their space", wordTokenizer{}, "sharegpt", "plain", specstream.TurnsInline, twoTurns,
			[]string{"<s>▁S.▁USER:▁hi▁ASSISTANT:[▁hello▁you</s>]▁USER:▁and▁▁ASSISTANT:[▁</s></s>]"}},
		{"chatml", gptTokenizer{}, "sharegpt", "chatml", specstream.TurnsInline, twoTurns,
			[]string{"<|im_start|>system\nS.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n[helloĠyou<|im_end|>]\n<|im_start|>user\nandĠ<|im_end|>\n<|im_start|>assistant\n[</s><|im_end|>]\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEncoder(t, EncoderOptions{Tokenizer: c.tok, Template: templateFor(t, c.format, c.template), Turns: c.turns})
			got, err := e.Samples(c.rec)
			require.NoError(t, err)
			require.Nil(t, got.Dropped)
			require.Empty(t, got.Changed)
			require.Equal(t, c.want, markAll(got.Samples))
			last := got.Samples[len(got.Samples)-1]
			require.Equal(t, c.rec.Turns[len(c.rec.Turns)-1].Text, last.Reference)
			require.Equal(t, c.rec.Alternatives, last.Alternatives)

			// Decoding starts from just the tokens that training had.
			prompt := c.rec
			prompt.Turns = prompt.Turns[:len(prompt.Turns)-1]
			ids, err := e.Prompt(prompt)
			require.NoError(t, err)
			require.Equal(t, last.PromptTokens(), ids)
		})
	}
}

// TestSpecialTokens: strings of control tokens in a record are text, or control
// tokens by policy.
func TestSpecialTokens(t *testing.T) {
	rec := Record{ID: "r", Turns: []Turn{{User, "<|im_end|>"}, {Assistant, "</s><|im_end|>"}}}
	count := func(policy, template string) int {
		e := newEncoder(t, EncoderOptions{Template: templateFor(t, "sql", template), SpecialTokens: policy})
		got, err := e.Samples(rec)
		require.NoError(t, err)
		n := 0
		for _, id := range got.Samples[0].Tokens {
			if id <= int32(len(controls)) {
				n++
			}
		}
		return n
	}
	require.Equal(t, 2, count("", "plain"))
	require.Equal(t, 2+3, count(specstream.SpecialAsControl, "plain"))
	require.Equal(t, 6, count(specstream.SpecialAsText, "chatml"))
	require.Equal(t, 6+3, count(specstream.SpecialAsControl, "chatml"))
}

// TestJoinedBoundary: a blank line behind the prompt's line break is one token
// with it. The completion has the whole of it.
func TestJoinedBoundary(t *testing.T) {
	e := newEncoder(t, EncoderOptions{Tokenizer: gptTokenizer{}, Template: templateFor(t, "sql", "chatml")})
	rec := Record{ID: "r", Turns: []Turn{{System, "s"}, {User, "u"}, {Assistant, "\nx"}}}
	got, err := e.Samples(rec)
	require.NoError(t, err)
	require.Equal(t, "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant[Ċx<|im_end|>]\n", mark(got.Samples[0]))
	rec.Turns = rec.Turns[:2]
	ids, err := e.Prompt(rec)
	require.NoError(t, err)
	require.Equal(t, got.Samples[0].PromptTokens(), ids[:len(ids)-1])
}

func TestSampleNames(t *testing.T) {
	got, err := newEncoder(t, EncoderOptions{Template: templateFor(t, "sharegpt", "plain")}).Samples(twoTurns)
	require.NoError(t, err)
	first, second := got.Samples[0], got.Samples[1]
	require.Equal(t, "r/1", first.ID)
	require.Equal(t, "r/2", second.ID)
	require.Equal(t, "<s>S. USER: hi ASSISTANT:", first.Prompt)
	require.Equal(t, "hello you", first.Reference)
	require.Equal(t, "<s>S. USER: hi ASSISTANT: hello you</s>USER: and  ASSISTANT:", second.Prompt)
	require.Equal(t, 11, first.CompletionTokens())
}

func TestUnanswered(t *testing.T) {
	for _, turns := range []string{specstream.TurnsExpand, specstream.TurnsInline} {
		open := Record{ID: "q", Turns: []Turn{{User, "one"}, {Assistant, "1"}, {User, "two"}}, Alternatives: []string{"2"}}
		tmpl := templateFor(t, "sharegpt", "vicuna")
		got, err := newEncoder(t, EncoderOptions{Template: tmpl, Turns: turns}).Samples(open)
		require.NoError(t, err)
		require.Len(t, got.Samples, 1)
		require.Equal(t, []string{ChangedTrailingTurns}, got.Changed)

		e := newEncoder(t, EncoderOptions{Template: tmpl, Turns: turns, AllowUnanswered: true})
		got, err = e.Samples(open)
		require.NoError(t, err)
		require.Empty(t, got.Changed)
		require.Len(t, got.Samples, 2)
		s := got.Samples[1]
		require.Equal(t, "q/2", s.ID)
		require.Empty(t, s.Spans)
		require.Empty(t, s.Reference)
		require.Equal(t, []string{"2"}, s.Alternatives)
		require.Equal(t, s.Prompt, runeTokenizer{}.Decode(s.Tokens))
		require.True(t, strings.HasSuffix(s.Prompt, "</s>USER: two ASSISTANT:"))
		ids, err := e.Prompt(open)
		require.NoError(t, err)
		require.Equal(t, ids, s.PromptTokens())

		alone := Record{ID: "q", Turns: open.Turns[:1]}
		got, err = e.Samples(alone)
		require.NoError(t, err)
		require.Len(t, got.Samples, 1)
		_, err = newEncoder(t, EncoderOptions{Template: tmpl, Turns: turns}).Samples(alone)
		var skipped *SkipError
		require.ErrorAs(t, err, &skipped)
		require.Equal(t, SkipNoPair, skipped.Reason)

		// Too long with its history, and without.
		for _, c := range []struct {
			overlong  string
			limit     int
			unspanned int
		}{{specstream.OverlongDrop, len(s.Tokens) - 1, 0}, {specstream.OverlongHistory, len(s.Tokens) - 1, 1}, {specstream.OverlongHistory, 20, 0}, {specstream.OverlongCut, len(s.Tokens) - 1, 0}} {
			got, err := newEncoder(t, EncoderOptions{Template: tmpl, Turns: turns, AllowUnanswered: true, Overlong: c.overlong, MaxLength: c.limit}).Samples(open)
			require.NoError(t, err)
			n := 0
			for _, s := range got.Samples {
				require.LessOrEqual(t, len(s.Tokens), c.limit)
				if len(s.Spans) == 0 {
					n++
				}
			}
			require.Equal(t, c.unspanned, n)
			require.Equal(t, c.unspanned == 0, got.Dropped[SkipTooLong] > 0)
		}
	}
}

// silentTokenizer gives no tokens to some text.
type silentTokenizer struct{ runeTokenizer }

func (silentTokenizer) Encode(dst []int32, text string) []int32 {
	return runeTokenizer{}.Encode(dst, strings.Trim(text, "-"))
}

// deafTokenizer finds no control token behind a word.
type deafTokenizer struct{ runeTokenizer }

func (deafTokenizer) EncodeMarked(dst []int32, texts []string, literal []bool) ([]int32, []int) {
	if len(texts) == 1 {
		return runeTokenizer{}.EncodeMarked(dst, texts, literal)
	}
	all := make([]bool, len(texts))
	for i := range all {
		all[i] = true
	}
	return runeTokenizer{}.EncodeMarked(dst, texts, all)
}

func TestEncoderErrors(t *testing.T) {
	plainSQL, vicuna := templateFor(t, "sql", "plain"), templateFor(t, "sql", "vicuna")
	for _, c := range []struct {
		name string
		o    EncoderOptions
		want string
	}{
		{"no end token", EncoderOptions{Tokenizer: runeTokenizer{noEOS: true}, Template: plainSQL}, "no end-of-sequence token"},
		{"not the template's tokenizer", EncoderOptions{Template: templateFor(t, "sql", "phi3")}, `phi3/1 uses "<|user|>", which is no control token`},
		{"turns", EncoderOptions{Template: plainSQL, Turns: "both"}, "turns"},
		{"overlong", EncoderOptions{Template: plainSQL, Overlong: "shrink"}, "overlong"},
		{"special tokens", EncoderOptions{Template: plainSQL, SpecialTokens: "some"}, "special_tokens"},
		{"length", EncoderOptions{Template: plainSQL, MaxLength: 1}, "max_length"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.o.Tokenizer == nil {
				c.o.Tokenizer = runeTokenizer{}
			}
			if c.o.Turns == "" {
				c.o.Turns = specstream.TurnsExpand
			}
			if c.o.MaxLength == 0 {
				c.o.MaxLength = 10
			}
			_, err := NewEncoder(c.o)
			require.ErrorContains(t, err, c.want)
			require.True(t, specstream.BadInput(err))
		})
	}
	f, err := FormatOf("sql")
	require.NoError(t, err)
	_, err = TemplateFor(specstream.DataSpec{Format: "sql", Template: "chatgpt"}, f, "")
	require.ErrorContains(t, err, `"chatgpt" is not one of plain, vicuna, llama2`)

	at := func(turns ...Turn) Record { return Record{Source: "f", Number: 9, Turns: turns} }
	for _, c := range []struct {
		name     string
		tok      Tokenizer
		template Template
		rec      Record
		want     string
		fatal    bool
	}{
		{"chat for plain", runeTokenizer{}, plainSQL, at(Turn{User, "a"}, Turn{Assistant, "b"}, Turn{User, "c"}, Turn{Assistant, "d"}), "plain template", false},
		{"no turns", runeTokenizer{}, plainSQL, at(), "no assistant turn", false},
		{"order", runeTokenizer{}, vicuna, at(Turn{Assistant, "b"}), "must alternate", false},
		{"nothing to learn", runeTokenizer{}, plainSQL, at(Turn{User, "a"}), "no assistant turn", false},
		{"no completion tokens", silentTokenizer{}, plainSQL, at(Turn{User, "a"}, Turn{Assistant, "-"}), `the assistant turn "-" has no tokens`, false},
		{"no prompt tokens", silentTokenizer{runeTokenizer{noBOS: true}}, plainSQL, at(Turn{User, "-"}, Turn{Assistant, "a"}), `prompt before the assistant turn "a" has no tokens`, false},
		{"trimmed away", runeTokenizer{}, templateFor(t, "sql", "llama3"), at(Turn{User, "a"}, Turn{Assistant, " "}), "has no tokens", false},
		{"no system turn", runeTokenizer{}, templateFor(t, "sql", "mistral"), twoTurnsAt("f", 9), "no place for a system turn", false},
		{"end token in text only", deafTokenizer{}, vicuna, at(Turn{User, "a"}, Turn{Assistant, "b"}), "does not recognise the end token", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := newEncoder(t, EncoderOptions{Tokenizer: c.tok, Template: c.template}).Samples(c.rec)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "f: record 9: ")
			require.Equal(t, c.fatal, !recoverable(err))
			require.True(t, specstream.BadInput(err))
		})
	}
	_, err = newEncoder(t, EncoderOptions{Template: plainSQL}).Prompt(at(Turn{User, "a"}, Turn{Assistant, "b"}))
	require.ErrorContains(t, err, "nothing to decode")
}

func twoTurnsAt(source string, number int64) Record {
	r := twoTurns
	r.Source, r.Number = source, number
	return r
}
