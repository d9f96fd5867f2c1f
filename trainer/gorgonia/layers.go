package gorgonia

import (
	G "gorgonia.org/gorgonia"

	"github.com/specstream/specstream/kernels"
	"github.com/specstream/specstream/segattn"
)

// frame is what the operations of one graph share and what changes from run to
// run: the row layout, the frozen weights bound to the graph, the targets.
type frame[T kernels.Float] struct {
	rows   *segattn.Rows
	n      int              // live rows
	kv     []*segattn.KV[T] // one store a layer of the graph
	window []int            // sliding window of each layer of the graph, 0 for none
	rotary *kernels.Rotary[T]
	eps    T
	head   head[T]
	tokens []int32 // [live rows], input tokens of an embedding
}

// builder adds operations to one graph. Row-shaped values have room for rows
// rows; a run uses the first frame.n of them.
type builder[T kernels.Float] struct {
	g    *G.ExprGraph
	f    *frame[T]
	rows int
	// constants are the input nodes that need no gradient.
	constants map[*G.Node]bool
	// slots are the parameters of the nodes that stand for one.
	slots map[*G.Node]*slot[T]
	// buffers are lent by name; see gradient.Do.
	buffers map[string][]T
}

func newBuilder[T kernels.Float](f *frame[T], rows int) *builder[T] {
	return &builder[T]{g: G.NewGraph(), f: f, rows: rows, constants: map[*G.Node]bool{},
		slots: map[*G.Node]*slot[T]{}, buffers: map[string][]T{}}
}

// input adds an input node of the given shape with storage of its own.
func (b *builder[T]) input(name string, rows, cols int, constant bool) *G.Node {
	n := matrix(b.g, name, make([]T, rows*cols), rows, cols)
	b.constants[n] = constant
	return n
}

// trainable adds an input node for a parameter.
func (b *builder[T]) trainable(p *param[T]) *G.Node {
	n := matrix(b.g, p.name, p.data, p.rows, p.cols)
	b.slots[n] = &slot[T]{p}
	return n
}

// shared returns the buffer of that name with at least n values.
func (b *builder[T]) shared(name string, n int) []T {
	if len(b.buffers[name]) < n {
		b.buffers[name] = make([]T, n)
	}
	return b.buffers[name]
}

// set binds a row layout.
func (f *frame[T]) set(r *segattn.Rows) { f.rows, f.n = r, r.Total() }

// frozen is a weight matrix [out, in] or a norm's weight, with a bias or without,
// that can be exchanged between runs.
type frozen[T kernels.Float] struct{ w, b []T }

// lowRank is one LoRA pair on columns [col, col+out) of a linear operation's
// output: y += scale · (x Aᵀ) Bᵀ with A [rank, in] and B [out, rank].
type lowRank struct {
	a, b     *G.Node
	col, out int
	rank     int
}

// linearSpec describes a linear operation.
type linearSpec[T kernels.Float] struct {
	in, out  int
	frozen   *frozen[T] // nil: no frozen weight
	weight   *G.Node    // trainable weight [out, in], in place of frozen
	pairs    []lowRank
	scale    T              // LoRA scale
	residual *G.Node        // added to the output; nil for none
	closes   *skip[T]       // branch added to the output; nil for none
	rotate   *segattn.Heads // geometry of a q|k|v output to rotate; nil for none
}

