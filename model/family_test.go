package model_test

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/model"
	"github.com/specstream/specstream/model/safetensors"
)

// TestPublishedConfigurations reads the config.json of published bases; their
// numbers of parameters are public.
func TestPublishedConfigurations(t *testing.T) {
	for _, c := range []struct {
		name   string
		file   string
		params int64
		want   model.Config
	}{
		{"Llama 3.1 8B", `{"architectures":["LlamaForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"bos_token_id":128000,"eos_token_id":[128001,128008,128009],
			"hidden_act":"silu","hidden_size":4096,"initializer_range":0.02,"intermediate_size":14336,"max_position_embeddings":131072,"mlp_bias":false,"model_type":"llama",
			"num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":8,"pretraining_tp":1,"rms_norm_eps":1e-05,
			"rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192,"rope_type":"llama3"},"rope_theta":500000.0,
			"tie_word_embeddings":false,"torch_dtype":"bfloat16","transformers_version":"4.42.3","use_cache":true,"vocab_size":128256}`, 8_030_261_248, model.Config{HeadDim: 128}},
		{"Vicuna 7B v1.5", `{"_name_or_path":"vicuna-7b-v1.5","architectures":["LlamaForCausalLM"],"bos_token_id":1,"eos_token_id":2,"hidden_act":"silu","hidden_size":4096,
			"initializer_range":0.02,"intermediate_size":11008,"max_position_embeddings":4096,"model_type":"llama","num_attention_heads":32,"num_hidden_layers":32,
			"num_key_value_heads":32,"pad_token_id":0,"pretraining_tp":1,"rms_norm_eps":1e-05,"rope_scaling":null,"tie_word_embeddings":false,"torch_dtype":"float16",
			"transformers_version":"4.31.0","use_cache":true,"vocab_size":32000}`, 6_738_415_616, model.Config{HeadDim: 128}},
		{"Mistral 7B v0.1", `{"architectures":["MistralForCausalLM"],"bos_token_id":1,"eos_token_id":2,"hidden_act":"silu","hidden_size":4096,"initializer_range":0.02,
			"intermediate_size":14336,"max_position_embeddings":32768,"model_type":"mistral","num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":8,
			"rms_norm_eps":1e-05,"rope_theta":10000.0,"sliding_window":4096,"tie_word_embeddings":false,"torch_dtype":"bfloat16","transformers_version":"4.34.0.dev0",
			"use_cache":true,"vocab_size":32000}`, 7_241_732_096, model.Config{HeadDim: 128, SlidingWindow: 4096}},
		{"Qwen2.5 0.5B", `{"architectures":["Qwen2ForCausalLM"],"attention_dropout":0.0,"bos_token_id":151643,"eos_token_id":151643,"hidden_act":"silu","hidden_size":896,
			"initializer_range":0.02,"intermediate_size":4864,"max_position_embeddings":32768,"max_window_layers":24,"model_type":"qwen2","num_attention_heads":14,
			"num_hidden_layers":24,"num_key_value_heads":2,"rms_norm_eps":1e-06,"rope_theta":1000000.0,"sliding_window":32768,"tie_word_embeddings":true,"torch_dtype":"bfloat16",
			"transformers_version":"4.40.1","use_cache":true,"use_mrope":false,"use_sliding_window":false,"vocab_size":151936}`, 494_032_768, model.Config{HeadDim: 64, QKVBias: true}},
		{"Phi-3 mini 4k", `{"_name_or_path":"Phi-3-mini-4k-instruct","architectures":["Phi3ForCausalLM"],"attention_dropout":0.0,"auto_map":{"AutoConfig":"configuration_phi3.Phi3Config"},
			"bos_token_id":1,"embd_pdrop":0.0,"eos_token_id":32000,"hidden_act":"silu","hidden_size":3072,"initializer_range":0.02,"intermediate_size":8192,
			"max_position_embeddings":4096,"model_type":"phi3","num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":32,"original_max_position_embeddings":4096,
			"pad_token_id":32000,"resid_pdrop":0.0,"rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":10000.0,"sliding_window":2047,"tie_word_embeddings":false,
			"torch_dtype":"bfloat16","transformers_version":"4.40.2","use_cache":true,"attention_bias":false,"vocab_size":32064}`, 3_821_079_552, model.Config{HeadDim: 96, SlidingWindow: 2047}},
		{"OPT 125M", `{"activation_dropout":0.0,"activation_function":"relu","architectures":["OPTForCausalLM"],"attention_dropout":0.0,"bos_token_id":2,"do_layer_norm_before":true,
			"dropout":0.1,"eos_token_id":2,"ffn_dim":3072,"hidden_size":768,"init_std":0.02,"layerdrop":0.0,"max_position_embeddings":2048,"model_type":"opt","num_attention_heads":12,
			"num_hidden_layers":12,"pad_token_id":1,"prefix":"</s>","torch_dtype":"float16","transformers_version":"4.21.0.dev0","use_cache":true,"vocab_size":50272,
			"word_embed_proj_dim":768}`, 125_239_296, model.Config{HeadDim: 64, QKVBias: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.json")
			require.NoError(t, os.WriteFile(path, []byte(c.file), 0o600))
			got, err := model.ReadConfig(path)
			require.NoError(t, err)
			require.Equal(t, c.params, got.NumParams())
			require.Equal(t, c.want, model.Config{HeadDim: got.HeadDim, SlidingWindow: got.SlidingWindow, QKVBias: got.QKVBias})
			_, err = model.CountParams(got, specstream.AdapterSpec{Mode: specstream.Shared}.WithDefaults())
			require.NoError(t, err)
		})
	}
}

