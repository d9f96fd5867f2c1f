package gorgonia

import (
	"context"

	G "gorgonia.org/gorgonia"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/kernels"
	"github.com/specstream/specstream/model"
	"github.com/specstream/specstream/segattn"
	"github.com/specstream/specstream/trainer"
)

// mainGraph is one decoder layer over main rows.
type mainGraph[T kernels.Float] struct {
	b     *builder[T]
	x, dy *G.Node
	y     *G.Node
	layer layerNodes[T]
	lora  map[string]*G.Node // "<target>.A", "<target>.B"
	fwd   *program
	bwd   *program // nil in lossless mode
	// kv keeps the layer's keys and values and stops; nil in shared mode.
	kv *program
}

func (g *mainGraph[T]) close() error {
	if g == nil {
		return nil
	}
	if err := g.fwd.close(); err != nil {
		return err
	}
	if err := g.kv.close(); err != nil {
		return err
	}
	return g.bwd.close()
}

// ensureMain builds the main graph with room for rows rows.
func (t *Adapter[T]) ensureMain(rows int) error {
	if t.main != nil && t.main.b.rows >= rows {
		return nil
	}
	if err := t.main.close(); err != nil {
		return err
	}
	b := newBuilder(&t.mainFrame, rows)
	g := &mainGraph[T]{b: b, lora: map[string]*G.Node{}}
	g.x = b.input("x", rows, t.dims.h, !t.shared())
	wrt := G.Nodes{g.x}
	if t.shared() {
		g.layer.lora = map[string]lowRank{}
		for _, target := range t.targets() {
			a, bb := t.byName[model.LoRAName(0, target, "A")], t.byName[model.LoRAName(0, target, "B")]
			g.layer.lora[target] = lowRank{a: b.trainable(a), b: b.trainable(bb), rank: a.rows}
			for _, half := range []string{"A", "B"} {
				n := g.layer.lora[target].a
				if half == "B" {
					n = g.layer.lora[target].b
				}
				g.lora[target+"."+half] = n
				wrt = append(wrt, n)
			}
		}
	}
	y, qkv := b.layer(t.dims, g.x, &g.layer, 0, t.loraScale())
	g.y = y
	var err error
	if g.fwd, err = b.compile(G.Nodes{g.y}); err != nil {
		return err
	}
	if t.shared() {
		g.dy = b.input("dy", rows, t.dims.h, true)
		grads, err := b.gradients(g.y, g.dy, wrt)
		if err != nil {
			return err
		}
		if g.bwd, err = b.compile(grads); err != nil {
			return err
		}
	} else if g.kv, err = b.compile(G.Nodes{b.keys(t.dims.heads, 0, qkv)}); err != nil {
		return err
	}
	t.main = g
	return nil
}

// bindMain prepares a run of the main graph as layer l with input x.
func (t *Adapter[T]) bindMain(p *pack, l int, kv *segattn.KV[T], x []T) error {
	t.mainFrame.kv, t.mainFrame.window = []*segattn.KV[T]{kv}, []int{t.cfg.Window(l)}
	t.mainFrame.set(p.whole())
	t.main.layer.layerWeights = t.layers[l]
	for key, n := range t.main.lora {
		target, half := key[:len(key)-2], key[len(key)-1:]
		q := t.byName[model.LoRAName(l, target, half)]
		t.main.b.slots[n].p = q
		if err := G.Let(n, q.Value()); err != nil {
			return err
		}
	}
	copy(value[T](t.main.x), x)
	return nil
}

// mainForward replaces x [mainRows, h], the input of layer l, by its output. The
// layer's keys and values are kept in kv.
func (t *Adapter[T]) mainForward(ctx context.Context, p *pack, l int, x []T, kv *segattn.KV[T]) error {
	if err := t.bindMain(p, l, kv, x); err != nil {
		return err
	}
	if err := t.main.fwd.run(ctx); err != nil {
		return err
	}
	copy(x, value[T](t.main.y))
	return nil
}

// mainKeys keeps the keys and values of layer l, whose input is x, in kv.
func (t *Adapter[T]) mainKeys(ctx context.Context, p *pack, l int, x []T, kv *segattn.KV[T]) error {
	if err := t.bindMain(p, l, kv, x); err != nil {
		return err
	}
	return t.main.kv.run(ctx)
}

// mainBackward recomputes layer l from its input x and replaces dx, the gradient
// of its output, by that of its input; LoRA gradients are added up.
func (t *Adapter[T]) mainBackward(ctx context.Context, p *pack, l int, x, dx []T) error {
	t.mainKV.Reset(t.dims.heads, p.positions(), true)
	if err := t.bindMain(p, l, &t.mainKV, x); err != nil {
		return err
	}
	copy(value[T](t.main.dy), dx)
	if err := t.main.bwd.run(ctx); err != nil {
		return err
	}
	copy(dx, value[T](t.main.bwd.outs[0]))
	return nil
}

