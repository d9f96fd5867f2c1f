package model_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/model"
	"github.com/specstream/specstream/model/safetensors"
)

func lossless() specstream.AdapterSpec {
	return specstream.AdapterSpec{Mode: specstream.Lossless}.WithDefaults()
}

func shared() specstream.AdapterSpec {
	return specstream.AdapterSpec{Mode: specstream.Shared, LoRARank: 4}.WithDefaults()
}

func lowRank() specstream.AdapterSpec {
	return specstream.AdapterSpec{Mode: specstream.Shared, LoRARank: 2, LoRAAlpha: 3.5, LoRATargets: []string{"v_proj", "q_proj"}, StreamInit: specstream.StreamInitLowRank}.WithDefaults()
}

func TestCountParams(t *testing.T) {
	for _, h := range []int{2048, 3072, 4096} {
		c := tiny()
		c.HiddenSize, c.NumHeads, c.NumKVHeads, c.HeadDim, c.NumLayers, c.IntermediateSize = h, h/128, h/128, 128, 32, 4*h
		n, err := model.CountParams(c, specstream.AdapterSpec{Mode: specstream.Shared}.WithDefaults())
		require.NoError(t, err)
		require.EqualValues(t, 20*h, n.BeyondLoRA)
		require.EqualValues(t, 4*h, n.StreamEmbeddings)
		require.EqualValues(t, 16*h, n.PruningAdapter)
		require.Zero(t, n.StreamAdapters)
		require.EqualValues(t, 32*32*(4*2*h+3*(h+4*h)), n.LoRA)
		require.Equal(t, n.LoRA+n.BeyondLoRA, n.Total)

		n, err = model.CountParams(c, lossless())
		require.NoError(t, err)
		require.EqualValues(t, 84*h, n.Total)
		require.EqualValues(t, 64*h, n.StreamAdapters)
		require.Equal(t, n.Total, n.BeyondLoRA)
	}
	n, err := model.CountParams(tiny(), lowRank())
	require.NoError(t, err)
	require.EqualValues(t, 2*8*32, n.StreamInit)
	b, err := json.Marshal(n)
	require.NoError(t, err)
	require.JSONEq(t, `{"lora":1536,"stream_embeddings":128,"pruning_adapter":512,"stream_adapters":0,"stream_init":512,"beyond_lora":1152,"total":2688}`, string(b))
}

