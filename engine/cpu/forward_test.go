package cpu

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/engine"
	"github.com/specstream/specstream/engine/enginetest"
	"github.com/specstream/specstream/model"
	"github.com/specstream/specstream/model/safetensors"
)

// relative returns ‖a − b‖/‖b‖.
func relative(a []float32, b []float64) float64 {
	var diff, norm float64
	for i := range b {
		diff += (float64(a[i]) - b[i]) * (float64(a[i]) - b[i])
		norm += b[i] * b[i]
	}
	return math.Sqrt(diff / norm)
}

// promptLogits runs a prompt without streams and returns all logits [rows, V].
func promptLogits(t *testing.T, d *Decoder, prompt []int32) []float32 {
	t.Helper()
	require.LessOrEqual(t, len(prompt), prefillRows, "one batch, whose rows are all still there afterwards")
	d.allocate(len(prompt) + 1)
	r := engine.Request{Prompt: prompt, Decode: specstream.DecodeSpec{MaxNewTokens: 1}}
	var res engine.Result
	_, err := d.prefill(context.Background(), prompt, plan{}, engine.NewTokens(r, d.base.config.MaxPositions), &res)
	require.NoError(t, err)
	return append([]float32{}, d.headLogits(d.x, len(prompt))...)
}

// TestLogitsMatchTransformers compares with what Hugging Face transformers
// computes for small bases of every family; testdata/golden/llama/make_llama.py and
// testdata/golden/families/make_families.py made them.
func TestLogitsMatchTransformers(t *testing.T) {
	tested := map[string]int{}
	for _, group := range []string{"llama", "families"} {
		root := enginetest.GoldenDir(t, group)
		folders, err := os.ReadDir(root)
		require.NoError(t, err)
		for _, folder := range folders {
			if !folder.IsDir() || strings.HasPrefix(folder.Name(), "_") {
				continue
			}
			t.Run(group+"/"+folder.Name(), func(t *testing.T) {
				w, err := model.Load(filepath.Join(root, folder.Name()))
				require.NoError(t, err)
				tested[w.Config.Architecture]++
				matchTransformers(t, w, filepath.Join(root, folder.Name(), "golden.safetensors"))
			})
		}
	}
	for _, a := range model.Architectures() {
		require.Positive(t, tested[a], "%s went untested", a)
	}
	require.GreaterOrEqual(t, tested["LlamaForCausalLM"], 5, "multi-head and grouped-query, tied and untied, with biases")
}

func matchTransformers(t *testing.T, w *model.Weights, golden string) {
	t.Helper()
	d, err := New(w, nil)
	require.NoError(t, err)
	f, err := safetensors.Open(golden)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	ids, _ := f.Lookup("input_ids")
	tokens, err := f.Int64s(ids)
	require.NoError(t, err)
	want := floats(t, f, "logits")
	batch, length, v := ids.Shape[0], ids.Shape[1], w.Config.VocabSize
	require.Len(t, want, batch*length*v)
	for s := range batch {
		prompt := make([]int32, length)
		for i := range prompt {
			prompt[i] = int32(tokens[s*length+i])
		}
		require.Less(t, relative(promptLogits(t, d, prompt), want[s*length*v:(s+1)*length*v]), 1e-5)
	}
}

