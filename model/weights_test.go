package model_test

import (
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/model"
	"github.com/specstream/specstream/model/safetensors"
)

func TestNewWeights(t *testing.T) {
	c := tiny()
	a, b, other := model.NewWeights(c, 1), model.NewWeights(c, 1), model.NewWeights(c, 2)
	require.Equal(t, a, b, "one seed, one result")
	require.NotEqual(t, a.Embed, other.Embed)
	k, _ := a.Projection(0, "k_proj")
	v, _ := a.Projection(0, "v_proj")
	require.NotEqual(t, k, v, "tensors of one shape differ")
	std := func(x []float32) float64 {
		var s float64
		for _, v := range x {
			s += float64(v) * float64(v)
		}
		return math.Sqrt(s / float64(len(x)))
	}
	require.InEpsilon(t, 0.02, std(a.Layers[3].GateUp), 0.1)
	require.InEpsilon(t, 0.02/math.Sqrt(12), std(a.Layers[3].Down), 0.1)
	require.InEpsilon(t, 0.02/math.Sqrt(12), std(a.Layers[3].O), 0.1)
	require.Equal(t, slices.Repeat([]float32{1}, 32), a.Norm)
	var n int64
	a.Named(func(_ string, _ []int, data []float32) { n += int64(len(data)) })
	require.Equal(t, n, c.NumParams())
}

func TestProjection(t *testing.T) {
	for name, c := range familyConfigs() {
		t.Run(name, func(t *testing.T) {
			w := model.NewWeights(c, 1)
			w.Named(func(_ string, _ []int, data []float32) { // every element has a value of its own
				for i := range data {
					data[i] = float32(i)
				}
			})
			for _, target := range c.Projections() {
				data, bias := w.Projection(1, target)
				out, in := c.ProjectionShape(target)
				require.Len(t, data, out*in, target)
				require.Equal(t, bias != nil, len(bias) == out, target)
			}
			data, bias := w.Projection(1, "lm_head")
			require.True(t, data == nil && bias == nil)
		})
	}
}

func TestSaveThenLoad(t *testing.T) {
	for name, c := range familyConfigs() {
		t.Run(name, func(t *testing.T) { saveThenLoad(t, c) })
	}
}

func saveThenLoad(t *testing.T, c model.Config) {
	for _, tied := range []bool{false, true} {
		c.TieEmbeddings = tied
		w := model.NewWeights(c, 1)
		for _, dtype := range []string{"F32", "BF16", "F16"} {
			dir := filepath.Join(t.TempDir(), "base")
			require.NoError(t, w.Save(dir, dtype))
			got, err := model.Load(dir)
			require.NoError(t, err)
			require.Equal(t, tied, &got.Head[0] == &got.Embed[0], "a tied head aliases the embedding")
			if dtype == "F32" {
				require.Equal(t, w, got)
			} else {
				require.InDeltaSlice(t, w.Layers[1].GateUp, got.Layers[1].GateUp, 1e-3)
			}
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, left, 2, "no temporary file stays")
		}
		require.True(t, specstream.BadInput(w.Save(t.TempDir(), "I8")))
	}
}

// tensors returns w as sources, for tests to change.
func tensors(w *model.Weights) []safetensors.Source {
	var s []safetensors.Source
	w.Named(func(name string, shape []int, data []float32) {
		s = append(s, safetensors.Float32Source(name, safetensors.F32, shape, data))
	})
	return s
}

func writeTensors(t *testing.T, path string, s []safetensors.Source) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, safetensors.Write(f, nil, s))
	require.NoError(t, f.Close())
}