// TestTensorNames lists what a family's second layer and what lies outside the
// layers is called on disk.
func TestTensorNames(t *testing.T) {
	want := map[string][]string{
		"Phi-3": {"model.embed_tokens.weight [97 32]",
			"model.layers.1.input_layernorm.weight [32]", "model.layers.1.self_attn.qkv_proj.weight [64 32]", "model.layers.1.self_attn.o_proj.weight [32 32]",
			"model.layers.1.post_attention_layernorm.weight [32]", "model.layers.1.mlp.gate_up_proj.weight [128 32]", "model.layers.1.mlp.down_proj.weight [32 64]",
			"model.norm.weight [32]", "lm_head.weight [97 32]"},
		"Qwen2": {"model.embed_tokens.weight [97 32]", "model.layers.1.input_layernorm.weight [32]",
			"model.layers.1.self_attn.q_proj.weight [32 32]", "model.layers.1.self_attn.q_proj.bias [32]", "model.layers.1.self_attn.k_proj.weight [16 32]", "model.layers.1.self_attn.k_proj.bias [16]",
			"model.layers.1.self_attn.v_proj.weight [16 32]", "model.layers.1.self_attn.v_proj.bias [16]", "model.layers.1.self_attn.o_proj.weight [32 32]",
			"model.layers.1.post_attention_layernorm.weight [32]", "model.layers.1.mlp.gate_proj.weight [64 32]", "model.layers.1.mlp.up_proj.weight [64 32]", "model.layers.1.mlp.down_proj.weight [32 64]",
			"model.norm.weight [32]", "lm_head.weight [97 32]"},
		"OPT": {"model.decoder.embed_tokens.weight [97 32]", "model.decoder.embed_positions.weight [258 32]",
			"model.decoder.layers.1.self_attn_layer_norm.weight [32]", "model.decoder.layers.1.self_attn_layer_norm.bias [32]",
			"model.decoder.layers.1.self_attn.q_proj.weight [32 32]", "model.decoder.layers.1.self_attn.q_proj.bias [32]", "model.decoder.layers.1.self_attn.k_proj.weight [32 32]", "model.decoder.layers.1.self_attn.k_proj.bias [32]",
			"model.decoder.layers.1.self_attn.v_proj.weight [32 32]", "model.decoder.layers.1.self_attn.v_proj.bias [32]", "model.decoder.layers.1.self_attn.out_proj.weight [32 32]", "model.decoder.layers.1.self_attn.out_proj.bias [32]",
			"model.decoder.layers.1.final_layer_norm.weight [32]", "model.decoder.layers.1.final_layer_norm.bias [32]",
			"model.decoder.layers.1.fc1.weight [64 32]", "model.decoder.layers.1.fc1.bias [64]", "model.decoder.layers.1.fc2.weight [32 64]", "model.decoder.layers.1.fc2.bias [32]",
			"model.decoder.final_layer_norm.weight [32]", "model.decoder.final_layer_norm.bias [32]"},
	}
	for name, names := range want {
		t.Run(name, func(t *testing.T) {
			c := familyConfigs()[name]
			var got []string
			var n int64
			model.NewWeights(c, 1).Named(func(name string, shape []int, data []float32) {
				n += int64(len(data))
				if !strings.Contains(name, "layers.0.") {
					b, err := json.Marshal(shape)
					require.NoError(t, err)
					got = append(got, name+" "+strings.ReplaceAll(string(b), ",", " "))
				}
			})
			require.Equal(t, names, got)
			require.Equal(t, n, c.NumParams())
		})
	}
}