// TestLogitsMatchReferenceForward compares main, stream and early-exit logits
// with the golden forward of testdata/golden/method, in the position that
// decoding has streams at first: the prompt's last.
func TestLogitsMatchReferenceForward(t *testing.T) {
	dir := enginetest.GoldenDir(t, "method")
	files, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".safetensors")
		t.Run(name, func(t *testing.T) {
			var doc struct {
				Config  json.RawMessage `json:"config"`
				Spec    map[string]any  `json:"spec"`
				Samples []struct {
					Tokens []int32  `json:"tokens"`
					Spans  [][2]int `json:"spans"`
				} `json:"samples"`
			}
			b, err := os.ReadFile(strings.TrimSuffix(path, ".safetensors") + ".json")
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(b, &doc))
			config := filepath.Join(t.TempDir(), "config.json")
			require.NoError(t, os.WriteFile(config, doc.Config, 0o600))
			c, err := model.ReadConfig(config)
			require.NoError(t, err)
			a := enginetest.LoadReferenceAdapter(t, path, doc.Spec, c)
			w := loadBase(t, path, c)
			d, err := New(w, a)
			require.NoError(t, err)
			f, err := safetensors.Open(path)
			require.NoError(t, err)
			defer func() { require.NoError(t, f.Close()) }()
			mainRows, streamRows, earlyRows := floats(t, f, "main_logits"), floats(t, f, "stream_logits"), floats(t, f, "early_logits")
			v, gamma := c.VocabSize, a.Spec.Gamma
			carrier := 0 // row of the golden tensors: every position with streams, sample by sample
			for _, s := range doc.Samples {
				prompt := s.Tokens[:s.Spans[0][0]]
				main, streams, early := prefillLogits(t, d, prompt)
				require.Less(t, relative(main, mainRows[carrier*v:(carrier+1)*v]), 1e-5)
				require.Less(t, relative(early, earlyRows[carrier*v:(carrier+1)*v]), 1e-5)
				require.Less(t, relative(streams, streamRows[carrier*gamma*v:(carrier+1)*gamma*v]), 1e-5)
				for _, span := range s.Spans {
					carrier += span[1] - span[0]
				}
			}
			require.Equal(t, len(mainRows)/v, carrier, "every row of the golden tensors is accounted for")
		})
	}
}

// TestSharedAdaptersAreWhatPEFTHas compares the LoRA part of shared adapters, saved
// as a folder, with what PEFT saves, and its logits without streams with PEFT's;
// testdata/golden/peft/make_peft.py made them.
func TestSharedAdaptersAreWhatPEFTHas(t *testing.T) {
	var cases map[string]struct {
		Config  map[string]any   `json:"config"`
		Tensors map[string][]int `json:"tensors"`
	}
	dir := enginetest.GoldenDir(t, "peft")
	b, err := os.ReadFile(filepath.Join(dir, "peft.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &cases))
	golden, err := safetensors.Open(filepath.Join(dir, "peft.safetensors"))
	require.NoError(t, err)
	defer func() { require.NoError(t, golden.Close()) }()
	seen := map[string]bool{}
	for name, want := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(enginetest.GoldenDir(t, "method"), name)
			var doc struct {
				Config json.RawMessage `json:"config"`
				Spec   map[string]any  `json:"spec"`
			}
			b, err := os.ReadFile(path + ".json")
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(b, &doc))
			folder := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), doc.Config, 0o600))
			c, err := model.ReadConfig(filepath.Join(folder, "config.json"))
			require.NoError(t, err)
			seen[c.Architecture] = true
			a := enginetest.LoadReferenceAdapter(t, path+".safetensors", doc.Spec, c)
			require.NoError(t, a.Save(folder))

			var config map[string]any
			b, err = os.ReadFile(filepath.Join(folder, "adapter_config.json"))
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(b, &config))
			for field, value := range want.Config {
				if field == "target_modules" {
					require.ElementsMatch(t, value, config[field])
					continue
				}
				require.Equal(t, value, config[field], field)
			}
			f, err := safetensors.Open(filepath.Join(folder, "adapter_model.safetensors"))
			require.NoError(t, err)
			defer func() { require.NoError(t, f.Close()) }()
			got := map[string][]int{}
			for _, x := range f.Tensors {
				got[x.Name] = x.Shape
			}
			require.Equal(t, want.Tensors, got)

			d, err := New(loadBase(t, path+".safetensors", c), a)
			require.NoError(t, err)
			prompt := make([]int32, 19)
			for i := range prompt {
				prompt[i] = int32(7 * i % c.VocabSize)
			}
			require.Less(t, relative(promptLogits(t, d, prompt), floats(t, golden, name)), 1e-5)
		})
	}
	require.Len(t, seen, len(model.Architectures()), "a case a family")
}

func loadBase(t *testing.T, path string, c model.Config) *model.Weights {
	t.Helper()
	w := model.NewWeights(c, 1)
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	w.Named(func(name string, _ []int, data []float32) {
		x, ok := f.Lookup(name)
		require.True(t, ok, name)
		require.NoError(t, f.Float32s(x, data))
	})
	return w
}

