package tokenizer

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/specstream/specstream/internal/testdata"
)

// vector is a line of tokenizers/vectors: ids made by llama.cpp (text, ids) or
// by a reference encoder (text and one list a tokenizer).
type vector struct {
	Text   string
	IDs    []int32
	GPT2   []int32
	Llama2 []int32
	Llama3 []int32
	Qwen   []int32
}

func readVectors(t *testing.T, rel string) []vector {
	t.Helper()
	f, err := os.Open(testdata.Shared(t, filepath.Join("tokenizers", "vectors", rel)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []vector
	for s := bufio.NewScanner(f); s.Scan(); {
		var v vector
		if err := json.Unmarshal(s.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	if len(out) == 0 {
		t.Fatal("no vectors")
	}
	return out
}

// loaded keeps tokenizers between tests: they do not change.
var loaded sync.Map // path → *Tokenizer

// loadShared loads one of the shared tokenizers.
func loadShared(t testing.TB, rel string) *Tokenizer {
	t.Helper()
	path := testdata.Shared(t, filepath.Join("tokenizers", rel))
	if tok, ok := loaded.Load(path); ok {
		return tok.(*Tokenizer)
	}
	tok, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	loaded.Store(path, tok)
	return tok
}

// byteLevelFile renders a tokenizer.json for a byte-level model.
func byteLevelFile(t testing.TB, regex string, nfc, ignoreMerges bool, vocab map[string]int32, merges []string) []byte {
	t.Helper()
	bl := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	f := map[string]any{
		"version":      "1.0",
		"added_tokens": []any{},
		"pre_tokenizer": map[string]any{"type": "Sequence", "pretokenizers": []any{
			map[string]any{"type": "Split", "pattern": map[string]any{"Regex": regex}, "behavior": "Isolated", "invert": false}, bl,
		}},
		"decoder": bl,
		"model":   map[string]any{"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": ignoreMerges},
	}
	if nfc {
		f["normalizer"] = map[string]any{"type": "NFC"}
	}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRealTokenizers checks real definitions against ids made elsewhere.
func TestRealTokenizers(t *testing.T) {
	for _, c := range []struct {
		file    string
		vectors string // of llama.cpp; "" when there are none
		column  func(v vector) []int32
		exact   bool // Decode(Encode(s)) == s
	}{
		{"gpt2/tokenizer.json.gz", "gpt-2.jsonl", func(v vector) []int32 { return v.GPT2 }, true},
		{"llama2/tokenizer.json.gz", "llama-spm.jsonl", func(v vector) []int32 { return v.Llama2 }, true},
		{"llama2/tokenizer.model", "llama-spm.jsonl", func(v vector) []int32 { return v.Llama2 }, true},
		{"phi3/tokenizer.json.gz", "phi-3.jsonl", func(v vector) []int32 { return v.Llama2 }, true},
		{"llama3/tokenizer.model.gz", "llama-bpe.jsonl", func(v vector) []int32 { return v.Llama3 }, true},
		{"llama3/encoder.json.gz", "llama-bpe.jsonl", func(v vector) []int32 { return v.Llama3 }, true},
		{"qwen/qwen.tiktoken.gz", "", func(v vector) []int32 { return v.Qwen }, false},
	} {
		t.Run(c.file, func(t *testing.T) {
			tok := loadShared(t, c.file)
			type pair struct {
				text string
				ids  []int32
			}
			var pairs []pair
			if c.vectors != "" {
				for _, v := range readVectors(t, c.vectors) {
					pairs = append(pairs, pair{v.Text, v.IDs})
				}
			}
			for _, v := range readVectors(t, "ref_120.jsonl") {
				pairs = append(pairs, pair{v.Text, c.column(v)})
			}
			for _, p := range pairs {
				got := tok.Encode(nil, p.text)
				if !slices.Equal(got, p.ids) {
					t.Errorf("Encode(%q)\n got %v\nwant %v", p.text, tok.names(got), tok.names(p.ids))
				}
				if text := tok.Decode(got); c.exact && text != p.text {
					t.Errorf("Decode(Encode(%q)) = %q", p.text, text)
				}
			}
			t.Logf("%d texts", len(pairs))
		})
	}
}

func TestRealBOSAndEOS(t *testing.T) {
	for _, c := range []struct {
		name, bos, eos string
		size           int
	}{
		{"gpt2", "<|endoftext|>", "<|endoftext|>", 50257},
		{"llama2", "<s>", "</s>", 32000},
		{"phi3", "<s>", "<|endoftext|>", 32011},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := loadShared(t, c.name)
			bos, ok1 := tok.BOS()
			eos, ok2 := tok.EOS()
			if !ok1 || !ok2 || tok.Token(bos) != c.bos || tok.Token(eos) != c.eos {
				t.Errorf("BOS %q %v, EOS %q %v; want %q and %q", tok.Token(bos), ok1, tok.Token(eos), ok2, c.bos, c.eos)
			}
			if tok.VocabSize() != c.size {
				t.Errorf("VocabSize() = %d, want %d", tok.VocabSize(), c.size)
			}
		})
	}
}

// TestRealRefusals checks files that Hugging Face loads in ways of their own.
func TestRealRefusals(t *testing.T) {
	for file, want := range map[string]string{
		"added-tokens_tokenizer.json": "model.merges", // an object, where lists are due
		"test_hf_tokenizer.json":      `"He"`,         // no such token
	} {
		_, err := Load(testdata.Shared(t, "tokenizers/small/"+file))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one about %q", file, err, want)
		}
	}
	if _, err := Load(testdata.Shared(t, "tokenizers/small/oasst_tokenizer.json")); err != nil {
		t.Error(err)
	}
}
