package gorgonia

import (
	"context"
	"fmt"

	G "gorgonia.org/gorgonia"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/kernels"
	"github.com/specstream/specstream/model"
	"github.com/specstream/specstream/segattn"
	"github.com/specstream/specstream/trainer"
)

// Base pretrains a small base model from scratch: every weight is trained on the
// next-token loss. It implements trainer.Backend with γ = 0 and serves
// demonstrations and tests; real bases come from elsewhere.
type Base[T kernels.Float] struct {
	weights *model.Weights
	dims    dims
	params  []*param[T]
	opt     *adamW[T]
	frame   frame[T]
	b       *builder[T]
	full    *program
}

// NewBase prepares the training of w, which [Base.Weights] brings up to date.
func NewBase[T kernels.Float](w *model.Weights, weightDecay, clip float64) *Base[T] {
	c := w.Config
	t := &Base[T]{weights: w, dims: newDims(c), opt: newAdamW[T](weightDecay, clip)}
	add := func(name string, cols int, weights []float32) {
		data := make([]T, len(weights)) // a copy: the weights stay as they are until Weights
		for i, v := range weights {
			data[i] = T(v)
		}
		shape := []int{len(data) / cols, cols}
		if shape[0] == 1 {
			shape = shape[1:]
		}
		t.params = append(t.params, newParam(name, shape, data))
	}
	h := c.HiddenSize
	add("embed", h, w.Embed)
	for i := range w.Layers {
		l := &w.Layers[i]
		for _, part := range layerParts(l) {
			cols := h
			switch part.kind {
			case "o":
				cols = c.NumHeads * c.HeadDim
			case "down":
				cols = c.IntermediateSize
			}
			add(fmt.Sprintf("%d.%s", i, part.kind), cols, part.weights)
		}
	}
	add("norm", h, w.Norm)
	if !c.TieEmbeddings {
		add("head", h, w.Head)
	}
	t.frame.rotary, t.frame.eps = newRotary[T](c), T(c.RMSNormEps)
	for i := range w.Layers {
		t.frame.window = append(t.frame.window, c.Window(i))
	}
	return t
}

// layerPart is one trained tensor of a layer.
type layerPart struct {
	kind    string
	weights []float32
}

func layerParts(l *model.Layer) []layerPart {
	return []layerPart{
		{"attn_norm", l.AttnNorm}, {"qkv", l.QKV}, {"o", l.O}, {"mlp_norm", l.MLPNorm}, {"gate_up", l.GateUp}, {"down", l.Down},
	}
}

// build makes the graph with room for rows rows.
func (t *Base[T]) build(rows int) error {
	if t.b != nil && t.b.rows >= rows {
		return nil
	}
	if c := t.weights.Config; c.LayerNorm || c.ReLU || c.LearnedPositions || c.QKVBias || c.OutBias || c.MLPBias {
		return specstream.Invalid("architectures", "a %s cannot be trained from scratch; only bases without biases and learned positions can", c.Architecture)
	}
	if err := t.full.close(); err != nil {
		return err
	}
	b := newBuilder(&t.frame, rows)
	byName := map[string]*G.Node{}
	var wrt G.Nodes
	add := func(name string, p *param[T]) {
		byName[name] = b.trainable(p)
		wrt = append(wrt, byName[name])
	}
	for _, p := range t.params {
		add(p.name, p)
	}
	if t.weights.Config.TieEmbeddings { // a node each for the two uses of the table; both add to its gradient
		add("head", t.params[0])
	}
	x := b.embed(t.dims.h, byName["embed"])
	for i, n := 0, len(t.weights.Layers); i < n; i++ {
		l := &layerNodes[T]{weights: map[string]*G.Node{}}
		for _, part := range layerParts(&t.weights.Layers[i]) {
			l.weights[part.kind] = byName[fmt.Sprintf("%d.%s", i, part.kind)]
		}
		x, _ = b.layer(t.dims, x, l, i, 1)
	}
	loss := b.headLoss(t.dims.h, t.dims.vocab, b.rmsNorm(t.dims.h, x, nil, byName["norm"], nil), nil, byName["head"])
	grads, err := b.gradients(loss, matrix(b.g, "one", []T{1}, 1, 1), wrt)
	if err != nil {
		return err
	}
	if t.full, err = b.compile(append(G.Nodes{loss}, grads...)); err != nil {
		return err
	}
	t.b = b
	return nil
}

// Accumulate implements trainer.Backend. Every target of every span counts.
func (t *Base[T]) Accumulate(ctx context.Context, batch []trainer.Sequence, counts trainer.Counts) (trainer.Losses, error) {
	losses := trainer.NewLosses(0)
	for _, part := range split(batch, func(s trainer.Sequence) int { return len(s.Tokens) - 1 }) {
		if err := t.accumulate(ctx, part, counts, &losses); err != nil {
			return losses, err
		}
	}
	return losses, nil
}

// accumulate is Accumulate for one pack.
func (t *Base[T]) accumulate(ctx context.Context, batch []trainer.Sequence, counts trainer.Counts, losses *trainer.Losses) error {
	p := newPack(batch, counts, 0, 1, false)
	if err := t.build(capacity(p.mainRows)); err != nil {
		return err
	}
	f := &t.frame
	f.set(p.whole())
	for len(f.kv) < len(t.weights.Layers) {
		f.kv = append(f.kv, &segattn.KV[T]{})
	}
	for _, kv := range f.kv {
		kv.Reset(t.dims.heads, p.positions(), true)
	}
	f.tokens = f.tokens[:0]
	f.head.reset(f.n, 1)
	for i, s := range batch {
		f.tokens = append(f.tokens, s.Tokens[:len(s.Tokens)-1]...)
		for _, pos := range p.seqs[i].StreamPositions() {
			f.head.target(p.offset[i]+pos, s.Tokens[pos+1], 1/T(counts[0]), 0)
		}
	}
	if err := t.full.run(ctx); err != nil {
		return err
	}
	losses.AddStreams(f.head.loss, f.head.hits)
	return nil
}

// Step implements trainer.Backend.
func (t *Base[T]) Step(rate float64) (float64, error) { return t.opt.update(t.params, rate) }

// State implements trainer.Backend.
func (t *Base[T]) State() (trainer.State, error) { return saveState(t.params, t.opt), nil }

// Restore implements trainer.Backend.
func (t *Base[T]) Restore(s trainer.State) error { return restoreState(t.params, t.opt, s) }

// Close implements trainer.Backend.
func (t *Base[T]) Close() error { return t.full.close() }

// Weights returns the weights as trained so far.
func (t *Base[T]) Weights() *model.Weights {
	at := 0
	take := func(dst []float32) {
		for i, v := range t.params[at].data {
			dst[i] = float32(v)
		}
		at++
	}
	take(t.weights.Embed)
	for i := range t.weights.Layers {
		for _, part := range layerParts(&t.weights.Layers[i]) {
			take(part.weights)
		}
	}
	take(t.weights.Norm)
	if !t.weights.Config.TieEmbeddings {
		take(t.weights.Head)
	}
	return t.weights
}
