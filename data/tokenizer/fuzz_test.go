package tokenizer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/specstream/specstream"
)

// tryTokenizer checks what holds for every tokenizer that loads.
func tryTokenizer(t *testing.T, tok *Tokenizer, err error) {
	t.Helper()
	if err != nil {
		if !specstream.BadInput(err) {
			t.Fatalf("not an InputError: %v", err)
		}
		return
	}
	for _, s := range []string{"", "a", " the  quick\n<s>brown</s> 123 été \U0001f600", strings.Repeat("ab ", 60), "\xff", "\u2581\u2581e\u0301"} {
		checkText(t, tok, s)
	}
	tok.Decode([]int32{-1, 0, 1, 2, int32(tok.VocabSize())})
}

// checkText checks what holds for every tokenizer and text.
func checkText(t *testing.T, tok *Tokenizer, s string) {
	t.Helper()
	plain, special := tok.Encode(nil, s), tok.EncodeSpecial(nil, s)
	for _, ids := range [][]int32{plain, special} {
		for _, id := range ids {
			if id < 0 || int(id) >= tok.VocabSize() || !tok.present[id] {
				t.Fatalf("%q: id %d of %d", s, id, tok.VocabSize())
			}
		}
		stream := tok.NewStream()
		var b strings.Builder
		for _, id := range ids {
			b.WriteString(stream.Next(id))
		}
		b.WriteString(stream.Flush())
		want := tok.Decode(ids)
		if b.String() != want {
			t.Fatalf("%q: streamed %q, decoded %q", s, b.String(), want)
		}
		if !utf8.ValidString(want) {
			t.Fatalf("%q decodes to invalid UTF-8 %q", s, want)
		}
	}
	valid := toValidUTF8(s)
	k := 0
	for i := range valid {
		if i <= len(valid)/2 {
			k = i
		}
	}
	texts := []string{valid[:k], valid[k:]}
	for _, c := range []struct {
		literal bool
		want    []int32
	}{{true, plain}, {false, special}} {
		ids, marks := tok.EncodeMarked(nil, texts, []bool{c.literal, c.literal})
		if !slices.Equal(ids, c.want) || marks[1] != len(ids) || marks[0] > len(ids) {
			t.Fatalf("%q literal %v: ids %v marks %v, want ids %v", texts, c.literal, ids, marks, c.want)
		}
	}
	tok.EncodeMarked(nil, texts, []bool{false, true})
}

// FuzzText: no text breaks any kind of tokenizer.
func FuzzText(f *testing.F) {
	for _, s := range golden(f).Texts {
		f.Add(s)
	}
	toks := anyTokenizers(f)
	f.Fuzz(func(t *testing.T, s string) {
		for _, tok := range toks {
			checkText(t, tok, s)
		}
	})
}

func FuzzSPM(f *testing.F) {
	for _, c := range goldenSPM(f).Cases {
		if len(c.Model) < 20000 {
			f.Add(c.Model)
		}
	}
	f.Add(spmFile([]spmPiece{{"<unk>", 0, pieceUnknown}, {"a", -1, pieceNormal}, {"\u2581a", -2, pieceUser}}, nil, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		l := &loader{name: "fuzz", t: &Tokenizer{uni: tables(), raw: b}}
		err := l.loadSPM(b, nil)
		tryTokenizer(t, l.t, err)
	})
}

func FuzzRanks(f *testing.F) {
	f.Add(rankLines("ab", "abc"))
	f.Add("YWI= 1\r\n\nYQ== 0")
	f.Fuzz(func(t *testing.T, s string) {
		c := &config{name: "config", class: "Qwen2Tokenizer"}
		b, _, err := ranksFile("fuzz", []byte(s), c)
		if err != nil {
			tryTokenizer(t, nil, err)
			return
		}
		tok, err := parse("fuzz", b, c, nil)
		tryTokenizer(t, tok, err)
	})
}

func FuzzVocabAndMerges(f *testing.F) {
	f.Add(`{"a":0,"b":1,"ab":2}`, "#version: 0.2\na b\n")
	f.Add(`{"a":0,"b":1,"a b":2," ":3}`, "a  b\n\n")
	f.Fuzz(func(t *testing.T, vocab, merges string) {
		c := &config{name: "config", class: "GPT2Tokenizer"}
		b, _, err := vocabFile("fuzz", []byte(vocab), mergesText{"merges", merges}, c)
		if err != nil {
			tryTokenizer(t, nil, err)
			return
		}
		tok, err := parse("fuzz", b, c, nil)
		tryTokenizer(t, tok, err)
	})
}

