package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/specstream/specstream/internal/testdata"
)

// digestFile is testdata/digests.json, written by testdata/digests.py with the
// oracles named there.
type digestFile struct {
	Patterns map[string]map[string]string `json:"patterns"` // of families, with Llama-3's ranks: ids by chunk
	Texts    map[string]string            `json:"texts"`
	Oracles  map[string]struct {
		Texts      int                  `json:"texts"`
		PlainIDs   int                  `json:"plain_ids"`
		SpecialIDs int                  `json:"special_ids"`
		Chunks     map[string][3]string `json:"chunks"` // plain, special, decode
	} `json:"oracles"`
}

// digestTokenizers are the shared tokenizers by the names of digests.py.
var digestTokenizers = map[string]string{
	"gpt2": "gpt2/tokenizer.json.gz", "gpt2-vocab": "gpt2/vocab.json.gz", "opt": "opt",
	"llama2": "llama2/tokenizer.json.gz", "llama2-model": "llama2/tokenizer.model", "phi3": "phi3/tokenizer.json.gz",
	"llama3": "llama3/tokenizer.model.gz", "llama3-vocab": "llama3/encoder.json.gz",
	"mistral-v1": "mistral/tokenizer.model.v1", "mistral-v3": "mistral/tokenizer.model.v3",
	"qwen": "qwen/qwen.tiktoken.gz", "oasst": "small/oasst_tokenizer.json",
}

// digester makes the digests of digests.py.
type digester struct{ h hash.Hash }

func newDigester() digester { return digester{sha256.New()} }

func (d digester) ids(ids []int32) {
	buf := binary.LittleEndian.AppendUint32(nil, uint32(len(ids)))
	for _, id := range ids {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(id))
	}
	d.h.Write(buf)
}

func (d digester) text(s string) {
	d.h.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(s))))
	d.h.Write([]byte(s))
}

func (d digester) sum() string { return hex.EncodeToString(d.h.Sum(nil))[:16] }

func readDigests(t *testing.T) digestFile {
	t.Helper()
	b, err := os.ReadFile("testdata/digests.json")
	if err != nil {
		t.Fatal(err)
	}
	var want digestFile
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	return want
}

// TestPatterns: the patterns of OpenAI's encodings cut text as tiktoken does.
func TestPatterns(t *testing.T) {
	want := readDigests(t)
	path := testdata.Shared(t, "tokenizers/llama3/tokenizer.model.gz")
	raw, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	vocab, merges, err := readRanks(path, raw)
	if err != nil {
		t.Fatal(err)
	}
	if len(want.Patterns) < 4 {
		t.Fatalf("%d patterns", len(want.Patterns))
	}
	for _, f := range families {
		chunks, ok := want.Patterns[f.name]
		if !ok {
			continue
		}
		delete(want.Patterns, f.name)
		t.Run(f.name, func(t *testing.T) {
			if testing.Short() && f.name != "cl100k" {
				t.Skip("loads Llama-3's ranks again")
			}
			b, err := (&family{pattern: f.pattern}).file(path, vocab, merges, true, nil)
			if err != nil {
				t.Fatal(err)
			}
			tok, err := Parse(f.name, bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			for i := range len(chunks) {
				d := newDigester()
				for _, s := range fuzzTexts(i) {
					d.ids(tok.Encode(nil, s))
				}
				if want := chunks[fmt.Sprintf("fuzz#%d", i)]; d.sum() != want {
					t.Errorf("chunk %d: %s, want %s", i, d.sum(), want)
				}
			}
		})
	}
	if len(want.Patterns) > 0 {
		t.Errorf("no families for %v", want.Patterns)
	}
}

// TestOracleDigests: ids and decoded text are those of the oracles on every text
// of the shared data and on 100,000 fuzzed strings, for every shared tokenizer.
func TestOracleDigests(t *testing.T) {
	root := strings.TrimSuffix(testdata.Shared(t, "README.md"), "README.md")
	want := readDigests(t)
	if len(want.Oracles) != len(digestTokenizers) {
		t.Fatalf("%d tokenizers in digests.json, %d here", len(want.Oracles), len(digestTokenizers))
	}
	type chunk struct {
		name  string
		texts []string
	}
	var chunks []chunk
	seen := make(map[string]bool)
	for _, name := range textFiles(t, root) {
		if testing.Short() && name != textFiles(t, root)[0] {
			break
		}
		texts := slices.DeleteFunc(readTexts(t, root, name), func(s string) bool {
			was := seen[s]
			seen[s] = true
			return was
		})
		n := 0
		for part := range slices.Chunk(texts, textChunk) {
			chunks = append(chunks, chunk{fmt.Sprintf("%s#%d", name, n), part})
			n++
		}
	}
	for i := range fuzzChunks {
		if testing.Short() && i%10 != 0 {
			continue
		}
		chunks = append(chunks, chunk{fmt.Sprintf("fuzz#%d", i), fuzzTexts(i)})
	}
	for _, c := range chunks {
		d := newDigester()
		for _, s := range c.texts {
			d.text(s)
		}
		if d.sum() != want.Texts[c.name] {
			t.Fatalf("the texts of %s are not those of texts.py", c.name)
		}
	}
	if !testing.Short() && len(chunks) != len(want.Texts) {
		t.Fatalf("%d chunks, %d wanted", len(chunks), len(want.Texts))
	}
	for name, file := range digestTokenizers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok := loadShared(t, file)
			oracle := want.Oracles[name]
			var plainIDs, specialIDs, texts int
			var ids []int32
			for _, c := range chunks {
				plain, special, decode := newDigester(), newDigester(), newDigester()
				for _, s := range c.texts {
					ids = tok.Encode(ids[:0], s)
					plain.ids(ids)
					plainIDs += len(ids)
					ids = tok.EncodeSpecial(ids[:0], s)
					special.ids(ids)
					specialIDs += len(ids)
					decode.text(tok.Decode(ids))
				}
				texts += len(c.texts)
				if got := [3]string{plain.sum(), special.sum(), decode.sum()}; got != oracle.Chunks[c.name] {
					t.Errorf("%s: plain, special, decode are %v, want %v", c.name, got, oracle.Chunks[c.name])
				}
			}
			if !testing.Short() && (plainIDs != oracle.PlainIDs || specialIDs != oracle.SpecialIDs || texts != oracle.Texts) {
				t.Errorf("%d texts, %d and %d ids; want %d, %d and %d", texts, plainIDs, specialIDs, oracle.Texts, oracle.PlainIDs, oracle.SpecialIDs)
			}
			t.Logf("%d texts, %d and %d ids", texts, plainIDs, specialIDs)
		})
	}
}
