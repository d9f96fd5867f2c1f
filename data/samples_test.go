package data

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/internal/testdata"
)

// TestOverlong: what every policy makes of a conversation, at the exact limits.
func TestOverlong(t *testing.T) {
	rec := Record{ID: "r", Turns: []Turn{{System, "S"}, {User, "a"}, {Assistant, "1"}, {User, "b"}, {Assistant, "2222"}, {User, "c"}, {Assistant, "3"}}}
	// <|im_start|>system\nS<|im_end|>\n is 11 tokens, a user turn of one character 9,
	// an assistant turn 14 and its text less one.
	const sys, pair = 11, 23
	whole := sys + 3*pair + 3
	for _, c := range []struct {
		overlong, turns string
		limit           int
		want            string // names of the samples, their exchanges in brackets
		dropped         int64
		changed         []string
	}{
		{"drop", "inline", whole, "3[123]", 0, nil},
		{"drop", "inline", whole - 1, "", 1, nil},
		{"drop", "expand", whole - 1, "1[1] 2[12]", 1, nil},
		{"drop", "expand", sys + 2*pair + 3, "1[1] 2[12]", 1, nil},
		{"drop", "expand", sys + 2*pair + 2, "1[1]", 2, nil},
		{"history", "expand", whole - 1, "1[1] 2[12] 3[23]", 0, []string{ChangedHistory}},
		{"history", "expand", sys + pair + 3, "1[1] 2[2] 3[3]", 0, []string{ChangedHistory}},
		{"history", "expand", sys + pair + 2, "1[1] 3[3]", 1, []string{ChangedHistory}},
		{"history", "inline", whole - 1, "3[23]", 0, []string{ChangedHistory}},
		{"history", "inline", sys + pair, "3[3]", 0, []string{ChangedHistory}},
		{"history", "inline", sys + pair - 1, "", 1, nil},
		{"split", "inline", whole - 1, "2[12] 3[3]", 0, []string{ChangedSplit}},
		{"split", "inline", sys + pair + 3, "1[1] 2[2] 3[3]", 0, []string{ChangedSplit}},
		{"split", "inline", sys + pair + 2, "1[1] 3[3]", 1, []string{ChangedSplit}},
		{"split", "inline", whole, "3[123]", 0, nil},
		{"split", "expand", whole - 1, "1[1] 2[12] 3[3]", 0, []string{ChangedSplit}},
		{"split", "expand", sys + pair + 2, "1[1] 3[3]", 1, nil},
		{"cut", "expand", sys + 2*pair, "1[1] 2[12]", 1, []string{ChangedCut}},
		{"cut", "inline", sys + 2*pair, "2[12]", 0, []string{ChangedLaterTurns, ChangedCut}},
		{"cut", "inline", sys + 2*pair + 3, "2[12]", 0, []string{ChangedLaterTurns}},
		{"cut", "inline", whole - 2, "3[123]", 0, []string{ChangedCut}},
		{"cut", "inline", sys + 9, "", 1, nil},
	} {
		t.Run(fmt.Sprintf("%s %s at %d", c.overlong, c.turns, c.limit), func(t *testing.T) {
			e := newEncoder(t, EncoderOptions{Template: templateFor(t, "sharegpt", "chatml"), Turns: c.turns, MaxLength: c.limit, Overlong: c.overlong})
			got, err := e.Samples(rec)
			require.NoError(t, err)
			var names []string
			for _, s := range got.Samples {
				require.LessOrEqual(t, len(s.Tokens), c.limit)
				text := runeTokenizer{}.Decode(s.Tokens)
				require.True(t, strings.HasPrefix(text, "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n"), text)
				which := ""
				for i, q := range []string{"\na<", "\nb<", "\nc<"} {
					if strings.Contains(text, q) {
						which += string(rune('1' + i))
					}
				}
				names = append(names, strings.TrimPrefix(s.ID, "r/")+"["+which+"]")
				if c.turns == "expand" {
					require.Len(t, s.Spans, 1)
				} else {
					require.Len(t, s.Spans, len(which))
				}
			}
			require.Equal(t, c.want, strings.Join(names, " "))
			require.Equal(t, c.dropped, got.Dropped[SkipTooLong])
			require.Equal(t, c.changed, got.Changed)
		})
	}
}

