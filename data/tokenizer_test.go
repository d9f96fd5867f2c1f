package data_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/tokenizer"
	"github.com/specstream/specstream/internal/testdata"
)

var _ data.Tokenizer = (*tokenizer.Tokenizer)(nil)

// TestBoundaryWithRealTokenizers: with a SentencePiece tokenizer, tokenising
// prompt and completion apart gives the very tokens of the text as a whole, so
// that a base which was trained on whole texts meets what it knows. With
// byte-level BPE the tokens spell the same text.
func TestBoundaryWithRealTokenizers(t *testing.T) {
	rec := data.Record{Turns: []data.Turn{{Role: data.User, Text: "What is the capital of Norway?"}, {Role: data.Assistant, Text: "The capital is Oslo."}}}
	text := data.VicunaSystem + " USER: " + rec.Turns[0].Text + " ASSISTANT: " + rec.Turns[1].Text
	for _, c := range []struct {
		file  string
		whole bool
	}{{"tokenizers/llama2/tokenizer.json.gz", true}, {"tokenizers/gpt2/tokenizer.json.gz", false}} {
		t.Run(c.file, func(t *testing.T) {
			tok, err := tokenizer.Load(testdata.Shared(t, c.file))
			require.NoError(t, err)
			tmpl, err := data.TemplateFor("sharegpt", "vicuna")
			require.NoError(t, err)
			e, err := data.NewEncoder(tok, tmpl, specstream.TurnsExpand, 1000)
			require.NoError(t, err)
			got, _, err := e.Samples(rec)
			require.NoError(t, err)
			require.Len(t, got, 1)
			ids := got[0].Tokens[:len(got[0].Tokens)-1]
			if bos, ok := tok.BOS(); ok && ids[0] == bos {
				ids = ids[1:]
			}
			require.Equal(t, text, tok.Decode(ids))
			if c.whole {
				require.Equal(t, tok.Encode(nil, text), ids)
			}
			sp := got[0].Spans[0]
			require.Equal(t, "The capital is Oslo.", strings.TrimSpace(tok.Decode(got[0].Tokens[sp.Start:sp.End-1])))
		})
	}
}