func TestLoadShards(t *testing.T) {
	w := model.NewWeights(tiny(), 1)
	dir := t.TempDir()
	require.NoError(t, w.Config.Save(filepath.Join(dir, "config.json")))
	all := tensors(w)
	files := map[string][]safetensors.Source{"model-00001-of-00002.safetensors": all[:20], "model-00002-of-00002.safetensors": all[20:]}
	index := map[string]string{}
	for name, part := range files {
		writeTensors(t, filepath.Join(dir, name), part)
		for _, s := range part {
			index[s.Name] = name
		}
	}
	save := func() {
		b, err := json.Marshal(map[string]any{"metadata": map[string]any{"total_size": 1}, "weight_map": index})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), b, 0o600))
	}
	save()
	got, err := model.Load(dir)
	require.NoError(t, err)
	require.Equal(t, w, got)
	before, err := model.DirDigest(dir)
	require.NoError(t, err)

	for name, c := range map[string]struct {
		tensor, file string
		field        string
	}{
		"index places a tensor in the wrong file": {all[0].Name, "model-00002-of-00002.safetensors", all[0].Name},
		"index lacks a tensor":                    {all[1].Name, "", all[1].Name},
		"index names a file that is not there":    {all[2].Name, "model-3.safetensors", ""},
		"index leaves the folder":                 {all[3].Name, "../model.safetensors", all[3].Name},
	} {
		t.Run(name, func(t *testing.T) {
			kept := index[c.tensor]
			defer func() { index[c.tensor] = kept }()
			index[c.tensor] = c.file
			if c.file == "" {
				delete(index, c.tensor)
			}
			save()
			_, err := model.Load(dir)
			var in *specstream.InputError
			require.ErrorAs(t, err, &in)
			require.Equal(t, c.field, in.Field, err)
		})
	}
	save()
	after, err := model.DirDigest(dir)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestLoadRefuses(t *testing.T) {
	w := model.NewWeights(tiny(), 1)
	all := tensors(w)
	const victim = "model.layers.2.mlp.up_proj.weight"
	at := slices.IndexFunc(all, func(s safetensors.Source) bool { return s.Name == victim })
	replaced := func(s safetensors.Source) []safetensors.Source {
		c := slices.Clone(all)
		c[at] = s
		return c
	}
	for name, c := range map[string]struct {
		tensors []safetensors.Source
		field   string
	}{
		"missing tensor":            {slices.Delete(slices.Clone(all), at, at+1), victim},
		"surplus tensor":            {append(slices.Clone(all), safetensors.Float32Source("model.layers.6.extra", safetensors.F32, []int{1}, []float32{1})), "model.layers.6.extra"},
		"attention bias in weights": {append(slices.Clone(all), safetensors.Float32Source("model.layers.0.self_attn.q_proj.bias", safetensors.F32, []int{32}, make([]float32, 32))), "model.layers.0.self_attn.q_proj.bias"},
		"transposed tensor":         {replaced(safetensors.Float32Source(victim, safetensors.F32, []int{32, 64}, make([]float32, 2048))), victim},
		"flattened tensor":          {replaced(safetensors.Float32Source(victim, safetensors.F32, []int{2048}, make([]float32, 2048))), victim},
		"integer tensor": {replaced(safetensors.Source{Name: victim, DType: safetensors.I32, Shape: []int{64, 32}, Write: func(out io.Writer) error {
			_, err := out.Write(make([]byte, 4*2048))
			return err
		}}), victim},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, w.Config.Save(filepath.Join(dir, "config.json")))
			path := filepath.Join(dir, "model.safetensors")
			writeTensors(t, path, c.tensors)
			_, err := model.Load(dir)
			var in *specstream.InputError
			require.ErrorAs(t, err, &in)
			require.Equal(t, path, in.File)
			require.Equal(t, c.field, in.Field)
			in = nil
			require.ErrorAs(t, model.Check(dir), &in, "the header is enough to tell")
			require.Equal(t, c.field, in.Field)
		})
	}
	t.Run("no weights", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, w.Config.Save(filepath.Join(dir, "config.json")))
		_, err := model.Load(dir)
		require.True(t, specstream.BadInput(err), err)
	})
	t.Run("old rotary buffers are ignored", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, w.Config.Save(filepath.Join(dir, "config.json")))
		writeTensors(t, filepath.Join(dir, "model.safetensors"), append(slices.Clone(all),
			safetensors.Float32Source("model.layers.0.self_attn.rotary_emb.inv_freq", safetensors.F32, []int{4}, make([]float32, 4))))
		_, err := model.Load(dir)
		require.NoError(t, err)
		require.NoError(t, model.Check(dir))
	})
}

func TestTiedHeadMustAgree(t *testing.T) {
	c := tiny()
	c.TieEmbeddings = true
	w := model.NewWeights(c, 1)
	for name, same := range map[string]bool{"equal": true, "different": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, c.Save(filepath.Join(dir, "config.json")))
			head := slices.Clone(w.Embed)
			if !same {
				head[5]++
			}
			writeTensors(t, filepath.Join(dir, "model.safetensors"), append(tensors(w), safetensors.Float32Source("lm_head.weight", safetensors.F32, []int{97, 32}, head)))
			_, err := model.Load(dir)
			require.Equal(t, same, err == nil, err)
			require.Equal(t, !same, specstream.BadInput(err))
		})
	}
}

func TestDirDigest(t *testing.T) {
	digest := func(dir string) specstream.Digest {
		d, err := model.DirDigest(dir)
		require.NoError(t, err)
		require.NoError(t, d.Validate())
		return d
	}
	a, b := t.TempDir(), t.TempDir()
	require.NoError(t, model.NewWeights(tiny(), 1).Save(a, "F32"))
	require.NoError(t, model.NewWeights(tiny(), 1).Save(b, "F32"))
	require.NoError(t, os.WriteFile(filepath.Join(b, "README.md"), []byte("x"), 0o600))
	require.Equal(t, digest(a), digest(b))
	require.NoError(t, model.NewWeights(tiny(), 2).Save(b, "F32"))
	require.NotEqual(t, digest(a), digest(b))
	c := tiny()
	c.RopeTheta = 5
	require.NoError(t, c.Save(filepath.Join(a, "config.json")))
	require.NotEqual(t, digest(b), digest(a))
	_, err := model.DirDigest(t.TempDir())
	require.Error(t, err)
}