// TestEveryPair: over random conversations, every pair that fits alone is a
// completion exactly once by the policy "split", and everything is accounted for
// by each.
func TestEveryPair(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	tmpl := templateFor(t, "sharegpt", "chatml")
	for n := range 400 {
		rec := Record{ID: "r"}
		if n%3 == 0 {
			rec.Turns = []Turn{{System, "S"}}
		} else {
			rec.Turns = []Turn{{System, strings.Repeat("s", rng.IntN(30)+1)}}
		}
		pairs := rng.IntN(9) + 1
		for i := range pairs {
			rec.Turns = append(rec.Turns, Turn{User, fmt.Sprintf("%c%s", 'A'+i, strings.Repeat("u", rng.IntN(40)))}, Turn{Assistant, fmt.Sprintf("%c%s", 'a'+i, strings.Repeat("x", rng.IntN(60)))})
		}
		limit := 40 + rng.IntN(200)
		for _, turns := range []string{specstream.TurnsExpand, specstream.TurnsInline} {
			alone := newEncoder(t, EncoderOptions{Template: tmpl, Turns: turns, MaxLength: limit})
			want := map[string]int{}
			for i := range pairs {
				one := Record{ID: "r", Turns: slices.Concat(rec.Turns[:1], rec.Turns[1+2*i:3+2*i])}
				got, err := alone.Samples(one)
				require.NoError(t, err)
				if len(got.Samples) == 1 {
					want[one.Turns[2].Text] = 1
				}
			}
			for _, overlong := range []string{specstream.OverlongDrop, specstream.OverlongSplit, specstream.OverlongHistory, specstream.OverlongCut} {
				got, err := newEncoder(t, EncoderOptions{Template: tmpl, Turns: turns, MaxLength: limit, Overlong: overlong}).Samples(rec)
				require.NoError(t, err)
				have, ids := map[string]int{}, map[string]bool{}
				for _, s := range got.Samples {
					require.LessOrEqual(t, len(s.Tokens), limit)
					require.False(t, ids[s.ID], "%s is twice there", s.ID)
					ids[s.ID] = true
					checkSpans(t, s)
					for _, sp := range s.Spans {
						answer := runeTokenizer{}.Decode(s.Tokens[sp.Start:sp.End])
						if overlong != specstream.OverlongCut {
							require.True(t, strings.HasSuffix(answer, "<|im_end|>"), answer)
						}
						have[strings.TrimSuffix(answer, "<|im_end|>")]++
					}
				}
				spans, dropped := 0, int(got.Dropped[SkipTooLong])
				for _, k := range have {
					spans += k
					require.Equal(t, 1, k, "an answer is trained on twice")
				}
				switch {
				case overlong == specstream.OverlongSplit, overlong == specstream.OverlongHistory && turns == specstream.TurnsExpand:
					require.Equal(t, want, have)
					require.Equal(t, pairs, spans+dropped)
				case turns == specstream.TurnsExpand:
					require.Equal(t, pairs, len(got.Samples)+dropped)
				default:
					require.Equal(t, 1, len(got.Samples)+dropped)
				}
				if spans < pairs {
					require.True(t, dropped > 0 || len(got.Changed) > 0, "something is left out in silence")
				}
			}
		}
	}
}

// checkSpans holds what every sample must.
func checkSpans(t testing.TB, s Sample) {
	t.Helper()
	at := 0
	for _, sp := range s.Spans {
		require.Positive(t, sp.Start)
		require.GreaterOrEqual(t, sp.Start, at)
		require.Less(t, sp.Start, sp.End)
		require.LessOrEqual(t, sp.End, len(s.Tokens))
		at = sp.End
	}
}