func FuzzConfig(f *testing.F) {
	f.Add(qwenConfig)
	f.Add(`{"bos_token":{"content":"<s>"},"eos_token":null,"add_prefix_space":true}`)
	f.Fuzz(func(t *testing.T, s string) {
		c := &config{name: "config", tokens: make(map[string]configToken)}
		if err := c.parse([]byte(s)); err != nil && !specstream.BadInput(err) {
			t.Fatalf("not an InputError: %v", err)
		}
	})
}

func FuzzCharsmap(f *testing.F) {
	f.Add([]byte{8, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 'x', 0}, "abc")
	for _, c := range goldenSPM(f).Cases {
		p, err := parseSPMProto(c.Model)
		if err != nil {
			f.Fatal(err)
		}
		if len(p.charsmap) > 0 && len(p.charsmap) < 100000 {
			f.Add(p.charsmap, "ab \ufb01e\u0301\U0001f600")
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, s string) {
		m, err := parseCharsmap(b)
		if err != nil {
			return
		}
		s = toValidUTF8(s)
		if out := m.normalize(tables(), s); !utf8.ValidString(out) {
			t.Fatalf("%q became %q", s, out)
		}
		n := spmNormalizer{chars: m, removeExtra: true, escape: true, dummyPrefix: true}
		if out := n.normalize(s); !utf8.ValidString(out) {
			t.Fatalf("%q became %q", s, out)
		}
	})
}

// FuzzRegex: what compiles finds matches in order, none of them empty.
func FuzzRegex(f *testing.F) {
	for _, expr := range []string{patternGPT2, patternLlama3, patternQwen, patternCL100K, patternO200K, `[a-c&&[^b]]+|x{2,3}(?:y|z)?(?!w)`, ` {2,}`, `\p{Han}+|\P{L}`} {
		f.Add(expr, "it's 12345 Straße  \r\n\u4f60 x")
	}
	f.Fuzz(func(t *testing.T, expr, s string) {
		r, err := compileRegex(tables(), expr)
		if err != nil || len(s) > 1000 {
			return
		}
		s = toValidUTF8(s)
		for i := 0; ; {
			start, end := r.find(s, i)
			if start < 0 {
				break
			}
			if start < i || end <= start || end > len(s) || !utf8.ValidString(s[start:end]) {
				t.Fatalf("%q on %q from %d: match at %d to %d", expr, s, i, start, end)
			}
			i = end
		}
		r.replaceAll(s, "-")
	})
}

// TestRegexLikeSplitters: the compiled expressions cut as the hand-written forms
// of them do.
func TestRegexLikeSplitters(t *testing.T) {
	u := tables()
	for expr, split := range splitters {
		r, err := compileRegex(u, expr)
		if err != nil {
			t.Fatal(err)
		}
		texts := fuzzTexts(1)
		for _, s := range append(texts, golden(t).Texts...) {
			for i := 0; i < len(s); {
				want := split(u, s, i)
				start, end := r.find(s, i)
				if start != i || end != want {
					t.Fatalf("%q at %d of %q: %d to %d, want the end %d", expr, i, s, start, end, want)
				}
				i = want
			}
		}
	}
}

