package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/specstream/specstream/internal/testdata"
)

// TestPlainTextMakesNoControlTokens: whatever a text spells, Encode gives no
// special token, and decoding gives the text back.
func TestPlainTextMakesNoControlTokens(t *testing.T) {
	for _, c := range golden(t).Cases {
		t.Run(c.Name, func(t *testing.T) {
			tok := goldenTokenizer(t, c.Name)
			unk := int32(-1)
			if id, ok := tok.ID("<unk>"); ok {
				unk = id // what unknown characters become, spelt or not
			}
			for _, text := range golden(t).Texts {
				for _, id := range tok.Encode(nil, text) {
					if tok.IsSpecial(id) && id != unk {
						t.Errorf("Encode(%q) has the special token %q", text, tok.Token(id))
					}
				}
			}
		})
	}
}

// tiny is a byte-level tokenizer.json with the merges given as "left right".
func tiny(t testing.TB, ignoreMerges bool, specials []string, merges ...string) *Tokenizer {
	t.Helper()
	vocab := make(map[string]int32)
	add := func(s string) {
		if _, ok := vocab[s]; !ok {
			vocab[s] = int32(len(vocab))
		}
	}
	for _, r := range byteRunes {
		add(string(r))
	}
	for _, s := range specials {
		add(s)
	}
	for _, m := range merges {
		add(strings.ReplaceAll(m, " ", ""))
	}
	b := byteLevelFile(t, patternQwen, false, ignoreMerges, vocab, merges)
	var f map[string]any
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatal(err)
	}
	added := []any{}
	for _, s := range specials {
		added = append(added, map[string]any{"id": vocab[s], "content": s, "special": true, "normalized": false})
	}
	f["added_tokens"] = added
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := Parse("tiny", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestControlTokenFromMerges: a special token that merges or ignore_merges
// could spell out of plain characters is still out of reach of Encode.
func TestControlTokenFromMerges(t *testing.T) {
	for _, c := range []struct {
		name         string
		ignoreMerges bool
		merges       []string
	}{
		{"merges", false, []string{"E O", "EO S"}},
		{"whole piece", true, []string{"t h"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := tiny(t, c.ignoreMerges, []string{"EOS"}, c.merges...)
			eos, _ := tok.ID("EOS")
			if got := tok.Encode(nil, "EOS"); slices.Contains(got, eos) || tok.Decode(got) != "EOS" {
				t.Errorf("Encode = %q", tok.names(got))
			}
			if got := tok.EncodeSpecial(nil, "EOS"); !slices.Equal(got, []int32{eos}) {
				t.Errorf("EncodeSpecial = %q", tok.names(got))
			}
		})
	}
}

func TestEncodeAppends(t *testing.T) {
	tok := goldenTokenizer(t, "gpt2")
	got := tok.Encode([]int32{7, 8}, "the dog")
	if want := append([]int32{7, 8}, tok.Encode(nil, "the dog")...); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestInvalidUTF8(t *testing.T) {
	tok := goldenTokenizer(t, "gpt2")
	for in, want := range map[string]string{
		"a\xffb":             "a\uFFFDb",
		"\xff\xfe":           "\uFFFD\uFFFD",
		"\xe4\xbd":           "\uFFFD", // a cut sequence is one subpart
		"\xe4\xbd\xe4":       "\uFFFD\uFFFD",
		"\xf0\x9f\x98x":      "\uFFFDx",
		"\xed\xa0\x80":       "\uFFFD\uFFFD\uFFFD", // a surrogate is none
		"\xc0\x80":           "\uFFFD\uFFFD",
		"\xf4\x90\x80\x80":   "\uFFFD\uFFFD\uFFFD\uFFFD",
		"\xe0\x9f\x80\xc3":   "\uFFFD\uFFFD\uFFFD\uFFFD",
		"ok \uFFFD \xf0\x90": "ok \uFFFD \uFFFD",
	} {
		if got := tok.Decode(tok.Encode(nil, in)); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// FuzzRoundTrip: byte-level tokenizers lose nothing, and encode a text piece by
// piece.
func FuzzRoundTrip(f *testing.F) {
	for _, s := range golden(f).Texts {
		f.Add(s)
	}
	toks := []*Tokenizer{goldenTokenizer(f, "gpt2"), goldenTokenizer(f, "llama3")}
	f.Fuzz(func(t *testing.T, s string) {
		for _, tok := range toks {
			ids := tok.Encode(nil, s)
			want := s
			if !utf8.ValidString(s) {
				want = string([]rune(toValidUTF8(s)))
			}
			if got := tok.Decode(ids); got != want {
				t.Fatalf("Decode(Encode(%q)) = %q", s, got)
			}
			var joined []int32
			for i, split := 0, tok.preTokenizers[0].split; i < len(want); {
				j := split(tok.uni, want, i)
				if j <= i || j > len(want) {
					t.Fatalf("piece of %q at %d ends at %d", want, i, j)
				}
				joined = tok.Encode(joined, want[i:j])
				i = j
			}
			if !slices.Equal(joined, ids) {
				t.Fatalf("pieces of %q give %v, the whole %v", s, tok.names(joined), tok.names(ids))
			}
		}
	})
}

// TestLongPieces: pieces of a megabyte are merged in O(n log n), and exactly as
// the scan for short pieces merges.
func TestLongPieces(t *testing.T) {
	n := 1 << 20
	if testing.Short() {
		n >>= 3
	}
	for _, c := range []struct{ name, tokenizer, text string }{
		{"one letter", "gpt2", strings.Repeat("a", n)},
		{"words without spaces", "llama3", strings.Repeat("thequickbrownfox", n/16)},
		{"spaces", "gpt2", strings.Repeat(" ", n)},
		{"newlines", "qwen", strings.Repeat(" \n", n/2)},
		{"marks in wrong order", "qwen", "e" + strings.Repeat("\u0301\u0316", n/4)},
		{"one word of SentencePiece", "phi3", strings.Repeat("a", n)},
		{"merges across spaces", "across", strings.Repeat("the a b ", n/8)},
		{"no letters known", "metaspace-first", strings.Repeat("\u4e16", n/3)},
		{"capitals", "o200k", strings.Repeat("A", n)},
		{"marks and newlines", "deepseek", strings.Repeat("!\n", n/2)},
		{"digits one by one", "starcoder", strings.Repeat("7", n)},
		{"spaces between nothing", "whitespace-metaspace", strings.Repeat(" a", n/2)},
		{"merged with the next", "split-merged_with_next", strings.Repeat("e", n)},
		{"a cluster", "precompiled", "e" + strings.Repeat("\u0301", n/2)},
		{"likeliest pieces", "unigram-bytes", strings.Repeat("the", n/3)},
		{"unknown run", "unigram", strings.Repeat("\u4e17", n/3)},
		{"SentencePiece BPE", "spm bpe-bytes", strings.Repeat("the", n/3)},
		{"SentencePiece parted", "spm bpe-unused", strings.Repeat("the ", n/16)},
		{"SentencePiece spaces", "spm unigram", strings.Repeat(" ", n) + "x"},
		{"no tokens but nearly", "spm unigram-user", strings.Repeat("<user", n/5)},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := anyTokenizers(t)[c.tokenizer]
			start := time.Now()
			ids := tok.Encode(nil, c.text)
			took := time.Since(start)
			if len(ids) == 0 {
				t.Fatal("no ids")
			}
			if took > 20*time.Second {
				t.Errorf("took %v", took)
			}
			t.Logf("%d ids in %v", len(ids), took)
		})
	}
}

func TestHeapMergesLikeScan(t *testing.T) {
	tok := goldenTokenizer(t, "llama3")
	m := tok.plain.model.(*bpe)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var b strings.Builder
		for range 2 + rng.IntN(shortWord-2) {
			b.WriteByte("theo arn1"[rng.IntN(9)])
		}
		e := m.get()
		short := m.mergeWord(e, nil, b.String())
		e.sym = m.symbols(e.sym[:0], b.String())
		long := m.mergeLong(e, nil)
		m.put(e)
		if !slices.Equal(short, long) {
			t.Fatalf("%q: scan %v, heap %v", b.String(), tok.names(short), tok.names(long))
		}
	}
}

// TestCacheTurnsOver: results stay the same when the piece cache is emptied.
func TestCacheTurnsOver(t *testing.T) {
	tok := goldenTokenizer(t, "qwen")
	for round := range 2 {
		for i := range cacheEntries + 10 {
			s := fmt.Sprintf("word%c%c%c%c", 'a'+i%26, 'a'+i/26%26, 'a'+i/676%26, 'a'+i/17576%26)
			if got := tok.Decode(tok.Encode(nil, s)); got != s {
				t.Fatalf("round %d: %q became %q", round, s, got)
			}
		}
	}
}

func TestConcurrentEncode(t *testing.T) {
	g := golden(t)
	for i, c := range g.Cases {
		tok := goldenTokenizer(t, c.Name)
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for k := range g.Texts {
					k = (k*7 + w*13) % len(g.Texts)
					if got := tok.Encode(nil, g.Texts[k]); !slices.Equal(got, g.Cases[i].Plain[k]) {
						t.Errorf("%s: Encode(%q) = %v", c.Name, g.Texts[k], got)
					}
					if got := tok.EncodeSpecial(nil, g.Texts[k]); !slices.Equal(got, g.Cases[i].Special[k]) {
						t.Errorf("%s: EncodeSpecial(%q) = %v", c.Name, g.Texts[k], got)
					}
				}
			})
		}
		wg.Wait()
	}
}

