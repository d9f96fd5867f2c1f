package tokenizer

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// goldenFile is testdata/golden.json.gz, written by testdata/make_golden.py
// with Hugging Face's library.
type goldenFile struct {
	Texts []string `json:"texts"`
	Cases []struct {
		Name      string          `json:"name"`
		Tokenizer json.RawMessage `json:"tokenizer"`
		Plain     [][]int32       `json:"plain"`
		Special   [][]int32       `json:"special"`
		Size      int             `json:"size"`
		Decode    []struct {
			IDs  []int32 `json:"ids"`
			Text string  `json:"text"`
		} `json:"decode"`
	} `json:"cases"`
	Corpus   []string `json:"corpus"`
	Training []struct {
		Split        Split    `json:"split"`
		VocabSize    int      `json:"vocab_size"`
		MinFrequency int      `json:"min_frequency"`
		Special      []string `json:"special"`
		Vocab        []string `json:"vocab"`
		Merges       []string `json:"merges"`
	} `json:"training"`
}

var loadGolden = sync.OnceValues(func() (*goldenFile, error) {
	b, err := os.ReadFile("testdata/golden.json.gz")
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	g := new(goldenFile)
	if err := json.NewDecoder(z).Decode(g); err != nil {
		return nil, err
	}
	for _, c := range g.Cases {
		fillPlain(c.Plain, c.Special)
	}
	return g, nil
})

// fillPlain completes lists that are null where they equal the others.
func fillPlain(plain, special [][]int32) {
	for i := range plain {
		if plain[i] == nil {
			plain[i] = special[i]
		}
	}
}

func golden(t testing.TB) *goldenFile {
	t.Helper()
	g, err := loadGolden()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// goldenTokenizer parses one of the golden tokenizers.
func goldenTokenizer(t testing.TB, name string) *Tokenizer {
	t.Helper()
	for _, c := range golden(t).Cases {
		if c.Name == name {
			tok, err := Parse(name, bytes.NewReader(c.Tokenizer))
			if err != nil {
				t.Fatal(err)
			}
			return tok
		}
	}
	t.Fatalf("no golden tokenizer %q", name)
	return nil
}

func TestGolden(t *testing.T) {
	g := golden(t)
	if len(g.Cases) < 10 || len(g.Texts) < 400 {
		t.Fatalf("golden file has %d tokenizers and %d texts", len(g.Cases), len(g.Texts))
	}
	for _, c := range g.Cases {
		t.Run(c.Name, func(t *testing.T) {
			tok, err := Parse(c.Name, bytes.NewReader(c.Tokenizer))
			if err != nil {
				t.Fatal(err)
			}
			if tok.VocabSize() != c.Size {
				t.Errorf("VocabSize() = %d, want %d", tok.VocabSize(), c.Size)
			}
			bad := 0
			for i, text := range g.Texts {
				want := c.Plain[i]
				if got := tok.Encode(nil, text); !slices.Equal(got, want) {
					bad++
					t.Errorf("Encode(%q) = %v, want %v", text, tok.names(got), tok.names(want))
				}
				if got := tok.EncodeSpecial(nil, text); !slices.Equal(got, c.Special[i]) {
					bad++
					t.Errorf("EncodeSpecial(%q) = %v, want %v", text, tok.names(got), tok.names(c.Special[i]))
				}
				if bad > 20 {
					t.Fatal("too many differences")
				}
			}
			for _, d := range c.Decode {
				if got := tok.Decode(d.IDs); got != d.Text {
					t.Errorf("Decode(%v) = %q, want %q", tok.names(d.IDs), got, d.Text)
				}
			}
		})
	}
}

// names renders ids for messages.
func (t *Tokenizer) names(ids []int32) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = t.Token(id)
	}
	return out
}

func TestTrainMatchesHuggingFace(t *testing.T) {
	g := golden(t)
	for _, c := range g.Training {
		t.Run(string(c.Split)+strings.Join(c.Special, ","), func(t *testing.T) {
			tok, err := Train(context.Background(), slices.Values(g.Corpus), TrainOptions{
				VocabSize: c.VocabSize, MinFrequency: c.MinFrequency, SpecialTokens: c.Special, Split: c.Split,
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := tok.tokens; !slices.Equal(got, c.Vocab) {
				t.Errorf("vocabulary of %d differs from the %d wanted, first at %d", len(got), len(c.Vocab), firstDifference(got, c.Vocab))
			}
			var f struct {
				Model struct{ Merges [][2]string }
			}
			if err := json.Unmarshal(tok.raw, &f); err != nil {
				t.Fatal(err)
			}
			var merges []string
			for _, m := range f.Model.Merges {
				merges = append(merges, m[0]+" "+m[1])
			}
			if !slices.Equal(merges, c.Merges) {
				t.Errorf("%d merges differ from the %d wanted, first at %d", len(merges), len(c.Merges), firstDifference(merges, c.Merges))
			}
		})
	}
}

func firstDifference(a, b []string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
