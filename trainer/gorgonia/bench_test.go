package gorgonia

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/model"
	"github.com/specstream/specstream/segattn"
	"github.com/specstream/specstream/trainer"
)

// benchModel is about the base that the demonstration uses.
func benchModel() *model.Weights {
	return model.NewWeights(model.Config{Architecture: "LlamaForCausalLM", HiddenSize: 192, IntermediateSize: 512, NumLayers: 6, NumHeads: 6, NumKVHeads: 3,
		HeadDim: 32, VocabSize: 1024, MaxPositions: 512, RMSNormEps: 1e-5, RopeTheta: 10000, TieEmbeddings: true, BOS: 0, EOS: []int32{1}}, 1)
}

// benchBatch is n samples of 60 to 120 prompt tokens and 15 to 45 of completion.
func benchBatch(n int) (batch []trainer.Sequence, tokens int) {
	r := rand.New(rand.NewPCG(1, 2))
	for range n {
		prompt, completion := 60+r.IntN(60), 15+r.IntN(30)
		s := trainer.Sequence{Spans: []segattn.Span{{Start: prompt, End: prompt + completion}}}
		for range prompt + completion {
			s.Tokens = append(s.Tokens, int32(r.IntN(768)))
		}
		tokens += len(s.Tokens)
		batch = append(batch, s)
	}
	return batch, tokens
}

func benchSteps(b *testing.B, backend trainer.Backend, gamma int, wholeText bool) {
	batch, tokens := benchBatch(32)
	if wholeText {
		for i := range batch {
			batch[i].Spans = []segattn.Span{{Start: 1, End: len(batch[i].Tokens)}}
		}
	}
	counts := trainer.CountTargets(batch, gamma)
	step := func() {
		if _, err := backend.Accumulate(context.Background(), batch, counts); err != nil {
			b.Fatal(err)
		}
		if _, err := backend.Step(1e-4); err != nil {
			b.Fatal(err)
		}
	}
	step() // builds the graphs
	b.ReportAllocs()
	before, _ := usage()
	for b.Loop() {
		step()
	}
	after, peak := usage()
	b.ReportMetric((after-before).Seconds()/float64(b.N), "cpu-s/op")
	b.ReportMetric(float64(peak)/(1<<20), "process-peak-MiB")
	b.ReportMetric(float64(tokens)*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
}

// narrowModel is deep and narrow: products too small to hide what surrounds them.
func narrowModel() *model.Weights {
	return model.NewWeights(model.Config{Architecture: "LlamaForCausalLM", HiddenSize: 128, IntermediateSize: 352, NumLayers: 8, NumHeads: 4, NumKVHeads: 2,
		HeadDim: 32, VocabSize: 768, MaxPositions: 512, RMSNormEps: 1e-5, RopeTheta: 10000, TieEmbeddings: true, BOS: 0, EOS: []int32{1}}, 1)
}

func BenchmarkPretrainStep(b *testing.B) {
	for _, c := range []struct {
		name  string
		model func() *model.Weights
	}{{"6x192", benchModel}, {"8x128", narrowModel}} {
		b.Run(c.name, func(b *testing.B) {
			backend := NewBase[float32](c.model(), 0, 1)
			defer backend.Close()
			benchSteps(b, backend, 0, true)
		})
	}
}

func BenchmarkAdapterStep(b *testing.B) {
	for _, mode := range []specstream.Mode{specstream.Lossless, specstream.Shared} {
		for _, segments := range []int{1, 4} {
			b.Run(string(mode)+map[int]string{1: "/G=1", 4: "/G=4"}[segments], func(b *testing.B) {
				spec := specstream.TrainSpec{AdapterSpec: specstream.AdapterSpec{Mode: mode}, Segments: segments}.WithDefaults()
				w := benchModel()
				a, err := model.NewAdapter(w.Config, spec.AdapterSpec, 1)
				if err != nil {
					b.Fatal(err)
				}
				backend, err := NewAdapter[float32](w, a, spec)
				if err != nil {
					b.Fatal(err)
				}
				defer backend.Close()
				benchSteps(b, backend, spec.Gamma, false)
			})
		}
	}
}