func floats(t *testing.T, f *safetensors.File, name string) []float64 {
	t.Helper()
	x, ok := f.Lookup(name)
	require.True(t, ok, name)
	single := make([]float32, x.Len())
	require.NoError(t, f.Float32s(x, single))
	out := make([]float64, len(single))
	for i, v := range single {
		out[i] = float64(v)
	}
	return out
}

// prefillLogits runs a prompt with streams at its end and returns the last
// position's main [V], stream [γ, V] and early-exit [V] logits.
func prefillLogits(t *testing.T, d *Decoder, prompt []int32) (main, streams, early []float32) {
	t.Helper()
	p := plan{draft: true, attach: d.adapter.mode == specstream.Shared, k: 1, nodes: 1}
	h, v := d.base.config.HiddenSize, d.base.config.VocabSize
	d.allocate(len(prompt) + 64)
	b := &d.batch
	ctx := context.Background()
	b.reset(0)
	for i := range prompt {
		b.addMain(i, i, i)
	}
	d.reserve(len(prompt))
	d.embed(b, prompt)
	require.NoError(t, d.run(ctx, b, 0, d.adapter.split))
	last := len(prompt) - 1
	state := append([]float32{}, d.x[last*h:(last+1)*h]...)
	out := append([]float32{}, state...)
	d.adapter.pruner.add(out, h, state, h, 1, d.low)
	early = append(early, d.headLogits(out, 1)...)
	d.enterMSA(b, p, last)
	require.NoError(t, d.run(ctx, b, d.adapter.split, d.base.config.NumLayers))
	d.finishStreams(p, last)
	d.length = len(prompt)
	main = append(main, d.headLogits(d.x[last*h:(last+1)*h], 1)...)
	require.NoError(t, d.nextDraft(ctx, p, last))
	return main, append(streams, d.logits[:d.adapter.gamma*v]...), early
}

// TestTreeMatchesDenseForward drafts a random tree behind a decoded context and
// compares every logit of the engine's forward (main rows of all kept nodes, the
// streams of every node, early exits) with a dense float64 forward without a cache.
func TestTreeMatchesDenseForward(t *testing.T) {
	for name, spec := range map[string]specstream.AdapterSpec{
		"lossless":                      {Mode: specstream.Lossless, Gamma: 3, MSALayers: 2, StreamRank: 4},
		"lossless base+adapter lowrank": {Mode: specstream.Lossless, Gamma: 2, MSALayers: 4, StreamMLP: specstream.StreamMLPBaseAdapter, StreamInit: specstream.StreamInitLowRank},
		"shared":                        {Mode: specstream.Shared, Gamma: 3, MSALayers: 3, LoRARank: 4, LoRAAlpha: 6},
		"shared lowrank, all layers":    {Mode: specstream.Shared, Gamma: 2, MSALayers: 6, LoRARank: 2, LoRATargets: []string{"k_proj", "down_proj"}, StreamInit: specstream.StreamInitLowRank},
	} {
		bases := enginetest.Families(23)
		for _, kvHeads := range []int{1, 2, 4} {
			c := enginetest.Config(23)
			c.NumKVHeads = kvHeads
			bases[fmt.Sprintf("Llama with %d key heads", kvHeads)] = c
		}
		for base, c := range bases {
			t.Run(name+"/"+base, func(t *testing.T) {
				w, a := enginetest.Model(t, c, spec, 5)
				d, err := New(w, a)
				require.NoError(t, err)
				r := rand.New(rand.NewPCG(3, 4))
				for trial := range 3 {
					prompt := enginetest.Prompt(r, c.VocabSize, 1+r.IntN(24))
					compareTree(t, d, reference{w, a}, prompt, r, trial)
				}
			})
		}
	}
}