func TestReadDimensionsCountsQwen(t *testing.T) {
	path := writeConfig(t, map[string]any{"architectures": []string{"Qwen2ForCausalLM"}, "model_type": "qwen2", "num_key_value_heads": 2})
	c, err := model.ReadDimensions(path)
	require.NoError(t, err)
	n, err := model.CountParams(c, lossless())
	require.NoError(t, err)
	require.EqualValues(t, 84*32, n.Total)
	_, err = model.ReadDimensions(writeConfig(t, map[string]any{"architectures": []string{"Qwen3ForCausalLM"}, "model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 16}))
	require.NoError(t, err, "it does not run, but its adapters can be counted")
	_, err = model.ReadDimensions(writeConfig(t, map[string]any{"architectures": []string{"GPT2LMHeadModel"}, "model_type": "gpt2"}))
	require.True(t, specstream.BadInput(err), err)
}

func TestNewAdapter(t *testing.T) {
	c := tiny()
	c.NumKVHeads = 2
	for name, spec := range map[string]specstream.AdapterSpec{"lossless": lossless(), "shared": shared(), "low-rank start, two targets": lowRank()} {
		t.Run(name, func(t *testing.T) {
			a, err := model.NewAdapter(c, spec, 7)
			require.NoError(t, err)
			again, err := model.NewAdapter(c, spec, 7)
			require.NoError(t, err)
			require.Equal(t, a, again)
			shapes := model.ParamShapes(c, spec)
			require.Len(t, a.Params, len(shapes))
			for i, p := range a.Params {
				require.Equal(t, shapes[i].Name, p.Name)
				require.Equal(t, shapes[i].Shape, p.Shape)
				zero := !slices.ContainsFunc(p.Data, func(v float32) bool { return v != 0 })
				require.Equal(t, strings.HasSuffix(p.Name, "lora_B.weight"), zero, "%s: only B begins at zero", p.Name)
				if strings.HasSuffix(p.Name, "lora_A.weight") {
					bound := 1 / math.Sqrt(float64(p.Shape[1]))
					largest := float64(max(slices.Max(p.Data), -slices.Min(p.Data)))
					require.LessOrEqual(t, largest, bound)
					require.Greater(t, largest, 0.8*bound)
				}
				require.Same(t, p, a.Param(p.Name))
			}
			require.Len(t, a.StreamEmbeddings(), 4*32)
			pa, pb := a.Pruner()
			require.Len(t, pa, 8*32)
			require.Len(t, pb, 8*32)
		})
	}
	a, err := model.NewAdapter(c, shared(), 1)
	require.NoError(t, err)
	A, B := a.LoRA(5, "k_proj")
	require.Len(t, A, 4*32)
	require.Len(t, B, 16*4)
	A[0] = 42
	require.Equal(t, float32(42), a.Param("base_model.model.model.layers.5.self_attn.k_proj.lora_A.weight").Data[0])
	A, B = a.StreamAdapter(5)
	require.True(t, A == nil && B == nil)
	require.Same(t, &a.Param(model.LoRAName(5, "k_proj", "A")).Data[0], &mustLoRA(a, 5, "k_proj")[0])
	for _, name := range []string{model.StreamEmbeddingsName, model.PrunerName("A"), model.PrunerName("B"), model.LoRAName(0, "down_proj", "B")} {
		require.NotNil(t, a.Param(name), name)
	}
	require.Nil(t, a.Param(model.StreamAdapterName(5, "A")), "shared mode has no stream adapters")
	require.Nil(t, a.Param(model.StreamInitName("A")), "f is the identity")

	a, err = model.NewAdapter(c, lossless(), 1)
	require.NoError(t, err)
	A, B = a.LoRA(5, "k_proj")
	require.True(t, A == nil && B == nil)
	A, B = a.StreamAdapter(1)
	require.True(t, A == nil && B == nil, "layer 1 is below the MSA layers")
	A, B = a.StreamAdapter(2)
	require.Len(t, A, 8*32)
	require.Len(t, B, 32*8)
	A, _ = a.StreamInit()
	require.Nil(t, A)

	_, err = model.NewAdapter(c, specstream.AdapterSpec{Mode: specstream.Lossless, MSALayers: 7}.WithDefaults(), 1)
	var in *specstream.InputError
	require.ErrorAs(t, err, &in)
	require.Equal(t, "msa_layers", in.Field)
}

func mustLoRA(a *model.Adapter, layer int, target string) []float32 {
	A, _ := a.LoRA(layer, target)
	return A
}

func TestAdapterSaveThenLoad(t *testing.T) {
	for name, spec := range map[string]specstream.AdapterSpec{"lossless": lossless(), "shared": shared(), "low-rank start, two targets": lowRank()} {
		t.Run(name, func(t *testing.T) {
			a, err := model.NewAdapter(tiny(), spec, 7)
			require.NoError(t, err)
			one, two := t.TempDir(), t.TempDir()
			require.NoError(t, a.Save(one))
			require.NoError(t, a.Save(two))
			got, err := model.LoadAdapter(one, tiny())
			require.NoError(t, err)
			require.Equal(t, a, got)
			want, err := a.Digest()
			require.NoError(t, err)
			require.NoError(t, want.Validate())
			d, err := got.Digest()
			require.NoError(t, err)
			require.Equal(t, want, d)
			got.Params[0].Data[3]++
			d, err = got.Digest()
			require.NoError(t, err)
			require.NotEqual(t, want, d)
			files, err := os.ReadDir(one)
			require.NoError(t, err)
			for _, f := range files {
				x, err := os.ReadFile(filepath.Join(one, f.Name()))
				require.NoError(t, err)
				y, err := os.ReadFile(filepath.Join(two, f.Name()))
				require.NoError(t, err)
				require.Equal(t, x, y, "%s is the same each time", f.Name())
			}
			require.Len(t, files, map[specstream.Mode]int{specstream.Lossless: 3, specstream.Shared: 4}[spec.Mode])
		})
	}
}

func TestSharedAdapterIsPEFTs(t *testing.T) {
	a, err := model.NewAdapter(tiny(), lowRank(), 7)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, a.Save(dir))
	b, err := os.ReadFile(filepath.Join(dir, "adapter_config.json"))
	require.NoError(t, err)
	var c map[string]any
	require.NoError(t, json.Unmarshal(b, &c))
	require.Equal(t, "LORA", c["peft_type"])
	require.Equal(t, "CAUSAL_LM", c["task_type"])
	require.Equal(t, 2.0, c["r"])
	require.Equal(t, 3.5, c["lora_alpha"])
	require.Equal(t, []any{"q_proj", "v_proj"}, c["target_modules"])
	f, err := safetensors.Open(filepath.Join(dir, "adapter_model.safetensors"))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	require.Len(t, f.Tensors, 6*2*2)
	x, ok := f.Lookup("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight")
	require.True(t, ok)
	require.Equal(t, []int{2, 32}, x.Shape)
}

func TestLoadAdapterRefuses(t *testing.T) {
	edit := func(file, from, to string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, file)
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Contains(t, string(b), from)
			require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(b), from, to, 1)), 0o600))
		}
	}
	remove := func(file string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, file))) }
	}
	for _, c := range []struct {
		name        string
		spec        specstream.AdapterSpec
		damage      func(t *testing.T, dir string)
		file, field string
	}{
		{"no specstream.json", shared(), remove("specstream.json"), "specstream.json", ""},
		{"no weights", shared(), remove("specstream.safetensors"), "specstream.safetensors", ""},
		{"no LoRA weights", shared(), remove("adapter_model.safetensors"), "adapter_model.safetensors", ""},
		{"no PEFT configuration", shared(), remove("adapter_config.json"), "adapter_config.json", ""},
		{"newer format", shared(), edit("specstream.json", `"format": 1`, `"format": 2`), "specstream.json", "format"},
		{"unknown field", shared(), edit("specstream.json", `"format"`, `"x": 1, "format"`), "specstream.json", "x"},
		{"incomplete spec", shared(), edit("specstream.json", `"gamma": 4,`, ``), "specstream.json", "gamma"},
		{"another base", shared(), edit("specstream.json", `"vocab_size": 97`, `"vocab_size": 98`), "specstream.json", "base"},
		{"more streams than weights", shared(), edit("specstream.json", `"gamma": 4`, `"gamma": 5`), "specstream.safetensors", "stream_embeddings.weight"},
		{"fewer stream adapters", lossless(), edit("specstream.json", `"msa_layers": 4`, `"msa_layers": 3`), "specstream.safetensors", "stream_adapters.layers.2.lora_A.weight"},
		{"rank contradicts", shared(), edit("adapter_config.json", `"r": 4`, `"r": 8`), "adapter_config.json", "r"},
		{"scale contradicts", shared(), edit("adapter_config.json", `"lora_alpha": 4`, `"lora_alpha": 8`), "adapter_config.json", "lora_alpha"},
		{"targets contradict", shared(), edit("adapter_config.json", `"q_proj",`, ``), "adapter_config.json", "target_modules"},
		{"DoRA", shared(), edit("adapter_config.json", `"use_dora": false`, `"use_dora": true`), "adapter_config.json", "use_dora"},
		{"wrong kind", lossless(), edit("adapter_config.json", `SPECSTREAM`, `LORA`), "adapter_config.json", "peft_type"},
		{"LoRA beside lossless", lossless(), func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "adapter_model.safetensors"), nil, 0o600))
		}, "adapter_model.safetensors", ""},
		{"renamed tensor", shared(), edit("specstream.safetensors", "stream_embeddings", "stream_embeddingx"), "specstream.safetensors", "stream_embeddings.weight"},
		{"corrupt header", shared(), edit("specstream.safetensors", "{", "["), "specstream.safetensors", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := model.NewAdapter(tiny(), c.spec, 7)
			require.NoError(t, err)
			dir := t.TempDir()
			require.NoError(t, a.Save(dir))
			c.damage(t, dir)
			_, err = model.LoadAdapter(dir, tiny())
			var in *specstream.InputError
			require.ErrorAs(t, err, &in)
			require.Equal(t, filepath.Join(dir, c.file), in.File, err)
			require.Equal(t, c.field, in.Field, err)
		})
	}
}
