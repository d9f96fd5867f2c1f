// Package enginetest is the suite that every [engine.Decoder] passes: golden
// decodes from an independent implementation, token-for-token parity with the
// baseline of each mode on random models, exact limits and accounting, and
// cancellation.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/engine"
	"github.com/specstream/specstream/model"
)

// New makes the decoder under test of a base and an adapter (nil for none).
type New func(w *model.Weights, a *model.Adapter) (engine.Decoder, error)

// Options say what an implementation promises.
type Options struct {
	// NearTies lets a decode differ from its baseline where the baseline's least
	// margin between two logits is at most this. 0 demands equality.
	NearTies float32
}

// Run runs the suite.
func Run(t *testing.T, build New, o Options) {
	t.Run("golden", func(t *testing.T) { runGolden(t, build) })
	t.Run("parity", func(t *testing.T) { runParity(t, build, o) })
	t.Run("limits", func(t *testing.T) { runLimits(t, build) })
	t.Run("requests", func(t *testing.T) { runRequests(t, build) })
	t.Run("cancellation", func(t *testing.T) { runCancellation(t, build) })
}

// Config returns a small grouped-query configuration of that vocabulary. A
// vocabulary of a few tokens makes random drafts right often.
func Config(vocab int) model.Config {
	return model.Config{
		Architecture: "LlamaForCausalLM", HiddenSize: 32, IntermediateSize: 48, NumLayers: 6, NumHeads: 4, NumKVHeads: 2, HeadDim: 8,
		VocabSize: vocab, MaxPositions: 512, RMSNormEps: 1e-5, RopeTheta: 10000, BOS: -1,
	}
}

// Families returns a small configuration of every family but Llama. Windows are
// shorter than the suite's sequences.
func Families(vocab int) map[string]model.Config {
	out := map[string]model.Config{}
	for name, change := range map[string]func(*model.Config){
		"Mistral": func(c *model.Config) { c.Architecture, c.SlidingWindow = "MistralForCausalLM", 7 },
		"Qwen2": func(c *model.Config) {
			c.Architecture, c.QKVBias, c.SlidingWindow, c.WindowFirstLayer = "Qwen2ForCausalLM", true, 9, 3
		},
		"Phi-3": func(c *model.Config) { c.Architecture, c.SlidingWindow, c.TieEmbeddings = "Phi3ForCausalLM", 11, true },
		"OPT": func(c *model.Config) {
			c.Architecture, c.LayerNorm, c.ReLU, c.LearnedPositions, c.PositionOffset = "OPTForCausalLM", true, true, true, 2
			c.QKVBias, c.OutBias, c.MLPBias, c.NumKVHeads, c.RopeTheta, c.MaxPositions = true, true, true, 4, 0, 80
		},
	} {
		c := Config(vocab)
		change(&c)
		out[name] = c
	}
	return out
}

// Model returns a random base whose logits are far apart and an adapter without
// a zero in it.
func Model(t testing.TB, c model.Config, spec specstream.AdapterSpec, seed uint64) (*model.Weights, *model.Adapter) {
	t.Helper()
	w := model.NewWeights(c, seed)
	biases := rand.New(rand.NewPCG(seed, 98))
	w.Named(func(name string, shape []int, data []float32) {
		for i := range data {
			switch {
			case len(shape) == 2:
				data[i] *= 12 // of the usual N(0, 0.02): attention far from uniform
			case strings.HasSuffix(name, ".bias"):
				data[i] = float32(biases.NormFloat64()) * 0.2
			}
		}
	})
	a, err := model.NewAdapter(c, spec.WithDefaults(), seed)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(seed, 99))
	for _, p := range a.Params {
		for i := range p.Data {
			p.Data[i] += float32(r.NormFloat64()) * 0.1
		}
	}
	return w, a
}

// Prompt returns n random tokens.
func Prompt(r *rand.Rand, vocab, n int) []int32 {
	p := make([]int32, n)
	for i := range p {
		p[i] = r.Int32N(int32(vocab))
	}
	return p
}