// benchmarkText is the dialogues of DialogSum's development set.
func benchmarkText(b *testing.B) []string {
	b.Helper()
	var texts []string
	raw, err := os.ReadFile(testdata.Shared(b, "dialogsum/dev.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var r struct{ Dialogue string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			b.Fatal(err)
		}
		texts = append(texts, r.Dialogue)
	}
	return texts
}

func BenchmarkEncode(b *testing.B) {
	texts := benchmarkText(b)
	n := 0
	for _, s := range texts {
		n += len(s)
	}
	for _, file := range []string{"gpt2", "llama2", "llama3", "qwen", "mistral/tokenizer.model.v3"} {
		b.Run(file, func(b *testing.B) {
			tok := loadShared(b, file)
			var ids []int32
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				for _, s := range texts {
					ids = tok.Encode(ids[:0], s)
				}
			}
		})
	}
}

func BenchmarkEncodeOneLongWord(b *testing.B) {
	tok := loadShared(b, "gpt2")
	rng := rand.New(rand.NewPCG(3, 4))
	s := make([]byte, 1<<20)
	for i := range s {
		s[i] = byte('a' + rng.IntN(26))
	}
	b.SetBytes(int64(len(s)))
	for b.Loop() {
		tok.Encode(nil, string(s))
	}
}

func BenchmarkDecode(b *testing.B) {
	texts := benchmarkText(b)
	for _, name := range []string{"gpt2", "llama2"} {
		b.Run(name, func(b *testing.B) {
			tok := loadShared(b, name)
			var ids []int32
			for _, s := range texts {
				ids = tok.Encode(ids, s)
			}
			b.SetBytes(int64(len(tok.Decode(ids))))
			for b.Loop() {
				tok.Decode(ids)
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, file := range []string{"gpt2/tokenizer.json.gz", "llama3/tokenizer.model.gz", "qwen/qwen.tiktoken.gz", "llama2/tokenizer.model"} {
		b.Run(file, func(b *testing.B) {
			path := testdata.Shared(b, "tokenizers/"+file)
			for b.Loop() {
				if _, err := Load(path); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
