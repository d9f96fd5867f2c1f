package gorgonia

import (
	"context"
	"math"
	"testing"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/model"
	"github.com/specstream/specstream/segattn"
	"github.com/specstream/specstream/trainer"
)

// TestBaseGradients holds the pretraining gradients to central finite
// differences of the loss in float64.
func TestBaseGradients(t *testing.T) {
	for _, tied := range []bool{true, false} {
		c := model.Config{Architecture: "LlamaForCausalLM", HiddenSize: 8, IntermediateSize: 12, NumLayers: 2, NumHeads: 4, NumKVHeads: 2, HeadDim: 4,
			VocabSize: 13, MaxPositions: 64, RMSNormEps: 1e-5, RopeTheta: 10000, TieEmbeddings: tied, BOS: -1}
		b := NewBase[float64](model.NewWeights(c, 3), 0, 1)
		defer b.Close()
		for _, p := range b.params { // large enough for every path to matter
			for i := range p.data {
				p.data[i] = p.data[i]*20 + 0.01*float64(i%7)
			}
		}
		batch := []trainer.Sequence{
			{Tokens: []int32{1, 5, 2, 9, 3, 3, 12}, Spans: []segattn.Span{{Start: 1, End: 7}}},
			{Tokens: []int32{4, 0, 7}, Spans: []segattn.Span{{Start: 1, End: 3}}},
		}
		counts := trainer.CountTargets(batch, 0)
		loss := func() float64 {
			l, err := b.Accumulate(context.Background(), batch, counts)
			if err != nil {
				t.Fatal(err)
			}
			return l.Streams[0] / float64(counts[0])
		}
		loss()
		grads := map[string][]float64{}
		for _, p := range b.params {
			grads[p.name] = append([]float64(nil), p.grad...)
		}
		for _, p := range b.params {
			grad := grads[p.name]
			for i := 0; i < len(p.data); i += 1 + len(p.data)/7 {
				const eps = 1e-5
				keep := p.data[i]
				p.data[i] = keep + eps
				up := loss()
				p.data[i] = keep - eps
				down := loss()
				p.data[i] = keep
				if want := (up - down) / (2 * eps); math.Abs(grad[i]-want) > 1e-6*(1+math.Abs(want)) {
					t.Errorf("tied=%v: d loss / d %s[%d] is %v, finite differences say %v", tied, p.name, i, grad[i], want)
				}
			}
		}
	}
}

// TestBaseRefusesOtherFamilies: their biases and positions would stay as they are.
func TestBaseRefusesOtherFamilies(t *testing.T) {
	c := model.Config{Architecture: "Qwen2ForCausalLM", HiddenSize: 8, IntermediateSize: 12, NumLayers: 2, NumHeads: 4, NumKVHeads: 2, HeadDim: 4,
		VocabSize: 13, MaxPositions: 64, RMSNormEps: 1e-5, RopeTheta: 10000, BOS: -1, QKVBias: true}
	b := NewBase[float32](model.NewWeights(c, 3), 0, 1)
	defer b.Close()
	batch := []trainer.Sequence{{Tokens: []int32{4, 0, 7}, Spans: []segattn.Span{{Start: 1, End: 3}}}}
	if _, err := b.Accumulate(context.Background(), batch, trainer.CountTargets(batch, 0)); !specstream.BadInput(err) {
		t.Errorf("pretraining a base with biases gave %v", err)
	}
}
