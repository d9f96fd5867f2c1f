package model_test

import (
	"encoding/json"
	"maps"
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
		{"Llama with biases", map[string]any{"attention_bias": true, "mlp_bias": true}, func(c *model.Config) { c.QKVBias, c.OutBias, c.MLPBias = true, true, true }},
		{"Mistral's window", mistral(map[string]any{"sliding_window": 128}), func(c *model.Config) { isMistral(c, 128) }},
		{"Mistral's default window", mistral(map[string]any{"max_position_embeddings": 32768}), func(c *model.Config) { isMistral(c, 4096); c.MaxPositions = 32768 }},
		{"Mistral's default positions", mistral(map[string]any{"max_position_embeddings": nil}), func(c *model.Config) { isMistral(c, 4096); c.MaxPositions = 131072 }},
		{"Qwen2", qwen2(nil), isQwen2},
		{"fields that ask for nothing", qwen2(map[string]any{"use_mrope": false, "pruned_heads": map[string]any{}, "transformers_version": "4.46.3"}), isQwen2},
		{"Qwen2 with its window off", qwen2(map[string]any{"sliding_window": 64, "use_sliding_window": false, "max_window_layers": 3}), isQwen2},
		{"Qwen2 with a window", qwen2(map[string]any{"sliding_window": 64, "use_sliding_window": true, "max_window_layers": 4,
			"layer_types": []string{"full_attention", "full_attention", "full_attention", "full_attention", "sliding_attention", "sliding_attention"}}),
			func(c *model.Config) { isQwen2(c); c.SlidingWindow, c.WindowFirstLayer = 64, 4 }},
		{"Qwen2 with a window in no layer", qwen2(map[string]any{"use_sliding_window": true}), isQwen2},
		{"Phi-3", phi3(nil), isPhi3},
		{"Phi-3 with a window", phi3(map[string]any{"sliding_window": 31, "original_max_position_embeddings": 256, "embd_pdrop": 0.1}),
			func(c *model.Config) { isPhi3(c); c.SlidingWindow = 31 }},
		{"OPT", opt(nil), isOPT},
		{"OPT untied, without biases", opt(map[string]any{"tie_word_embeddings": false, "enable_bias": false, "word_embed_proj_dim": 32, "prefix": "</s>"}),
			func(c *model.Config) {
				isOPT(c)
				c.TieEmbeddings, c.QKVBias, c.OutBias, c.MLPBias = false, false, false, false
			}},
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

// of makes the fields that change writeConfig's file to another family's.
func of(architecture, kind string, fields map[string]any) func(map[string]any) map[string]any {
	return func(extra map[string]any) map[string]any {
		m := map[string]any{"architectures": []string{architecture}, "model_type": kind}
		maps.Copy(m, fields)
		maps.Copy(m, extra)
		return m
	}
}

var (
	mistral = of("MistralForCausalLM", "mistral", map[string]any{"num_key_value_heads": 2})
	qwen2   = of("Qwen2ForCausalLM", "qwen2", map[string]any{"num_key_value_heads": 2})
	phi3    = of("Phi3ForCausalLM", "phi3", map[string]any{"eos_token_id": 3})
	opt     = of("OPTForCausalLM", "opt", map[string]any{"intermediate_size": nil, "ffn_dim": 64})
)

func isMistral(c *model.Config, window int) {
	c.Architecture, c.NumKVHeads, c.SlidingWindow = "MistralForCausalLM", 2, window
}

func isQwen2(c *model.Config) {
	c.Architecture, c.NumKVHeads, c.QKVBias, c.BOS, c.EOS = "Qwen2ForCausalLM", 2, true, -1, nil
}

func isPhi3(c *model.Config) {
	c.Architecture, c.RMSNormEps, c.EOS = "Phi3ForCausalLM", 1e-5, []int32{3}
}

func isOPT(c *model.Config) {
	c.Architecture, c.LayerNorm, c.ReLU, c.LearnedPositions, c.PositionOffset = "OPTForCausalLM", true, true, true, 2
	c.QKVBias, c.OutBias, c.MLPBias, c.TieEmbeddings = true, true, true, true
	c.RMSNormEps, c.RopeTheta, c.BOS, c.EOS = 1e-5, 0, 2, []int32{2}
}

// familyConfigs is a small configuration of every family.
func familyConfigs() map[string]model.Config {
	out := map[string]model.Config{}
	for name, change := range map[string]func(*model.Config){
		"Llama":             func(c *model.Config) { c.NumKVHeads = 2 },
		"Llama with biases": func(c *model.Config) { c.HeadDim, c.QKVBias, c.OutBias, c.MLPBias = 16, true, true, true },
		"Mistral":           func(c *model.Config) { isMistral(c, 16) },
		"Qwen2":             func(c *model.Config) { isQwen2(c); c.SlidingWindow, c.WindowFirstLayer = 16, 1 },
		"Phi-3":             func(c *model.Config) { isPhi3(c); c.NumKVHeads = 2 },
		"OPT":               isOPT,
	} {
		c := tiny()
		c.NumLayers = 2
		change(&c)
		out[name] = c
	}
	return out
}

func TestReadConfigRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		fields map[string]any
		field  string
	}{
		{"unknown architecture", map[string]any{"architectures": []string{"GPT2LMHeadModel"}}, "architectures"},
		{"two architectures", map[string]any{"architectures": []string{"LlamaForCausalLM", "LlamaForCausalLM"}}, "architectures"},
		{"unknown model type", map[string]any{"architectures": nil, "model_type": "gpt2"}, "model_type"},
		{"type and architecture differ", map[string]any{"model_type": "mistral"}, "model_type"},
		{"Qwen3", map[string]any{"architectures": []string{"Qwen3ForCausalLM"}, "model_type": "qwen3", "num_key_value_heads": 2}, "architectures"},
		{"Qwen2's default groups", map[string]any{"architectures": []string{"Qwen2ForCausalLM"}, "model_type": "qwen2"}, "num_key_value_heads"},
		{"a field nobody knows", map[string]any{"attn_logit_softcapping": 30.0}, "attn_logit_softcapping"},
		{"another family's field", map[string]any{"ffn_dim": 64}, "ffn_dim"},
		{"an encoder too", map[string]any{"is_encoder_decoder": true}, "is_encoder_decoder"},
		{"Llama's window", map[string]any{"sliding_window": 128}, "sliding_window"},
		{"Qwen2's other layers", qwen2(map[string]any{"sliding_window": 64, "use_sliding_window": true, "max_window_layers": 5,
			"layer_types": []string{"sliding_attention", "full_attention", "full_attention", "full_attention", "full_attention", "full_attention"}}), "layer_types"},
		{"Qwen2's biases elsewhere", qwen2(map[string]any{"attention_bias": true}), "attention_bias"},
		{"Phi-3's long contexts", phi3(map[string]any{"rope_scaling": map[string]any{"type": "longrope", "short_factor": []float64{1}, "long_factor": []float64{2}}}), "rope_scaling"},
		{"Phi-3's older long contexts", phi3(map[string]any{"rope_scaling": map[string]any{"type": "su", "short_factor": []float64{1}, "long_factor": []float64{2}}}), "rope_scaling"},
		{"Phi-3's end token beyond the vocabulary", phi3(map[string]any{"eos_token_id": 32000}), "eos_token_id"},
		{"OPT without its width", opt(map[string]any{"ffn_dim": nil}), "ffn_dim"},
		{"OPT's norms behind", opt(map[string]any{"do_layer_norm_before": false}), "do_layer_norm_before"},
		{"OPT's projected embeddings", opt(map[string]any{"word_embed_proj_dim": 16}), "word_embed_proj_dim"},
		{"OPT's activation", opt(map[string]any{"activation_function": "gelu"}), "activation_function"},
		{"OPT without a final norm", opt(map[string]any{"_remove_final_layer_norm": true}), "_remove_final_layer_norm"},
		{"OPT's bare norms", opt(map[string]any{"layer_norm_elementwise_affine": false}), "layer_norm_elementwise_affine"},
		{"OPT with rotary positions", opt(map[string]any{"rope_theta": 10000.0}), "rope_theta"},
		{"missing size", map[string]any{"hidden_size": nil}, "hidden_size"},
		{"zero layers", map[string]any{"num_hidden_layers": 0}, "num_hidden_layers"},
		{"negative size", map[string]any{"vocab_size": -5}, "vocab_size"},
		{"enormous size", map[string]any{"intermediate_size": 1 << 40}, "intermediate_size"},
		{"size a string", map[string]any{"hidden_size": "32"}, "hidden_size"},
		{"heads do not divide", map[string]any{"num_attention_heads": 5}, "num_attention_heads"},
		{"groups do not divide", map[string]any{"num_key_value_heads": 3}, "num_key_value_heads"},
		{"odd head", map[string]any{"head_dim": 7}, "head_dim"},
		{"activation", map[string]any{"hidden_act": "gelu"}, "hidden_act"},
		{"attention bias", mistral(map[string]any{"attention_bias": true}), "attention_bias"},
		{"MLP bias", mistral(map[string]any{"mlp_bias": true}), "mlp_bias"},
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
		{"Mistral's window of none", mistral(map[string]any{"sliding_window": 0}), "sliding_window"},
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
		`{"model_type":"opt","hidden_size":32,"ffn_dim":64,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":97,"enable_bias":false}`,
		`{"model_type":"qwen2","hidden_size":32,"intermediate_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":97,"use_sliding_window":true,"sliding_window":9,"max_window_layers":1}`,
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
		again := filepath.Join(dir, "again.json")
		if err := c.Save(again); err != nil {
			t.Fatal(err)
		}
		if d, err := model.ReadConfig(again); err != nil || !d.Equal(c) {
			t.Fatalf("%+v was written and read as %+v, %v", c, d, err)
		}
	})
}
