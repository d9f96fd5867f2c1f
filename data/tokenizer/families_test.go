package tokenizer

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/specstream/specstream"
)

// rankLines is a file of ranks: every byte, then the tokens given.
func rankLines(tokens ...string) string {
	var b strings.Builder
	n := 0
	add := func(s string) {
		fmt.Fprintf(&b, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(s)), n)
		n++
	}
	for c := range 256 {
		add(string([]byte{byte(c)}))
	}
	for _, s := range tokens {
		add(s)
	}
	return b.String()
}

// testFolder writes files into a new folder.
func testFolder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const qwenConfig = `{"tokenizer_class":"Qwen2Tokenizer","bos_token":null,"eos_token":"<|im_end|>","added_tokens_decoder":{
"260":{"content":"<|im_end|>","lstrip":false,"normalized":false,"rstrip":false,"single_word":false,"special":true},
"261":{"content":"<tool>","lstrip":false,"normalized":false,"rstrip":false,"single_word":false,"special":false}}}`

func TestRanks(t *testing.T) {
	dir := testFolder(t, map[string]string{"x.tiktoken": rankLines("th", "the", " the", "aa"), configName: qwenConfig})
	tok, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.names(tok.EncodeSpecial(nil, "the the<|im_end|>aaa<tool>")); !slices.Equal(got, []string{"the", "\u0120the", "<|im_end|>", "aa", "a", "<tool>"}) {
		t.Errorf("got %q", got)
	}
	if eos, ok := tok.EOS(); !ok || eos != 260 {
		t.Errorf("EOS %d %v", eos, ok)
	}
	if _, ok := tok.BOS(); ok {
		t.Error("there is a BOS")
	}
	if got := tok.Decode(tok.Encode(nil, "the <|im_end|> é")); got != "the <|im_end|> é" {
		t.Errorf("decoded %q", got)
	}
}

func TestVocabAndMerges(t *testing.T) {
	vocab := map[string]int32{}
	for i, r := range byteRunes {
		vocab[string(r)] = int32(i)
	}
	vocab["th"], vocab["the"], vocab["<|endoftext|>"] = 256, 257, 258
	b, err := json.Marshal(vocab)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"vocab.json": string(b), "merges.txt": "#version: 0.2\nt h\nth e\n", configName: `{"tokenizer_class":"CodeGenTokenizer","add_prefix_space":true}`,
		"added_tokens.json": `{"  ":259,"<|x|>":260}`,
	}
	dir := testFolder(t, files)
	tok, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.names(tok.EncodeSpecial(nil, "the  <|x|>the")); !slices.Equal(got, []string{"\u0120", "the", "  ", "<|x|>", "\u0120", "the"}) {
		t.Errorf("got %q", got)
	}
	if got := tok.names(tok.Encode(nil, "<|x|>")); slices.Contains(got, "<|x|>") {
		t.Errorf("Encode gives %q", got)
	}
	for name, change := range map[string]struct{ file, text, reason string }{
		"no merges":          {"merges.txt", "", "without merges"},
		"merge unknown":      {"merges.txt", "t h\nth x\n", `"thx"`},
		"merge of one":       {"merges.txt", "th\n", "no pair"},
		"vocabulary of text": {"vocab.json", `{"a":1,"b":"c"}`, "ids by token"},
		"negative id":        {"vocab.json", `{"a":-1}`, "id -1"},
		"class unknown":      {configName, `{"tokenizer_class":"OddTokenizer"}`, "OddTokenizer"},
		"class missing":      {configName, `{}`, "no family known"},
		"class no string":    {configName, `{"tokenizer_class":1}`, "tokenizer_class"},
		"added no ids":       {"added_tokens.json", `{"a":"b"}`, "ids by token"},
		"added taken":        {"added_tokens.json", `{"<|x|>":257}`, "has the id 257"},
		"added other id":     {"added_tokens.json", `{"th":300}`, "has id 256"},
		"added huge":         {"added_tokens.json", `{"<|x|>":2000000000}`, "highest id"},
	} {
		t.Run(name, func(t *testing.T) {
			all := map[string]string{}
			for k, v := range files {
				all[k] = v
			}
			all[change.file] = change.text
			dir := testFolder(t, all)
			if change.text == "" {
				if err := os.Remove(filepath.Join(dir, change.file)); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Load(dir)
			if !specstream.BadInput(err) || !strings.Contains(err.Error(), change.reason) {
				t.Errorf("error %v, want one about %q", err, change.reason)
			}
		})
	}
}

