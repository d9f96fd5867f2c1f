package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/shard"
	"github.com/specstream/specstream/data/tokenizer"
)

var update = flag.Bool("update", false, "write the golden files")

func demo(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Load("../../cmd/specstream/demobase/tokenizer.json")
	require.NoError(t, err)
	return tok
}

func encoder(t testing.TB, tok *tokenizer.Tokenizer, spec specstream.DataSpec) *data.Encoder {
	t.Helper()
	spec = spec.WithDefaults()
	f, err := data.FormatOf(spec.Format)
	require.NoError(t, err)
	tmpl, err := data.TemplateFor(spec, f, "")
	require.NoError(t, err)
	e, err := data.NewEncoder(data.EncoderOptions{Tokenizer: tok, Template: tmpl, Turns: spec.Turns, MaxLength: spec.MaxLength})
	require.NoError(t, err)
	return e
}

func sample(t testing.TB, turns ...data.Turn) Sample {
	t.Helper()
	tok := demo(t)
	got, err := encoder(t, tok, specstream.DataSpec{Format: "sharegpt", Turns: "inline"}).Samples(data.Record{ID: "talk\x1b[2J", Turns: turns})
	require.NoError(t, err)
	return New(got.Samples[0], tok)
}

func talk(t testing.TB) Sample {
	return sample(t, data.Turn{Role: data.System, Text: "Be brief."}, data.Turn{Role: data.User, Text: "Name\ttwo \x1b[31mred\x1b[0m \u202efruits"},
		data.Turn{Role: data.Assistant, Text: "Äpfel 🍎\nand cherries."}, data.Turn{Role: data.User, Text: "One?"}, data.Turn{Role: data.Assistant, Text: "Apple</s>"})
}

// TestGolden compares what is written with the files in testdata.
func TestGolden(t *testing.T) {
	for _, c := range []struct {
		name     string
		o        Options
		position int
	}{
		{"plain", Options{Width: 60}, -2},
		{"color", Options{Width: 60, Color: true}, -2},
		{"targets", Options{}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := talk(t)
			var b strings.Builder
			if c.position == -2 {
				require.NoError(t, Write(&b, s, c.o))
			} else {
				first := s.Spans[0]
				for _, at := range []int{0, first.Start - 1, first.End - 4, first.End - 2, first.End - 1, len(s.Tokens) + 5} {
					s.LookAhead(at, 3)
					require.NoError(t, Write(&b, s, c.o))
				}
			}
			file := "testdata/" + c.name + ".txt"
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o600))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), b.String())
			if !c.o.Color {
				require.NotContains(t, b.String(), "\x1b", "a record's escapes reach the terminal")
			}
			require.NotContains(t, b.String(), "\x1b[2J")
			require.NotContains(t, b.String(), "\u202e")
		})
	}
}

// TestLookAhead: targets are those of the trainer: stream j of position t has
// the token at t+1+j of the same completion.
func TestLookAhead(t *testing.T) {
	s := talk(t)
	for at := -2; at <= len(s.Tokens)+1; at++ {
		s.LookAhead(at, 4)
		require.Len(t, s.Targets.Streams, 5)
		for j, x := range s.Targets.Streams {
			inside := false
			for _, sp := range s.Spans {
				inside = inside || at >= sp.Start-1 && at <= sp.End-2 && at+1+j < sp.End
			}
			require.Equal(t, !inside, x.Masked)
			require.Equal(t, j, x.Stream)
			if inside {
				require.Equal(t, at+1+j, x.Token.Position)
			}
		}
	}
}

// TestTokens: the texts of the tokens are the sample's text.
func TestTokens(t *testing.T) {
	s := talk(t)
	text := ""
	parts := map[Part]int{}
	for _, tok := range s.Tokens {
		text += tok.Text
		parts[tok.Part]++
		require.Equal(t, tok.Part == End, tok.Special && tok.Part != Prompt)
	}
	require.Equal(t, "<|begin|>Be brief. USER: Name\ttwo \x1b[31mred\x1b[0m \u202efruits ASSISTANT: Äpfel 🍎\nand cherries.<|end|>USER: One? ASSISTANT: Apple</s><|end|>", text)
	require.Equal(t, 2, parts[End])
	b, err := json.Marshal(s)
	require.NoError(t, err)
	var back Sample
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, s, back)
}

func TestEscape(t *testing.T) {
	require.Equal(t, `a\n\t\r\x1b[0m\x00\x7f é世🍎\u{202e}\u{200b}\u{feff}`, Escape("a\n\t\r\x1b[0m\x00\x7f é世🍎\u202e\u200b\ufeff"))
}

// TestReading reads a data set and its inputs alike.
func TestReading(t *testing.T) {
	ctx := context.Background()
	tok := demo(t)
	in := t.TempDir() + "/in.json"
	require.NoError(t, os.WriteFile(in, []byte(`[{"question": "q", "context": "c", "answer": "a"}, {"question": 1}, {"question": "q2", "context": "c2", "answer": "`+strings.Repeat("long ", 50)+`"}]`), 0o600))
	spec := specstream.DataSpec{Format: "sql", Inputs: []string{in}, MaxLength: 60}.WithDefaults()
	var ids, notes []string
	w, err := shard.NewWriter(shard.Options{Blobs: shard.DirBlobs{Dir: t.TempDir()}})
	require.NoError(t, err)
	collect := func(it Item) bool {
		if it.Sample != nil {
			ids = append(ids, it.Sample.ID)
			require.NoError(t, w.Write(ctx, *it.Sample))
		}
		if it.Note != "" {
			notes = append(notes, it.Note)
		}
		return true
	}
	require.NoError(t, Inputs(ctx, spec, data.OpenFile, encoder(t, tok, spec), collect))
	require.Equal(t, []string{"in.json#1/1"}, ids)
	require.Len(t, notes, 2)
	require.Contains(t, notes[0], "record 2: field \"question\": want a string")
	require.Contains(t, notes[1], "record 3: samples left out: map[too_long:1]")

	stopped := 0
	require.NoError(t, Inputs(ctx, spec, data.OpenFile, encoder(t, tok, spec), func(Item) bool { stopped++; return false }))
	require.Equal(t, 1, stopped)
	spec.Inputs = []string{in + "x"}
	require.Error(t, Inputs(ctx, spec, data.OpenFile, encoder(t, tok, spec), collect))
}

func TestWriteFails(t *testing.T) {
	full := errors.New("full")
	require.ErrorIs(t, Write(failing{full}, talk(t), Options{}), full)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
