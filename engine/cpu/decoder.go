package cpu

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/engine"
	"github.com/specstream/specstream/model"
)

// prefillRows is how many prompt positions go through the model at once: it
// bounds the row buffers and the time until a cancelled context is noticed.
const prefillRows = 128

// Decoder decodes with one base and one adapter. It implements
// [engine.Decoder] with bit-equal tokens: lossless speculative decoding emits
// exactly the base's own tokens, shared exactly those of the empty draft.
type Decoder struct {
	base    *Base
	adapter *adapter // nil: autoregressive decoding of the base alone
	lora    []loraLayer

	qkvWidth, kvWidth, upWidth, lowWidth int

	// Row buffers for capacity rows.
	capacity                 int
	x, normed                []float32 // [rows, h]
	qkv                      []float32 // [rows, qkvWidth]
	attended                 []float32 // [rows, heads·d]
	up                       []float32 // [rows, upWidth]: gate and up, or up alone
	low                      []float32 // [rows, lowWidth]
	state                    []float32 // [h]
	entry                    []float32 // [kept, h]: states entering the MSA layers, lossless mode
	headIn, logits           []float32
	early, earlyIn           []float32
	scores                   []float64
	parents, path, everyNode []int
	workers                  []worker
	batch                    batch
	full, pruned             engine.Tree
	draft                    [][]int32
	cacheK, cacheV           [][]float32 // by layer, [slots, kvHeads·d]
	streamK, streamV         []float32   // [stream rows, kvHeads·d], of the layer at work
	slots, length            int         // cache slots there are; main positions in the cache
}

var _ engine.Decoder = (*Decoder)(nil)

// New packs a base and returns a decoder of it with an adapter; nil decodes the
// base alone, autoregressively.
func New(w *model.Weights, a *model.Adapter) (*Decoder, error) {
	b, err := NewBase(w)
	if err != nil {
		return nil, err
	}
	return b.Decoder(a)
}

// Decoder returns a decoder of the base with an adapter; nil decodes the base
// alone, autoregressively. The adapter's weights are copied but for the stream
// embeddings.
func (b *Base) Decoder(a *model.Adapter) (*Decoder, error) {
	c := b.config
	d := &Decoder{base: b, kvWidth: c.NumKVHeads * c.HeadDim, state: make([]float32, c.HiddenSize)}
	d.qkvWidth = c.NumHeads*c.HeadDim + 2*d.kvWidth
	d.upWidth = b.layers[0].up.w.Out
	d.cacheK, d.cacheV = make([][]float32, c.NumLayers), make([][]float32, c.NumLayers)
	if a == nil {
		return d, nil
	}
	if err := a.Spec.Validate(); err != nil {
		return nil, fmt.Errorf("cpu engine: %w", err)
	}
	if !a.Base.Equal(c) {
		return nil, fmt.Errorf("cpu engine: %w", &specstream.InputError{Field: "adapter", Reason: "it was made for another base", Hint: "load it with the configuration of this base"})
	}
	d.adapter = newAdapter(c, a)
	d.lora = d.adapter.lora
	d.lowWidth = d.adapter.widest()
	return d, nil
}

// Close releases the decoder's buffers; the base stays.
func (d *Decoder) Close() error {
	*d = Decoder{}
	return nil
}

// plan is what a request asks of the forwards.
type plan struct {
	attach bool // streams run beside the main rows (shared mode)
	draft  bool // trees are drafted
	k      int  // tokens a stream
	nodes  int
	least  float64 // pruning threshold
}

func (d *Decoder) plan(r engine.Request) (plan, error) {
	if d.adapter == nil {
		if r.Method != engine.Autoregressive {
			return plan{}, specstream.Invalid("method", "%q needs an adapter", r.Method)
		}
		return plan{}, nil
	}
	p := plan{k: r.Decode.TreeFactor, nodes: r.Decode.TreeNodes, least: r.Decode.PruneThreshold}
	p.attach = d.adapter.mode == specstream.Shared && r.Method != engine.Autoregressive
	p.draft = r.Method == engine.Speculative
	if !p.draft {
		return p, nil
	}
	return p, engine.CheckTree(d.adapter.gamma, r.Decode)
}

