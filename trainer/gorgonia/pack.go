package gorgonia

import (
	"github.com/specstream/specstream/kernels"
	"github.com/specstream/specstream/model"
	"github.com/specstream/specstream/segattn"
	"github.com/specstream/specstream/trainer"
)

// packRows is the most rows that go through a graph at once, unless one sequence
// has more. Some hundred rows already amortise what a run costs beside its rows
// (packing weights, adding up their gradients); more would only leave the caches
// and hold more activations. Gradients of packs add up, so results do not change
// but for rounding.
const packRows = 1024

// capacity is the number of rows of a graph that n rows need: packRows for most
// packs, so that they share a graph, and little more than n for small or
// oversized ones.
func capacity(n int) int {
	c := (n + n/8 + 63) / 64 * 64
	if n > packRows || c <= packRows/2 {
		return c
	}
	return packRows
}

// split cuts a micro-batch into packs: runs of whole sequences with at most
// packRows rows, or one sequence that has more.
func split(batch []trainer.Sequence, rows func(trainer.Sequence) int) (packs [][]trainer.Sequence) {
	for lo := 0; lo < len(batch); {
		hi, n := lo+1, rows(batch[lo])
		for hi < len(batch) && n+rows(batch[hi]) <= packRows {
			n += rows(batch[hi])
			hi++
		}
		packs = append(packs, batch[lo:hi])
		lo = hi
	}
	return packs
}

// pack is a micro-batch laid out for the graphs: the main rows of its sequences
// stand one after another.
type pack struct {
	batch    []trainer.Sequence
	seqs     []segattn.Sequence
	counts   trainer.Counts
	gamma    int
	segs     [][]segattn.Segment // by sequence
	offset   []int               // first main row of each sequence
	mainRows int
	all      *segattn.Rows // of whole
}

// newPack lays a micro-batch out with completions in the given number of
// segments. shared is true where main rows train with the streams.
func newPack(batch []trainer.Sequence, counts trainer.Counts, gamma, segments int, shared bool) *pack {
	p := &pack{batch: batch, counts: counts, gamma: gamma}
	for _, s := range batch {
		q := s.Layout()
		p.seqs = append(p.seqs, q)
		p.segs = append(p.segs, segattn.Split(q, segments, shared))
		p.offset = append(p.offset, p.mainRows)
		p.mainRows += q.Length - 1
	}
	return p
}

// segmentCount is the largest number of segments of any sequence, prompts included.
func (p *pack) segmentCount() int {
	n := 0
	for _, s := range p.segs {
		n = max(n, len(s))
	}
	return n
}

// segment returns segment g of every sequence, nil where it has fewer.
func (p *pack) segment(g int) []*segattn.Segment {
	out := make([]*segattn.Segment, len(p.segs))
	for i := range p.segs {
		if g < len(p.segs[i]) {
			out[i] = &p.segs[i][g]
		}
	}
	return out
}

// whole lays out all main rows.
func (p *pack) whole() *segattn.Rows {
	if p.all == nil {
		out := make([]*segattn.Segment, len(p.seqs))
		for i, s := range p.seqs {
			w := segattn.Whole(s)
			out[i] = &w
		}
		p.all = segattn.Lay(out, segattn.MainOnly, p.gamma, false)
	}
	return p.all
}

// positions is the number of main rows of each sequence.
func (p *pack) positions() []int {
	out := make([]int, len(p.seqs))
	for i, s := range p.seqs {
		out[i] = s.Length - 1
	}
	return out
}

// gatherEmbeddings fills x [mainRows, h] with the embeddings of the pack's tokens
// and, where positions are learned, of their positions. Streams begin above, at
// M^{N-N_s}, and so inherit their token's position; P_j carries the rest.
func gatherEmbeddings[T kernels.Float](p *pack, w *model.Weights, x []T) {
	h, row := w.Config.HiddenSize, 0
	for i, s := range p.batch {
		for t, id := range s.Tokens[:p.seqs[i].Length-1] {
			dst := x[row*h:][:h]
			for k, v := range w.Embed[int(id)*h:][:h] {
				dst[k] = T(v)
			}
			if w.Positions != nil {
				for k, v := range w.Positions[(t+w.Config.PositionOffset)*h:][:h] {
					dst[k] += T(v)
				}
			}
			row++
		}
	}
}

// mainOf visits the main rows of the pack that a layout needs as input, in the
// layout's order: its main rows, or, with streams only, its stream positions.
func (p *pack) mainOf(r *segattn.Rows, visit func(layoutRow, packRow int)) {
	at := 0
	for _, b := range r.Blocks {
		if b.MainRow >= 0 {
			for t := b.Lo; t < b.Hi; t++ {
				visit(at, p.offset[b.Seq]+t)
				at++
			}
			continue
		}
		for _, t := range b.Streams {
			visit(at, p.offset[b.Seq]+t)
			at++
		}
	}
}

// targets sets the head's labels for a multi-stream layout.
func targets[T kernels.Float](p *pack, r *segattn.Rows, alpha0, alpha T, t *head[T]) {
	t.reset(r.Total(), p.gamma+1)
	for _, b := range r.Blocks {
		tokens, seq := p.batch[b.Seq].Tokens, p.seqs[b.Seq]
		for i, pos := range b.Streams {
			if b.MainRow >= 0 {
				t.target(b.MainRow+pos-b.Lo, tokens[pos+1], alpha0/T(p.counts[0]), 0)
			}
			for j := 1; j <= p.gamma; j++ {
				if at := seq.Target(pos, j); at >= 0 {
					t.target(b.StreamRow+i*p.gamma+j-1, tokens[at], alpha/T(p.counts[j]), j)
				}
			}
		}
	}
}
