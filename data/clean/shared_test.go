package clean

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/internal/testdata"
)

// TestMessy holds cleaning to the notes of a file made by known damage.
func TestMessy(t *testing.T) {
	records := conversations(t, "sharegpt/messy/messy_made.json.gz")
	notes := make(map[int]string)
	f, err := os.Open(testdata.Shared(t, "sharegpt/messy/messy_made.notes.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var n struct {
			Index int
			What  string
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &n))
		notes[n.Index] = n.What
	}
	c := newCleaner(t, specstream.CleanSpec{HTML: true, Dedupe: specstream.DedupeNear})
	var sigs []Signature
	for i, r := range records {
		require.NoError(t, c.Clean(&r), "%d", i)
		switch what := notes[i]; {
		case strings.Contains(what, "HTML"):
			require.Equal(t, []string{ChangedHTML}, r.Changed, "%d", i)
			for _, turn := range r.Turns {
				require.NotContains(t, turn.Text, "<div class")
				require.NotContains(t, turn.Text, "</p>")
				require.NotContains(t, turn.Text, "<br>")
				require.NotContains(t, turn.Text, "&lt;")
			}
		case strings.Contains(what, "interface"):
			require.Equal(t, []string{ChangedInterface}, r.Changed, "%d", i)
			last := r.Turns[len(r.Turns)-1].Text
			require.NotContains(t, last, "2 / 2")
			require.NotContains(t, last, "Regenerate")
		default:
			require.Empty(t, r.Changed, "%d: %s", i, what)
			require.Equal(t, records[i].Turns, r.Turns)
		}
		sigs = append(sigs, c.Sign(r))
	}
	// The notes' exact duplicates are all there are; a last turn cut off leaves a
	// near one. Records of the same id and other content stay.
	for i, of := range flat([]SignatureSource{nil}, nil, dedupe(t, c, cut(t, sigs))) {
		switch what := notes[i]; {
		case strings.Contains(what, "exact duplicate"):
			require.Equal(t, i-1, of)
			delete(notes, i)
		default:
			require.Contains(t, what, "cut off", "%d", i)
		}
	}
	for i, what := range notes {
		require.NotContains(t, what, "exact duplicate", "%d was kept", i)
	}
}

// TestUpperCaseDuplicate: the folder's record in upper case is one of another
// file, which is found across parts.
func TestUpperCaseDuplicate(t *testing.T) {
	c := newCleaner(t, specstream.CleanSpec{Dedupe: specstream.DedupeNear})
	var sigs []Signature
	whole := conversations(t, "sharegpt/moss.json.gz")
	for _, r := range whole {
		sigs = append(sigs, c.Sign(r))
	}
	messy := conversations(t, "sharegpt/messy/messy_made.json.gz")
	sigs = append(sigs, c.Sign(messy[89]))
	dups := dedupe(t, c, cut(t, sigs, len(whole)))
	require.Equal(t, Duplicate{Part: 1, Number: 1, OfPart: 0, OfNumber: 813, Reason: ReasonExact, Similarity: 1}, dups[len(dups)-1])
}

// TestRealTexts: nothing that is no damage is mended. What is removed from the
// real records are heads of code blocks that were pasted with their button.
func TestRealTexts(t *testing.T) {
	for _, c := range []struct {
		file   string
		mended int
	}{
		{"sharegpt/oasst_trees.json.gz", 4}, {"sharegpt/moss.json.gz", 0}, {"sharegpt/mtbench101.json.gz", 0}, {"sharegpt/mix_dev.json", 0},
		{"sharegpt/medicalgpt_sharegpt_zh.json.gz", 0}, {"sharegpt/sharegpt_real_sample.json.gz", 0}, {"sharegpt/messy/fastchat_dummy_conversation.json.gz", 0},
	} {
		t.Run(c.file, func(t *testing.T) {
			clean := newCleaner(t, specstream.CleanSpec{HTML: true})
			n := 0
			for _, r := range conversations(t, c.file) {
				before := slices.Clone(r.Turns)
				require.NoError(t, clean.Clean(&r))
				if len(r.Changed) == 0 {
					require.Equal(t, before, r.Turns)
					continue
				}
				n++
				require.Equal(t, []string{ChangedInterface}, r.Changed)
			}
			require.Equal(t, c.mended, n)
		})
	}
}

// TestRealPhrases: the built-in list finds the 12 turns of Vicuna's
// self-description that speak of a language model, and no talk of customers.
func TestRealPhrases(t *testing.T) {
	c := newCleaner(t, specstream.CleanSpec{BlockedPhrases: []string{"default"}})
	for file, want := range map[string]int{
		"sharegpt/messy/fastchat_dummy_conversation.json.gz": 12, "sharegpt/sgd.json.gz": 0, "sharegpt/mtbench101.json.gz": 0,
		"sharegpt/medicalgpt_sharegpt_zh.json.gz": 29, "sharegpt/moss.json.gz": 48,
	} {
		n := 0
		for _, r := range conversations(t, file) {
			if err := c.Clean(&r); err != nil {
				var s *data.SkipError
				require.ErrorAs(t, err, &s)
				require.Equal(t, SkipPhrase, s.Reason)
				n++
			}
		}
		require.Equal(t, want, n, file)
	}
}

// TestRealLanguages: the language of a whole set of records is told.
func TestRealLanguages(t *testing.T) {
	for file, want := range map[string]string{
		"sharegpt/sgd.json.gz": "en", "sharegpt/mtbench101.json.gz": "en", "sharegpt/oasst_trees.json.gz": "en", "sharegpt/glaive_toolcall_zh.json.gz": "zh",
		"sharegpt/medicalgpt_sharegpt_zh.json.gz": "zh",
	} {
		records := conversations(t, file)
		right, other := 0, 0
		for _, r := range records {
			switch code, _ := detect(sample(r.Turns)); code {
			case want:
				right++
			case "":
			default:
				other++
			}
		}
		require.GreaterOrEqual(t, float64(right), 0.97*float64(len(records)), file)
		require.LessOrEqual(t, float64(other), 0.015*float64(len(records)), file)
	}
}
