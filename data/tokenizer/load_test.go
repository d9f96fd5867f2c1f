package tokenizer

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/specstream/specstream"
)

// good is a minimal file that loads; the refusals below each break one thing.
const good = `{"version":"1.0","truncation":null,"padding":null,
"added_tokens":[{"id":0,"content":"<unk>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
"normalizer":null,
"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true},
"post_processor":null,
"decoder":{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true},
"model":{"type":"BPE","dropout":null,"unk_token":"<unk>","continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,
"vocab":{"<unk>":0,"▁":1,"a":2,"b":3,"ab":4},"merges":["a b"]}}`

func TestParseGood(t *testing.T) {
	tok, err := Parse("good.json", strings.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.names(tok.Encode(nil, "ab z")); strings.Join(got, " ") != "▁ ab ▁ <unk>" {
		t.Errorf("got %q", got)
	}
	if tok.Digest() != specstream.DigestBytes([]byte(good)) {
		t.Error("the digest is not that of the bytes")
	}
	if id, ok := tok.ID("ab"); !ok || id != 4 || tok.Token(4) != "ab" || tok.Token(5) != "" || tok.Token(-1) != "" {
		t.Error("Token and ID disagree")
	}
	if _, ok := tok.ID("ba"); ok {
		t.Error("ID knows a token that is not there")
	}
	if _, ok := tok.BOS(); ok {
		t.Error("BOS out of nowhere")
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		name, old, new string // one replacement in good
		field, reason  string // what the error must name
	}{
		{"cut short", good[200:], "", "", "invalid JSON"},
		{"no object", good, `[1]`, "", "want object"},
		{"null", good, `null`, "", "got null"},
		{"invalid UTF-8", "<unk>", "\xff", "", "UTF-8"},
		{"half a surrogate pair", `"ab":4`, `"\ud83d":4`, "", "surrogate"},
		{"low surrogate", `"ab":4`, `"\\\udc00":4`, "", "surrogate"},
		{"version", `"version":"1.0"`, `"version":"2.0"`, "version", "2.0"},
		{"no model", `"model"`, `"modell"`, "model", "missing"},
		{"model type", `"type":"BPE"`, `"type":"WordPiece"`, "model.type", "WordPiece"},
		{"model setting", `"fuse_unk":false`, `"fuse_unks":false`, "model.fuse_unks", "not supported"},
		{"dropout", `"dropout":null`, `"dropout":0.1`, "model.dropout", "dropout"},
		{"prefix", `"continuing_subword_prefix":null`, `"continuing_subword_prefix":"##"`, "model.continuing_subword_prefix", "##"},
		{"suffix", `"end_of_word_suffix":null`, `"end_of_word_suffix":"</w>"`, "model.end_of_word_suffix", "</w>"},
		{"wrong type", `"fuse_unk":false`, `"fuse_unk":"no"`, "model.fuse_unk", "want bool"},
		{"unk token", `"unk_token":"<unk>"`, `"unk_token":"<x>"`, "model.unk_token", "<x>"},
		{"characters would vanish", `"unk_token":"<unk>"`, `"unk_token":null`, "model.unk_token", "vanish"},
		{"bytes would vanish", `"unk_token":"<unk>","continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false`, `"byte_fallback":true`, "model.vocab", "0x00"},
		{"no vocabulary", `"vocab":{"<unk>":0,"▁":1,"a":2,"b":3,"ab":4}`, `"vocab":{}`, "model.vocab", "empty"},
		{"negative id", `"ab":4`, `"ab":-4`, "model.vocab", "-4"},
		{"huge id", `"ab":4`, `"ab":1999999999`, "model.vocab", "highest id"},
		{"too large id", `"ab":4`, `"ab":19999999999`, "model.vocab", "number 19999999999"},
		{"id twice", `"ab":4`, `"ab":3`, "model.vocab", "both have id 3"},
		{"no merges", `"merges":["a b"]`, `"merges":null`, "model.merges", "missing"},
		{"merge of unknown tokens", `["a b"]`, `["a b","b a"]`, "model.merges", `"ba"`},
		{"merge of one part", `["a b"]`, `["ab"]`, "model.merges", "no pair"},
		{"merge with an empty part", `["a b"]`, `["a "]`, "model.merges", "empty part"},
		{"merge of three parts", `["a b"]`, `[["a","b","b"]]`, "model.merges", "3 parts"},
		{"merge of numbers", `["a b"]`, `[1]`, "model.merges", "want"},
		{"normalizer", `"normalizer":null`, `"normalizer":{"type":"BertNormalizer"}`, "normalizer.type", "BertNormalizer"},
		{"normalizer in a sequence", `"normalizer":null`, `"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"ByteLevel"}]}`, "normalizer.normalizers[1].type", "ByteLevel"},
		{"replacing a regular expression", `"normalizer":null`, `"normalizer":{"type":"Replace","pattern":{"Regex":"(?<= )a"},"content":"_"}`, "normalizer.pattern", "regular expression"},
		{"replacing nothing", `"normalizer":null`, `"normalizer":{"type":"Replace","pattern":{"String":""},"content":"_"}`, "normalizer.pattern", "non-empty"},
		{"replacing by nothing said", `"normalizer":null`, `"normalizer":{"type":"Replace","pattern":{"String":"a"}}`, "normalizer.content", "missing"},
		{"normalizer without type", `"normalizer":null`, `"normalizer":{}`, "normalizer.type", "missing"},
		{"deep sequence", `"normalizer":null`, `"normalizer":` + strings.Repeat(`{"type":"Sequence","normalizers":[`, 9) + strings.Repeat(`]}`, 9), "normalizer" + strings.Repeat(".normalizers[0]", maxNesting+1) + ".normalizers", "deep"},
		{"pre-tokenizer", `{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true},` + "\n" + `"post`, `{"type":"BertPreTokenizer"},` + "\n" + `"post`, "pre_tokenizer.type", "BertPreTokenizer"},
		{"regular expression", `{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true},` + "\n" + `"post`, `{"type":"Split","pattern":{"Regex":"(\\d)+"},"behavior":"Isolated","invert":false},` + "\n" + `"post`, "pre_tokenizer.pattern", "repeated group"},
		{"behavior", `{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true},` + "\n" + `"post`, `{"type":"Split","pattern":{"Regex":"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},"behavior":"Sideways","invert":false},` + "\n" + `"post`, "pre_tokenizer.behavior", "Sideways"},
		{"split at nothing", `{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true},` + "\n" + `"post`, `{"type":"Split","pattern":{"String":""},"behavior":"Isolated","invert":false},` + "\n" + `"post`, "pre_tokenizer.pattern", "non-empty"},
		{"after ByteLevel", `{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true},` + "\n" + `"post`, `{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"ByteLevel"}]},` + "\n" + `"post`, "pre_tokenizer.pretokenizers[1]", "after ByteLevel"},
		{"setting of Metaspace", `"split":true},` + "\n" + `"post`, `"split":true,"more":1},` + "\n" + `"post`, "pre_tokenizer.more", "not supported"},
		{"scheme", `"always","split":true},` + "\n" + `"post`, `"sometimes","split":true},` + "\n" + `"post`, "pre_tokenizer.prepend_scheme", "sometimes"},
		{"contradiction", `"always","split":true},` + "\n" + `"post`, `"always","add_prefix_space":false},` + "\n" + `"post`, "pre_tokenizer.add_prefix_space", "contradicts"},
		{"replacement", `"▁","prepend_scheme":"always","split":true},` + "\n" + `"post`, `"▁▁"},` + "\n" + `"post`, "pre_tokenizer.replacement", "one character"},
		{"decoder", `"decoder":{"type":"Metaspace"`, `"decoder":{"type":"WordPiece"`, "decoder.type", "WordPiece"},
		{"strip", `"decoder":{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true}`, `"decoder":{"type":"Strip","content":"ab","start":1,"stop":0}`, "decoder.content", "one character"},
		{"added token without id", `"id":0,`, ``, "added_tokens[0].id", "missing"},
		{"added token without content", `"content":"<unk>",`, ``, "added_tokens[0].content", "missing"},
		{"added token with another id", `"id":0,`, `"id":1,`, "added_tokens[0].id", "as 0"},
		{"added token after a gap", `"id":0,"content":"<unk>"`, `"id":9,"content":"<x>"`, "added_tokens[0].id", "as 5"},
		{"added token that has another's id", `"ab":4`, `"ab":5`, "", ""}, // fine by itself
		{"added token twice", `"added_tokens":[`, `"added_tokens":[{"id":0,"content":"<unk>"},`, "added_tokens[1].content", "twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(good, c.old) {
				t.Fatalf("%q is not in the file", c.old)
			}
			_, err := Parse("f.json", strings.NewReader(strings.Replace(good, c.old, c.new, 1)))
			if c.reason == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var in *specstream.InputError
			if !errors.As(err, &in) {
				t.Fatalf("error %v, want an InputError", err)
			}
			if in.File != "f.json" || in.Field != c.field || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("got %q of field %q, want %q of field %q", err, in.Field, c.reason, c.field)
			}
		})
	}
}

