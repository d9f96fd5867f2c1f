package e2e

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBadRecords holds what a user is told about records that cannot be used.
func TestBadRecords(t *testing.T) {
	f := setup(t)
	whole, err := os.ReadFile(f.train)
	require.NoError(t, err)
	for _, c := range []struct {
		name, format, file, text string
		want                     []string
	}{
		{"truncated JSON", "sql", "cut.json", string(whole[:2000]), []string{"cut.json", "record 8", "ends inside"}},
		{"truncated JSON lines", "dialogsum", "cut.jsonl", `{"fname":"a","dialogue":"#Person1#: hi","summary":"s","topic":"t"}` + "\n" + `{"fname":"b","dia`, []string{"cut.jsonl", "record 2"}},
		{"broken CSV", "e2e", "cut.csv", "mr,ref\n\"name[The Mill]\",\"The Mill\n", []string{"cut.csv", "record 1"}},
		{"wrong field type", "sql", "type.json", `[{"question":"q","context":"c","answer":"a"},{"question":"q","context":5,"answer":"a"}]`, []string{"type.json", "record 2", `"context"`, "want a string, got a number"}},
		{"wrong field type in JSON lines", "dialogsum", "type.jsonl", `{"fname":"a","dialogue":7,"summary":"s","topic":"t"}` + "\n", []string{"type.jsonl", "record 1", `"dialogue"`}},
		{"missing field", "sql", "missing.json", `[{"question":"q","context":"c"}]`, []string{"missing.json", "record 1", `"answer"`}},
		{"empty conversation", "sharegpt", "empty.json", `[{"id":"x","conversations":[]}]`, []string{"empty.json", "record 1", `"conversations"`}},
		{"no array", "sql", "object.json", `{"question":"q"}`, []string{"object.json"}},
		{"empty file", "sql", "nothing.json", ``, []string{"nothing.json"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			out := filepath.Join(dir, "out")
			run(t, "ingest", "--format", c.format, "--tokenizer", filepath.Join(f.base, "tokenizer.json"), "--out", out, "--progress", "none", "--json",
				write(t, filepath.Join(dir, c.file), c.text)).refused(t, 1, c.want...)
			require.NoFileExists(t, filepath.Join(out, "dataset.json"), "no dataset of bad input is ever visible")
		})
	}
	t.Run("missing file", func(t *testing.T) {
		t.Parallel()
		run(t, "ingest", "--format", "sql", "--tokenizer", filepath.Join(f.base, "tokenizer.json"), "--out", t.TempDir(), "absent.json").refused(t, 1, "absent.json")
	})
	t.Run("unknown format", func(t *testing.T) {
		t.Parallel()
		run(t, "ingest", "--format", "xml", "--tokenizer", filepath.Join(f.base, "tokenizer.json"), "--out", t.TempDir(), f.train).refused(t, 1, `"format"`, "xml")
	})
	t.Run("missing tokenizer", func(t *testing.T) {
		t.Parallel()
		run(t, "ingest", "--format", "sql", "--tokenizer", "absent.json", "--out", t.TempDir(), f.train).refused(t, 1, "absent.json", "tokenizer")
	})
	t.Run("no tokenizer", func(t *testing.T) {
		t.Parallel()
		run(t, "ingest", "--format", "sql", "--tokenizer", f.train, "--out", t.TempDir(), f.train).refused(t, 1, "train.json", "want object, got JSON array")
	})
}

// safetensors is a file's header and data, to damage.
type safetensors struct {
	header map[string]json.RawMessage
	data   []byte
}

func readSafetensors(t testing.TB, path string) (s safetensors) {
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	n := binary.LittleEndian.Uint64(b)
	require.NoError(t, json.Unmarshal(b[8:8+n], &s.header))
	s.data = b[8+n:]
	return s
}

func (s safetensors) write(t testing.TB, path string) {
	h, err := json.Marshal(s.header)
	require.NoError(t, err)
	b := append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...)
	require.NoError(t, os.WriteFile(path, append(b, s.data...), 0o644))
}

// badBases are bases that cannot be used, and what their user is told.
var badBases = []struct {
	name   string
	damage func(t testing.TB, dir string)
	want   []string
}{
	{"missing tensor", func(t testing.TB, dir string) {
		path := filepath.Join(dir, "model.safetensors")
		s := readSafetensors(t, path)
		s.header["model.layers.1.mlp.other.weight"] = s.header["model.layers.1.mlp.up_proj.weight"]
		delete(s.header, "model.layers.1.mlp.up_proj.weight")
		s.write(t, path)
	}, []string{"model.safetensors", `"model.layers.1.mlp.up_proj.weight"`, "missing"}},
	{"wrong shape", func(t testing.TB, dir string) {
		path := filepath.Join(dir, "model.safetensors")
		s := readSafetensors(t, path)
		var tensor map[string]any
		require.NoError(t, json.Unmarshal(s.header["model.norm.weight"], &tensor))
		tensor["shape"] = []int{24, 2}
		b, err := json.Marshal(tensor)
		require.NoError(t, err)
		s.header["model.norm.weight"] = b
		s.write(t, path)
	}, []string{"model.safetensors", `"model.norm.weight"`, "shape"}},
	{"corrupt header", func(t testing.TB, dir string) {
		path := filepath.Join(dir, "model.safetensors")
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		copy(b[20:], "\xff\xff\xff\xff")
		require.NoError(t, os.WriteFile(path, b, 0o644))
	}, []string{"model.safetensors", "header"}},
	{"header of impossible length", func(t testing.TB, dir string) {
		path := filepath.Join(dir, "model.safetensors")
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		binary.LittleEndian.PutUint64(b, 1<<50)
		require.NoError(t, os.WriteFile(path, b, 0o644))
	}, []string{"model.safetensors", "header of 1125899906842624 bytes"}},
	{"truncated weights", func(t testing.TB, dir string) {
		require.NoError(t, os.Truncate(filepath.Join(dir, "model.safetensors"), 100_000))
	}, []string{"model.safetensors", "truncated"}},
	{"no weights", func(t testing.TB, dir string) {
		require.NoError(t, os.Remove(filepath.Join(dir, "model.safetensors")))
	}, []string{"safetensors"}},
	{"wrong type in config.json", func(t testing.TB, dir string) {
		write(t, filepath.Join(dir, "config.json"), `{"architectures":["LlamaForCausalLM"],"hidden_size":"48"}`)
	}, []string{"config.json", `"hidden_size"`}},
}

