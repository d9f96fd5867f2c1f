package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
)

// TestParams holds the parameter counts that follow from a config.json alone.
func TestParams(t *testing.T) {
	config := func(t *testing.T, hidden, heads, kv, ff, layers int) string {
		return write(t, filepath.Join(t.TempDir(), "config.json"), fmt.Sprintf(`{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":%d,
			"num_attention_heads":%d,"num_key_value_heads":%d,"intermediate_size":%d,"num_hidden_layers":%d,"vocab_size":32000,
			"max_position_embeddings":4096,"rms_norm_eps":1e-5,"hidden_act":"silu"}`, hidden, heads, kv, ff, layers))
	}
	keys := []string{"beyond_lora", "lora", "pruning_adapter", "stream_adapters", "stream_embeddings", "total"}
	for _, c := range []struct {
		hidden, heads, kv, ff, layers int
		beyond                        int64
	}{
		{2048, 32, 8, 8192, 16, 40_960},
		{3072, 24, 8, 8192, 28, 61_440},
		{4096, 32, 32, 11008, 32, 81_920},
	} {
		t.Run(fmt.Sprintf("shared, hidden %d", c.hidden), func(t *testing.T) {
			t.Parallel()
			var got map[string]int64
			good(t, "params", "--config", config(t, c.hidden, c.heads, c.kv, c.ff, c.layers), "--mode", "shared", "--gamma", "4", "--msa-layers", "4", "--lora-rank", "32", "--json").decode(t, &got)
			require.Equal(t, keys, slices.Sorted(maps.Keys(got)))
			h, kv, ff := int64(c.hidden), int64(c.hidden/c.heads*c.kv), int64(c.ff)
			lora := int64(c.layers) * 32 * (2*(h+h) + 2*(h+kv) + 3*(h+ff)) // q and o, k and v, gate, up and down
			require.Equal(t, map[string]int64{"lora": lora, "stream_embeddings": 4 * h, "pruning_adapter": 16 * h, "stream_adapters": 0,
				"beyond_lora": c.beyond, "total": lora + c.beyond}, got)
		})
	}
	t.Run("lossless", func(t *testing.T) {
		t.Parallel()
		var got map[string]int64
		good(t, "params", "--config", config(t, 2048, 32, 8, 8192, 16), "--mode", "lossless", "--gamma", "4", "--msa-layers", "4", "--json").decode(t, &got)
		require.Equal(t, keys, slices.Sorted(maps.Keys(got)))
		require.Zero(t, got["lora"])
		require.Positive(t, got["stream_adapters"])
		require.Equal(t, got["stream_embeddings"]+got["stream_adapters"]+got["pruning_adapter"], got["total"])
	})
}

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		text string
	}{
		{[]string{"bogus"}, `unknown command "bogus"`},
		{[]string{"pipeline", "bogus"}, `unknown command "bogus"`},
		{[]string{"params"}, "--config is required"},
		{[]string{"params", "--bogus"}, "--bogus"},
		{[]string{"params", "surplus"}, "surplus"},
		{[]string{"ingest", "--format", "sql", "x.json"}, "--tokenizer is required"},
		{[]string{"train", "--base", "b", "--data", "d"}, "--out is required"},
		{[]string{"train", "--base", "b", "--data", "d", "--out", "o", "--steps", "many"}, "many"},
		{[]string{"train", "--base", "b", "--data", "d", "--out", "o", "--progress", "loud"}, "loud"},
		{[]string{"pipeline", "start"}, "--input-file is required"},
		{[]string{"pipeline", "approve"}, "a pipeline's id"},
		{[]string{"checkpoints", "show", "--store", "mem:"}, "a reference or an alias"},
		{[]string{"checkpoints", "rollback", "zero", "--store", "mem:"}, "zero"},
		{[]string{"checkpoints", "list", "--data-dir", "/nonexistent"}, "no store is named"},
	} {
		t.Run(fmt.Sprint(c.args), func(t *testing.T) {
			t.Parallel()
			run(t, c.args...).refused(t, 2, c.text)
		})
	}
	t.Run("an empty group prints its help", func(t *testing.T) {
		t.Parallel()
		require.Contains(t, good(t, "checkpoints").stdout, "rollback")
	})
}

// account is what scripts read from `ingest --json`.
type account struct {
	Read     *int64            `json:"read"`
	Kept     *int64            `json:"kept"`
	Dropped  map[string]int64  `json:"dropped"`
	Changed  map[string]int64  `json:"changed"`
	Tokens   *int64            `json:"tokens"`
	Shards   *int              `json:"shards"`
	Manifest specstream.Digest `json:"manifest"`
}

func TestIngestAccount(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ingest := func(out string) (a account) {
		good(t, "ingest", "--format", "sql", "--tokenizer", filepath.Join(f.base, "tokenizer.json"), "--out", out, "--limit", "50", "--shard-tokens", "2000", "--json", f.train).decode(t, &a)
		return a
	}
	out := t.TempDir()
	a := ingest(out)
	require.EqualValues(t, 50, *a.Read)
	require.EqualValues(t, 50, *a.Kept)
	require.NotNil(t, a.Dropped)
	require.NotNil(t, a.Changed)
	require.Positive(t, *a.Tokens)
	require.Greater(t, *a.Shards, 1)
	require.NoError(t, a.Manifest.Validate())
	b, err := os.ReadFile(filepath.Join(out, "dataset.json"))
	require.NoError(t, err)
	require.True(t, json.Valid(b))
	require.Equal(t, a, ingest(t.TempDir()), "the same records are the same dataset")
	store := ingest("file://" + t.TempDir())
	require.Equal(t, a, store, "a store gets the same dataset as a folder")
}

func TestToleratedRecords(t *testing.T) {
	t.Parallel()
	f := setup(t)
	dir := t.TempDir()
	input := write(t, filepath.Join(dir, "chat.json"), `[
		{"id":"a","conversations":[{"from":"human","value":"hello"},{"from":"gpt","value":"hello to you"}]},
		{"id":"b","conversations":[]},
		{"id":"c","conversations":"none"},
		{"id":"d","conversations":[{"from":"human","value":"and now"},{"from":"gpt","value":"goodbye"}]}]`)
	ingest := func(tolerance string) []string {
		return []string{"ingest", "--format", "sharegpt", "--tokenizer", filepath.Join(f.base, "tokenizer.json"), "--out", filepath.Join(dir, "out"),
			"--quarantine", filepath.Join(dir, "bad.jsonl"), "--max-bad", tolerance, "--json", "--progress", "none", input}
	}
	for _, tolerance := range []string{"2", "50%"} {
		var a account
		good(t, ingest(tolerance)...).decode(t, &a)
		require.EqualValues(t, 4, *a.Read)
		require.EqualValues(t, 2, *a.Kept)
		require.Equal(t, map[string]int64{"empty_conversation": 1, "wrong_type": 1}, a.Dropped)
		b, err := os.ReadFile(filepath.Join(dir, "bad.jsonl"))
		require.NoError(t, err)
		require.Contains(t, string(b), `"record":2`)
		require.Contains(t, string(b), `"record":3`)
	}
	run(t, ingest("1")...).refused(t, 1, "chat.json", "record 2", "conversations", "bad records: 2")
	run(t, ingest("49%")...).refused(t, 1, "chat.json")
	run(t, ingest("some")...).refused(t, 1, "max_bad", "some")
}