// msaGraph is the multi-stream layers, the final norm and the head over the rows
// of one segment.
type msaGraph[T kernels.Float] struct {
	b    *builder[T]
	main *G.Node  // M^{N-N_s} of the segment
	fwd  *program // up to the last layer's keys and values; nil in lossless mode
	full *program // loss, [dM,] parameter gradients
}

func (g *msaGraph[T]) close() error {
	if g == nil {
		return nil
	}
	if err := g.fwd.close(); err != nil {
		return err
	}
	return g.full.close()
}

// ensureMSA builds the multi-stream graph with room for rows rows.
func (t *Adapter[T]) ensureMSA(rows int) error {
	if t.msa != nil && t.msa.b.rows >= rows {
		return nil
	}
	if err := t.msa.close(); err != nil {
		return err
	}
	s, h := t.adapter.Spec, t.dims.h
	b := newBuilder(&t.msaFrame, rows)
	g := &msaGraph[T]{b: b}
	var params G.Nodes
	node := func(name string) *G.Node {
		n := b.trainable(t.byName[name])
		params = append(params, n)
		return n
	}
	g.main = b.input("main", rows, h, !t.shared())
	streams := node(model.StreamEmbeddingsName)
	var fa, fb *G.Node
	if s.StreamInit == specstream.StreamInitLowRank {
		fa, fb = node(model.StreamInitName("A")), node(model.StreamInitName("B"))
	}
	x := b.streams(h, s.Gamma, g.main, streams, fa, fb, s.StreamInitRank)
	var qkv *G.Node
	t.msaFrame.window = make([]int, s.MSALayers)
	for i := range s.MSALayers {
		l := t.firstMSA() + i
		ln := &layerNodes[T]{layerWeights: t.layers[l]}
		if t.shared() {
			ln.lora = map[string]lowRank{}
			for _, target := range t.targets() {
				ln.lora[target] = lowRank{a: node(model.LoRAName(l, target, "A")), b: node(model.LoRAName(l, target, "B")), rank: s.LoRARank}
			}
		} else {
			ln.adapterA, ln.adapterB = node(model.StreamAdapterName(l, "A")), node(model.StreamAdapterName(l, "B"))
			ln.adapterRank, ln.both = s.StreamRank, s.StreamMLP == specstream.StreamMLPBaseAdapter
		}
		x, qkv = b.layer(t.dims, x, ln, i, t.loraScale())
		t.msaFrame.window[i] = t.cfg.Window(l)
	}
	loss := b.headLoss(h, t.dims.vocab, b.norm(t.dims, x, &t.norm, nil, nil), &t.headW, nil)
	seed := matrix(b.g, "one", []T{1}, 1, 1)
	var wrt G.Nodes
	if t.shared() {
		wrt = append(wrt, g.main)
	}
	grads, err := b.gradients(loss, seed, append(wrt, params...))
	if err != nil {
		return err
	}
	if g.full, err = b.compile(append(G.Nodes{loss}, grads...)); err != nil {
		return err
	}
	if t.shared() {
		if g.fwd, err = b.compile(G.Nodes{b.keys(t.dims.heads, s.MSALayers-1, qkv)}); err != nil {
			return err
		}
	}
	t.msa = g
	return nil
}

// bindMSA prepares a run of the multi-stream graph over one segment.
func (t *Adapter[T]) bindMSA(p *pack, rows *segattn.Rows, top []T, stores []*segattn.KV[T]) error {
	if err := t.ensureMSA(capacity(rows.Total())); err != nil {
		return err
	}
	t.PeakStreamRows = max(t.PeakStreamRows, rows.Stream)
	t.msaFrame.set(rows)
	t.msaFrame.kv = stores
	h, dst := t.dims.h, value[T](t.msa.main)
	p.mainOf(rows, func(to, from int) { copy(dst[to*h:][:h], top[from*h:]) })
	return nil
}

// msaForward fills the stores with the keys and values of a segment's main rows.
func (t *Adapter[T]) msaForward(ctx context.Context, p *pack, rows *segattn.Rows, top []T, stores []*segattn.KV[T]) error {
	if err := t.bindMSA(p, rows, top, stores); err != nil {
		return err
	}
	return t.msa.fwd.run(ctx)
}