// linear adds y = x Wᵀ + bias + Σ scale·(x Aᵀ)Bᵀ + residual to the graph;
// x is [rows, in], y [rows, out].
func (b *builder[T]) linear(name string, x *G.Node, s linearSpec[T]) *G.Node {
	f, rows := b.f, b.rows
	ins, diff, pass := G.Nodes{x}, []bool{!b.constants[x]}, -1
	add := func(n *G.Node) int {
		ins, diff = append(ins, n), append(diff, true)
		return len(ins) - 1
	}
	wi := -1
	if s.weight != nil {
		wi = add(s.weight)
	}
	type pair struct {
		lowRank
		ai, bi int
	}
	var pairs []pair
	rank := 0
	for _, p := range s.pairs {
		pairs = append(pairs, pair{p, add(p.a), add(p.b)})
		rank = max(rank, p.rank)
	}
	if s.residual != nil {
		pass = add(s.residual)
		diff[pass] = !b.constants[s.residual]
	}
	// weight returns W and whether the pairs are part of it: with enough rows,
	// W + scale·B A once a run costs less than (x Aᵀ)Bᵀ and its backward on every
	// row. The sum is made anew at every run, since A, B and the layer change.
	var merged []T
	weight := func(in [][]T, fresh bool) (w []T, whole bool) {
		switch {
		case wi >= 0:
			return in[wi], true
		case s.frozen == nil:
			return nil, false
		case len(pairs) == 0:
			return s.frozen.w, true
		case f.n*(s.in+s.out) < 2*s.in*s.out:
			return s.frozen.w, false
		}
		if fresh {
			merged = resize(merged, s.in*s.out)
			kernels.ParallelRows(s.out, 64, func(lo, hi int) { copy(merged[lo*s.in:hi*s.in], s.frozen.w[lo*s.in:]) })
			for _, p := range pairs {
				kernels.Gemm(false, false, p.out, s.in, p.rank, s.scale, in[p.bi], p.rank, in[p.ai], s.in, 1, merged[p.col*s.in:], s.in)
			}
		}
		return merged, true
	}
	residual := func(in [][]T) []T {
		switch {
		case pass >= 0:
			return in[pass]
		case s.closes != nil:
			return s.closes.x
		}
		return nil
	}
	o := &fused[T]{diff: diff, pass: pass}
	o.forward = func(y []T, in [][]T) {
		n, beta := f.n, T(0)
		if res := residual(in); res != nil {
			kernels.ParallelRows(n, 128, func(lo, hi int) { copy(y[lo*s.out:hi*s.out], res[lo*s.out:]) })
			beta = 1
		}
		w, whole := weight(in, true)
		if w != nil {
			kernels.Gemm(false, true, n, s.out, s.in, 1, in[0], s.in, w, s.in, beta, y, s.out)
		} else if beta == 0 {
			clear(y[:n*s.out])
		}
		if !whole {
			t := b.shared("x Aᵀ", rows*rank)
			for _, p := range pairs {
				kernels.Gemm(false, true, n, p.rank, s.in, 1, in[0], s.in, in[p.ai], s.in, 0, t, p.rank)
				kernels.Gemm(false, true, n, p.out, p.rank, s.scale, t, p.rank, in[p.bi], p.rank, 1, y[p.col:], s.out)
			}
		}
		if s.frozen != nil && s.frozen.b != nil {
			kernels.AddBias(y, s.out, s.frozen.b, n)
		}
		if s.rotate != nil {
			f.turn(*s.rotate, y, false)
		}
	}
	o.backward = func(din [][]T, in [][]T, y, dy []T) {
		n, beta := f.n, T(0)
		dx := din[0]
		if s.closes != nil {
			s.closes.dy = dy
		}
		if s.rotate != nil {
			f.turn(*s.rotate, dy, true) // dy is ours to overwrite: nothing reads it later
		}
		w, whole := weight(in, false)
		if w != nil && dx != nil {
			kernels.Gemm(false, false, n, s.in, s.out, 1, dy, s.out, w, s.in, 0, dx, s.in)
			beta = 1
		}
		if wi >= 0 {
			kernels.Gemm(true, false, s.out, s.in, n, 1, dy, s.out, in[0], s.in, 1, din[wi], s.in)
		}
		if len(pairs) == 0 {
			return
		}
		t, u := b.shared("x Aᵀ", rows*rank), b.shared("dy B", rows*rank)
		for _, p := range pairs {
			kernels.Gemm(false, false, n, p.rank, p.out, s.scale, dy[p.col:], s.out, in[p.bi], p.rank, 0, u, p.rank)
			if dx != nil && !whole {
				kernels.Gemm(false, false, n, s.in, p.rank, 1, u, p.rank, in[p.ai], s.in, beta, dx, s.in)
				beta = 1
			}
			kernels.Gemm(false, true, n, p.rank, s.in, 1, in[0], s.in, in[p.ai], s.in, 0, t, p.rank)
			kernels.Gemm(true, false, p.rank, s.in, n, 1, u, p.rank, in[0], s.in, 1, din[p.ai], s.in)
			kernels.Gemm(true, false, p.out, p.rank, n, s.scale, dy[p.col:], s.out, t, p.rank, 1, din[p.bi], p.rank)
		}
	}
	return o.apply(b, name, rows, s.out, ins...)
}

// rmsNorm adds y = x · w / rms(x). weight is the node of w where w is trained,
// else nil. opens is the residual branch that starts at x, nil for none.
func (b *builder[T]) rmsNorm(h int, x *G.Node, w *frozen[T], weight *G.Node, opens *skip[T]) *G.Node {
	f, rows := b.f, b.rows
	ins, diff := G.Nodes{x}, []bool{!b.constants[x]}
	if weight != nil {
		ins, diff = append(ins, weight), append(diff, true)
	}
	inv := make([]T, rows)
	o := &fused[T]{diff: diff, pass: -1, into: opens}
	o.forward = func(y []T, in [][]T) {
		if opens != nil {
			opens.x = in[0]
		}
		kernels.RMSNorm(y, in[0], w.value(in, weight), f.n, h, f.eps, inv)
	}
	o.backward = func(din [][]T, in [][]T, _, dy []T) {
		if din[0] != nil {
			kernels.RMSNormBackward(din[0], dy, in[0], w.value(in, weight), inv, f.n, h, opens != nil)
		}
		if weight != nil {
			kernels.RMSNormWeightGrad(din[1], dy, in[0], inv, f.n, h)
		}
	}
	return o.apply(b, "rmsnorm", rows, h, ins...)
}

