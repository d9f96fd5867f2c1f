package rouge

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden is what testdata/make_golden.py writes.
type golden struct {
	Stems map[string]string `json:"stems"`
	Pairs []struct {
		Reference string     `json:"reference"`
		Candidate string     `json:"candidate"`
		Rouge1    [3]float64 `json:"rouge1"` // precision, recall, F
		RougeLSum [3]float64 `json:"rouge_lsum"`
	} `json:"pairs"`
	Multi []struct {
		References []string   `json:"references"`
		Candidate  string     `json:"candidate"`
		Rouge1     [3]float64 `json:"rouge1"`
		RougeLSum  [3]float64 `json:"rouge_lsum"`
	} `json:"multi"`
}

func readGolden(t *testing.T) golden {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "golden.json"))
	require.NoError(t, err)
	var g golden
	require.NoError(t, json.Unmarshal(b, &g))
	require.Greater(t, len(g.Stems), 3000)
	require.Greater(t, len(g.Pairs), 100)
	return g
}

func TestStemMatchesNLTK(t *testing.T) {
	for word, want := range readGolden(t).Stems {
		require.Equal(t, want, stem(word), word)
	}
}

func requireScore(t *testing.T, want [3]float64, got Score, what string) {
	t.Helper()
	require.InDelta(t, want[0], got.Precision, 1e-12, what)
	require.InDelta(t, want[1], got.Recall, 1e-12, what)
	require.InDelta(t, want[2], got.F, 1e-12, what)
}

func TestCompareMatchesRougeScore(t *testing.T) {
	g := readGolden(t)
	for _, p := range g.Pairs {
		s := Compare(p.Reference, p.Candidate)
		requireScore(t, p.Rouge1, s.Rouge1, p.Reference+" | "+p.Candidate)
		requireScore(t, p.RougeLSum, s.RougeLSum, p.Reference+" | "+p.Candidate)
	}
	for _, m := range g.Multi {
		s := CompareMulti(m.References, m.Candidate)
		requireScore(t, m.Rouge1, s.Rouge1, m.Candidate)
		requireScore(t, m.RougeLSum, s.RougeLSum, m.Candidate)
	}
	require.Zero(t, CompareMulti(nil, "x"))
}

func FuzzCompare(f *testing.F) {
	for _, s := range []string{"", "a", "the cats\nsat", "yyyyed", "İİ K", strings.Repeat("ness", 9)} {
		f.Add(s, "the cat sat")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		s := Compare(a, b)
		back := Compare(b, a)
		for _, v := range []float64{s.Rouge1.Precision, s.Rouge1.Recall, s.Rouge1.F, s.RougeLSum.Precision, s.RougeLSum.Recall, s.RougeLSum.F} {
			if !(v >= 0 && v <= 1) {
				t.Fatalf("%v is outside 0..1", v)
			}
		}
		if s.Rouge1.Precision != back.Rouge1.Recall || s.Rouge1.F != back.Rouge1.F {
			t.Fatalf("ROUGE-1 is not symmetric: %+v, %+v", s, back)
		}
	})
}

func BenchmarkCompare(b *testing.B) {
	text := strings.Repeat("The participants agreed to postpone the meeting until Friday.\n", 5)
	for b.Loop() {
		Compare(text, text)
	}
}