// Decode implements [engine.Decoder].
func (d *Decoder) Decode(ctx context.Context, r engine.Request) (engine.Result, error) {
	if d.base == nil {
		return engine.Result{}, fmt.Errorf("decode: the decoder is closed")
	}
	c := d.base.config
	if err := r.Check(c.VocabSize, c.MaxPositions); err != nil {
		return engine.Result{}, fmt.Errorf("decode: %w", err)
	}
	p, err := d.plan(r)
	if err != nil {
		return engine.Result{}, fmt.Errorf("decode: %w", err)
	}
	tokens := engine.NewTokens(r, c.MaxPositions)
	tree := 1
	if p.draft {
		tree = engine.TreeSize(d.adapter.gamma, p.k)
	}
	d.allocate(len(r.Prompt) + tokens.Limit() + tree)
	res := engine.Result{MinMargin: float32(math.Inf(1))}

	start := time.Now()
	root, err := d.prefill(ctx, r.Prompt, p, tokens, &res)
	if err != nil {
		return engine.Result{}, fmt.Errorf("prefill: %w", err)
	}
	res.PrefillTime = time.Since(start)

	start = time.Now()
	for !tokens.Done() {
		if root, err = d.step(ctx, root, p, tokens, &res, r.Observe); err != nil {
			return engine.Result{}, fmt.Errorf("decode: %w", err)
		}
	}
	res.DecodeTime = time.Since(start)
	res.Tokens = tokens.List()
	return res, nil
}

// allocate makes room for that many cache slots. The cache is empty afterwards.
func (d *Decoder) allocate(slots int) {
	d.length = 0
	d.draft = d.draft[:0]
	if slots <= d.slots {
		return
	}
	d.slots = slots + slots/4
	for l := range d.cacheK {
		d.cacheK[l] = make([]float32, d.slots*d.kvWidth)
		d.cacheV[l] = make([]float32, d.slots*d.kvWidth)
	}
}

// prefill runs the prompt, emits the first token and returns it. The prompt's
// last position carries streams where the plan asks for them, and the first
// draft is taken from them.
func (d *Decoder) prefill(ctx context.Context, prompt []int32, p plan, tokens *engine.Tokens, res *engine.Result) (int32, error) {
	c := d.base.config
	b := &d.batch
	for len(prompt) > 0 {
		rows := min(prefillRows, len(prompt))
		last := rows == len(prompt)
		b.reset(d.length)
		for i := range rows {
			b.addMain(d.length+i, d.length+i, i)
		}
		d.reserve(rows)
		d.embed(b, prompt[:rows])
		split := c.NumLayers
		if last && d.adapter != nil {
			split = d.adapter.split
		}
		if err := d.run(ctx, b, 0, split); err != nil {
			return 0, err
		}
		if last && d.adapter != nil {
			d.enterMSA(b, p, rows-1)
			if err := d.run(ctx, b, split, c.NumLayers); err != nil {
				return 0, err
			}
		}
		d.length += rows
		prompt = prompt[rows:]
	}
	row := b.main - 1
	first, err := d.choose(row, res)
	if err != nil {
		return 0, err
	}
	tokens.Append(first)
	if tokens.Done() {
		return first, nil
	}
	d.finishStreams(p, row)
	return first, d.nextDraft(ctx, p, row)
}

// choose returns the main stream's greedy token at a row of x and notes how near
// a tie it was.
func (d *Decoder) choose(row int, res *engine.Result) (int32, error) {
	h := d.base.config.HiddenSize
	token, margin := engine.ArgMax(d.headLogits(d.x[row*h:(row+1)*h], 1))
	if margin != margin {
		return 0, fmt.Errorf("no logit is a finite number: the base or the adapter is damaged")
	}
	res.MinMargin = min(res.MinMargin, margin)
	return token, nil
}

// enterMSA prepares the batch, whose main rows have passed the layers below the
// streams, for the MSA layers: main rows from first on carry streams (shared mode),
// or have their states kept for streams that run later (lossless mode).
func (d *Decoder) enterMSA(b *batch, p plan, first int) {
	h := d.base.config.HiddenSize
	switch {
	case p.attach:
		for r := first; r < b.main; r++ {
			b.carry(r)
		}
		d.attachStreams(b, func(i int) []float32 { return d.x[(first+i)*h:][:h] })
	case p.draft:
		d.entry = grow(d.entry, b.main*h)
		copy(d.entry, d.x[:b.main*h])
	}
}

// finishStreams completes the last layer of the streams beside main row `row`,
// which the batch's run left out (shared mode).
func (d *Decoder) finishStreams(p plan, row int) {
	if !p.attach || !p.draft {
		return
	}
	b := &d.batch
	first := b.main + b.group[row]*d.adapter.gamma
	d.finish(d.base.config.NumLayers-1, b, first, first+d.adapter.gamma)
}

