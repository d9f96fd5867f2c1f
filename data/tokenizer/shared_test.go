package tokenizer

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

func loadShared(t testing.TB, family string) *Tokenizer {
	t.Helper()
	tok, err := Load(testdata.Shared(t, filepath.Join("tokenizers", family, "tokenizer.json.gz")))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func gunzip(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
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

// loadLlama3 builds Llama-3's tokenizer from its vocabulary and merges.
func loadLlama3(t testing.TB) *Tokenizer {
	t.Helper()
	var vocab map[string]int32
	if err := json.Unmarshal(gunzip(t, testdata.Shared(t, "tokenizers/llama3/encoder.json.gz")), &vocab); err != nil {
		t.Fatal(err)
	}
	var merges []string
	for line := range strings.Lines(string(gunzip(t, testdata.Shared(t, "tokenizers/llama3/vocab.bpe.gz")))) {
		merges = append(merges, strings.TrimRight(line, "\n"))
	}
	tok, err := Parse("llama3", bytes.NewReader(byteLevelFile(t, patternLlama3, false, true, vocab, merges)))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// loadQwen builds Qwen's tokenizer from tiktoken ranks: the merge that makes a
// token joins the two parts that the lower-ranked merges leave of it.
func loadQwen(t testing.TB) *Tokenizer {
	t.Helper()
	ranks := make(map[string]int32)
	var order []string
	for line := range strings.Lines(string(gunzip(t, testdata.Shared(t, "tokenizers/qwen/qwen.tiktoken.gz")))) {
		token, rank, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(token)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(rank)
		if err != nil {
			t.Fatal(err)
		}
		ranks[string(raw)] = int32(n)
		order = append(order, string(raw))
	}
	vocab := make(map[string]int32, len(ranks))
	var merges []string
	for _, token := range order {
		vocab[toByteLevel(token)] = ranks[token]
		if len(token) < 2 {
			continue
		}
		parts := strings.Split(token, "")
		if len(parts) != len(token) { // not single bytes
			parts = parts[:0]
			for i := range len(token) {
				parts = append(parts, token[i:i+1])
			}
		}
		for len(parts) > 2 {
			best, at := ranks[token], -1
			for i := 1; i < len(parts); i++ {
				if r, ok := ranks[parts[i-1]+parts[i]]; ok && r < best {
					best, at = r, i
				}
			}
			if at < 0 {
				break
			}
			parts[at-1] += parts[at]
			parts = slices.Delete(parts, at, at+1)
		}
		if len(parts) == 2 {
			merges = append(merges, toByteLevel(parts[0])+" "+toByteLevel(parts[1]))
		}
	}
	tok, err := Parse("qwen", bytes.NewReader(byteLevelFile(t, patternQwen, true, false, vocab, merges)))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestRealTokenizers checks real definitions against ids made elsewhere.
func TestRealTokenizers(t *testing.T) {
	for _, c := range []struct {
		name    string
		load    func(testing.TB) *Tokenizer
		vectors string // of llama.cpp; "" when there are none
		column  func(v vector) []int32
		exact   bool // Decode(Encode(s)) == s
	}{
		{"gpt2", func(t testing.TB) *Tokenizer { return loadShared(t, "gpt2") }, "gpt-2.jsonl", func(v vector) []int32 { return v.GPT2 }, true},
		{"llama2", func(t testing.TB) *Tokenizer { return loadShared(t, "llama2") }, "llama-spm.jsonl", func(v vector) []int32 { return v.Llama2 }, true},
		{"phi3", func(t testing.TB) *Tokenizer { return loadShared(t, "phi3") }, "phi-3.jsonl", func(v vector) []int32 { return v.Llama2 }, true},
		{"llama3", loadLlama3, "llama-bpe.jsonl", func(v vector) []int32 { return v.Llama3 }, true},
		{"qwen", loadQwen, "", func(v vector) []int32 { return v.Qwen }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := c.load(t)
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
		"test_hf_tokenizer.json":      "MergedWithPrevious",
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