func decode(t *testing.T, d engine.Decoder, r engine.Request) engine.Result {
	t.Helper()
	r.Decode = r.Decode.WithDefaults()
	res, err := d.Decode(context.Background(), r)
	require.NoError(t, err)
	require.Len(t, res.Tokens, 1+res.Emitted, "the prefill emits one token, the forwards the rest")
	require.LessOrEqual(t, len(res.Tokens), r.Decode.MaxNewTokens)
	if r.Method != engine.Speculative {
		require.Equal(t, res.TargetCalls, res.Emitted, "one token a forward")
	}
	require.LessOrEqual(t, res.TargetCalls, res.Emitted)
	return res
}

// specs are the adapters the parity test draws from.
func specs(gamma int) map[string]specstream.AdapterSpec {
	return map[string]specstream.AdapterSpec{
		"lossless":              {Mode: specstream.Lossless, Gamma: gamma, MSALayers: 3, StreamRank: 4},
		"lossless base+adapter": {Mode: specstream.Lossless, Gamma: gamma, MSALayers: 6, StreamMLP: specstream.StreamMLPBaseAdapter, StreamInit: specstream.StreamInitLowRank},
		"shared":                {Mode: specstream.Shared, Gamma: gamma, MSALayers: 2, LoRARank: 4, LoRAAlpha: 6},
		"shared two targets":    {Mode: specstream.Shared, Gamma: gamma, MSALayers: 6, LoRARank: 3, LoRATargets: []string{"o_proj", "v_proj"}, StreamInit: specstream.StreamInitLowRank},
	}
}

func runParity(t *testing.T, build New, o Options) {
	for _, vocab := range []int{5, 97} {
		for gamma := 1; gamma <= 5; gamma++ {
			for name, spec := range specs(gamma) {
				t.Run(fmt.Sprintf("%s/vocabulary %d/%d streams", name, vocab, gamma), func(t *testing.T) {
					parity(t, build, o, Config(vocab), spec)
				})
			}
		}
	}
	for family, c := range Families(5) {
		for _, gamma := range []int{2, 5} {
			if testing.Short() && gamma == 5 {
				continue
			}
			for name, spec := range specs(gamma) {
				t.Run(fmt.Sprintf("%s/%s/%d streams", family, name, gamma), func(t *testing.T) { parity(t, build, o, c, spec) })
			}
		}
	}
}

// parity compares speculative decoding with the baseline of its mode on random
// requests.
func parity(t *testing.T, build New, o Options, c model.Config, spec specstream.AdapterSpec) {
	t.Helper()
	vocab, gamma := c.VocabSize, spec.Gamma
	w, a := Model(t, c, spec, uint64(gamma))
	d, err := build(w, a)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	r := rand.New(rand.NewPCG(uint64(gamma), uint64(vocab)))
	var calls, emitted int
	for i := range 8 {
		req := engine.Request{Prompt: Prompt(r, vocab, 1+r.IntN(40)), Method: engine.Baseline(spec.Mode)}
		req.Decode = specstream.DecodeSpec{MaxNewTokens: 1 + r.IntN(24), TreeFactor: 1 + r.IntN(min(4, vocab)), TreeNodes: 1 + r.IntN(64)}
		if gamma == 5 {
			req.Decode.TreeFactor = min(req.Decode.TreeFactor, 3)
		}
		if i%3 == 2 {
			req.Decode.PruneThreshold = r.Float64() * 0.5
		}
		if i%2 == 1 {
			req.EOS = []int32{r.Int32N(int32(vocab)), r.Int32N(int32(vocab))}
		}
		want := decode(t, d, req)
		req.Method = engine.Speculative
		got := decode(t, d, req)
		if o.NearTies == 0 || want.MinMargin > o.NearTies {
			require.Equal(t, want.Tokens, got.Tokens, "%+v", req)
		}
		require.Equal(t, got, withTimes(decode(t, d, req), got), "the same request again")
		calls += got.TargetCalls
		emitted += got.Emitted
		checkSteps(t, d, req, got, gamma)
	}
	if vocab == 5 && gamma > 1 {
		require.Greater(t, emitted, calls, "some draft is accepted, or acceptance goes untested")
	}
}

// withTimes returns r with the times of other.
func withTimes(r, other engine.Result) engine.Result {
	r.PrefillTime, r.DecodeTime = other.PrefillTime, other.DecodeTime
	return r
}

