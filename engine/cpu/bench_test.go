package cpu_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/engine"
	"github.com/specstream/specstream/engine/cpu"
	"github.com/specstream/specstream/engine/enginetest"
	"github.com/specstream/specstream/model"
)

// benchConfig is about 5 million parameters: the size of the demonstration's base.
func benchConfig() model.Config {
	return model.Config{
		Architecture: "LlamaForCausalLM", HiddenSize: 256, IntermediateSize: 704, NumLayers: 6, NumHeads: 4, NumKVHeads: 4, HeadDim: 64,
		VocabSize: 2048, MaxPositions: 1024, RMSNormEps: 1e-5, RopeTheta: 10000, TieEmbeddings: true, BOS: -1,
	}
}

// BenchmarkDecode reports tokens a second after a prompt of 128 tokens. A random
// adapter's drafts are hardly ever right, so what the speculative figures show is
// the cost of a forward, ρ: autoregressive tokens/s over theirs.
func BenchmarkDecode(b *testing.B) {
	prompt := enginetest.Prompt(rand.New(rand.NewPCG(1, 1)), 2048, 128)
	for _, mode := range []specstream.Mode{specstream.Lossless, specstream.Shared} {
		w, a := enginetest.Model(b, benchConfig(), specstream.AdapterSpec{Mode: mode, LoRARank: 16}, 1)
		d, err := cpu.New(w, a)
		require.NoError(b, err)
		run := func(name string, m engine.Method, spec specstream.DecodeSpec) {
			b.Run(fmt.Sprintf("%s/%s", mode, name), func(b *testing.B) {
				spec.MaxNewTokens = 64
				calls, seconds := 0, 0.0
				for b.Loop() {
					res, err := d.Decode(context.Background(), engine.Request{Prompt: prompt, Method: m, Decode: spec.WithDefaults()})
					if err != nil {
						b.Fatal(err)
					}
					calls += res.TargetCalls
					seconds += res.DecodeTime.Seconds()
				}
				b.ReportMetric(float64(calls)/seconds, "forwards/s")
				b.ReportMetric(1e3*seconds/float64(calls), "ms/forward")
			})
		}
		run("autoregressive", engine.Autoregressive, specstream.DecodeSpec{})
		if mode == specstream.Shared {
			run("empty", engine.Empty, specstream.DecodeSpec{})
		}
		run("chain", engine.Speculative, specstream.DecodeSpec{TreeFactor: 1})
		run("k=2", engine.Speculative, specstream.DecodeSpec{TreeFactor: 2})
		run("k=3", engine.Speculative, specstream.DecodeSpec{TreeFactor: 3})
	}
}

// BenchmarkPrefill reports prompt tokens a second.
func BenchmarkPrefill(b *testing.B) {
	w, _ := enginetest.Model(b, benchConfig(), specstream.AdapterSpec{Mode: specstream.Lossless}, 1)
	d, err := cpu.New(w, nil)
	require.NoError(b, err)
	prompt := enginetest.Prompt(rand.New(rand.NewPCG(1, 1)), 2048, 512)
	for b.Loop() {
		if _, err := d.Decode(context.Background(), engine.Request{Prompt: prompt, Method: engine.Autoregressive, Decode: specstream.DecodeSpec{MaxNewTokens: 1}.WithDefaults()}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(prompt)*b.N)/b.Elapsed().Seconds(), "tokens/s")
}
