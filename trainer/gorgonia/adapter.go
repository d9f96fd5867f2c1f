package gorgonia

import (
	"context"
	"fmt"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/kernels"
	"github.com/specstream/specstream/model"
	"github.com/specstream/specstream/segattn"
	"github.com/specstream/specstream/trainer"
)

// Adapter trains one adapter on a frozen base. It implements trainer.Backend.
//
// Three graphs make up a step: "main", one decoder layer over main rows that
// serves every layer in turn; "msa", the N_s multi-stream layers with the head
// over one segment; "prune", the early exit. Every one is compiled for gorgonia's
// tape machine; only the layouts, the frozen weights and the inputs bound to them
// change from run to run.
type Adapter[T kernels.Float] struct {
	cfg     model.Config
	spec    specstream.TrainSpec
	dims    dims
	layers  []layerWeights[T]
	base    *model.Weights
	norm    frozen[T]
	headW   frozen[T] // [V, h]
	adapter *model.Adapter
	params  []*param[T]
	byName  map[string]*param[T]
	opt     *adamW[T]

	mainFrame, msaFrame, pruneFrame frame[T]
	main                            *mainGraph[T]
	msa                             *msaGraph[T]
	prune                           *pruneGraph[T]

	// Buffers that pack after pack uses: the stores of the multi-stream layers
	// and of one other layer, the main rows' states at M^{N-N_s} and above, and
	// the inputs of the lower layers.
	stores   []*segattn.KV[T]
	mainKV   segattn.KV[T]
	x, top   []T
	dtop     []T
	lowerIns [][]T

	// PeakStreamRows is the most stream rows that were live at once.
	PeakStreamRows int
}

// NewAdapter prepares the training of a on base. The adapter's parameters are
// updated in place when T is float32; Adapter() brings them up to date otherwise.
func NewAdapter[T kernels.Float](base *model.Weights, a *model.Adapter, spec specstream.TrainSpec) (*Adapter[T], error) {
	c := base.Config
	if a.Spec.MSALayers > c.NumLayers {
		return nil, specstream.Invalid("msa_layers", "%d is more than the base's %d layers", a.Spec.MSALayers, c.NumLayers)
	}
	t := &Adapter[T]{cfg: c, spec: spec, dims: newDims(c), base: base, norm: freeze[T](base.Norm, base.NormBias), headW: freeze[T](base.Head, nil),
		adapter: a, byName: map[string]*param[T]{}, opt: newAdamW[T](spec.WeightDecay, spec.ClipNorm)}
	for i := range base.Layers {
		t.layers = append(t.layers, newLayerWeights[T](&base.Layers[i]))
	}
	for _, p := range a.Params {
		q := newParam(p.Name, p.Shape, convert[T](p.Data))
		t.params = append(t.params, q)
		t.byName[p.Name] = q
	}
	rot := newRotary[T](c)
	for _, f := range []*frame[T]{&t.mainFrame, &t.msaFrame, &t.pruneFrame} {
		f.rotary, f.eps = rot, T(c.RMSNormEps)
	}
	return t, nil
}

func ropeScaling(c model.Config) *kernels.RopeScaling {
	if c.RopeScaling == nil {
		return nil
	}
	s := kernels.RopeScaling(*c.RopeScaling)
	return &s
}

func (t *Adapter[T]) shared() bool { return t.adapter.Spec.Mode == specstream.Shared }

// targets are the LoRA targets that the base has.
func (t *Adapter[T]) targets() (out []string) {
	for _, target := range t.adapter.Spec.LoRATargets {
		if t.byName[model.LoRAName(0, target, "A")] != nil {
			out = append(out, target)
		}
	}
	return out
}

func (t *Adapter[T]) firstMSA() int { return t.cfg.NumLayers - t.adapter.Spec.MSALayers }
func (t *Adapter[T]) loraScale() T {
	if t.shared() {
		return T(t.adapter.Spec.LoRAScale())
	}
	return 1
}

// Close releases the graphs.
func (t *Adapter[T]) Close() error {
	if err := t.main.close(); err != nil {
		return err
	}
	if err := t.msa.close(); err != nil {
		return err
	}
	return t.prune.close()
}

// Accumulate runs forward and backward over a micro-batch and adds to the
// gradients. counts are the global batch's numbers of targets.
func (t *Adapter[T]) Accumulate(ctx context.Context, batch []trainer.Sequence, counts trainer.Counts) (trainer.Losses, error) {
	losses := trainer.NewLosses(t.adapter.Spec.Gamma)
	for _, part := range split(batch, t.passRows) {
		if err := t.accumulate(ctx, part, counts, &losses); err != nil {
			return losses, err
		}
	}
	return losses, nil
}

// passRows is about the number of rows of a sequence in its largest pass.
func (t *Adapter[T]) passRows(s trainer.Sequence) int {
	main, streams := len(s.Tokens)-1, 0
	for _, p := range s.Spans {
		streams += (p.End - p.Start) * t.adapter.Spec.Gamma
	}
	streams /= max(1, t.spec.Segments)
	if t.shared() {
		return main + streams
	}
	return max(main, streams) // one after the other
}

