package gorgonia

import (
	"github.com/specstream/specstream/kernels"
	"github.com/specstream/specstream/segattn"
	"github.com/specstream/specstream/trainer"
)

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
}

func newPack(batch []trainer.Sequence, counts trainer.Counts, gamma, segments int) *pack {
	p := &pack{batch: batch, counts: counts, gamma: gamma}
	for _, s := range batch {
		q := s.Layout()
		p.seqs = append(p.seqs, q)
		p.segs = append(p.segs, segattn.Split(q, segments))
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
	out := make([]*segattn.Segment, len(p.seqs))
	for i, s := range p.seqs {
		w := segattn.Whole(s)
		out[i] = &w
	}
	return segattn.Lay(out, segattn.MainOnly, p.gamma, false)
}

// positions is the number of main rows of each sequence.
func (p *pack) positions() []int {
	out := make([]int, len(p.seqs))
	for i, s := range p.seqs {
		out[i] = s.Length - 1
	}
	return out
}

// gatherEmbeddings fills x [mainRows, h] with the tokens' embeddings.
func (p *pack) gatherEmbeddings(x any, table []float32, h int) {
	row := 0
	for i, s := range p.batch {
		for _, id := range s.Tokens[:p.seqs[i].Length-1] {
			e := table[int(id)*h:][:h]
			switch x := x.(type) {
			case []float32:
				copy(x[row*h:], e)
			case []float64:
				for k, v := range e {
					x[row*h+k] = float64(v)
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