func TestLoadReadsNamesWithoutTheirModule(t *testing.T) {
	for _, name := range []string{"OPT", "Llama"} {
		t.Run(name, func(t *testing.T) {
			w := model.NewWeights(familyConfigs()[name], 1)
			all := tensors(w)
			for i := range all {
				all[i].Name = strings.TrimPrefix(all[i].Name, "model.")
			}
			dir := t.TempDir()
			require.NoError(t, w.Config.Save(filepath.Join(dir, "config.json")))
			path := filepath.Join(dir, "model.safetensors")
			writeTensors(t, path, all)
			got, err := model.Load(dir)
			require.NoError(t, err)
			require.Equal(t, w, got)

			writeTensors(t, path, all[1:])
			_, err = model.Load(dir)
			var in *specstream.InputError
			require.ErrorAs(t, err, &in)
			writeTensors(t, path, append(all[:len(all):len(all)], safetensors.Float32Source("stray", safetensors.F32, []int{1}, []float32{1})))
			_, err = model.Load(dir)
			require.ErrorAs(t, err, &in)
			require.Equal(t, "stray", in.Field)
		})
	}
}

// TestAdaptersOfFamilies saves adapters of every family and loads them back,
// and looks at PEFT's files.
func TestAdaptersOfFamilies(t *testing.T) {
	for name, c := range familyConfigs() {
		for kind, spec := range map[string]specstream.AdapterSpec{
			"lossless": {Mode: specstream.Lossless, MSALayers: 1},
			"shared":   {Mode: specstream.Shared, MSALayers: 2, LoRARank: 3, LoRAAlpha: 5},
			"shared, some targets": {Mode: specstream.Shared, MSALayers: 2, LoRARank: 3, LoRAAlpha: 5,
				LoRATargets: []string{"v_proj", "q_proj", "up_proj"}},
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				a, err := model.NewAdapter(c, spec.WithDefaults(), 7)
				require.NoError(t, err)
				for _, p := range a.Params { // no zeros, so that every place shows
					for i := range p.Data {
						p.Data[i] = float32(i%31) + 1
					}
				}
				dir := t.TempDir()
				require.NoError(t, a.Save(dir))
				got, err := model.LoadAdapter(dir, c)
				require.NoError(t, err)
				require.Equal(t, a, got)
			})
		}
	}
}

