package cpu

import (
	"fmt"
	"slices"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/kernels"
	"github.com/specstream/specstream/model"
)

// Base holds a base model's weights packed for decoding. It is immutable; many
// decoders may share one, at once.
type Base struct {
	config    model.Config
	embed     []float32 // [V, h]
	positions []float32 // [positions, h] where they are learned, the first row position 0's; else nil
	layers    []baseLayer
	norm      norm
	head      *kernels.Packed
	rotary    *kernels.Rotary[float32] // nil where positions are learned
}

// baseLayer is one decoder layer; projections of one input are packed as one.
type baseLayer struct {
	attnNorm, mlpNorm norm
	qkv               projection // [(heads + 2·kvHeads)·d, h]
	o                 projection // [h, heads·d]
	up                projection // gate and up [2·intermediate, h], or up alone
	down              projection // [h, intermediate]
	window            int        // positions a row sees at most; 0: all
}

// projection is a linear projection; bias is nil where it has none.
type projection struct {
	w    *kernels.Packed
	bias []float32
}

// mulRows computes y = x Wᵀ + bias for rows of x, or adds it to y.
func (p projection) mulRows(y []float32, ldy int, x []float32, ldx, rows int, add bool) {
	p.w.MulRows(y, ldy, x, ldx, rows, add)
	if p.bias != nil {
		kernels.AddBias(y, ldy, p.bias, rows)
	}
}

// norm is an RMSNorm, or a LayerNorm where it has a bias.
type norm struct{ weight, bias []float32 }

func (n norm) apply(y, x []float32, rows int, eps float64) {
	if n.bias != nil {
		kernels.LayerNorm(y, x, n.weight, n.bias, rows, len(n.weight), float32(eps), nil)
		return
	}
	kernels.RMSNorm(y, x, n.weight, rows, len(n.weight), float32(eps), nil)
}

// NewBase packs a base's weights. Embeddings, norms and biases are shared with
// w, the rest is copied.
func NewBase(w *model.Weights) (*Base, error) {
	c := w.Config
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("cpu engine: %w", err)
	}
	h, q, m := c.HiddenSize, c.NumHeads*c.HeadDim, c.IntermediateSize
	b := &Base{config: c, embed: w.Embed, norm: norm{w.Norm, w.NormBias}, head: kernels.Pack(w.Head, c.VocabSize, h)}
	if c.LearnedPositions {
		b.positions = w.Positions[c.PositionOffset*h:]
	} else {
		var scaling *kernels.RopeScaling
		if s := c.RopeScaling; s != nil {
			scaling = &kernels.RopeScaling{Factor: s.Factor, LowFreqFactor: s.LowFreqFactor, HighFreqFactor: s.HighFreqFactor, OriginalMaxPositions: s.OriginalMaxPositions}
		}
		b.rotary = kernels.NewRotary[float32](c.HeadDim, c.RopeTheta, scaling)
	}
	pack := func(weights, bias []float32, in int) projection {
		return projection{kernels.Pack(weights, len(weights)/in, in), bias}
	}
	for i, l := range w.Layers {
		b.layers = append(b.layers, baseLayer{
			attnNorm: norm{l.AttnNorm, l.AttnNormBias}, mlpNorm: norm{l.MLPNorm, l.MLPNormBias},
			qkv: pack(l.QKV, l.QKVBias, h), o: pack(l.O, l.OBias, q), up: pack(l.GateUp, l.GateUpBias, h), down: pack(l.Down, l.DownBias, m),
			window: c.Window(i),
		})
	}
	return b, nil
}

// lowRank is a sum of low-rank maps of one input, y[at:] += B·(A·x) for each
// part. The As are packed as one.
type lowRank struct {
	a     *kernels.Packed // [Σ rank, in]
	parts []lowRankPart
}

type lowRankPart struct {
	b    *kernels.Packed // [out, rank]
	at   int             // where its outputs begin in y
	from int             // where its inputs begin in A·x
}

// newLowRank packs one map whose output begins at y[0]; nil where A is nil.
func newLowRank(a, b []float32, in, out int) *lowRank {
	var m lowRank
	if a == nil {
		return nil
	}
	m.pack(a, []packing{{b, out, 0}}, in, 1)
	return &m
}