// nextDraft takes the draft of the next tree from the streams of main row `row`
// of the batch that just ran, whose position is the last in the cache.
func (d *Decoder) nextDraft(ctx context.Context, p plan, row int) error {
	if !p.draft {
		return nil
	}
	c, gamma, b := d.base.config, d.adapter.gamma, &d.batch
	h, v := c.HiddenSize, c.VocabSize
	var streams []float32 // [γ, h]
	if p.attach {
		streams = d.x[(b.main+b.group[row]*gamma)*h:][:gamma*h]
	} else {
		state := d.entry[row*h : (row+1)*h]
		b.reset(d.length)
		b.carriers = append(b.carriers, carrier{d.length - 1, []span{{0, d.length}}})
		d.attachStreams(b, func(int) []float32 { return state })
		if err := d.run(ctx, b, d.adapter.split, c.NumLayers); err != nil {
			return err
		}
		streams = d.x[:gamma*h]
	}
	logits := d.headLogits(streams, gamma)
	for len(d.draft) < gamma {
		d.draft = append(d.draft, nil)
	}
	for j := range gamma {
		d.draft[j] = engine.TopK(logits[j*v:(j+1)*v], p.k, d.draft[j])
	}
	return nil
}

// step is one forward: it verifies the tree grown of root and the last draft,
// emits what is accepted and the correction, and drafts anew. It returns the
// correction, the next root.
func (d *Decoder) step(ctx context.Context, root int32, p plan, tokens *engine.Tokens, res *engine.Result, observe func(engine.Step)) (int32, error) {
	h, layers := d.base.config.HiddenSize, d.base.config.NumLayers
	split := layers
	if d.adapter != nil {
		split = d.adapter.split
	}
	b := &d.batch

	// Layers below the streams: the whole tree.
	d.full.Grow(root, d.draft)
	d.fillTree(&d.full)
	d.reserve(b.main)
	d.embed(b, d.full.Tokens)
	if err := d.run(ctx, b, 0, split); err != nil {
		return 0, err
	}

	// MSA layers: what pruning keeps.
	tree, kept := &d.full, d.keep(p)
	if len(kept) < d.full.Len() {
		d.pruned.Restrict(&d.full, kept)
		tree = &d.pruned
		for i, node := range kept {
			copy(d.x[i*h:(i+1)*h], d.x[node*h:(node+1)*h])
		}
		d.fillTree(tree)
	}
	d.enterMSA(b, p, 0)
	if err := d.run(ctx, b, split, layers); err != nil {
		return 0, err
	}

	var damaged error
	path, correction := tree.Accept(func(node int) int32 {
		token, err := d.choose(node, res)
		if err != nil {
			damaged = err
		}
		return token
	})
	if damaged != nil {
		return 0, damaged
	}
	emitted := 0
	for _, node := range path[1:] {
		emitted += tokens.Append(tree.Tokens[node])
	}
	emitted += tokens.Append(correction)
	res.TargetCalls++
	res.Emitted += emitted
	if observe != nil {
		observe(engine.Step{Root: root, Draft: d.draft, Kept: kept, Accepted: len(path) - 1, Emitted: emitted})
	}
	if tokens.Done() {
		return correction, nil
	}
	accepted := path[len(path)-1]
	d.finishStreams(p, accepted) // before the keys they see move
	d.compact(path, kept, split)
	return correction, d.nextDraft(ctx, p, accepted)
}

// fillTree makes the batch the nodes of a tree whose root follows the cache.
func (d *Decoder) fillTree(t *engine.Tree) {
	d.batch.reset(d.length)
	for node := range t.Len() {
		d.path = t.Path(node, d.path)
		d.batch.addMain(d.length+t.Depths[node], d.length, d.path...)
	}
}

// keep returns the nodes of the full tree that go on into the MSA layers,
// ascending. Early-exit scores are computed only where they can matter.
func (d *Decoder) keep(p plan) []int {
	n := d.full.Len()
	if p.draft && (n > p.nodes || p.least > 0) {
		return d.full.Prune(d.transitions(&d.full), p.nodes, p.least)
	}
	d.everyNode = d.everyNode[:0]
	for node := range n {
		d.everyNode = append(d.everyNode, node)
	}
	return d.everyNode
}

// compact keeps the keys and values of the accepted path, in order, behind the
// cache, and drops the other nodes'. Path nodes are numbered as in the MSA layers;
// below them, kept says where they lie.
func (d *Decoder) compact(path, kept []int, split int) {
	kv := d.kvWidth
	for l := range d.cacheK {
		for i, node := range path {
			if l < split {
				node = kept[node]
			}
			if node == i {
				continue
			}
			// Nodes ascend along a path, so none is overwritten before it is moved.
			from, to := (d.length+node)*kv, (d.length+i)*kv
			copy(d.cacheK[l][to:to+kv], d.cacheK[l][from:from+kv])
			copy(d.cacheV[l][to:to+kv], d.cacheV[l][from:from+kv])
		}
	}
	d.length += len(path)
}