// TestFusedLoRAIsTheSumOfItsParts computes B·A of Phi-3's stacked projection from
// PEFT's tensors and from the three pairs.
func TestFusedLoRAIsTheSumOfItsParts(t *testing.T) {
	c := familyConfigs()["Phi-3"]
	spec := specstream.AdapterSpec{Mode: specstream.Shared, MSALayers: 2, LoRARank: 3, LoRAAlpha: 5, LoRATargets: []string{"q_proj", "v_proj", "down_proj"}}.WithDefaults()
	a, err := model.NewAdapter(c, spec, 7)
	require.NoError(t, err)
	for _, p := range a.Params {
		for i := range p.Data {
			p.Data[i] = float32((i*7)%13) - 5
		}
	}
	dir := t.TempDir()
	require.NoError(t, a.Save(dir))
	f, err := safetensors.Open(filepath.Join(dir, "adapter_model.safetensors"))
	require.NoError(t, err)
	read := func(name string) ([]float32, []int) {
		x, ok := f.Lookup(name)
		require.True(t, ok, name)
		data := make([]float32, x.Len())
		require.NoError(t, f.Float32s(x, data))
		return data, x.Shape
	}
	const prefix = "base_model.model.model.layers.1.self_attn.qkv_proj.lora_"
	A, shapeA := read(prefix + "A.weight")
	B, shapeB := read(prefix + "B.weight")
	require.NoError(t, f.Close())
	require.Equal(t, []int{6, 32}, shapeA)
	require.Equal(t, []int{64, 6}, shapeB)
	product := func(b, a []float32, out, r, in int) (y []float32) {
		for i := range out {
			for j := range in {
				var s float32
				for k := range r {
					s += b[i*r+k] * a[k*in+j]
				}
				y = append(y, s)
			}
		}
		return y
	}
	qa, qb := a.LoRA(1, "q_proj")
	va, vb := a.LoRA(1, "v_proj")
	want := product(qb, qa, 32, 3, 32)
	want = append(want, make([]float32, 16*32)...) // k_proj has none
	want = append(want, product(vb, va, 16, 3, 32)...)
	require.Equal(t, want, product(B, A, 64, 6, 32))

	b, err := os.ReadFile(filepath.Join(dir, "adapter_config.json"))
	require.NoError(t, err)
	var peft struct {
		Targets []string           `json:"target_modules"`
		Rank    map[string]int     `json:"rank_pattern"`
		Alpha   map[string]float64 `json:"alpha_pattern"`
	}
	require.NoError(t, json.Unmarshal(b, &peft))
	require.Equal(t, []string{"qkv_proj", "down_proj"}, peft.Targets)
	require.Equal(t, map[string]int{"qkv_proj": 6}, peft.Rank)
	require.Equal(t, map[string]float64{"qkv_proj": 10}, peft.Alpha)

	// A pair that mixes the projections, as PEFT itself would train it.
	B[0*6+5] = 1
	var all []safetensors.Source
	f, err = safetensors.Open(filepath.Join(dir, "adapter_model.safetensors"))
	require.NoError(t, err)
	for _, x := range f.Tensors {
		data := B
		if x.Name != prefix+"B.weight" {
			data, _ = read(x.Name)
		}
		all = append(all, safetensors.Float32Source(x.Name, safetensors.F32, x.Shape, data))
	}
	require.NoError(t, f.Close())
	out, err := os.Create(filepath.Join(dir, "adapter_model.safetensors"))
	require.NoError(t, err)
	require.NoError(t, safetensors.Write(io.Writer(out), nil, all))
	require.NoError(t, out.Close())
	_, err = model.LoadAdapter(dir, c)
	var in *specstream.InputError
	require.ErrorAs(t, err, &in)
	require.Equal(t, prefix+"B.weight", in.Field)
}

func TestAdapterRefusesWhatTheBaseCannot(t *testing.T) {
	for _, c := range []struct {
		name, family, field string
		spec                specstream.AdapterSpec
	}{
		{"OPT's gate", "OPT", "lora_targets", specstream.AdapterSpec{Mode: specstream.Shared, MSALayers: 1, LoRATargets: []string{"q_proj", "gate_proj"}}},
		{"more streams than the window holds", "Mistral", "gamma", specstream.AdapterSpec{Mode: specstream.Lossless, MSALayers: 1, Gamma: 16}},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := familyConfigs()[c.family]
			_, err := model.NewAdapter(base, c.spec.WithDefaults(), 1)
			var in *specstream.InputError
			require.ErrorAs(t, err, &in)
			require.Equal(t, c.field, in.Field, err)
		})
	}
	base := familyConfigs()["OPT"]
	a, err := model.NewAdapter(base, specstream.AdapterSpec{Mode: specstream.Shared, MSALayers: 1}.WithDefaults(), 1)
	require.NoError(t, err)
	A, _ := a.LoRA(0, "gate_proj")
	require.Nil(t, A, "all targets are all that the base has")
	A, _ = a.LoRA(0, "up_proj")
	require.NotNil(t, A)
}
