package data

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/internal/testdata"
)

// runeTokenizer has a token for each code point; 1 begins and 2 ends a sequence.
type runeTokenizer struct{ noBOS, noEOS bool }

func (runeTokenizer) Encode(dst []int32, text string) []int32 {
	for _, r := range text {
		dst = append(dst, r+10)
	}
	return dst
}

func (runeTokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		switch id {
		case 1:
			b.WriteString("<s>")
		case 2:
			b.WriteString("</s>")
		default:
			b.WriteRune(id - 10)
		}
	}
	return b.String()
}
func (t runeTokenizer) BOS() (int32, bool)      { return 1, !t.noBOS }
func (t runeTokenizer) EOS() (int32, bool)      { return 2, !t.noEOS }
func (runeTokenizer) VocabSize() int            { return 0x110000 + 10 }
func (runeTokenizer) Digest() specstream.Digest { return specstream.DigestBytes([]byte("runes")) }

// wordTokenizer is like SentencePiece's: every text gets a space in front, and a
// space belongs to the word behind it. Tokens are words of at most four bytes
// with or without their space.
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

// gptTokenizer is like byte-level BPE: a space belongs to the word behind it,
// and is only there if it is in the text.
type gptTokenizer struct{ runeTokenizer }

func (gptTokenizer) Encode(dst []int32, text string) []int32 {
	for _, word := range strings.SplitAfter(text, " ") {
		dst = append(dst, runeTokenizer{}.Encode(nil, strings.ReplaceAll(word, " ", "Ġ"))...)
	}
	return dst
}