func TestBadBases(t *testing.T) {
	f := setup(t)
	for _, c := range badBases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			base, out := copyDir(t, f.base), filepath.Join(t.TempDir(), "out")
			c.damage(t, base)
			run(t, append([]string{"train", "--base", base, "--data", f.trainData, "--out", out, "--steps", "2", "--progress", "none", "--json"}, f.training...)...).refused(t, 1, c.want...)
			require.NoFileExists(t, filepath.Join(out, "specstream.json"))
		})
	}
	t.Run("missing folder", func(t *testing.T) {
		t.Parallel()
		run(t, "train", "--base", "absent", "--data", f.trainData, "--out", t.TempDir(), "--progress", "none").refused(t, 1, "absent")
	})
}

// otherTokenizer ingests the records with a tokenizer of more tokens than the
// base knows and returns the tokenizer and the dataset.
func otherTokenizer(t testing.TB, f fixture) (tokenizer, data string) {
	t.Helper()
	dir := t.TempDir()
	base := filepath.Join(dir, "base")
	good(t, append([]string{"base", "--format", "sql", "--out", base, "--vocab", "420", "--steps", "1", "--batch-size", "2", "--limit", "200", "--work-dir", dir, f.train}, f.dimensions...)...)
	tokenizer, data = filepath.Join(base, "tokenizer.json"), filepath.Join(dir, "data")
	good(t, "ingest", "--format", "sql", "--tokenizer", tokenizer, "--out", data, f.train)
	return tokenizer, data
}

func TestBadSpecifications(t *testing.T) {
	f := setup(t)
	train := func(args ...string) []string {
		return append([]string{"train", "--base", f.base, "--out", t.TempDir(), "--progress", "none"}, args...)
	}
	_, other := otherTokenizer(t, f)
	dir := t.TempDir()
	job := func(name, text string) []string {
		return []string{"pipeline", "start", "--input-file", write(t, filepath.Join(dir, name), text)}
	}
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"wrong tokenizer", train("--data", other), []string{f.base, `"vocab_size"`, "420", "384"}},
		{"missing dataset", train("--data", "absent"), []string{"absent/dataset.json"}},
		{"mode", train("--data", f.trainData, "--mode", "fast"), []string{`"mode"`, "fast"}},
		{"steps", train("--data", f.trainData, "--steps", "-1"), []string{`"steps"`, "-1"}},
		{"too many multi-stream layers", train("--data", f.trainData, "--msa-layers", "9"), []string{`"msa_layers"`, "9"}},
		{"missing adapter", []string{"eval", "--base", f.base, "--adapter", "absent", "--data", f.heldOut, "--out", dir, "--progress", "none"}, []string{"absent/specstream.json"}},
		{"missing config", []string{"params", "--config", "absent.json"}, []string{"absent.json"}},
		{"unknown job field", job("unknown.json", `{"base":"b","dta":{}}`), []string{"unknown.json", `"dta"`, "unknown field"}},
		{"unknown nested job field", job("nested.json", `{"base":"b","data":{"format":"sql","inputs":["x"],"limt":3}}`), []string{"nested.json", `"data.limt"`, "max_length", "unknown field"}},
		{"wrong type in a job", job("type.json", `{"base":"b","train":{"steps":"many"}}`), []string{"type.json", `"train.steps"`}},
		{"truncated job", job("cut.json", `{"base":"b","data":`), []string{"cut.json", "ends too early"}},
		{"missing job", []string{"pipeline", "start", "--input-file", "absent.json"}, []string{"absent.json"}},
		{"unknown alias", []string{"checkpoints", "show", "nothing", "--store", "file://" + dir + "/store"}, []string{"nothing", "neither a reference nor an alias"}},
		{"unknown store", []string{"checkpoints", "list", "--store", "ftp://host/x"}, []string{"ftp"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			run(t, c.args...).refused(t, 1, c.want...)
		})
	}
	t.Run("no server is another failure", func(t *testing.T) {
		t.Parallel()
		run(t, "pipeline", "status", "--data-dir", dir, "--temporal-address", "127.0.0.1:1").refused(t, 3, "127.0.0.1:1", "specstream up")
	})
}
