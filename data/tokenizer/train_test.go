package tokenizer

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/internal/testdata"
)

func mustTrain(t testing.TB, texts []string, o TrainOptions) *Tokenizer {
	t.Helper()
	tok, err := Train(t.Context(), slices.Values(texts), o)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestTrainByHand checks a training small enough to do on paper.
func TestTrainByHand(t *testing.T) {
	// " ab" four times (after the first "ab"), "ab" once: a+b is the most
	// frequent pair with 5, then Ġ+ab with 4.
	tok := mustTrain(t, []string{"ab ab ab ab ab"}, TrainOptions{VocabSize: 300, Split: SplitGPT2})
	if got, want := tok.tokens[256:], []string{"ab", "Ġab"}; !slices.Equal(got, want) {
		t.Errorf("learnt %q, want %q", got, want)
	}
	// Ties: cd and ab both occur twice; ab has the lower ids.
	tok = mustTrain(t, []string{"cd cd ab ab"}, TrainOptions{VocabSize: 257, Split: SplitGPT2})
	if got := tok.tokens[256:]; !slices.Equal(got, []string{"ab"}) {
		t.Errorf("of equally frequent pairs %q was merged", got)
	}
	tok = mustTrain(t, []string{"ab ab ab xyz"}, TrainOptions{VocabSize: 300, MinFrequency: 3, Split: SplitGPT2})
	if got := tok.tokens[256:]; !slices.Equal(got, []string{"ab"}) {
		t.Errorf("with a minimum of 3: %q", got)
	}
	tok = mustTrain(t, nil, TrainOptions{VocabSize: 300, SpecialTokens: []string{"<|endoftext|>"}})
	if tok.VocabSize() != 257 || tok.Decode(tok.Encode(nil, "any \u00e9")) != "any \u00e9" {
		t.Error("a tokenizer trained on nothing has the bytes and the special token")
	}
}

func TestTrainSplits(t *testing.T) {
	texts := []string{"year 2024 and 2024 and 2024 and 2024"}
	for split, want := range map[Split]int{SplitGPT2: 4, SplitLlama3: 3, SplitQwen: 1} {
		tok := mustTrain(t, texts, TrainOptions{VocabSize: 400, Split: split})
		longest := ""
		for _, s := range tok.tokens {
			if d := strings.TrimPrefix(s, "Ġ"); len(d) > len(longest) && strings.Trim(d, "0123456789") == "" {
				longest = d
			}
		}
		if len(longest) != want {
			t.Errorf("%s: longest number is %q, want %d digits", split, longest, want)
		}
	}
}

func TestTrainIsDeterministic(t *testing.T) {
	corpus := golden(t).Corpus
	o := TrainOptions{VocabSize: 700, SpecialTokens: []string{"the", "<s>"}}
	want := mustTrain(t, corpus, o)
	reversed := slices.Clone(corpus)
	slices.Reverse(reversed)
	for range 3 {
		if got := mustTrain(t, reversed, o); got.Digest() != want.Digest() {
			t.Fatal("the order of texts, or of maps, changed the result")
		}
	}
}

func TestTrainOptionsAreChecked(t *testing.T) {
	for _, c := range []struct {
		field string
		o     TrainOptions
	}{
		{"vocab_size", TrainOptions{VocabSize: 255}},
		{"vocab_size", TrainOptions{VocabSize: 256, SpecialTokens: []string{"<s>"}}},
		{"vocab_size", TrainOptions{VocabSize: 1 << 30}},
		{"split", TrainOptions{VocabSize: 300, Split: "bert"}},
		{"min_frequency", TrainOptions{VocabSize: 300, MinFrequency: -1}},
		{"special_tokens", TrainOptions{VocabSize: 300, SpecialTokens: []string{""}}},
		{"special_tokens", TrainOptions{VocabSize: 300, SpecialTokens: []string{"  "}}},
		{"special_tokens", TrainOptions{VocabSize: 300, SpecialTokens: []string{"x"}}},
		{"special_tokens", TrainOptions{VocabSize: 300, SpecialTokens: []string{"a\xff"}}},
		{"special_tokens", TrainOptions{VocabSize: 300, SpecialTokens: []string{"<s>", "<s>"}}},
		{"bos", TrainOptions{VocabSize: 300, BOS: "<s>"}},
		{"eos", TrainOptions{VocabSize: 300, SpecialTokens: []string{"<s>"}, EOS: "</s>"}},
	} {
		_, err := Train(t.Context(), slices.Values([]string{"text"}), c.o)
		var in *specstream.InputError
		if !errors.As(err, &in) || in.Field != c.field {
			t.Errorf("%+v: error %v, want one about %s", c.o, err, c.field)
		}
	}
}

func TestTrainStopsWhenCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	endless := func(yield func(string) bool) {
		for i := 0; yield("some text"); i++ {
			if i == 100 {
				cancel()
			}
		}
	}
	if _, err := Train(ctx, endless, TrainOptions{VocabSize: 300}); !errors.Is(err, context.Canceled) {
		t.Errorf("while reading: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	o := TrainOptions{VocabSize: 2000, Progress: func(done, _ int) {
		if done > 300 {
			cancel()
		}
	}}
	if _, err := Train(ctx, slices.Values(golden(t).Corpus), o); !errors.Is(err, context.Canceled) {
		t.Errorf("while merging: %v", err)
	}
}