// TestAddedTokenCollision: Hugging Face numbers added tokens from the size of
// the vocabulary on, which a vocabulary with gaps already uses.
func TestAddedTokenCollision(t *testing.T) {
	f := strings.NewReplacer(`"ab":4`, `"ab":5`, `"added_tokens":[`, `"added_tokens":[{"id":5,"content":"<x>","special":true},`).Replace(good)
	_, err := Parse("f.json", strings.NewReader(f))
	if err == nil || !strings.Contains(err.Error(), `has the id 5 of "ab"`) {
		t.Errorf("error %v", err)
	}
}

// TestMergesWithSpaces: lines whose tokens contain spaces are cut where that is
// possible in one way only.
func TestMergesWithSpaces(t *testing.T) {
	vocab := `{"<unk>":0,"▁":1,"a":2,"b":3,"ab":4," ":5,"  ":6,"    ":7,"a ":8}`
	build := func(merges string) (*Tokenizer, error) {
		return Parse("f.json", strings.NewReader(strings.NewReplacer(`{"<unk>":0,"▁":1,"a":2,"b":3,"ab":4}`, vocab, `["a b"]`, merges).Replace(good)))
	}
	if _, err := build(`["   ","     ","a  "]`); err != nil {
		t.Error(err)
	}
	if _, err := build(`["a   b"]`); err == nil {
		t.Error("a line that is no pair was accepted")
	}
}

func TestLoadFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tokenizer.json")
	missing := filepath.Join(dir, "none.json")
	if _, err := Load(missing); !specstream.BadInput(err) {
		t.Errorf("missing file: %v", err)
	}
	write := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := strings.Replace(good, `"ab":4`, `"ab":4,"<s>":5,"</s>":6`, 1)
	write("tokenizer.json", []byte(file))
	check := func(name, bos, eos string) {
		t.Helper()
		tok, err := Load(path)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b, ok1 := tok.BOS()
		e, ok2 := tok.EOS()
		if tok.Token(b) != bos || tok.Token(e) != eos || ok1 != (bos != "") || ok2 != (eos != "") {
			t.Errorf("%s: BOS %q, EOS %q; want %q and %q", name, tok.Token(b), tok.Token(e), bos, eos)
		}
	}
	check("conventional", "<s>", "</s>")
	write(configName, []byte(`{"bos_token":"a","eos_token":{"content":"b","lstrip":false}}`))
	check("config", "a", "b")
	write(configName, []byte(`{"bos_token":null,"model_max_length":1e30}`))
	check("null and unmentioned", "", "</s>")
	for config, field := range map[string]string{
		`{"bos_token":"<x>"}`:        "bos_token",
		`{"eos_token":3}`:            "eos_token",
		`{"eos_token":{"text":"a"}}`: "eos_token",
		`{`:                          "",
	} {
		write(configName, []byte(config))
		_, err := Load(path)
		var in *specstream.InputError
		if !errors.As(err, &in) || in.Field != field || filepath.Base(in.File) != configName {
			t.Errorf("config %s: error %v", config, err)
		}
	}
	write(configName, []byte(`{}`))

	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write([]byte(file)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	write("tokenizer.json.gz", z.Bytes())
	plain, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := Load(path + ".gz")
	if err != nil {
		t.Fatal(err)
	}
	if plain.Digest() != packed.Digest() {
		t.Error("compression changes the digest")
	}
	write("cut.json.gz", z.Bytes()[:z.Len()/2])
	if _, err := Load(filepath.Join(dir, "cut.json.gz")); !specstream.BadInput(err) {
		t.Errorf("cut gzip file: %v", err)
	}
}

// FuzzParse: no input panics, and what parses encodes and decodes.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	for _, c := range golden(f).Cases {
		f.Add([]byte(c.Tokenizer))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		tok, err := Parse("fuzz", bytes.NewReader(b))
		if err != nil {
			if !specstream.BadInput(err) {
				t.Fatalf("not an InputError: %v", err)
			}
			return
		}
		for _, s := range []string{"", "a", " the  quick\n<s>brown</s> 123 été \U0001f600", strings.Repeat("ab ", 60), "\xff"} {
			for _, ids := range [][]int32{tok.Encode(nil, s), tok.EncodeSpecial(nil, s)} {
				for _, id := range ids {
					if id < 0 || int(id) >= tok.VocabSize() {
						t.Fatalf("id %d of %d", id, tok.VocabSize())
					}
				}
				tok.Decode(ids)
			}
		}
		tok.Decode([]int32{-1, 0, 1, 2, int32(tok.VocabSize())})
	})
}