// TestMaskOnRealData: over real conversations, spans hold exactly the assistant
// turns' text and their end tokens.
func TestMaskOnRealData(t *testing.T) {
	for _, turns := range []string{specstream.TurnsExpand, specstream.TurnsInline} {
		t.Run(turns, func(t *testing.T) {
			r, err := Open(t.Context(), formatNamed(t, "sharegpt"), testdata.Shared(t, "sharegpt/mix_dev.json"))
			require.NoError(t, err)
			defer func() { require.NoError(t, r.Close()) }()
			e := newEncoder(t, EncoderOptions{Template: templateFor(t, "sharegpt", "plain"), Turns: turns})
			for range 100 {
				rec, err := r.Next()
				require.NoError(t, err)
				got, err := e.Samples(rec)
				require.NoError(t, err)
				require.Nil(t, got.Dropped)
				var answers []string
				for _, turn := range rec.Turns {
					if turn.Role == Assistant {
						answers = append(answers, turn.Text)
					}
				}
				if turns == specstream.TurnsInline {
					require.Len(t, got.Samples, 1)
				} else {
					require.Len(t, got.Samples, len(answers))
				}
				spans := 0
				for _, s := range got.Samples {
					checkSpans(t, s)
					at := 0
					for _, sp := range s.Spans {
						require.Equal(t, " "+answers[spans]+"</s>", runeTokenizer{}.Decode(s.Tokens[sp.Start:sp.End]))
						require.True(t, strings.HasSuffix(runeTokenizer{}.Decode(s.Tokens[at:sp.Start]), " ASSISTANT:"))
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

// FuzzEncoder: whatever a conversation holds, spans are sound, answers and
// prompts are found again in them, and nothing is longer than allowed.
func FuzzEncoder(f *testing.F) {
	f.Add("hi", "yo", "<|im_end|>", "</s>\n\n", uint8(0), uint16(500))
	f.Add(" ", "\n\nx", "", " ", uint8(7), uint16(40))
	f.Add("é\u3000", "<|im_start|>system\n", "\x1c", "ß", uint8(130), uint16(90))
	names := []string{"vicuna", "chatml", "llama2", "llama3", "mistral", "plain"}
	policies := []string{specstream.OverlongDrop, specstream.OverlongSplit, specstream.OverlongHistory, specstream.OverlongCut}
	f.Fuzz(func(t *testing.T, u1, a1, u2, a2 string, choice uint8, limit uint16) {
		o := EncoderOptions{
			Tokenizer: gptTokenizer{}, Template: templateFor(t, "sharegpt", names[int(choice)%len(names)]), Turns: specstream.TurnsExpand,
			MaxLength: int(limit) + 2, Overlong: policies[int(choice)/6%4],
		}
		if choice >= 128 {
			o.Turns = specstream.TurnsInline
		}
		e, err := NewEncoder(o)
		require.NoError(t, err)
		rec := Record{ID: "r", Turns: []Turn{{User, u1}, {Assistant, a1}, {User, u2}, {Assistant, a2}}}
		got, err := e.Samples(rec)
		if err != nil {
			var bad *BadRecordError
			require.True(t, errors.As(err, &bad), "%v", err)
			return
		}
		require.LessOrEqual(t, len(got.Samples), 2)
		if len(got.Samples) < 2 && o.Turns == specstream.TurnsExpand {
			require.Positive(t, got.Dropped[SkipTooLong])
		}
		for _, s := range got.Samples {
			require.LessOrEqual(t, len(s.Tokens), o.MaxLength)
			checkSpans(t, s)
		}
		prompt := Record{Turns: rec.Turns[:1]}
		ids, err := e.Prompt(prompt)
		require.NoError(t, err)
		if len(got.Samples) > 0 && got.Samples[0].ID == "r/1" {
			have := got.Samples[0].PromptTokens()
			require.Equal(t, have, ids[:len(have)])
			require.GreaterOrEqual(t, len(have)+1, len(ids), "at most the last token is joined")
		}
	})
}