func TestTrainReportsProgress(t *testing.T) {
	var seen []int
	tok := mustTrain(t, golden(t).Corpus, TrainOptions{VocabSize: 500, Progress: func(done, total int) {
		if total != 500 {
			t.Errorf("total is %d", total)
		}
		seen = append(seen, done)
	}})
	if len(seen) < 4 || !slices.IsSorted(seen) || seen[len(seen)-1] != tok.VocabSize() {
		t.Errorf("progress was %v, the vocabulary has %d", seen, tok.VocabSize())
	}
}

func TestSaveAndLoad(t *testing.T) {
	tok := mustTrain(t, golden(t).Corpus, TrainOptions{
		VocabSize: 500, SpecialTokens: []string{"<|endoftext|>", "<|bos|>", "<|user|>"}, BOS: "<|bos|>", EOS: "<|user|>",
	})
	dir := t.TempDir()
	if err := tok.SaveDir(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Load(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest() != tok.Digest() || got.bos != tok.bos || got.eos != tok.eos || got.Token(got.bos) != "<|bos|>" || got.Token(got.eos) != "<|user|>" {
		t.Errorf("loaded digest %s, BOS %d, EOS %d; saved %s, %d, %d", got.Digest(), got.bos, got.eos, tok.Digest(), tok.bos, tok.eos)
	}
	for _, s := range golden(t).Texts {
		if a, b := tok.EncodeSpecial(nil, s), got.EncodeSpecial(nil, s); !slices.Equal(a, b) {
			t.Errorf("%q: %v before, %v after", s, a, b)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if err := tok.Save(filepath.Join(dir, "no", "such", "folder")); err == nil {
		t.Error("saving into a folder that is not there succeeded")
	}
}

// TestHuggingFaceLoadsTrained has Hugging Face's own library load a trained
// tokenizer and encode with it.
func TestHuggingFaceLoadsTrained(t *testing.T) {
	python := os.Getenv("SPECSTREAM_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import tokenizers").Run(); err != nil {
		t.Skipf("needs Python with the tokenizers package (set SPECSTREAM_PYTHON): %v", err)
	}
	texts := golden(t).Texts
	for _, split := range []Split{SplitGPT2, SplitLlama3, SplitQwen} {
		tok := mustTrain(t, golden(t).Corpus, TrainOptions{VocabSize: 600, SpecialTokens: []string{"<|endoftext|>", "<s>"}, Split: split})
		path := filepath.Join(t.TempDir(), "tokenizer.json")
		if err := tok.Save(path); err != nil {
			t.Fatal(err)
		}
		in, err := json.Marshal(texts)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(python, "-c", `import json, sys, tokenizers
t = tokenizers.Tokenizer.from_file(sys.argv[1])
print(json.dumps([t.encode(s, add_special_tokens=False).ids for s in json.load(sys.stdin)]))`, path)
		cmd.Stdin = strings.NewReader(string(in))
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var want [][]int32
		if err := json.Unmarshal(out, &want); err != nil {
			t.Fatal(err)
		}
		for i, s := range texts {
			if got := tok.EncodeSpecial(nil, s); !slices.Equal(got, want[i]) {
				t.Errorf("%s: %q: %q here, %q there", split, s, tok.names(got), tok.names(want[i]))
			}
		}
	}
}

func BenchmarkTrain(b *testing.B) {
	raw, err := os.ReadFile(testdata.Shared(b, "sql/wikisql_train_4k.json"))
	if err != nil {
		b.Fatal(err)
	}
	var records []struct{ Question, Context, Answer string }
	if err := json.Unmarshal(raw, &records); err != nil {
		b.Fatal(err)
	}
	var texts []string
	n := 0
	for _, r := range records {
		texts = append(texts, r.Context+"\n"+r.Question+"\n"+r.Answer)
		n += len(texts[len(texts)-1])
	}
	b.SetBytes(int64(n))
	for b.Loop() {
		if _, err := Train(b.Context(), slices.Values(texts), TrainOptions{VocabSize: 4096}); err != nil {
			b.Fatal(err)
		}
	}
}