func TestRegexRefuses(t *testing.T) {
	for expr, reason := range map[string]string{
		``: "empty string", `a*`: "empty string", `(a`: "missing )", `a)`: "unmatched )", `[a`: "missing ]", `[]`: "empty class", `a**`: "followed by",
		`a+?`: "followed by", `(?:ab)+`: "repeated group", `(?<=a)b`: "group", `\bfoo`: `\b`, `^a`: `"^"`, `a$`: `"$"`, `(?i:ss)`: `"ss"`, `(?i:é)`: "beyond ASCII",
		`[[:alpha:]]`: "POSIX", `\p{Nope}`: "property", `\pL`: "braces", `a{1,2}{3}`: "quantifier of a quantifier", `(?!a)+b`: "assertion", `\`: "backslash", `[b-a]`: "range",
		`[\s-a]`: "range", `\k<a>`: `\k`, `(?>a)b`: "group", `a(?i)b`: "in the middle", strings.Repeat("(", 40): "nested", strings.Repeat("a", 5000): "longer", `+`: `"+"`, `[a-[b]]`: "range",
	} {
		if _, err := compileRegex(tables(), expr); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: error %v, want one about %q", expr, err, reason)
		}
	}
}

// TestFolder checks every behavior on matches m and gaps g.
func TestFolder(t *testing.T) {
	for _, c := range []struct {
		behavior behavior
		in, want string
	}{
		{isolated, "gmmg", "g m m g"}, {removed, "gmmg", "g g"}, {contiguous, "gmmg", "g mm g"}, {contiguous, "mmg", "mm g"},
		{mergedWithPrevious, "gmmg", "gm m g"}, {mergedWithPrevious, "mmg", "m m g"}, {mergedWithNext, "gmmg", "g m mg"}, {mergedWithNext, "gmm", "g m m"},
	} {
		var got []string
		f := folder{behavior: c.behavior, yield: func(start, end int) { got = append(got, c.in[start:end]) }}
		for i := range c.in {
			f.segment(i, i+1, c.in[i] == 'm')
		}
		f.finish()
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%v of %s: %q, want %q", c.behavior, c.in, s, c.want)
		}
	}
}

func TestCharsmapRefuses(t *testing.T) {
	for name, b := range map[string][]byte{
		"empty": {}, "no trie": {0, 0, 0, 0, 'x'}, "size too large": {200, 0, 0, 0, 1, 2, 3, 4}, "size not whole": {3, 0, 0, 0, 1, 2, 3, 4},
		"invalid text": {4, 0, 0, 0, 0, 4, 0, 0, 0xff, 0},
		"no value":     brokenCharsmap(),
	} {
		if _, err := parseCharsmap(b); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// brokenCharsmap has a key, "a", whose value lies beyond the trie.
func brokenCharsmap() []byte {
	var units [256]uint32
	units['a'] = 1<<30 | 1<<8 | 'a'
	b := []byte{0, 4, 0, 0}
	for _, u := range units {
		b = binary.LittleEndian.AppendUint32(b, u)
	}
	return append(b, 'x', 0)
}

func TestGraphemes(t *testing.T) {
	u := tables()
	for _, c := range []struct{ in, want string }{
		{"abc", "a|b|c"}, {"\r\n\n", "\r\n|\n"}, {"e\u0301x", "e\u0301|x"}, {"\U0001f1eb\U0001f1f7\U0001f1e9\U0001f1ea\U0001f1eb", "\U0001f1eb\U0001f1f7|\U0001f1e9\U0001f1ea|\U0001f1eb"},
		{"\U0001f468\u200d\U0001f469a", "\U0001f468\u200d\U0001f469|a"}, {"a\u200d\U0001f469", "a\u200d|\U0001f469"}, {"\u1100\u1161\u11a8\u1100", "\u1100\u1161\u11a8|\u1100"},
		{"\uac00\u11a8\uac01", "\uac00\u11a8|\uac01"}, {"\u0915\u094d\u0937", "\u0915\u094d\u0937"}, {"\u0600a", "\u0600a"}, {"\n\u0301", "\n|\u0301"}, {"\u0915\u093e\u0937", "\u0915\u093e|\u0937"},
	} {
		var got []string
		for i := 0; i < len(c.in); {
			j := u.nextGrapheme(c.in, i)
			got = append(got, c.in[i:j])
			i = j
		}
		if s := strings.Join(got, "|"); s != c.want {
			t.Errorf("%+q: %+q, want %+q", c.in, s, c.want)
		}
	}
}

func TestContentOf(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     content
	}{
		{"tokenizer.json", "\n {\"version\": \"1.0\"}", contentJSON}, {"vocabulary", `{"a": 1}`, contentVocab}, {"ranks", "IQ== 0\nIg== 1\n", contentRanks},
		{"model", "\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02", contentSPM}, {"model with a long piece", "\n{\n\x05<unk>", contentSPM}, {"nothing", "", contentJSON},
		{"text", "hello world\n", contentJSON}, {"empty object", "{}", contentJSON},
	} {
		if got := contentOf([]byte(c.in)); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	if _, err := Parse("x", bytes.NewReader(nil)); !specstream.BadInput(err) {
		t.Errorf("an empty file: %v", err)
	}
	if _, err := Parse("x", strings.NewReader(fmt.Sprintf("%c%c", 0, 1))); !specstream.BadInput(err) {
		t.Errorf("binary rubbish: %v", err)
	}
}
