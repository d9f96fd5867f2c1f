package tokenizer

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// This file makes the texts of testdata/texts.py: see there for what a text is.

const (
	textChunk   = 20000
	fuzzStrings = 100000
	fuzzChunk   = 5000
	fuzzChunks  = fuzzStrings / fuzzChunk
)

var textFolders = []string{"dialogsum", "e2e", "eval", "sharegpt", "sharegpt/messy", "sql"}

// textFiles lists the files of the shared data that hold texts.
func textFiles(t testing.TB, root string) []string {
	t.Helper()
	var out []string
	for _, folder := range textFolders {
		entries, err := os.ReadDir(filepath.Join(root, folder))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			switch filepath.Ext(strings.TrimSuffix(e.Name(), ".gz")) {
			case ".json", ".jsonl", ".csv":
				out = append(out, folder+"/"+e.Name())
			}
		}
	}
	slices.Sort(out)
	return out
}

// readTexts returns the texts of one file.
func readTexts(t testing.TB, root, name string) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(name, ".gz") {
		z, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if raw, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	if strings.HasSuffix(strings.TrimSuffix(name, ".gz"), ".csv") {
		return strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")
	}
	var out []string
	d := json.NewDecoder(bytes.NewReader(raw))
	var object []bool // open containers: is it an object
	key := false      // the next token is the name of a member, if it is a string
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		switch v := token.(type) {
		case json.Delim:
			if v == '{' || v == '[' {
				object = append(object, v == '{')
			} else {
				object = object[:len(object)-1]
			}
			key = len(object) > 0 && object[len(object)-1]
			continue
		case string:
			if key {
				key = false
				continue
			}
			out = append(out, v)
		}
		key = len(object) > 0 && object[len(object)-1]
	}
}

var (
	fuzzWords = []string{
		"the", "of", "and", "Hello", "world", "it's", "don't", "WE'LL", "I'm", "they've", "you'd", "'tis", "def", "return", "SELECT", "FROM", "where", "x1",
		"foo_bar", "camelCase", "HTTPServer", "na\u00efve", "caf\u00e9", "Stra\u00dfe", "\u041f\u0440\u0438\u0432\u0435\u0442", "\u043c\u0438\u0440",
		"\u03ba\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629", "\u0939\u093f\u0928\u094d\u0926\u0940",
		"\u0e44\u0e17\u0e22", "\ud55c\uad6d\uc5b4", "\u65e5\u672c\u8a9e", "\u3053\u3093\u306b\u3061\u306f", "12:30", "3.14", "1,000", "2024-01-31", "e.g.",
		"a@b.co", "http://x.y/z?q=1", "#tag", "<div>", "{\"k\":1}", "...", "---", "===", "!!!", "?!", "//", "/*", "\u2581", "\u2581\u2581", "\u0120",
		"<0x0A>", "\u2019s", "\u017f", "\u0131", "\u0130", "\u00df", "\ufb01", "\u00bd", "\u2167", "\u2122", "\u00a9", "\uff41\uff42\uff43",
	}
	fuzzSpecial = []string{
		"<s>", "</s>", "<unk>", "<pad>", "<mask>", "<|endoftext|>", "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>",
		"<|im_start|>", "<|im_end|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|padding|>", "<|prompter|>", "[INST]", "[/INST]",
		"[TOOL_CALLS]", "<|extra_0|>", "<|end", "<|im_", "[INST", "</s", "<s",
	}
	fuzzEmoji = []string{
		"\U0001f600", "\U0001f602", "\U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f1eb\U0001f1f7",
		"\U0001f3f3\ufe0f\u200d\U0001f308", "\u2764\ufe0f", "1\ufe0f\u20e3", "\u2600\ufe0f", "\U0001f9d1\U0001f3ff\u200d\U0001f680", "\U0001fae0", "\u231a",
		"\u00a9\ufe0f",
	}
	fuzzSpaces = []string{
		" ", "  ", "\u0009", "\u000a", "\u000d", "\u000d\u000a", "\u000a\u000a", "\u00a0", "\u2003", "\u3000", "\u200b", "\u2028", "\u0085", "\u180e",
	}
	fuzzRanges = [][2]rune{{0xAC00, 0xD7A3}, {0x3041, 0x30FF}, {0x600, 0x6FF}, {0x900, 0xDFF}, {0xE00, 0xEFF}, {0x400, 0x4FF}, {0x1E00, 0x1FFF}, {0x2000, 0x2BFF}, {0xF900, 0xFFFD}, {0x1F000, 0x1FAFF}}
)

// splitMix64 is the generator of that name.
type splitMix64 uint64

func (r *splitMix64) below(n int) int {
	*r += 0x9E3779B97F4A7C15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return int((z ^ z>>31) % uint64(n))
}

func (r *splitMix64) pick(items []string) string { return items[r.below(len(items))] }

// chars writes n characters of a range.
func (r *splitMix64) chars(b *strings.Builder, n int, lo, hi rune) {
	for range n {
		b.WriteRune(lo + rune(r.below(int(hi-lo)+1))) // surrogates become U+FFFD
	}
}

func (r *splitMix64) piece(b *strings.Builder) {
	switch kind := r.below(16); kind {
	case 0, 1, 2, 3:
		if r.below(2) == 1 {
			b.WriteByte(' ')
		}
		b.WriteString(r.pick(fuzzWords))
	case 4:
		b.WriteString(r.pick(fuzzWords))
		b.WriteString(r.pick(fuzzWords))
	case 5:
		r.chars(b, 1+r.below(8), 0x20, 0x7E)
	case 6:
		b.WriteString(r.pick(fuzzEmoji))
	case 7:
		r.chars(b, 1+r.below(6), 0x4E00, 0x9FFF)
	case 8:
		r.chars(b, 1, 0x61, 0x7A)
		r.chars(b, 1+r.below(4), 0x300, 0x36F)
	case 9:
		for range 1 + r.below(3) {
			if r.below(2) == 1 {
				r.chars(b, 1, 0, 0x1F)
			} else {
				r.chars(b, 1, 0x7F, 0x9F)
			}
		}
	case 10:
		for range 1 + r.below(4) {
			b.WriteString(r.pick(fuzzSpaces))
		}
	case 11:
		b.WriteString(r.pick(fuzzSpecial))
	case 12:
		r.chars(b, 1+r.below(3), 0, 0xFFFF)
	case 13:
		r.chars(b, 1, 0, 0x10FFFF)
	case 14:
		var s strings.Builder
		if r.below(3) > 0 {
			r.chars(&s, 1, 0x20, 0x7E)
		} else {
			s.WriteString(r.pick(slices.Concat(fuzzSpaces, fuzzEmoji)))
		}
		b.WriteString(strings.Repeat(s.String(), 10+r.below(200)))
	default:
		if r.below(2) == 1 {
			r.chars(b, 1+r.below(12), 0x30, 0x39)
			return
		}
		lo := fuzzRanges[r.below(len(fuzzRanges))]
		r.chars(b, 1+r.below(6), lo[0], lo[1])
	}
}

// fuzzTexts returns the strings of one chunk.
func fuzzTexts(chunk int) []string {
	r := splitMix64(chunk)
	out := make([]string, fuzzChunk)
	for i := range out {
		var b strings.Builder
		for range 1 + r.below(10) {
			r.piece(&b)
		}
		out[i] = b.String()
	}
	return out
}
