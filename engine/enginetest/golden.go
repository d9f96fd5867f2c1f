package enginetest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/engine"
	"github.com/specstream/specstream/model"
	"github.com/specstream/specstream/model/safetensors"
)

// GoldenDir returns a folder of the repository's testdata/golden.
func GoldenDir(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "testdata", "golden", name)
		}
		up := filepath.Dir(dir)
		require.NotEqual(t, dir, up, "the test does not run inside the repository")
		dir = up
	}
}

// goldenDecodes is a file of decodes: testdata/golden/decode/<mode>.json.
type goldenDecodes struct {
	Adapter     string                 `json:"adapter"`
	Spec        map[string]any         `json:"spec"`
	EndToken    int32                  `json:"end_token"`
	Prompts     [][]int32              `json:"prompts"`
	PlainTokens [][]int32              `json:"plain_tokens"`
	Settings    map[string]goldenTrees `json:"settings"`
}

// goldenTrees are the decodes of all prompts under one tree setting.
type goldenTrees struct {
	Decode specstream.DecodeSpec `json:"decode"`
	Beta   float64               `json:"mean_accepted_tokens"`
	Runs   []struct {
		Tokens      []int32 `json:"tokens"`
		TargetCalls int     `json:"target_calls"`
		Accepted    []int   `json:"accepted"`
		Emitted     []int   `json:"emitted"`
		Steps       []struct {
			Root  int32     `json:"root"`
			Draft [][]int32 `json:"draft"`
			Kept  []int     `json:"kept"`
		} `json:"steps"`
	} `json:"runs"`
}

// LoadReferenceAdapter reads an adapter under the names of the Python reference
// in testdata/golden; the spec is its JSON object, training fields ignored.
func LoadReferenceAdapter(t testing.TB, path string, spec map[string]any, c model.Config) *model.Adapter {
	t.Helper()
	for _, training := range []string{"alpha_0", "alpha_stream"} {
		delete(spec, training)
	}
	b, err := json.Marshal(spec)
	require.NoError(t, err)
	var s specstream.AdapterSpec
	require.NoError(t, specstream.DecodeStrict("spec", strings.NewReader(string(b)), &s))
	a, err := model.NewAdapter(c, s.WithDefaults(), 1)
	require.NoError(t, err)
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	read := func(name string, dst []float32) {
		if dst == nil {
			return
		}
		x, ok := f.Lookup(name)
		require.True(t, ok, "%s has no %s", path, name)
		require.NoError(t, f.Float32s(x, dst))
	}
	pair := func(name string, A, B []float32) {
		read(name+".A", A)
		read(name+".B", B)
	}
	read("stream_embeddings", a.StreamEmbeddings())
	A, B := a.Pruner()
	pair("pruner", A, B)
	A, B = a.StreamInit()
	pair("stream_init", A, B)
	for l := range c.NumLayers {
		layer := string(rune('0' + l)) // the reference models have fewer than ten layers
		A, B = a.StreamAdapter(l)
		pair("stream_adapters."+layer, A, B)
		for _, target := range specstream.LoRATargets {
			A, B = a.LoRA(l, target)
			pair("lora."+layer+"."+target, A, B)
		}
	}
	return a
}

// runGolden compares with decodes of an independent dense implementation in
// float64, step by step: the tree drafted, what pruning kept, what was accepted.
// Its prompts are clear of ties, so that every float32 decoder must agree.
func runGolden(t *testing.T, build New) {
	dir := GoldenDir(t, "decode")
	w, err := model.Load(filepath.Join(dir, "base"))
	require.NoError(t, err)
	for _, mode := range []specstream.Mode{specstream.Lossless, specstream.Shared} {
		b, err := os.ReadFile(filepath.Join(dir, string(mode)+".json"))
		require.NoError(t, err)
		var g goldenDecodes
		require.NoError(t, json.Unmarshal(b, &g))
		require.NotEmpty(t, g.Settings)
		d, err := build(w, LoadReferenceAdapter(t, filepath.Join(dir, g.Adapter), g.Spec, w.Config))
		require.NoError(t, err)
		t.Run(string(mode)+"/baseline", func(t *testing.T) {
			for i, prompt := range g.Prompts {
				spec := specstream.DecodeSpec{MaxNewTokens: g.Settings["unpruned"].Decode.MaxNewTokens}
				got := decode(t, d, engine.Request{Prompt: prompt, EOS: []int32{g.EndToken}, Method: engine.Baseline(mode), Decode: spec})
				require.Equal(t, g.PlainTokens[i], got.Tokens)
			}
		})
		for name, s := range g.Settings {
			t.Run(string(mode)+"/"+name, func(t *testing.T) {
				require.Len(t, s.Runs, len(g.Prompts))
				calls, emitted := 0, 0
				for i, run := range s.Runs {
					var steps []engine.Step
					got := decode(t, d, engine.Request{
						Prompt: g.Prompts[i], EOS: []int32{g.EndToken}, Method: engine.Speculative, Decode: s.Decode,
						Observe: func(s engine.Step) {
							s.Kept = slices.Clone(s.Kept)
							draft := make([][]int32, len(s.Draft))
							for j := range draft {
								draft[j] = slices.Clone(s.Draft[j])
							}
							s.Draft = draft
							steps = append(steps, s)
						},
					})
					require.Equal(t, run.Tokens, got.Tokens)
					require.Equal(t, run.TargetCalls, got.TargetCalls)
					require.Len(t, steps, len(run.Steps))
					for k, want := range run.Steps {
						require.Equal(t, engine.Step{Root: want.Root, Draft: want.Draft, Kept: want.Kept, Accepted: run.Accepted[k], Emitted: run.Emitted[k]}, steps[k], "prompt %d, step %d", i, k)
					}
					calls += got.TargetCalls
					emitted += got.Emitted
				}
				require.InDelta(t, s.Beta, float64(emitted)/float64(calls), 1e-9)
			})
		}
		require.NoError(t, d.Close())
	}
}