// packing is a part to pack: B [out, rank] and where its outputs begin.
type packing struct {
	b       []float32
	out, at int
}

// pack packs stacked As, [Σ rank, in], and the Bs, each times scale.
func (m *lowRank) pack(a []float32, parts []packing, in int, scale float32) {
	m.a = kernels.Pack(a, len(a)/in, in)
	from := 0
	for _, p := range parts {
		b := slices.Clone(p.b)
		for i := range b {
			b[i] *= scale
		}
		rank := len(b) / p.out
		m.parts = append(m.parts, lowRankPart{kernels.Pack(b, p.out, rank), p.at, from})
		from += rank
	}
}

// add adds the maps of x's rows to y's; t is scratch of rows · Σ rank.
func (m *lowRank) add(y []float32, ldy int, x []float32, ldx, rows int, t []float32) {
	if m == nil {
		return
	}
	ranks := m.a.Out
	m.a.MulRows(t, ranks, x, ldx, rows, false) // [rows, Σ rank]
	for _, p := range m.parts {
		p.b.MulRows(y[p.at:], ldy, t[p.from:], ranks, rows, true)
	}
}

// ranks returns the width of the scratch that add needs.
func (m *lowRank) ranks() int {
	if m == nil {
		return 0
	}
	return m.a.Out
}

// adapter is an adapter packed for decoding.
type adapter struct {
	gamma      int
	split      int         // layers below the streams, N − N_s
	embeddings []float32   // P_j, [γ, h]
	pruner     *lowRank    // o_θ
	init       *lowRank    // f_η beyond the identity; nil without
	lora       []loraLayer // by layer; nil in lossless mode
	stream     []*lowRank  // stream adapters by layer, nil below the streams; nil in shared mode
	keepMLP    bool        // lossless: the frozen MLP stays beside the stream adapter
	mode       specstream.Mode
}

// loraLayer holds a layer's LoRA by common input; nil where none is adapted.
type loraLayer struct{ qkv, o, up, down *lowRank }

func newAdapter(c model.Config, a *model.Adapter) *adapter {
	h := c.HiddenSize
	p := &adapter{
		gamma: a.Spec.Gamma, split: c.NumLayers - a.Spec.MSALayers, embeddings: a.StreamEmbeddings(),
		keepMLP: a.Spec.StreamMLP == specstream.StreamMLPBaseAdapter, mode: a.Spec.Mode,
	}
	pa, pb := a.Pruner()
	p.pruner = newLowRank(pa, pb, h, h)
	ia, ib := a.StreamInit()
	p.init = newLowRank(ia, ib, h, h)
	if a.Spec.Mode == specstream.Lossless {
		p.stream = make([]*lowRank, c.NumLayers)
		for i := range p.stream {
			sa, sb := a.StreamAdapter(i)
			p.stream[i] = newLowRank(sa, sb, h, h)
		}
		return p
	}
	scale := float32(a.Spec.LoRAScale())
	for i := range c.NumLayers {
		group := func(targets ...string) *lowRank {
			var as []float32
			var parts []packing
			at, in := 0, 0
			for _, t := range targets {
				var out int
				out, in = c.ProjectionShape(t)
				if A, B := a.LoRA(i, t); A != nil {
					as = append(as, A...)
					parts = append(parts, packing{B, out, at})
				}
				at += out
			}
			if parts == nil {
				return nil
			}
			var m lowRank
			m.pack(as, parts, in, scale)
			return &m
		}
		p.lora = append(p.lora, loraLayer{group("q_proj", "k_proj", "v_proj"), group("o_proj"), group("gate_proj", "up_proj"), group("down_proj")})
	}
	return p
}

// widest returns the width of the low-rank scratch that any map needs.
func (p *adapter) widest() int {
	n := max(p.pruner.ranks(), p.init.ranks())
	for _, l := range p.lora {
		n = max(n, l.qkv.ranks(), l.o.ranks(), l.up.ranks(), l.down.ranks())
	}
	for _, s := range p.stream {
		n = max(n, s.ranks())
	}
	return n
}
