package tokenizer

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// markedByDefinition is what EncodeMarked must return for its marks: the ids
// that the encoding of the first texts alone shares with the whole.
func markedByDefinition(t *Tokenizer, texts []string, literal []bool, whole []int32) []int {
	marks := make([]int, len(texts))
	for i := range texts {
		alone, _ := t.EncodeMarked(nil, texts[:i+1], literal[:i+1])
		for marks[i] < len(alone) && marks[i] < len(whole) && alone[marks[i]] == whole[marks[i]] {
			marks[i]++
		}
	}
	return marks
}

// anyTokenizers are all tokenizers of the golden files.
func anyTokenizers(t testing.TB) map[string]*Tokenizer {
	t.Helper()
	toks, err := loadAny()
	if err != nil {
		t.Fatal(err)
	}
	return toks
}

var loadAny = sync.OnceValues(func() (map[string]*Tokenizer, error) {
	out := make(map[string]*Tokenizer)
	g, err := loadGolden()
	if err != nil {
		return nil, err
	}
	for _, c := range g.Cases {
		if out[c.Name], err = Parse(c.Name, bytes.NewReader(c.Tokenizer)); err != nil {
			return nil, err
		}
	}
	spm, err := loadGoldenSPM()
	if err != nil {
		return nil, err
	}
	for _, c := range spm.Cases {
		if out["spm "+c.Name], err = Parse(c.Name, bytes.NewReader(c.Model)); err != nil {
			return nil, err
		}
	}
	return out, nil
})

func TestEncodeMarked(t *testing.T) {
	words := []string{"", " ", "\n", "  ", "the", " quick", "fox", "e\u0301", "\u0301", "tude", "<s>", "</s>", "<|endoftext|>", "<|end|>", "<mask>", "<tool_call>",
		"word", "\u4e16", "123", "<", "s>", "|end|>", "    ", "\t\t", "\u2581", "\U0001f600", "'s", "<user>", "ab"}
	for name, tok := range anyTokenizers(t) {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, 11))
			pick := func() string {
				var b strings.Builder
				for range rng.IntN(5) {
					b.WriteString(words[rng.IntN(len(words))])
				}
				return b.String()
			}
			special := 0
			for round := range 400 {
				n := 1 + rng.IntN(5)
				texts, literal := make([]string, n), make([]bool, n)
				for i := range texts {
					texts[i] = pick()
					literal[i] = round%4 == 0 || round%4 != 1 && rng.IntN(2) == 0
				}
				whole := strings.Join(texts, "")
				ids, marks := tok.EncodeMarked([]int32{5, 6}, texts, literal)
				if !slices.Equal(ids[:2], []int32{5, 6}) {
					t.Fatal("dst is not kept")
				}
				ids = ids[2:]
				if want := markedByDefinition(tok, texts, literal, ids); !slices.Equal(marks, want) {
					t.Fatalf("%q literal %v: marks %v, want %v; ids %q", texts, literal, marks, want, tok.names(ids))
				}
				switch round % 4 {
				case 0:
					if want := tok.Encode(nil, whole); !slices.Equal(ids, want) {
						t.Fatalf("all literal %q: %q, want %q", texts, tok.names(ids), tok.names(want))
					}
				case 1:
					if want := tok.EncodeSpecial(nil, whole); !slices.Equal(ids, want) {
						t.Fatalf("nothing literal %q: %q, want %q", texts, tok.names(ids), tok.names(want))
					}
				}
				for _, id := range ids {
					if tok.IsSpecial(id) {
						special++
					}
				}
			}
			if special == 0 {
				t.Error("no special token was ever recognised")
			}
		})
	}
}

// TestMarkedInjection: special tokens that users spell stay text, those of the
// template beside them do not, even where both together would spell another.
func TestMarkedInjection(t *testing.T) {
	tok := tiny(t, false, []string{"<|a|>", "<|a|>b", "EOS"}, "E O", "EO S")
	id := func(s string) int32 { i, _ := tok.ID(s); return i }
	for _, c := range []struct {
		name    string
		texts   []string
		literal []bool
		want    []int32 // special ids, in order
	}{
		{"template", []string{"<|a|>", "hi", "EOS"}, []bool{false, true, false}, []int32{id("<|a|>"), id("EOS")}},
		{"user", []string{"<|a|>", "EOS<|a|>", "EOS"}, []bool{false, true, false}, []int32{id("<|a|>"), id("EOS")}},
		{"user completes", []string{"<|a|", ">", "EOS"}, []bool{false, true, false}, []int32{id("EOS")}},
		{"user begins", []string{"x", "<|a", "|>", "EOS"}, []bool{false, true, false, false}, []int32{id("EOS")}},
		{"user lengthens", []string{"<|a|>", "b"}, []bool{false, true}, []int32{id("<|a|>")}},
		{"template lengthens", []string{"<|a|>", "b"}, []bool{false, false}, []int32{id("<|a|>b")}},
		{"merges", []string{"<|a|>", "E", "OS"}, []bool{false, true, false}, []int32{id("<|a|>")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ids, _ := tok.EncodeMarked(nil, c.texts, c.literal)
			var got []int32
			for _, id := range ids {
				if tok.IsSpecial(id) {
					got = append(got, id)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("special tokens %q, want %q", tok.names(got), tok.names(c.want))
			}
		})
	}
}

func TestStream(t *testing.T) {
	for name, tok := range anyTokenizers(t) {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(5, 9))
			s := tok.NewStream()
			for _, text := range golden(t).Texts {
				ids := tok.EncodeSpecial(nil, text)
				if rng.IntN(3) == 0 { // sequences that no text gives
					for i := range ids {
						ids[i] = rng.Int32N(int32(tok.VocabSize()) + 1)
					}
				}
				cut := rng.IntN(len(ids) + 1)
				for _, part := range [][]int32{ids, ids[:cut]} {
					want := tok.Decode(part)
					var b strings.Builder
					for _, id := range part {
						b.WriteString(s.Next(id))
						if !strings.HasPrefix(want, b.String()) {
							t.Fatalf("%q: %q is no prefix of %q", tok.names(part), b.String(), want)
						}
					}
					b.WriteString(s.Flush())
					if b.String() != want {
						t.Fatalf("%q: streamed %q, want %q", tok.names(part), b.String(), want)
					}
				}
			}
		})
	}
}

// TestStreamIsPrompt: text comes out with the token that completes it.
func TestStreamIsPrompt(t *testing.T) {
	for name, tok := range anyTokenizers(t) {
		switch name {
		case "gpt2", "llama3", "phi3", "metaspace-always", "spm bpe-bytes":
		default:
			continue
		}
		ids := tok.Encode(nil, "the fox")
		s := tok.NewStream()
		n := 0
		for _, id := range ids {
			n += len(s.Next(id))
		}
		if n != len("the fox") {
			t.Errorf("%s: %d bytes before Flush", name, n)
		}
	}
}