// TestRoBERTa: only the class tells RoBERTa's vocabulary from OPT's.
func TestRoBERTa(t *testing.T) {
	vocab := map[string]int32{"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 260}
	for i, r := range byteRunes {
		vocab[string(r)] = int32(4 + i)
	}
	b, err := json.Marshal(vocab)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := Load(testFolder(t, map[string]string{"vocab.json": string(b), "merges.txt": "\n", configName: `{"tokenizer_class":"RobertaTokenizerFast"}`}))
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.names(tok.EncodeSpecial(nil, "<s>a  <mask> b")); !slices.Equal(got, []string{"<s>", "a", "<mask>", "\u0120", "b"}) {
		t.Errorf("got %q", got)
	}
}

func TestRanksRefuse(t *testing.T) {
	for _, c := range []struct {
		name, text string
		record     int64
		reason     string
	}{
		{"unknown size", rankLines("ab"), 0, "no family known"},
		{"no rank", rankLines() + "YWI=\n", 257, "space"},
		{"no base64", rankLines() + "Y* 256\n", 257, "base64"},
		{"no number", rankLines() + "YWI= x\n", 257, "invalid syntax"},
		{"negative", rankLines() + "YWI= -1\n", 257, "rank -1"},
		{"huge", rankLines() + "YWI= 99999999999\n", 257, "out of range"},
		{"twice", rankLines("ab", "ab"), 258, "twice"},
		{"empty token", rankLines() + " 256\n", 257, "base64"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("x.tiktoken", strings.NewReader(c.text))
			var in *specstream.InputError
			if !errors.As(err, &in) || in.Record != c.record || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("error %v, want record %d and %q", err, c.record, c.reason)
			}
		})
	}
	// Two tokens of one rank, in a family known.
	dir := testFolder(t, map[string]string{"x.tiktoken": rankLines("ab") + "YWJj 256\n", configName: `{"tokenizer_class":"Qwen2Tokenizer"}`})
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "both have id 256") {
		t.Errorf("two tokens of one rank: %v", err)
	}
}

func TestFindTokenizer(t *testing.T) {
	for name, c := range map[string]struct {
		files  map[string]string
		reason string
	}{
		"nothing":      {map[string]string{"readme.md": "x"}, "has no tokenizer"},
		"two of ranks": {map[string]string{"a.tiktoken": "x", "b.tiktoken": "x"}, "has 2 tokenizers"},
		"vocab alone":  {map[string]string{"vocab.json": `{"a":1}`}, "without merges"},
	} {
		if _, err := Load(testFolder(t, c.files)); !specstream.BadInput(err) || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Load(testFolder(t, map[string]string{"tokenizer.json": good, "tokenizer.model": "x"})); err != nil {
		t.Errorf("tokenizer.json comes first: %v", err)
	}
	if _, err := Parse("vocab", strings.NewReader(`{"a":1}`)); !specstream.BadInput(err) {
		t.Errorf("a vocabulary alone: %v", err)
	}
}

// spmFile writes a SentencePiece model.
func spmFile(pieces []spmPiece, trainer, normalizer []byte) []byte {
	var b []byte
	for _, p := range pieces {
		var m []byte
		m = protowire.AppendTag(m, 1, protowire.BytesType)
		m = protowire.AppendString(m, p.text)
		m = protowire.AppendTag(m, 2, protowire.Fixed32Type)
		m = protowire.AppendFixed32(m, math.Float32bits(p.score))
		m = protowire.AppendTag(m, 3, protowire.VarintType)
		m = protowire.AppendVarint(m, uint64(p.kind))
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendBytes(b, m)
	}
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendBytes(b, trainer)
	b = protowire.AppendTag(b, 3, protowire.BytesType)
	return protowire.AppendBytes(b, normalizer)
}

func TestSPMRefuses(t *testing.T) {
	bpe := protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), spmBPE)
	word := protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), 3)
	chars := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), []byte{1, 2, 3})
	unk := spmPiece{"<unk>", 0, pieceUnknown}
	a := spmPiece{"a", -1, pieceNormal}
	fine := spmFile([]spmPiece{unk, a}, bpe, nil)
	if _, err := Parse("m.model", bytes.NewReader(fine)); err != nil {
		t.Fatal(err)
	}
	denormalizer := protowire.AppendBytes(protowire.AppendTag(slices.Clone(fine), 5, protowire.BytesType), chars)
	for _, c := range []struct {
		name   string
		file   []byte
		field  string
		reason string
	}{
		{"cut short", fine[:len(fine)-5], "", "EOF"},
		{"no pieces", spmFile(nil, bpe, nil)[0:0:0], "", "JSON"},
		{"pieces as numbers", []byte{0x0A, 0, 0x08, 1}, "", "no message"},
		{"no unknown piece", spmFile([]spmPiece{a}, bpe, nil), "pieces", "0 unknown"},
		{"two unknown pieces", spmFile([]spmPiece{unk, {"x", 0, pieceUnknown}}, bpe, nil), "pieces", "2 unknown"},
		{"words", spmFile([]spmPiece{unk, a}, word, nil), "trainer_spec.model_type", "type 3"},
		{"piece twice", spmFile([]spmPiece{unk, a, a}, bpe, nil), "pieces[2].piece", "twice"},
		{"empty piece", spmFile([]spmPiece{unk, {"", 0, pieceNormal}}, bpe, nil), "pieces[1].piece", "empty"},
		{"invalid piece", spmFile([]spmPiece{unk, {"\xff", 0, pieceNormal}}, bpe, nil), "pieces[1].piece", "valid"},
		{"no score", spmFile([]spmPiece{unk, {"b", float32(math.NaN()), pieceNormal}}, bpe, nil), "pieces[1].score", "NaN"},
		{"control character", spmFile([]spmPiece{unk, {"b", 0, pieceControl}}, bpe, nil), "pieces[1]", "one character"},
		{"byte without fallback", spmFile([]spmPiece{unk, {"<0x00>", 0, pieceByte}}, bpe, nil), "pieces[1]", "byte_fallback"},
		{"odd type", spmFile([]spmPiece{unk, {"b", 0, 9}}, bpe, nil), "pieces[1].type", "type 9"},
		{"charsmap", spmFile([]spmPiece{unk, a}, bpe, chars), "normalizer_spec.precompiled_charsmap", "header"},
		{"denormalizer", denormalizer, "denormalizer_spec", "denormalizer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("m.model", bytes.NewReader(c.file))
			var in *specstream.InputError
			if !errors.As(err, &in) || in.Field != c.field || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("error %v (field %q), want %q of field %q", err, in.Field, c.reason, c.field)
			}
		})
	}
}

