package gorgonia

import (
	"context"
	"fmt"

	G "gorgonia.org/gorgonia"

	"github.com/specstream/specstream/kernels"
	"github.com/specstream/specstream/model"
	"github.com/specstream/specstream/segattn"
)

// dims are the sizes and kinds of operations that a graph is built from.
type dims struct {
	h, ff, vocab int
	heads        segattn.Heads
	layerNorm    bool // in place of RMSNorm
	relu         bool // down(relu(up)) in place of SwiGLU
	rotary       bool // queries and keys turn with their positions
}

func newDims(c model.Config) dims {
	return dims{h: c.HiddenSize, ff: c.IntermediateSize, vocab: c.VocabSize,
		heads:     segattn.Heads{Query: c.NumHeads, KV: c.NumKVHeads, Dim: c.HeadDim},
		layerNorm: c.LayerNorm, relu: c.ReLU, rotary: !c.LearnedPositions}
}

// newRotary returns the base's rotary embedding, nil where positions are learned.
func newRotary[T kernels.Float](c model.Config) *kernels.Rotary[T] {
	if c.LearnedPositions {
		return nil
	}
	return kernels.NewRotary[T](c.HeadDim, c.RopeTheta, ropeScaling(c))
}

// layerWeights are a decoder layer's frozen weights as the graph reads them.
type layerWeights[T kernels.Float] struct {
	attnNorm, qkv, o, mlpNorm, gateUp, down frozen[T]
}

func newLayerWeights[T kernels.Float](l *model.Layer) layerWeights[T] {
	return layerWeights[T]{
		attnNorm: freeze[T](l.AttnNorm, l.AttnNormBias), mlpNorm: freeze[T](l.MLPNorm, l.MLPNormBias),
		qkv: freeze[T](l.QKV, l.QKVBias), o: freeze[T](l.O, l.OBias),
		gateUp: freeze[T](l.GateUp, l.GateUpBias), down: freeze[T](l.Down, l.DownBias),
	}
}

func freeze[T kernels.Float](w, b []float32) frozen[T] {
	return frozen[T]{convert[T](w), convert[T](b)}
}

// convert returns float32s as Ts, the same memory where T is float32.
func convert[T kernels.Float](x []float32) []T {
	if s, ok := any(x).([]T); ok || x == nil {
		return s
	}
	out := make([]T, len(x))
	for i, v := range x {
		out[i] = T(v)
	}
	return out
}

// layerNodes is one decoder layer of a graph: its frozen weights, which may be
// exchanged between runs, and nodes for what is trained in it.
type layerNodes[T kernels.Float] struct {
	layerWeights[T]
	// lora holds the pairs by target name; empty in lossless mode.
	lora map[string]lowRank
	// adapterA, adapterB are the stream adapter that the rows pass through in
	// place of the MLP (or beside it, with both).
	adapterA, adapterB *G.Node
	adapterRank        int
	both               bool
	// weights are trainable projections and norms by tensor kind (pretraining).
	weights map[string]*G.Node
}

// pairs returns the LoRA pairs of the named targets, laid side by side in the
// columns of one stacked projection of the given widths.
func (l *layerNodes[T]) pairs(targets []string, widths []int) (out []lowRank) {
	col := 0
	for i, t := range targets {
		if p, ok := l.lora[t]; ok {
			p.col, p.out = col, widths[i]
			out = append(out, p)
		}
		col += widths[i]
	}
	return out
}

// layer adds a decoder layer: x + attention(norm(x)), then + MLP(norm(·)).
// It returns the layer's output and its rotated q|k|v rows.
func (b *builder[T]) layer(d dims, x *G.Node, l *layerNodes[T], store int, scale T) (y, qkv *G.Node) {
	hq, hkv := d.heads.Query*d.heads.Dim, d.heads.KV*d.heads.Dim
	var aroundAttention, aroundMLP skip[T]
	n1 := b.norm(d, x, &l.attnNorm, l.weights["attn_norm"], &aroundAttention)
	var rotate *segattn.Heads
	if d.rotary {
		rotate = &d.heads
	}
	qkv = b.linear("qkv", n1, linearSpec[T]{in: d.h, out: d.heads.Width(), frozen: &l.qkv, weight: l.weights["qkv"],
		pairs: l.pairs([]string{"q_proj", "k_proj", "v_proj"}, []int{hq, hkv, hkv}), scale: scale, rotate: rotate})
	x1 := b.linear("o", b.attention(d.heads, store, qkv), linearSpec[T]{in: hq, out: d.h, frozen: &l.o, weight: l.weights["o"],
		pairs: l.pairs([]string{"o_proj"}, []int{d.h}), scale: scale, closes: &aroundAttention})
	n2 := b.norm(d, x1, &l.mlpNorm, l.weights["mlp_norm"], &aroundMLP)
	down := linearSpec[T]{in: d.ff, out: d.h, frozen: &l.down, weight: l.weights["down"],
		pairs: l.pairs([]string{"down_proj"}, []int{d.h}), scale: scale, closes: &aroundMLP}
	if l.adapterA != nil {
		y = b.linear("stream_adapter", n2, linearSpec[T]{in: d.h, out: d.h, scale: 1, closes: &aroundMLP,
			pairs: []lowRank{{a: l.adapterA, b: l.adapterB, out: d.h, rank: l.adapterRank}}})
		if !l.both {
			return y, qkv
		}
		down.closes, down.residual = nil, y // the branch ends at the adapter
	}
	if d.relu {
		up := b.linear("up", n2, linearSpec[T]{in: d.h, out: d.ff, frozen: &l.gateUp, pairs: l.pairs([]string{"up_proj"}, []int{d.ff}), scale: scale})
		return b.linear("down", b.relu(d.ff, up), down), qkv
	}
	gu := b.linear("gate_up", n2, linearSpec[T]{in: d.h, out: 2 * d.ff, frozen: &l.gateUp, weight: l.weights["gate_up"],
		pairs: l.pairs([]string{"gate_proj", "up_proj"}, []int{d.ff, d.ff}), scale: scale})
	return b.linear("down", b.swiGLU(d.ff, gu), down), qkv
}

// program is a compiled part of a graph.
type program struct {
	vm   G.VM
	outs G.Nodes
}

// compile makes the program that computes outs and nothing else.
func (b *builder[T]) compile(outs G.Nodes) (*program, error) {
	sub := b.g.ExactSubgraphRoots(outs...)
	prog, loc, err := G.CompileFunction(b.g, sub.Inputs(), outs)
	if err != nil {
		return nil, fmt.Errorf("compile graph: %w", err)
	}
	return &program{vm: G.NewTapeMachine(b.g, G.WithPrecompiled(prog, loc)), outs: outs}, nil
}

// run executes the program.
func (p *program) run(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.vm.Reset()
	if err := p.vm.RunAll(); err != nil {
		return fmt.Errorf("run graph: %w", err)
	}
	return nil
}

func (p *program) close() error {
	if p == nil {
		return nil
	}
	return p.vm.Close()
}

// value returns the backing slice of a node's value.
func value[T kernels.Float](n *G.Node) []T { return n.Value().Data().([]T) }

// gradients adds the backward of out, whose own gradient is the input node seed.
func (b *builder[T]) gradients(out, seed *G.Node, wrt G.Nodes) (G.Nodes, error) {
	grads, err := G.Backpropagate(G.Nodes{out}, G.Nodes{seed}, wrt)
	if err != nil {
		return nil, fmt.Errorf("differentiate graph: %w", err)
	}
	return grads, nil
}