// msaPass runs a segment forward and backward. With dtop (shared mode) the
// gradient of the segment's entry states is put there.
func (t *Adapter[T]) msaPass(ctx context.Context, p *pack, rows *segattn.Rows, top []T, stores []*segattn.KV[T], dtop []T, losses *trainer.Losses) error {
	if err := t.bindMSA(p, rows, top, stores); err != nil {
		return err
	}
	hd := &t.msaFrame.head
	targets(p, rows, T(*t.spec.Alpha0), T(*t.spec.AlphaStream), hd)
	if err := t.msa.full.run(ctx); err != nil {
		return err
	}
	losses.AddStreams(hd.loss, hd.hits)
	if dtop != nil {
		h, d := t.dims.h, value[T](t.msa.full.outs[1])
		p.mainOf(rows, func(from, to int) { copy(dtop[to*h:][:h], d[from*h:]) })
	}
	return nil
}

// pruneGraph is the early exit z~ = H(norm_f(M + o_θ(M))).
type pruneGraph[T kernels.Float] struct {
	b    *builder[T]
	m    *G.Node
	full *program
}

func (g *pruneGraph[T]) close() error {
	if g == nil {
		return nil
	}
	return g.full.close()
}

// ensurePrune builds the early-exit graph with room for rows rows.
func (t *Adapter[T]) ensurePrune(rows int) error {
	if t.prune != nil && t.prune.b.rows >= rows {
		return nil
	}
	if err := t.prune.close(); err != nil {
		return err
	}
	h := t.dims.h
	b := newBuilder(&t.pruneFrame, rows)
	g := &pruneGraph[T]{b: b, m: b.input("m", rows, h, true)}
	pa, pb := b.trainable(t.byName[model.PrunerName("A")]), b.trainable(t.byName[model.PrunerName("B")])
	x := b.linear("pruner", g.m, linearSpec[T]{in: h, out: h, scale: 1, residual: g.m,
		pairs: []lowRank{{a: pa, b: pb, out: h, rank: t.adapter.Spec.PruneRank}}})
	loss := b.headLoss(h, t.dims.vocab, b.norm(t.dims, x, &t.norm, nil, nil), &t.headW, nil)
	grads, err := b.gradients(loss, matrix(b.g, "one", []T{1}, 1, 1), G.Nodes{pa, pb})
	if err != nil {
		return err
	}
	if g.full, err = b.compile(append(G.Nodes{loss}, grads...)); err != nil {
		return err
	}
	t.prune = g
	return nil
}

// pruneRows is the most rows an early-exit pass holds.
const pruneRows = 256

// prunePass trains the pruning adapter on the next-token loss of completion
// targets at M^{N-N_s}, which is a constant to it.
func (t *Adapter[T]) prunePass(ctx context.Context, p *pack, top []T, losses *trainer.Losses) error {
	type exit struct {
		row   int
		label int32
	}
	var exits []exit
	for i, s := range p.seqs {
		for _, pos := range s.StreamPositions() {
			exits = append(exits, exit{p.offset[i] + pos, p.batch[i].Tokens[pos+1]})
		}
	}
	if err := t.ensurePrune(min(pruneRows, capacity(len(exits)))); err != nil {
		return err
	}
	h, f := t.dims.h, &t.pruneFrame
	for lo := 0; lo < len(exits); lo += t.prune.b.rows {
		part := exits[lo:min(lo+t.prune.b.rows, len(exits))]
		f.n = len(part)
		f.head.reset(f.n, 1)
		dst := value[T](t.prune.m)
		for i, e := range part {
			copy(dst[i*h:][:h], top[e.row*h:])
			f.head.target(i, e.label, 1/T(p.counts[0]), 0)
		}
		if err := t.prune.full.run(ctx); err != nil {
			return err
		}
		losses.Prune += f.head.loss[0]
	}
	return nil
}

// plan chooses the number of completion segments for a batch.
func (t *Adapter[T]) plan(batch []trainer.Sequence) (int, error) {
	if t.spec.Segments > 0 {
		return t.spec.Segments, nil
	}
	seqs := make([]segattn.Sequence, len(batch))
	for i, s := range batch {
		seqs[i] = s.Layout()
	}
	p, err := t.Shape().Choose(seqs, t.spec.MemoryBudget)
	if err != nil {
		return 0, &specstream.InputError{Field: "memory_budget", Reason: err.Error()}
	}
	return p.Segments, nil
}

// Shape describes the training to the planner.
func (t *Adapter[T]) Shape() segattn.Shape {
	s := t.adapter.Spec
	rank := s.StreamRank
	if t.shared() {
		rank = s.LoRARank
	}
	return segattn.Shape{Hidden: t.dims.h, FF: t.dims.ff, NoGate: t.dims.relu, Vocab: t.dims.vocab, Heads: t.dims.heads, Layers: s.MSALayers, Gamma: s.Gamma,
		Shared: t.shared(), Rank: rank, WithMLP: s.StreamMLP == specstream.StreamMLPBaseAdapter, ValueBytes: int64(dtype[T]().Size()), HeadChunk: headChunk}
}