// checkSteps checks what Observe is told against the result and the request.
func checkSteps(t *testing.T, d engine.Decoder, req engine.Request, want engine.Result, gamma int) {
	t.Helper()
	at, calls := 1, 0
	req.Observe = func(s engine.Step) {
		require.Equal(t, want.Tokens[at-1], s.Root)
		require.LessOrEqual(t, len(s.Kept), req.Decode.WithDefaults().TreeNodes)
		require.Equal(t, 0, s.Kept[0], "the root stays")
		require.True(t, slices.IsSorted(s.Kept))
		require.Len(t, s.Draft, gamma)
		for _, level := range s.Draft {
			require.Len(t, level, req.Decode.WithDefaults().TreeFactor)
		}
		require.LessOrEqual(t, s.Accepted, gamma)
		if at+s.Emitted < len(want.Tokens) {
			require.Equal(t, s.Accepted+1, s.Emitted, "nothing is cut before the end")
		}
		at += s.Emitted
		calls++
	}
	decode(t, d, req)
	require.Equal(t, len(want.Tokens), at)
	require.Equal(t, want.TargetCalls, calls)
}

func runLimits(t *testing.T, build New) {
	for name, spec := range specs(4) {
		t.Run(name, func(t *testing.T) {
			w, a := Model(t, Config(5), spec, 3)
			d, err := build(w, a)
			require.NoError(t, err)
			defer func() { require.NoError(t, d.Close()) }()
			prompt := Prompt(rand.New(rand.NewPCG(1, 1)), 5, 9)
			baseline := engine.Baseline(spec.Mode)
			long := decode(t, d, engine.Request{Prompt: prompt, Method: baseline, Decode: specstream.DecodeSpec{MaxNewTokens: 40}}).Tokens
			for n := 1; n <= 40; n++ {
				got := decode(t, d, engine.Request{Prompt: prompt, Method: engine.Speculative, Decode: specstream.DecodeSpec{MaxNewTokens: n}})
				require.Equal(t, long[:n], got.Tokens, "max_new_tokens is exact")
			}
			cut := 0
			r := rand.New(rand.NewPCG(2, 2))
			for range 12 {
				prompt := Prompt(r, 5, 9)
				long := decode(t, d, engine.Request{Prompt: prompt, Method: baseline, Decode: specstream.DecodeSpec{MaxNewTokens: 40}}).Tokens
				for eos := range int32(5) {
					req := engine.Request{Prompt: prompt, EOS: []int32{eos, -7}, Method: engine.Speculative, Decode: specstream.DecodeSpec{MaxNewTokens: 40}}
					req.Observe = func(s engine.Step) {
						if s.Emitted < s.Accepted+1 {
							cut++
						}
					}
					got := decode(t, d, req)
					at := slices.Index(long, eos)
					if at < 0 {
						require.Equal(t, long, got.Tokens)
						continue
					}
					require.Equal(t, long[:at+1], got.Tokens, "nothing follows the end token")
					if at == 0 {
						require.Zero(t, got.TargetCalls, "the prefill ended the decode")
					}
				}
			}
			require.Positive(t, cut, "no end token fell inside an accepted path, so cutting there went untested")
		})
	}
	last := Families(5)
	last["Llama"] = Config(5)
	for family, c := range last {
		t.Run("the base's last position/"+family, func(t *testing.T) {
			c.MaxPositions = 24
			w, a := Model(t, c, specs(3)["lossless"], 1)
			d, err := build(w, a)
			require.NoError(t, err)
			defer func() { require.NoError(t, d.Close()) }()
			var want []int32
			for _, m := range []engine.Method{engine.Autoregressive, engine.Speculative} {
				got := decode(t, d, engine.Request{Prompt: make([]int32, 20), Method: m})
				require.Len(t, got.Tokens, 4)
				if want == nil {
					want = got.Tokens
				}
				require.Equal(t, want, got.Tokens)
			}
		})
	}
	t.Run("prefill is decoding", func(t *testing.T) { runPrefill(t, build) })
}