func compareTree(t *testing.T, d *Decoder, ref reference, prompt []int32, r *rand.Rand, trial int) {
	t.Helper()
	const tolerance = 2e-5
	ctx := context.Background()
	c, gamma := d.base.config, d.adapter.gamma
	h, v := c.HiddenSize, c.VocabSize
	shared := d.adapter.mode == specstream.Shared
	p := plan{draft: true, attach: shared, k: 2, nodes: 1 << 20}
	prefillLogits(t, d, prompt)

	// A random tree, pruned at random to a part that holds every node's parent.
	var full engine.Tree
	draft := make([][]int32, gamma)
	for j := range draft {
		draft[j] = []int32{r.Int32N(int32(v)), r.Int32N(int32(v))}
	}
	full.Grow(r.Int32N(int32(v)), draft)
	scores := make([]float64, full.Len())
	for i := range scores {
		scores[i] = r.Float64()
	}
	kept := full.Prune(scores, 3+trial*4, 0)

	// The engine.
	b := &d.batch
	d.fillTree(&full)
	requireRoom(t, d, full.Len())
	d.reserve(b.main)
	d.embed(b, full.Tokens)
	require.NoError(t, d.run(ctx, b, 0, d.adapter.split))
	transitions := append([]float64{}, d.transitions(&full)...)
	var tree engine.Tree
	tree.Restrict(&full, kept)
	for i, node := range kept {
		copy(d.x[i*h:(i+1)*h], d.x[node*h:(node+1)*h])
	}
	d.fillTree(&tree)
	d.enterMSA(b, p, 0)
	require.NoError(t, d.run(ctx, b, d.adapter.split, c.NumLayers))
	main := append([]float32{}, d.headLogits(d.x, tree.Len())...)
	var streams []float32
	if shared {
		d.finish(c.NumLayers-1, b, b.main, b.rows(gamma))
		streams = append(streams, d.headLogits(d.x[tree.Len()*h:], gamma*tree.Len())...)
	}

	// The dense forward: context, then the nodes, then streams. In shared mode the
	// context's last position keeps the streams it was prefilled with.
	dense := func(nodes *engine.Tree) ([]row, int) {
		var rows []row
		for i, token := range prompt {
			rows = append(rows, row{position: i, token: token, owner: i, sees: upTo(i)})
		}
		for n := range nodes.Len() {
			sees := upTo(len(prompt) - 1)
			for _, node := range nodes.Path(n, nil) {
				sees = append(sees, len(prompt)+node)
			}
			rows = append(rows, row{position: len(prompt) + nodes.Depths[n], token: nodes.Tokens[n], owner: len(prompt) + n, sees: sees})
		}
		first := len(rows)
		for owner := len(prompt) - 1; owner < first; owner++ {
			for j := 1; j <= gamma; j++ {
				rows = append(rows, row{position: rows[owner].position, stream: j, owner: owner})
			}
		}
		return rows, first
	}
	rows, first := dense(&tree)
	logits, _ := ref.forward(rows)
	for n := range tree.Len() {
		require.Less(t, relative(main[n*v:(n+1)*v], logits[len(prompt)+n]), tolerance, "main row of node %d", n)
		for j := range gamma {
			want := logits[first+(n+1)*gamma+j]
			if shared {
				require.Less(t, relative(streams[(n*gamma+j)*v:(n*gamma+j+1)*v], want), tolerance, "stream %d of node %d", j+1, n)
			}
		}
	}
	fullRows, _ := dense(&full)
	_, early := ref.forward(fullRows)
	for n := 1; n < full.Len(); n++ {
		e := early[len(prompt)+full.Parents[n]]
		var sum float64
		for _, z := range e {
			sum += math.Exp(z)
		}
		require.InEpsilon(t, math.Exp(e[full.Tokens[n]])/sum, transitions[n], 1e-4, "transition to node %d", n)
	}

	// Accept a random path and compare the streams that decoding goes on with.
	node := r.IntN(tree.Len())
	path := tree.Path(node, nil)
	d.compact(path, kept, d.adapter.split)
	require.NoError(t, d.nextDraft(ctx, p, node))
	for j := range gamma {
		require.Less(t, relative(d.logits[j*v:(j+1)*v], logits[first+(node+1)*gamma+j]), tolerance, "stream %d of the accepted node", j+1)
	}
}

// requireRoom checks that the cache, which prefillLogits sized, holds the tree.
func requireRoom(t *testing.T, d *Decoder, nodes int) {
	t.Helper()
	require.LessOrEqual(t, d.length+nodes, d.slots)
}

func upTo(i int) []int {
	out := make([]int, i+1)
	for j := range out {
		out[j] = j
	}
	return out
}
