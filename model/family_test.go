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