// runPrefill checks that it makes no difference which part of a text is the
// prompt, over lengths that prefill takes in several passes.
func runPrefill(t *testing.T, build New) {
	families := Families(97)
	families["Llama"] = Config(97)
	for family, c := range families {
		t.Run(family, func(t *testing.T) {
			c.MaxPositions = 512
			w, a := Model(t, c, specs(3)["lossless"], 1)
			d, err := build(w, a)
			require.NoError(t, err)
			defer func() { require.NoError(t, d.Close()) }()
			prompt := Prompt(rand.New(rand.NewPCG(6, 7)), 97, 250)
			for _, m := range []engine.Method{engine.Autoregressive, engine.Speculative} {
				whole := decode(t, d, engine.Request{Prompt: prompt, Method: m, Decode: specstream.DecodeSpec{MaxNewTokens: 30}}).Tokens
				for _, cut := range []int{1, 7, 29} {
					rest := decode(t, d, engine.Request{Prompt: append(prompt[:250:250], whole[:cut]...), Method: m, Decode: specstream.DecodeSpec{MaxNewTokens: 30 - cut}}).Tokens
					require.Equal(t, whole[cut:], rest)
				}
			}
		})
	}
}

func runRequests(t *testing.T, build New) {
	w, a := Model(t, Config(97), specs(4)["lossless"], 1)
	d, err := build(w, a)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	good := func() engine.Request {
		return engine.Request{Prompt: []int32{1, 2}, Method: engine.Speculative, Decode: specstream.DecodeSpec{}.WithDefaults()}
	}
	for _, c := range []struct {
		name   string
		change func(*engine.Request)
		field  string
	}{
		{"empty prompt", func(r *engine.Request) { r.Prompt = nil }, "prompt"},
		{"token beyond the vocabulary", func(r *engine.Request) { r.Prompt = []int32{97} }, "prompt"},
		{"negative token", func(r *engine.Request) { r.Prompt = []int32{-1} }, "prompt"},
		{"prompt fills all positions", func(r *engine.Request) { r.Prompt = make([]int32, 512) }, "prompt"},
		{"unknown method", func(r *engine.Request) { r.Method = "magic" }, "method"},
		{"no new tokens", func(r *engine.Request) { r.Decode.MaxNewTokens = 0 }, "max_new_tokens"},
		{"no tree", func(r *engine.Request) { r.Decode.TreeNodes = 0 }, "tree_nodes"},
		{"enormous tree", func(r *engine.Request) { r.Decode.TreeFactor = 16 }, "tree_factor"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := good()
			c.change(&r)
			_, err := d.Decode(context.Background(), r)
			var in *specstream.InputError
			require.ErrorAs(t, err, &in)
			require.Equal(t, c.field, in.Field)
		})
	}
	t.Run("no adapter", func(t *testing.T) {
		plain, err := build(w, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, plain.Close()) }()
		r := good()
		_, err = plain.Decode(context.Background(), r)
		require.True(t, specstream.BadInput(err), err)
		r.Method = engine.Autoregressive
		require.Equal(t, decode(t, d, r).Tokens, decode(t, plain, r).Tokens)
	})
	t.Run("adapter of another base", func(t *testing.T) {
		_, other := Model(t, Config(98), specs(4)["lossless"], 1)
		_, err := build(w, other)
		require.True(t, specstream.BadInput(err), err)
	})
	t.Run("closed", func(t *testing.T) {
		closed, err := build(w, a)
		require.NoError(t, err)
		require.NoError(t, closed.Close())
		_, err = closed.Decode(context.Background(), good())
		require.Error(t, err)
	})
}

func runCancellation(t *testing.T, build New) {
	w, a := Model(t, Config(97), specs(4)["shared"], 1)
	d, err := build(w, a)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	req := engine.Request{Prompt: []int32{1, 2, 3}, Method: engine.Speculative, Decode: specstream.DecodeSpec{MaxNewTokens: 400}.WithDefaults()}
	want := decode(t, d, req)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = d.Decode(ctx, req)
	require.ErrorIs(t, err, context.Canceled, "before the prefill")

	ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	steps := 0
	req.Observe = func(engine.Step) {
		if steps++; steps == 3 {
			cancel()
		}
	}
	_, err = d.Decode(ctx, req)
	require.ErrorIs(t, err, context.Canceled, "between forwards")
	require.Equal(t, 3, steps, "it stops at once")

	req.Observe = nil
	ctx, cancelTimeout := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancelTimeout()
	if _, err = d.Decode(ctx, req); err != nil { // a fast device may finish first
		require.True(t, errors.Is(err, context.DeadlineExceeded), err)
	}
	require.Equal(t, want.Tokens, decode(t, d, req).Tokens, "a cancelled decode leaves no trace")
}
