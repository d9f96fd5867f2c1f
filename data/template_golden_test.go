package data

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data/tokenizer"
	"github.com/specstream/specstream/internal/testdata"
)

var _ Tokenizer = (*tokenizer.Tokenizer)(nil)

// templateGolden is testdata/templates.golden.json, which make_templates.py
// writes with Hugging Face's transformers.
type templateGolden struct {
	Templates map[string]struct {
		Source, BOS, EOS, End string
		Tokens                []string
	}
	Vectors []struct {
		Family       string
		Conversation int
		Text         string
		IDs          []int32
		Spans        [][2]int
		Refused      bool
	}
	Digests       map[string][][3]string
	Refused       map[string]int
	Conversations [][][2]string
}

var readGolden = sync.OnceValues(func() (g templateGolden, err error) {
	b, err := os.ReadFile("testdata/templates.golden.json")
	if err == nil {
		err = json.Unmarshal(b, &g)
	}
	return g, err
})

// goldenTemplate is the template of a family of the golden file: native, or its
// Jinja source.
func goldenTemplate(t testing.TB, family string, native bool) Template {
	t.Helper()
	g, err := readGolden()
	require.NoError(t, err)
	name := family
	if native {
		if name == "mistral3" {
			name = "mistral"
		}
		return templateFor(t, "sharegpt", name)
	}
	dir := t.TempDir()
	v := g.Templates[family]
	config := map[string]any{"bos_token": v.BOS, "eos_token": v.EOS, "chat_template": v.Source}
	if v.BOS == "" {
		config["bos_token"] = nil
	}
	if v.Source == "" { // it stays in the shared data sets
		file := map[string]string{"phi3": "tokenizers/phi3/tokenizer_config.json", "chatml": "tokenizers/qwen/qwen2.5_tokenizer_config.json"}[family]
		b, err := os.ReadFile(testdata.Shared(t, file))
		require.NoError(t, err)
		var c struct {
			Template string `json:"chat_template"`
		}
		require.NoError(t, json.Unmarshal(b, &c))
		config["chat_template"] = c.Template
	}
	b, err := json.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), b, 0o600))
	f, err := FormatOf("sharegpt")
	require.NoError(t, err)
	tmpl, err := TemplateFor(specstream.DataSpec{Format: "sharegpt", Template: "model"}, f, dir)
	require.NoError(t, err)
	return tmpl
}

// native reports whether a family is rendered without Jinja.
func native(family string) bool { return family != "marked" }

// parseTokenizer makes a tokenizer of a definition, in a folder whose
// tokenizer_config.json names its begin and end tokens.
func parseTokenizer(t testing.TB, definition map[string]any, bos, eos string) *tokenizer.Tokenizer {
	t.Helper()
	dir := t.TempDir()
	b, err := json.Marshal(definition)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), b, 0o600))
	config := map[string]any{"bos_token": bos, "eos_token": eos}
	if bos == "" {
		config["bos_token"] = nil
	}
	b, err = json.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), b, 0o600))
	tok, err := tokenizer.Load(filepath.Join(dir, "tokenizer.json"))
	require.NoError(t, err)
	return tok
}