// layerNorm adds y = (x-mean)·inv·w + b with both frozen. opens is as in rmsNorm.
func (b *builder[T]) layerNorm(h int, x *G.Node, w *frozen[T], opens *skip[T]) *G.Node {
	f := b.f
	stats := make([]T, 2*b.rows)
	o := &fused[T]{diff: []bool{!b.constants[x]}, pass: -1, into: opens}
	o.forward = func(y []T, in [][]T) {
		if opens != nil {
			opens.x = in[0]
		}
		kernels.LayerNorm(y, in[0], w.w, w.b, f.n, h, f.eps, stats)
	}
	o.backward = func(din [][]T, in [][]T, _, dy []T) {
		if din[0] != nil {
			kernels.LayerNormBackward(din[0], dy, in[0], w.w, stats, f.n, h, opens != nil)
		}
	}
	return o.apply(b, "layernorm", b.rows, h, x)
}

// norm adds the norm that the base has.
func (b *builder[T]) norm(d dims, x *G.Node, w *frozen[T], weight *G.Node, opens *skip[T]) *G.Node {
	if d.layerNorm {
		return b.layerNorm(d.h, x, w, opens)
	}
	return b.rmsNorm(d.h, x, w, weight, opens)
}

// turn rotates the query and key heads of packed q|k|v rows in place by each
// row's position (stream j of position t stands at t+j), or back.
func (f *frame[T]) turn(h segattn.Heads, qkv []T, inverse bool) {
	kernels.ParallelRows(f.n, 32, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			f.rotary.Apply(qkv[r*h.Width():], h.Query+h.KV, h.Dim, f.rows.Pos[r], inverse)
		}
	})
}

// attention adds segment attention over rotated q|k|v rows; layer selects the
// store and the window in the frame.
func (b *builder[T]) attention(h segattn.Heads, layer int, qkv *G.Node) *G.Node {
	f := b.f
	o := &fused[T]{diff: []bool{true}, pass: -1}
	norm := make([]T, 2*b.rows*h.Query)
	windowed := func() segattn.Heads {
		h.Window = f.window[layer]
		return h
	}
	o.forward = func(y []T, in [][]T) { segattn.Forward(f.rows, windowed(), in[0], f.kv[layer], y, norm) }
	o.backward = func(din [][]T, in [][]T, y, dy []T) {
		segattn.Backward(f.rows, windowed(), in[0], y, norm, dy, f.kv[layer], din[0])
	}
	return o.apply(b, "attention", b.rows, h.Query*h.Dim, qkv)
}

// keys adds an operation that puts the keys and values of rotated q|k|v rows
// into the layer's store and computes nothing from them. Its value means nothing.
func (b *builder[T]) keys(h segattn.Heads, layer int, qkv *G.Node) *G.Node {
	f := b.f
	o := &fused[T]{diff: []bool{false}, pass: -1}
	o.forward = func(_ []T, in [][]T) { segattn.Keep(f.rows, h, in[0], f.kv[layer]) }
	return o.apply(b, "keys", 1, 1, qkv)
}

// swiGLU adds y = silu(gate) · up for packed gate|up rows [rows, 2F].
func (b *builder[T]) swiGLU(ff int, gu *G.Node) *G.Node {
	f := b.f
	o := &fused[T]{diff: []bool{true}, pass: -1}
	o.forward = func(y []T, in [][]T) {
		kernels.ParallelRows(f.n, 8, func(lo, hi int) {
			for r := lo; r < hi; r++ {
				x := in[0][r*2*ff:]
				kernels.SwiGLU(y[r*ff:][:ff], x[:ff], x[ff:][:ff])
			}
		})
	}
	o.backward = func(din [][]T, in [][]T, _, dy []T) {
		kernels.ParallelRows(f.n, 8, func(lo, hi int) {
			for r := lo; r < hi; r++ {
				x, dx := in[0][r*2*ff:], din[0][r*2*ff:]
				kernels.SwiGLUBackward(dx[:ff], dx[ff:][:ff], dy[r*ff:][:ff], x[:ff], x[ff:][:ff])
			}
		})
	}
	return o.apply(b, "swiglu", b.rows, ff, gu)
}

