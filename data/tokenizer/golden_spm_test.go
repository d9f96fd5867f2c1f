package tokenizer

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"slices"
	"sync"
	"testing"
)

// goldenSPMFile is testdata/golden_spm.json.gz, written by
// testdata/make_golden_spm.py with SentencePiece.
type goldenSPMFile struct {
	Texts []string `json:"texts"`
	Cases []struct {
		Name    string    `json:"name"`
		Model   []byte    `json:"model"`
		Plain   [][]int32 `json:"plain"`
		Special [][]int32 `json:"special"`
		BOS     int32     `json:"bos"`
		EOS     int32     `json:"eos"`
		Decode  []struct {
			IDs  []int32 `json:"ids"`
			Text string  `json:"text"`
		} `json:"decode"`
	} `json:"cases"`
}

var loadGoldenSPM = sync.OnceValues(func() (*goldenSPMFile, error) {
	b, err := os.ReadFile("testdata/golden_spm.json.gz")
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	g := new(goldenSPMFile)
	if err := json.NewDecoder(z).Decode(g); err != nil {
		return nil, err
	}
	for _, c := range g.Cases {
		fillPlain(c.Plain, c.Special)
	}
	return g, nil
})

func goldenSPM(t testing.TB) *goldenSPMFile {
	t.Helper()
	g, err := loadGoldenSPM()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestGoldenSPM(t *testing.T) {
	g := goldenSPM(t)
	if len(g.Cases) < 17 || len(g.Texts) < 400 {
		t.Fatalf("golden file has %d models and %d texts", len(g.Cases), len(g.Texts))
	}
	for _, c := range g.Cases {
		t.Run(c.Name, func(t *testing.T) {
			tok, err := Parse(c.Name, bytes.NewReader(c.Model))
			if err != nil {
				t.Fatal(err)
			}
			if bos, _ := tok.BOS(); bos != c.BOS {
				t.Errorf("BOS is %d, want %d", bos, c.BOS)
			}
			if eos, _ := tok.EOS(); eos != c.EOS {
				t.Errorf("EOS is %d, want %d", eos, c.EOS)
			}
			bad := 0
			for i, text := range g.Texts {
				for _, it := range []struct {
					name string
					got  []int32
					want []int32
				}{{"Encode", tok.Encode(nil, text), c.Plain[i]}, {"EncodeSpecial", tok.EncodeSpecial(nil, text), c.Special[i]}} {
					if !slices.Equal(it.got, it.want) {
						t.Errorf("%s(%q) = %q, want %q", it.name, text, tok.names(it.got), tok.names(it.want))
						if bad++; bad > 10 {
							t.Fatal("too many differences")
						}
					}
				}
			}
			for _, d := range c.Decode {
				if got := tok.Decode(d.IDs); got != d.Text {
					t.Errorf("Decode(%q) = %q, want %q", tok.names(d.IDs), got, d.Text)
				}
			}
		})
	}
}
