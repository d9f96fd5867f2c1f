package model_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/model"
)

// writeConfig writes a small Llama's config.json with some fields changed; nil
// leaves a field out.
func writeConfig(t *testing.T, fields map[string]any) string {
	t.Helper()
	all := map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "hidden_size": 32, "intermediate_size": 64,
		"num_hidden_layers": 6, "num_attention_heads": 4, "vocab_size": 97, "max_position_embeddings": 256,
		"torch_dtype": "bfloat16", "use_cache": true,
	}
	for k, v := range fields {
		if v == nil {
			delete(all, k)
			continue
		}
		all[k] = v
	}
	b, err := json.Marshal(all)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	return path
}

var null = json.RawMessage("null")

// tiny is what writeConfig's file reads as.
func tiny() model.Config {
	return model.Config{
		Architecture: "LlamaForCausalLM", HiddenSize: 32, IntermediateSize: 64, NumLayers: 6, NumHeads: 4, NumKVHeads: 4, HeadDim: 8,
		VocabSize: 97, MaxPositions: 256, RMSNormEps: 1e-6, RopeTheta: 10000, BOS: 1, EOS: []int32{2},
	}
}

func TestReadConfig(t *testing.T) {
	llama3 := map[string]any{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
	scaling := &model.RopeScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 64}
	for _, c := range []struct {
		name   string
		fields map[string]any
		want   func(*model.Config)
	}{
		{"defaults", nil, func(*model.Config) {}},
		{"grouped-query attention", map[string]any{"num_key_value_heads": 2}, func(c *model.Config) { c.NumKVHeads = 2 }},
		{"null key/value heads", map[string]any{"num_key_value_heads": null}, func(*model.Config) {}},
		{"head size of its own", map[string]any{"head_dim": 16}, func(c *model.Config) { c.HeadDim = 16 }},
		{"tied", map[string]any{"tie_word_embeddings": true}, func(c *model.Config) { c.TieEmbeddings = true }},
		{"end tokens", map[string]any{"eos_token_id": []int{2, 5}}, func(c *model.Config) { c.EOS = []int32{2, 5} }},
		{"no end token", map[string]any{"eos_token_id": null, "bos_token_id": null}, func(c *model.Config) { c.EOS, c.BOS = nil, -1 }},
		{"norm and theta", map[string]any{"rms_norm_eps": 1e-5, "rope_theta": 5e5}, func(c *model.Config) { c.RMSNormEps, c.RopeTheta = 1e-5, 5e5 }},
		{"llama3 rotary", map[string]any{"rope_scaling": llama3}, func(c *model.Config) { c.RopeScaling = scaling }},
		{"rope parameters, default", map[string]any{"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 123.0}}, func(c *model.Config) { c.RopeTheta = 123 }},
		{"rope parameters, llama3", map[string]any{"rope_parameters": llama3, "rope_theta": 7.0}, func(c *model.Config) { c.RopeScaling, c.RopeTheta = scaling, 7 }},
		{"model type alone", map[string]any{"architectures": nil}, func(*model.Config) {}},
		{"Mistral without a window", map[string]any{"architectures": []string{"MistralForCausalLM"}, "model_type": "mistral", "sliding_window": null, "num_key_value_heads": 2},
			func(c *model.Config) { c.Architecture, c.NumKVHeads = "MistralForCausalLM", 2 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := tiny()
			c.want(&want)
			got, err := model.ReadConfig(writeConfig(t, c.fields))
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.True(t, got.Equal(want))

			path := filepath.Join(t.TempDir(), "config.json")
			require.NoError(t, got.Save(path))
			again, err := model.ReadConfig(path)
			require.NoError(t, err)
			require.Equal(t, want, again, "after writing and reading")
		})
	}
}

func TestReadConfigRefuses(t *testing.T) {
	mistral := func(extra map[string]any) map[string]any {
		m := map[string]any{"architectures": []string{"MistralForCausalLM"}, "model_type": "mistral", "num_key_value_heads": 2}
		for k, v := range extra {
			m[k] = v
		}
		return m
	}
	for _, c := range []struct {
		name   string
		fields map[string]any
		field  string
	}{
		{"unknown architecture", map[string]any{"architectures": []string{"GPT2LMHeadModel"}}, "architectures"},
		{"two architectures", map[string]any{"architectures": []string{"LlamaForCausalLM", "LlamaForCausalLM"}}, "architectures"},
		{"unknown model type", map[string]any{"architectures": nil, "model_type": "gpt2"}, "model_type"},
		{"type and architecture differ", map[string]any{"model_type": "mistral"}, "model_type"},
		{"Qwen2", map[string]any{"architectures": []string{"Qwen2ForCausalLM"}, "model_type": "qwen2"}, "architectures"},
		{"missing size", map[string]any{"hidden_size": nil}, "hidden_size"},
		{"zero layers", map[string]any{"num_hidden_layers": 0}, "num_hidden_layers"},
		{"negative size", map[string]any{"vocab_size": -5}, "vocab_size"},
		{"enormous size", map[string]any{"intermediate_size": 1 << 40}, "intermediate_size"},
		{"size a string", map[string]any{"hidden_size": "32"}, "hidden_size"},
		{"heads do not divide", map[string]any{"num_attention_heads": 5}, "num_attention_heads"},
		{"groups do not divide", map[string]any{"num_key_value_heads": 3}, "num_key_value_heads"},
		{"odd head", map[string]any{"head_dim": 7}, "head_dim"},
		{"activation", map[string]any{"hidden_act": "gelu"}, "hidden_act"},
		{"attention bias", map[string]any{"attention_bias": true}, "attention_bias"},
		{"MLP bias", map[string]any{"mlp_bias": true}, "mlp_bias"},
		{"partial rotary", map[string]any{"partial_rotary_factor": 0.5}, "partial_rotary_factor"},
		{"quantised", map[string]any{"quantization_config": map[string]any{"bits": 4}}, "quantization_config"},
		{"rotary type", map[string]any{"rope_scaling": map[string]any{"type": "linear", "factor": 2.0}}, "rope_scaling"},
		{"rotary type of newer files", map[string]any{"rope_parameters": map[string]any{"rope_type": "yarn"}}, "rope_parameters"},
		{"incomplete llama3", map[string]any{"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 2.0}}, "rope_scaling"},
		{"contradicting theta", map[string]any{"rope_theta": 5.0, "rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 6.0}}, "rope_parameters"},
		{"both rotary fields", map[string]any{"rope_scaling": map[string]any{"rope_type": "default"}, "rope_parameters": map[string]any{"rope_type": "default"}}, "rope_parameters"},
		{"zero epsilon", map[string]any{"rms_norm_eps": 0}, "rms_norm_eps"},
		{"end token beyond the vocabulary", map[string]any{"eos_token_id": 97}, "eos_token_id"},
		{"end token a string", map[string]any{"eos_token_id": "</s>"}, "eos_token_id"},
		{"two start tokens", map[string]any{"bos_token_id": []int{1, 2}}, "bos_token_id"},
		{"start token below none", map[string]any{"bos_token_id": -2}, "bos_token_id"},
		{"Mistral's window", mistral(map[string]any{"sliding_window": 128}), "sliding_window"},
		{"Mistral's default window", mistral(map[string]any{"max_position_embeddings": 32768}), "sliding_window"},
		{"Mistral's default groups", map[string]any{"architectures": []string{"MistralForCausalLM"}, "model_type": "mistral", "sliding_window": null}, "num_key_value_heads"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := writeConfig(t, c.fields)
			_, err := model.ReadConfig(path)
			var in *specstream.InputError
			require.ErrorAs(t, err, &in)
			require.Equal(t, path, in.File)
			require.Equal(t, c.field, in.Field, err)
		})
	}
	t.Run("absent file", func(t *testing.T) {
		_, err := model.ReadConfig(filepath.Join(t.TempDir(), "config.json"))
		require.True(t, specstream.BadInput(err), err)
	})
	t.Run("invalid JSON", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "config.json")
		require.NoError(t, os.WriteFile(path, []byte(`{"hidden_size": 3`), 0o600))
		_, err := model.ReadConfig(path)
		require.True(t, specstream.BadInput(err), err)
	})
}

func FuzzReadConfig(f *testing.F) {
	for _, s := range []string{
		`{"architectures":["LlamaForCausalLM"],"hidden_size":32,"intermediate_size":64,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":97}`,
		`{"model_type":"llama","hidden_size":1e3}`, `{"rope_scaling":{"rope_type":"llama3"}}`, `null`, `[]`, `{`,
	} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(dir, "config.json")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := model.ReadConfig(path)
		if err != nil {
			if !specstream.BadInput(err) {
				t.Fatalf("not an input error: %v", err)
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("accepted a configuration that is not valid: %v", err)
		}
	})
}