// withTokens adds special tokens behind the vocabulary.
func withTokens(definition map[string]any, contents ...string) map[string]any {
	added := definition["added_tokens"].([]any)
	top := -1.0
	for _, id := range definition["model"].(map[string]any)["vocab"].(map[string]any) {
		top = max(top, id.(float64))
	}
	for _, a := range added {
		top = max(top, a.(map[string]any)["id"].(float64))
	}
	for i, c := range contents {
		added = append(added, map[string]any{"id": top + float64(1+i), "content": c, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
	}
	definition["added_tokens"] = added
	return definition
}

func sharedBytes(t testing.TB, rel string) []byte {
	t.Helper()
	f, err := os.Open(testdata.Shared(t, rel))
	require.NoError(t, err)
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(rel, ".gz") {
		r, err = gzip.NewReader(f)
		require.NoError(t, err)
	}
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	return b
}

func sharedJSON(t testing.TB, rel string) (v map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(sharedBytes(t, rel), &v))
	return v
}

const llama3Split = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

func byteLevel(regex string, nfc, ignoreMerges bool, vocab map[string]any, merges []any) map[string]any {
	bl := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	d := map[string]any{
		"version": "1.0", "added_tokens": []any{},
		"pre_tokenizer": map[string]any{"type": "Sequence", "pretokenizers": []any{
			map[string]any{"type": "Split", "pattern": map[string]any{"Regex": regex}, "behavior": "Isolated", "invert": false}, bl,
		}},
		"decoder": bl,
		"model":   map[string]any{"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": ignoreMerges},
	}
	if nfc {
		d["normalizer"] = map[string]any{"type": "NFC"}
	}
	return d
}

// familyTokenizer is the tokenizer that make_templates.py uses for the digests
// of a family.
func familyTokenizer(t testing.TB, family string) map[string]any {
	t.Helper()
	switch family {
	case "phi3":
		return sharedJSON(t, "tokenizers/phi3/tokenizer.json.gz")
	case "llama3":
		var merges []any
		for line := range strings.Lines(string(sharedBytes(t, "tokenizers/llama3/vocab.bpe.gz"))) {
			merges = append(merges, strings.TrimRight(line, "\n"))
		}
		d := byteLevel(llama3Split, false, true, sharedJSON(t, "tokenizers/llama3/encoder.json.gz"), merges)
		return withTokens(d, "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
	case "chatml", "marked":
		return withTokens(qwen(t), "<|endoftext|>", "<|im_start|>", "<|im_end|>")
	}
	d := sharedJSON(t, "tokenizers/phi3/tokenizer.json.gz")
	var added []any
	for _, a := range d["added_tokens"].([]any)[:3] {
		a := a.(map[string]any)
		a["rstrip"], a["special"] = false, true
		added = append(added, a)
	}
	d["added_tokens"] = added
	if family == "mistral3" {
		d = withTokens(d, "[INST]", "[/INST]")
	}
	return d
}

// qwen builds Qwen's tokenizer from tiktoken ranks: the merge that makes a token
// joins the two parts that the lower-ranked merges leave of it.
func qwen(t testing.TB) map[string]any {
	var chars [256]string
	next := rune(256)
	for b := range chars {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			chars[b] = string(rune(b))
		} else {
			chars[b] = string(next)
			next++
		}
	}
	name := func(raw string) (s string) {
		for i := range len(raw) {
			s += chars[raw[i]]
		}
		return s
	}
	ranks, order := map[string]int{}, []string(nil)
	for line := range strings.Lines(string(sharedBytes(t, "tokenizers/qwen/qwen.tiktoken.gz"))) {
		token, rank, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(token)
		require.NoError(t, err)
		n, err := strconv.Atoi(rank)
		require.NoError(t, err)
		ranks[string(raw)] = n
		order = append(order, string(raw))
	}
	vocab := make(map[string]any, len(ranks))
	var merges []any
	for _, token := range order {
		vocab[name(token)] = float64(ranks[token])
		var parts []string
		for i := range len(token) {
			parts = append(parts, token[i:i+1])
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
			merges = append(merges, name(parts[0])+" "+name(parts[1]))
		}
	}
	return byteLevel(strings.Replace(llama3Split, "{1,3}", "", 1), true, false, vocab, merges)
}

func recordOf(turns [][2]string) Record {
	r := Record{ID: "r"}
	for _, t := range turns {
		r.Turns = append(r.Turns, Turn{Role(t[0]), t[1]})
	}
	return r
}

func spansOf(c coded) [][2]int {
	var out [][2]int
	for _, k := range c.completions {
		out = append(out, [2]int{k.span.Start, k.span.End})
	}
	return out
}

// TestTemplateVectors compares small conversations, native and by Jinja, with
// what transformers makes of them.
func TestTemplateVectors(t *testing.T) {
	g, err := readGolden()
	require.NoError(t, err)
	require.Len(t, g.Vectors, len(g.Templates)*len(g.Conversations))
	b, err := os.ReadFile("../cmd/specstream/demobase/tokenizer.json")
	require.NoError(t, err)
	for family, v := range g.Templates {
		var definition map[string]any
		require.NoError(t, json.Unmarshal(b, &definition))
		tokens := slices.DeleteFunc(slices.Clone(v.Tokens), func(s string) bool { return s == "<|end|>" })
		tok := parseTokenizer(t, withTokens(definition, tokens...), v.BOS, v.EOS)
		for _, byJinja := range []bool{false, true} {
			if !byJinja && !native(family) {
				continue
			}
			t.Run(fmt.Sprintf("%s jinja=%v", family, byJinja), func(t *testing.T) {
				e := newEncoder(t, EncoderOptions{Tokenizer: tok, Template: goldenTemplate(t, family, !byJinja), SpecialTokens: specstream.SpecialAsControl})
				for _, want := range g.Vectors {
					if want.Family != family {
						continue
					}
					r := recordOf(g.Conversations[want.Conversation])
					c, text, err := e.encode(r, r.Turns, false)
					if want.Refused {
						require.Error(t, err, want.Conversation)
						continue
					}
					require.NoError(t, err)
					require.Equal(t, want.Text, text)
					require.Equal(t, want.IDs, c.ids)
					require.Equal(t, want.Spans, spansOf(c))
				}
			})
		}
	}
}

// TestTemplatesOnRealData compares 1,000 real conversations with their own
// models' tokenizers: digests of text, ids and spans, whole and up to each of
// the first assistant turns.
func TestTemplatesOnRealData(t *testing.T) {
	g, err := readGolden()
	require.NoError(t, err)
	conversations := realConversations(t)
	for family, chunks := range g.Digests {
		for _, byJinja := range []bool{false, true} {
			if !byJinja && !native(family) || testing.Short() && (byJinja != !native(family) || !slices.Contains(quick, family)) {
				continue
			}
			t.Run(fmt.Sprintf("%s jinja=%v", family, byJinja), func(t *testing.T) {
				t.Parallel()
				tok := parseTokenizer(t, familyTokenizer(t, family), g.Templates[family].BOS, g.Templates[family].EOS)
				e := newEncoder(t, EncoderOptions{Tokenizer: tok, Template: goldenTemplate(t, family, !byJinja), SpecialTokens: specstream.SpecialAsControl})
				if testing.Short() {
					chunks = chunks[:1]
				}
				refused := 0
				for i, want := range chunks {
					n, got := chunkDigests(t, e, conversations[i*100:(i+1)*100])
					refused += n
					require.Equal(t, want, got, "text, ids and masks of conversations %d to %d", i*100, i*100+99)
				}
				if !testing.Short() {
					require.Equal(t, g.Refused[family], refused)
				}
			})
		}
	}
}

// quick are the families that short tests look at.
var quick = []string{"vicuna", "marked"}

// expanded is how many assistant turns make_templates.py encodes one by one.
const expanded = 4

func chunkDigests(t *testing.T, e *Encoder, conversations []Record) (refused int, digests [3]string) {
	h := [3]hash.Hash{sha256.New(), sha256.New(), sha256.New()}
	add := func(r Record, turns []Turn) bool {
		c, text, err := e.encode(r, turns, false)
		if err != nil {
			c, text = coded{}, "refused"
		}
		_, _ = io.WriteString(h[0], text+"\x00") // a hash never fails
		_ = binary.Write(h[1], binary.LittleEndian, append(slices.Clip(c.ids), -1))
		var flat []int32
		for _, s := range spansOf(c) {
			flat = append(flat, int32(s[0]), int32(s[1]))
		}
		_ = binary.Write(h[2], binary.LittleEndian, append(flat, -1))
		return err == nil
	}
	for _, r := range conversations {
		if !add(r, r.Turns) {
			refused++
		}
		n := 0
		for i, turn := range r.Turns {
			if turn.Role == Assistant && n < expanded {
				add(r, r.Turns[:i+1])
				n++
			}
		}
	}
	for i := range h {
		digests[i] = hex.EncodeToString(h[i].Sum(nil))[:32]
	}
	return refused, digests
}

// realConversations are the first 1,000 of the shared ones that need no mending.
func realConversations(t testing.TB) []Record {
	t.Helper()
	var out []Record
	roles := map[string]Role{"system": System, "human": User, "gpt": Assistant}
	for _, rel := range []string{"sharegpt/mix_dev.json", "sharegpt/mix_train.json.gz"} {
		var records []struct {
			Conversations []struct{ From, Value string }
		}
		require.NoError(t, json.Unmarshal(sharedBytes(t, rel), &records))
		for _, rec := range records {
			r := Record{ID: strconv.Itoa(len(out))}
			body := rec.Conversations
			if len(body) > 0 && body[0].From == "system" {
				body = body[1:]
			}
			ok := len(body) > 0 && len(body)%2 == 0
			for i, turn := range body {
				ok = ok && turn.From == []string{"human", "gpt"}[i%2] && len(bytes.TrimSpace([]byte(turn.Value))) > 0
			}
			if !ok {
				continue
			}
			for _, turn := range rec.Conversations {
				r.Turns = append(r.Turns, Turn{roles[turn.From], turn.Value})
			}
			if out = append(out, r); len(out) == 1000 {
				return out
			}
		}
	}
	require.Fail(t, "fewer than 1,000 conversations")
	return nil
}

// TestPromptIsWhatTrainingHad: over real conversations, the prompt decoded from
// has the tokens the sample has before its answer; where an answer's start is
// joined with the prompt's end, all but the last.
func TestPromptIsWhatTrainingHad(t *testing.T) {
	g, err := readGolden()
	require.NoError(t, err)
	conversations := realConversations(t)[:50]
	for family := range g.Digests {
		if testing.Short() && !slices.Contains(quick, family) {
			continue
		}
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			tok := parseTokenizer(t, familyTokenizer(t, family), g.Templates[family].BOS, g.Templates[family].EOS)
			o := EncoderOptions{Tokenizer: tok, Template: goldenTemplate(t, family, native(family))}
			e := newEncoder(t, o)
			o.SpecialTokens = specstream.SpecialAsControl
			control := newEncoder(t, o)
			joined, all := 0, 0
			for _, r := range conversations {
				got, err := e.Samples(r)
				if err != nil {
					require.Equal(t, "mistral", strings.TrimSuffix(family, "3"))
					continue
				}
				// Without strings of control tokens the policy is all one.
				as, err := control.Samples(r)
				require.NoError(t, err)
				forged := slices.ContainsFunc(r.Turns, func(turn Turn) bool {
					return slices.ContainsFunc(g.Templates[family].Tokens, func(s string) bool { return strings.Contains(turn.Text, s) })
				})
				if !forged {
					require.Equal(t, as, got)
				}
				at := 0
				for _, s := range got.Samples {
					for r.Turns[at].Role != Assistant {
						at++
					}
					prompt := r
					prompt.Turns = r.Turns[:at]
					at++
					ids, err := e.Prompt(prompt)
					require.NoError(t, err)
					have := s.PromptTokens()
					require.Equal(t, have, ids[:len(have)])
					all++
					if len(have) < len(ids) {
						joined++
						require.Equal(t, len(have)+1, len(ids))
					}
				}
			}
			require.Greater(t, all, 50)
			require.Less(t, joined*50, all)
		})
	}
}