func encoder(t testing.TB, tok Tokenizer, format, template, turns string, maxLength int) *Encoder {
	t.Helper()
	tmpl, err := TemplateFor(format, template)
	require.NoError(t, err)
	e, err := NewEncoder(tok, tmpl, turns, maxLength)
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
		{"vicuna for a task", runeTokenizer{}, "sql", "vicuna", specstream.TurnsExpand, sql,
			[]string{"<s>" + VicunaSystem + " USER: CREATE TABLE t (a)\n\nQuestion: q?\nSQL: ASSISTANT: [SELECT a</s>]"}},
		// The text "</s>" of the last turn is text: its span ends with the real
		// end token besides.
		{"inline", runeTokenizer{}, "sharegpt", "vicuna", specstream.TurnsInline, twoTurns,
			[]string{"<s>S. USER: hi ASSISTANT: [hello you</s>]USER: and ASSISTANT: [</s></s>]"}},
		{"expand", runeTokenizer{}, "sharegpt", "plain", specstream.TurnsExpand, twoTurns,
			[]string{"<s>S. USER: hi ASSISTANT: [hello you</s>]", "<s>S. USER: hi ASSISTANT: hello you</s>USER: and ASSISTANT: [</s></s>]"}},
		{"words carry their space", wordTokenizer{}, "sharegpt", "plain", specstream.TurnsInline, twoTurns,
			[]string{"<s>▁S.▁USER:▁hi▁ASSISTANT:[▁hello▁you</s>]▁USER:▁and▁ASSISTANT:[▁</s></s>]"}},
		{"byte-level BPE", gptTokenizer{}, "sharegpt", "plain", specstream.TurnsInline, twoTurns,
			[]string{"<s>S.ĠUSER:ĠhiĠASSISTANT:Ġ[helloĠyou</s>]USER:ĠandĠASSISTANT:Ġ[</s></s>]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := encoder(t, c.tok, c.format, c.template, c.turns, 1000)
			got, tooLong, err := e.Samples(c.rec)
			require.NoError(t, err)
			require.Zero(t, tooLong)
			var marked []string
			for _, s := range got {
				marked = append(marked, mark(s))
			}
			require.Equal(t, c.want, marked)
			last := got[len(got)-1]
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

func TestSampleNames(t *testing.T) {
	got, _, err := encoder(t, runeTokenizer{}, "sharegpt", "plain", specstream.TurnsExpand, 1000).Samples(twoTurns)
	require.NoError(t, err)
	require.Equal(t, "r/1", got[0].ID)
	require.Equal(t, "r/2", got[1].ID)
	require.Equal(t, "S. USER: hi ASSISTANT: ", got[0].Prompt)
	require.Equal(t, "hello you", got[0].Reference)
	require.Equal(t, "S. USER: hi ASSISTANT: hello youUSER: and ASSISTANT: ", got[1].Prompt)
	require.Equal(t, 10, got[0].CompletionTokens())
}

// TestTooLong: samples are whole or left out, at the exact limit.
func TestTooLong(t *testing.T) {
	whole, _, err := encoder(t, runeTokenizer{}, "sharegpt", "plain", specstream.TurnsExpand, 1000).Samples(twoTurns)
	require.NoError(t, err)
	first, second := len(whole[0].Tokens), len(whole[1].Tokens)
	for _, c := range []struct {
		turns          string
		limit          int
		kept, leftOver int
	}{
		{specstream.TurnsExpand, second, 2, 0},
		{specstream.TurnsExpand, second - 1, 1, 1},
		{specstream.TurnsExpand, first, 1, 1},
		{specstream.TurnsExpand, first - 1, 0, 2},
		{specstream.TurnsInline, second, 1, 0},
		{specstream.TurnsInline, second - 1, 0, 1},
		{specstream.TurnsInline, first - 1, 0, 1},
	} {
		t.Run(fmt.Sprintf("%s at %d", c.turns, c.limit), func(t *testing.T) {
			got, tooLong, err := encoder(t, runeTokenizer{}, "sharegpt", "plain", c.turns, c.limit).Samples(twoTurns)
			require.NoError(t, err)
			require.Len(t, got, c.kept)
			require.Equal(t, c.leftOver, tooLong)
		})
	}
}

// silentTokenizer gives no tokens to some text.
type silentTokenizer struct{ runeTokenizer }

func (silentTokenizer) Encode(dst []int32, text string) []int32 {
	if text == "-" {
		return dst
	}
	return runeTokenizer{}.Encode(dst, text)
}

func TestEncoderErrors(t *testing.T) {
	tmpl, err := TemplateFor("sql", "plain")
	require.NoError(t, err)
	_, err = NewEncoder(runeTokenizer{noEOS: true}, tmpl, specstream.TurnsExpand, 10)
	require.ErrorContains(t, err, "no end-of-sequence token")
	require.True(t, specstream.BadInput(err))
	_, err = NewEncoder(runeTokenizer{}, tmpl, "both", 10)
	require.ErrorContains(t, err, "turns")
	_, err = NewEncoder(runeTokenizer{}, tmpl, specstream.TurnsExpand, 1)
	require.ErrorContains(t, err, "max_length")
	_, err = TemplateFor("sql", "chatml")
	require.ErrorContains(t, err, `"chatml" is not one of plain, vicuna`)
	_, err = TemplateFor("xml", "plain")
	require.ErrorContains(t, err, "format")

	at := func(turns ...Turn) Record { return Record{Source: "f", Number: 9, Turns: turns} }
	for _, c := range []struct {
		name     string
		tok      Tokenizer
		template string
		rec      Record
		want     string
	}{
		{"chat for plain", runeTokenizer{}, "plain", at(Turn{User, "a"}, Turn{Assistant, "b"}, Turn{User, "c"}), "plain template"},
		{"no turns", runeTokenizer{}, "plain", at(), "plain template"},
		{"no turns for vicuna", runeTokenizer{}, "vicuna", at(Turn{System, "s"}), "no user turn"},
		{"order", runeTokenizer{}, "vicuna", at(Turn{Assistant, "b"}), "must alternate"},
		{"nothing to learn", runeTokenizer{}, "plain", at(Turn{User, "a"}), "no assistant turn"},
		{"no completion tokens", silentTokenizer{}, "plain", at(Turn{User, "a"}, Turn{Assistant, "-"}), "assistant turn 1 has no tokens"},
		{"no prompt tokens", silentTokenizer{runeTokenizer{noBOS: true}}, "plain", at(Turn{User, "-"}, Turn{Assistant, "a"}), "prompt before assistant turn 1 has no tokens"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := encoder(t, c.tok, "sql", c.template, specstream.TurnsExpand, 100).Samples(c.rec)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "f: record 9: ")
			require.True(t, recoverable(err))
		})
	}
	_, err = encoder(t, runeTokenizer{}, "sql", "plain", specstream.TurnsExpand, 100).Prompt(at(Turn{User, "a"}, Turn{Assistant, "b"}))
	require.ErrorContains(t, err, "nothing to decode")
}

// TestMaskOnRealData: over real conversations, spans hold exactly the assistant
// turns' text and their end tokens, and the tokens in and out of them spell the
// template's text.
func TestMaskOnRealData(t *testing.T) {
	for _, turns := range []string{specstream.TurnsExpand, specstream.TurnsInline} {
		t.Run(turns, func(t *testing.T) {
			r, err := Open(t.Context(), "sharegpt", testdata.Shared(t, "sharegpt/mix_dev.json"))
			require.NoError(t, err)
			defer func() { require.NoError(t, r.Close()) }()
			e := encoder(t, runeTokenizer{}, "sharegpt", "plain", turns, 1<<20)
			for range 300 {
				rec, err := r.Next()
				require.NoError(t, err)
				got, tooLong, err := e.Samples(rec)
				require.NoError(t, err)
				require.Zero(t, tooLong)
				var answers []string
				for _, turn := range rec.Turns {
					if turn.Role == Assistant {
						answers = append(answers, turn.Text)
					}
				}
				if turns == specstream.TurnsInline {
					require.Len(t, got, 1)
				} else {
					require.Len(t, got, len(answers))
				}
				spans := 0
				for _, s := range got {
					at := 0
					for _, sp := range s.Spans {
						require.Equal(t, answers[spans]+"</s>", runeTokenizer{}.Decode(s.Tokens[sp.Start:sp.End]))
						require.GreaterOrEqual(t, sp.Start, at)
						require.True(t, strings.HasSuffix(runeTokenizer{}.Decode(s.Tokens[at:sp.Start]), " ASSISTANT: "))
						at = sp.End
						spans++
					}
					require.Equal(t, len(s.Tokens), at, "nothing follows the last completion")
				}
				require.Equal(t, len(answers), spans)
			}
		})
	}
}