// relu adds y = max(x, 0) over rows [rows, F].
func (b *builder[T]) relu(ff int, x *G.Node) *G.Node {
	f := b.f
	o := &fused[T]{diff: []bool{true}, pass: -1}
	o.forward = func(y []T, in [][]T) {
		kernels.ParallelRows(f.n, 8, func(lo, hi int) { kernels.ReLU(y[lo*ff:hi*ff], in[0][lo*ff:]) })
	}
	o.backward = func(din [][]T, in [][]T, _, dy []T) {
		kernels.ParallelRows(f.n, 8, func(lo, hi int) { kernels.ReLUBackward(din[0][lo*ff:hi*ff], dy[lo*ff:], in[0][lo*ff:]) })
	}
	return o.apply(b, "relu", b.rows, ff, x)
}

// streams adds the rows of a multi-stream pass (Eq. 4): the main rows as they
// are, where the layout has them, and stream rows S_tj = f_η(M_t) + P_j. main is
// [rows, h] with one live row a main position of the layout (with streams only:
// a stream position), p is [γ, h]; a and b are f_η's pair or nil.
func (bl *builder[T]) streams(h, gamma int, main, p, a, b *G.Node, rank int) *G.Node {
	f, rows := bl.f, bl.rows
	ins, diff := G.Nodes{main, p}, []bool{!bl.constants[main], true}
	var t, u []T
	if a != nil {
		ins, diff = append(ins, a, b), append(diff, true, true)
		t, u = make([]T, rows*rank), make([]T, rows*rank)
	}
	// sources calls fn with every stream position's main row and first stream row.
	sources := func(fn func(mainRow, streamRow int)) {
		at := 0
		for i := range f.rows.Blocks {
			blk := &f.rows.Blocks[i]
			for k, pos := range blk.Streams {
				m := at
				if blk.MainRow >= 0 {
					m = blk.MainRow + pos - blk.Lo
				}
				fn(m, blk.StreamRow+k*gamma)
				at++
			}
		}
	}
	count := func() int { // live rows of main
		if f.rows.Main > 0 {
			return f.rows.Main
		}
		return f.rows.Stream / gamma
	}
	o := &fused[T]{diff: diff, pass: -1}
	o.forward = func(y []T, in [][]T) {
		x := in[0]
		copy(y[:f.rows.Main*h], x)
		if a != nil {
			kernels.Gemm(false, true, count(), rank, h, 1, x, h, in[2], h, 0, t, rank)
		}
		sources(func(m, s int) {
			first := y[s*h:][:h]
			copy(first, x[m*h:][:h])
			if a != nil {
				kernels.GemmSerial(false, true, 1, h, rank, 1, t[m*rank:], rank, in[3], rank, 1, first, h)
			}
			for j := gamma - 1; j >= 0; j-- {
				row := y[(s+j)*h:][:h]
				copy(row, first)
				kernels.Axpy(row, 1, in[1][j*h:][:h])
			}
		})
	}
	o.backward = func(din [][]T, in [][]T, _, dy []T) {
		dx, dp := din[0], din[1]
		sum := bl.shared("streams sum", count()*h)[:count()*h] // Σ_j dS_tj by main row
		clear(sum)
		sources(func(m, s int) {
			for j := range gamma {
				d := dy[(s+j)*h:][:h]
				kernels.Axpy(dp[j*h:][:h], 1, d)
				kernels.Axpy(sum[m*h:][:h], 1, d)
			}
		})
		if dx != nil {
			clear(dx[:count()*h])
			copy(dx[:f.rows.Main*h], dy)
			kernels.Axpy(dx[:len(sum)], 1, sum)
		}
		if a == nil {
			return
		}
		n := count()
		kernels.Gemm(false, false, n, rank, h, 1, sum, h, in[3], rank, 0, u, rank)
		if dx != nil {
			kernels.Gemm(false, false, n, h, rank, 1, u, rank, in[2], h, 1, dx, h)
		}
		kernels.Gemm(true, false, rank, h, n, 1, u, rank, in[0], h, 1, din[2], h)
		kernels.Gemm(true, false, h, rank, n, 1, sum, h, t, rank, 1, din[3], rank)
	}
	return o.apply(bl, "streams", rows, h, ins...)
}

// embed adds the token embedding, y[r] = w[tokens[r]], with w [V, h] trainable.
func (b *builder[T]) embed(h int, w *G.Node) *G.Node {
	f := b.f
	o := &fused[T]{diff: []bool{true}, pass: -1}
	o.forward = func(y []T, in [][]T) {
		for r, id := range f.tokens[:f.n] {
			copy(y[r*h:][:h], in[0][int(id)*h:])
		}
	}
	o.backward = func(din [][]T, _ [][]T, _, dy []T) {
		for r, id := range f.tokens[:f.n] {
			kernels.Axpy(din[0][int(id)*h:][:h], 1, dy[r*h:][:h])
		}
	}
	return o.apply(b, "embed", b.rows, h, w)
}