// TestPlainIDs: the template "plain" gives the ids it always gave; bases are
// trained on them.
func TestPlainIDs(t *testing.T) {
	const gpt2, llama2, phi3, demo = "tokenizers/gpt2/tokenizer.json.gz", "tokenizers/llama2/tokenizer.json.gz", "tokenizers/phi3/tokenizer.json.gz", "demo"
	for _, c := range []struct {
		tokenizer, format, input string
		samples                  int
		digest                   string
	}{
		{gpt2, "sql", "sql/wikisql_dev_1k.json", 1000, "2c7cc3f3b28456ebc12ef8056e52f55e39bc835bfff64744deaf4e16b7b726db"},
		{gpt2, "dialogsum", "dialogsum/dev.jsonl", 500, "e237927019bb3c241660cd24b1fff048027ae815724f08fd174fc4137f65c811"},
		{gpt2, "e2e", "e2e/devset_500.csv", 500, "b767c5f167b55e3eb5f1e76aaa1308c21ac328ce86cd0e33f95eda83bf2178b5"},
		{llama2, "sql", "sql/wikisql_dev_1k.json", 1000, "9fd49e0efd7f0b16003eb0eea735d944df3a0575da23c9a0eb5e5214cb9bd827"},
		{llama2, "dialogsum", "dialogsum/dev.jsonl", 500, "1820e8f79cca6047cb38faea4faf4a818e73ac3869c1cc970fa4b7dd4dbe35ab"},
		{llama2, "e2e", "e2e/devset_500.csv", 500, "d6bdabbe5b9f69a05fc4da6e8163514b47fb4d8694bdda52811ab01b8968205c"},
		{phi3, "sql", "sql/wikisql_dev_1k.json", 1000, "5f8973985c5212d38f2ba8fb10689889083e4d246c9a3fb163cbb25d57c260b1"},
		{phi3, "dialogsum", "dialogsum/dev.jsonl", 500, "b3f6ae3159d378bdd7fd26ec47878ac6671b79e9893994abca81ba6657087dff"},
		{phi3, "e2e", "e2e/devset_500.csv", 500, "148973938165ced1e5474a293efa423af777f368e733a2b96f228ac80207a15e"},
		{demo, "sql", "sql/wikisql_dev_1k.json", 1000, "c5c2b353377b41f8f28e3ffd1351ef067709d7a68396ac87f46cdfa14acde5c9"},
		{demo, "dialogsum", "dialogsum/dev.jsonl", 500, "8db67e9fcd3653a54421392d78e2e5cb028c7907e87c91eba2ed80d3229ec849"},
		{demo, "e2e", "e2e/devset_500.csv", 500, "f460055691025e5001b3ca3929bca2ff7601829efe67026ce7495ca064664087"},
	} {
		t.Run(c.tokenizer+" "+c.format, func(t *testing.T) {
			path := "../cmd/specstream/demobase/tokenizer.json"
			if c.tokenizer != demo {
				path = testdata.Shared(t, c.tokenizer)
			}
			tok, err := tokenizer.Load(path)
			require.NoError(t, err)
			e := newEncoder(t, EncoderOptions{Tokenizer: tok, Template: templateFor(t, c.format, "plain")})
			r, err := Open(t.Context(), formatNamed(t, c.format), testdata.Shared(t, c.input))
			require.NoError(t, err)
			defer func() { require.NoError(t, r.Close()) }()
			h := sha256.New()
			for range c.samples {
				rec, err := r.Next()
				require.NoError(t, err)
				got, err := e.Samples(rec)
				require.NoError(t, err)
				require.Len(t, got.Samples, 1)
				s := got.Samples[0]
				require.NoError(t, binary.Write(h, binary.LittleEndian, int64(s.Spans[0].Start)))
				require.NoError(t, binary.Write(h, binary.LittleEndian, s.Tokens))
				_, _ = io.WriteString(h, s.Prompt+"\x00"+s.Reference)
			}
			_, err = r.Next()
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, c.digest, hex.EncodeToString(h.Sum(nil)))
		})
	}
}

func BenchmarkSamples(b *testing.B) {
	conversations := realConversations(b)[:200]
	size := 0
	for _, r := range conversations {
		for _, turn := range r.Turns {
			size += len(turn.Text)
		}
	}
	for _, byJinja := range []bool{false, true} {
		b.Run(fmt.Sprintf("chatml jinja=%v", byJinja), func(b *testing.B) {
			g, err := readGolden()
			require.NoError(b, err)
			tok := parseTokenizer(b, familyTokenizer(b, "chatml"), "", g.Templates["chatml"].EOS)
			e := newEncoder(b, EncoderOptions{Tokenizer: tok, Template: goldenTemplate(b, "chatml", !byJinja), Turns: specstream.TurnsInline})
			b.SetBytes(int64(size))
			for b.Loop() {
				for _, r := range conversations {
					_, err := e.Samples(r)
					require.NoError(b, err)
				}
			}
		})
	}
}