// accumulate is Accumulate for one pack.
func (t *Adapter[T]) accumulate(ctx context.Context, batch []trainer.Sequence, counts trainer.Counts, losses *trainer.Losses) error {
	if t.cfg.LearnedPositions {
		for _, s := range batch {
			if n := len(s.Tokens) - 1; n > t.cfg.MaxPositions {
				return &specstream.InputError{Field: "max_position_embeddings", Reason: fmt.Sprintf("a sample has %d tokens, but the base has learned %d positions", n+1, t.cfg.MaxPositions),
					Hint: fmt.Sprintf("ingest with at most %d tokens a sample", t.cfg.MaxPositions)}
			}
		}
	}
	segments, err := t.plan(batch)
	if err != nil {
		return err
	}
	p := newPack(batch, counts, t.adapter.Spec.Gamma, segments, t.shared())
	if err := t.ensureMain(capacity(p.mainRows)); err != nil {
		return err
	}
	t.x = resize(t.x, p.mainRows*t.dims.h)
	x := t.x
	gatherEmbeddings(p, t.base, x)

	t.mainKV.Reset(t.dims.heads, p.positions(), false)
	t.lowerIns = resize(t.lowerIns, t.firstMSA())
	for l := range t.firstMSA() {
		if t.shared() { // kept where the layer trains
			t.lowerIns[l] = append(t.lowerIns[l][:0], x...)
		}
		if err := t.mainForward(ctx, p, l, x, &t.mainKV); err != nil {
			return err
		}
	}
	for len(t.stores) < t.adapter.Spec.MSALayers {
		t.stores = append(t.stores, &segattn.KV[T]{})
	}
	for _, kv := range t.stores {
		kv.Reset(t.dims.heads, p.positions(), t.shared())
	}
	if err := t.prunePass(ctx, p, x, losses); err != nil {
		return err
	}
	if !t.shared() {
		return t.losslessSegments(ctx, p, x, losses)
	}
	dx, err := t.sharedSegments(ctx, p, x, losses)
	if err != nil {
		return err
	}
	for l := t.firstMSA() - 1; l >= 0; l-- {
		if err := t.mainBackward(ctx, p, l, t.lowerIns[l], dx); err != nil {
			return err
		}
	}
	return nil
}

// losslessSegments runs the frozen main stream through the multi-stream layers
// once, then the streams of each segment forward and backward.
func (t *Adapter[T]) losslessSegments(ctx context.Context, p *pack, x []T, losses *trainer.Losses) error {
	t.top = append(t.top[:0], x...) // M^{N-N_s}
	top, last := t.top, len(t.stores)-1
	for i, kv := range t.stores[:last] {
		if err := t.mainForward(ctx, p, t.firstMSA()+i, x, kv); err != nil {
			return err
		}
	}
	// Nothing reads what the last layer makes of its main rows: lossless mode
	// has no loss on them.
	if err := t.mainKeys(ctx, p, t.cfg.NumLayers-1, x, t.stores[last]); err != nil {
		return err
	}
	for g := range p.segmentCount() {
		rows := segattn.Lay(p.segment(g), segattn.StreamsOnly, p.gamma, false)
		if rows.Total() == 0 {
			continue
		}
		if err := t.msaPass(ctx, p, rows, top, t.stores, nil, losses); err != nil {
			return fmt.Errorf("segment %d: %w", g, err)
		}
	}
	return nil
}

// sharedSegments is the exact scheme of segment attention in shared mode: forward
// over the segments to fill the stores, then backward over them in reverse,
// recomputing one at a time. It returns the gradient of M^{N-N_s}.
func (t *Adapter[T]) sharedSegments(ctx context.Context, p *pack, top []T, losses *trainer.Losses) ([]T, error) {
	n := p.segmentCount()
	lay := func(g int) *segattn.Rows { return segattn.Lay(p.segment(g), segattn.Both, p.gamma, true) }
	for g := range n - 1 { // the last segment's keys and values are only its own
		if rows := lay(g); rows.Total() > 0 {
			if err := t.msaForward(ctx, p, rows, top, t.stores); err != nil {
				return nil, fmt.Errorf("segment %d: %w", g, err)
			}
		}
	}
	t.dtop = resize(t.dtop, len(top))
	dtop := t.dtop
	for g := n - 1; g >= 0; g-- {
		if rows := lay(g); rows.Total() > 0 {
			if err := t.msaPass(ctx, p, rows, top, t.stores, dtop, losses); err != nil {
				return nil, fmt.Errorf("segment %d: %w", g, err)
			}
		}
	}
	return dtop, nil
}

// Step updates the adapter with AdamW at the given rate and returns the gradient
// norm before clipping.
func (t *Adapter[T]) Step(rate float64) (float64, error) {
	return t.opt.update(t.params, rate)
}

// Adapter returns the adapter with its parameters as trained so far.
func (t *Adapter[T]) Adapter() *model.Adapter {
	for i, p := range t.params {
		dst := t.adapter.Params[i].Data
		if s, ok := any(p.data).([]float32); ok {
			copy(dst, s) // the same memory already, in fact
			continue
		}
		for k, v := range p.data {
			dst[k] = float32(v)
		}
	}
	return t.adapter
}

// State copies out the parameters and AdamW's moments, as "<name>", "m.<name>"
// and "v.<name>".
func (t *Adapter[T]) State() (trainer.State, error) { return saveState(t.params, t.opt), nil }

// Restore sets what State copied out.
func (t *Adapter[T]) Restore(s trainer.State) error { return restoreState(t.params, t.opt, s) }

// Gradient returns the gradient summed since the last step of the named
// parameter, nil when there is none of that name.
func (t *Adapter[T]) Gradient(name string) []T {
	if p := t.byName[name]; p != nil {
		return p.grad
	}
	return nil
}