// TestSaveAndLoadKinds: a folder that SaveDir wrote holds an equal tokenizer.
func TestSaveAndLoadKinds(t *testing.T) {
	spm := string(goldenSPM(t).Cases[0].Model)
	tok, err := Parse("m", strings.NewReader(spm))
	if err != nil {
		t.Fatal(err)
	}
	extra := fmt.Sprintf(`{"bos_token":"<s>","added_tokens_decoder":{"0":{"content":"<unk>","special":true},"%d":{"content":"<|new|>","special":true,"rstrip":true}}}`, tok.VocabSize())
	for name, dir := range map[string]string{
		"json":      testFolder(t, map[string]string{"tokenizer.json": good}),
		"model":     testFolder(t, map[string]string{"tokenizer.model": spm}),
		"model+":    testFolder(t, map[string]string{"tokenizer.model": spm, configName: extra}),
		"ranks":     testFolder(t, map[string]string{"x.tiktoken": rankLines("th", "the"), configName: strings.NewReplacer("260", "258", "261", "259").Replace(qwenConfig)}),
		"ranks+gap": testFolder(t, map[string]string{"x.tiktoken": rankLines("th", "the"), configName: qwenConfig}),
	} {
		t.Run(name, func(t *testing.T) {
			a, err := Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			out := t.TempDir()
			if err := a.SaveDir(out); err != nil {
				t.Fatal(err)
			}
			b, err := Load(out)
			if err != nil {
				t.Fatal(err)
			}
			if a.Digest() != b.Digest() || a.VocabSize() != b.VocabSize() || !slices.Equal(a.tokens, b.tokens) || !slices.Equal(a.skip, b.skip) {
				t.Error("the tokenizers differ")
			}
			if x, y := a.eos, b.eos; x != y {
				t.Errorf("EOS %d became %d", x, y)
			}
			for _, text := range []string{"ab the <|new|>  x<|im_end|>", "<s>the</s>"} {
				if x, y := a.EncodeSpecial(nil, text), b.EncodeSpecial(nil, text); !slices.Equal(x, y) {
					t.Errorf("%q: %v became %v", text, x, y)
				}
			}
		})
	}
	// Tokens beside a model change what it is.
	plain, err := Load(testFolder(t, map[string]string{"tokenizer.model": spm}))
	if err != nil {
		t.Fatal(err)
	}
	more, err := Load(testFolder(t, map[string]string{"tokenizer.model": spm, configName: extra}))
	if err != nil {
		t.Fatal(err)
	}
	if plain.Digest() == more.Digest() {
		t.Error("added tokens do not show in the digest")
	}
	if got := more.names(more.EncodeSpecial(nil, "a<|new|> b")); !slices.Contains(got, "<|new|>") {
		t.Errorf("added token not recognised in %q", got)
	}
}
