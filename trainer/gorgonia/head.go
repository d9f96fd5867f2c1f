package gorgonia

import (
	G "gorgonia.org/gorgonia"

	"github.com/specstream/specstream/kernels"
)

// headChunk is the most rows whose logits exist at a time.
const headChunk = 128

// head is the targets of a language-model head and what came of them.
type head[T kernels.Float] struct {
	// labels is the target of each row, -1 for none; scale is the weight of its
	// loss; stream is the sum it is counted in.
	labels []int32
	scale  []T
	stream []int
	// loss is the unweighted sum of -log p by stream, hits the number of rows
	// whose most probable token is the target.
	loss []float64
	hits []int
}

// reset prepares n rows without a target and k sums.
func (t *head[T]) reset(n, k int) {
	t.labels = resize(t.labels, n)
	t.scale = resize(t.scale, n)
	t.stream = resize(t.stream, n)
	t.loss = resize(t.loss, k)
	t.hits = resize(t.hits, k)
	for i := range t.labels {
		t.labels[i] = -1
	}
	clear(t.loss)
	clear(t.hits)
}

// target sets the target of one row.
func (t *head[T]) target(row int, label int32, scale T, stream int) {
	t.labels[row], t.scale[row], t.stream[row] = label, scale, stream
}

func resize[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}

// headLoss adds the LM head with soft-max cross-entropy, a [1, 1] node: the sum
// over rows with a target of scale · -log p(target). Only rows with a target are
// multiplied with the head, headChunk at a time; the chunk's backward is computed
// in the same pass, so no [rows, V] tensor of more than one chunk exists. With
// weight the head [V, h] is trainable.
func (b *builder[T]) headLoss(h, vocab int, x *G.Node, w *frozen[T], weight *G.Node) *G.Node {
	f, rows := b.f, b.rows
	ins, diff := G.Nodes{x}, []bool{true}
	if weight != nil {
		ins, diff = append(ins, weight), append(diff, true)
	}
	dx := make([]T, rows*h)
	var dw []T
	if weight != nil {
		dw = make([]T, vocab*h)
	}
	var live []int // rows with a target
	xs, dxs := make([]T, headChunk*h), make([]T, headChunk*h)
	logits := make([]T, headChunk*vocab)
	labels, scale := make([]int32, headChunk), make([]T, headChunk)
	loss, hit := make([]float64, headChunk), make([]bool, headChunk)

	o := &fused[T]{diff: diff, pass: -1}
	o.forward = func(y []T, in [][]T) {
		t := &f.head
		hw := w.value(in, weight)
		live = live[:0]
		for r := range f.n {
			if t.labels[r] >= 0 {
				live = append(live, r)
			}
		}
		clear(dx[:f.n*h])
		clear(dw)
		var total float64
		for lo := 0; lo < len(live); lo += headChunk {
			chunk := live[lo:min(lo+headChunk, len(live))]
			m := len(chunk)
			for i, r := range chunk {
				copy(xs[i*h:][:h], in[0][r*h:])
				labels[i], scale[i] = t.labels[r], t.scale[r]
			}
			kernels.Gemm(false, true, m, vocab, h, 1, xs, h, hw, h, 0, logits, vocab)
			kernels.CrossEntropyRows(logits, m, vocab, labels, scale, loss, hit)
			kernels.Gemm(false, false, m, h, vocab, 1, logits, vocab, hw, h, 0, dxs, h)
			if dw != nil {
				kernels.Gemm(true, false, vocab, h, m, 1, logits, vocab, xs, h, 1, dw, h)
			}
			for i, r := range chunk {
				copy(dx[r*h:][:h], dxs[i*h:])
				s := t.stream[r]
				t.loss[s] += loss[i]
				if hit[i] {
					t.hits[s]++
				}
				total += float64(scale[i]) * loss[i]
			}
		}
		y[0] = T(total)
	}
	o.backward = func(din [][]T, _ [][]T, _, dy []T) {
		copy(din[0][:f.n*h], dx)
		kernels.Scale(din[0][:f.n*h], dy[0])
		if weight != nil {
			kernels.Axpy(din[1][:len(dw)], dy[0], dw)
		}
	}
	return o.apply(b, "headloss", 1, 1, ins...)
}

// value is the frozen weight, or the value of the trainable node, an
// operation's second input, when there is one.
func (w *frozen[T]) value(in [][]T, weight *G.Node) []T {
	if weight != nil {
		return in[1]
	}
	return w.w
}
