package segattn

import (
	"math"
	"sync"

	"github.com/specstream/specstream/kernels"
)

// Heads is the head geometry of a layer. Query heads share key/value heads in
// groups of Query/KV (grouped-query attention).
type Heads struct {
	Query, KV, Dim int
}

// Width is the number of columns of a packed row q|k|v.
func (h Heads) Width() int { return (h.Query + 2*h.KV) * h.Dim }

// KV is the store of one layer's main keys (rotated) and values, and of the
// accumulators of their gradients. Index: sequence of the pack; each slice is
// [positions, Heads.KV × Heads.Dim] row-major.
type KV[T kernels.Float] struct {
	K, V [][]T
	// DK, DV are nil where the main stream needs no gradient (lossless mode).
	DK, DV [][]T
}

// NewKV makes a store for sequences of the given numbers of positions.
func NewKV[T kernels.Float](h Heads, positions []int, grad bool) *KV[T] {
	n := len(positions)
	s := &KV[T]{K: make([][]T, n), V: make([][]T, n)}
	if grad {
		s.DK, s.DV = make([][]T, n), make([][]T, n)
	}
	for i, p := range positions {
		c := p * h.KV * h.Dim
		s.K[i], s.V[i] = make([]T, c), make([]T, c)
		if grad {
			s.DK[i], s.DV[i] = make([]T, c), make([]T, c)
		}
	}
	return s
}

// ClearGrad zeroes the accumulators.
func (s *KV[T]) ClearGrad() {
	for i := range s.DK {
		clear(s.DK[i])
		clear(s.DV[i])
	}
}

// tileRows is the number of query rows whose scores are in scratch at a time.
const tileRows = 64

// query is what one query row sees: the first keys main keys of its sequence
// and own stream rows from ownRow on.
type query struct {
	keys, own, ownRow int
}

// tile is a run of consecutive query rows.
type tile struct {
	row  int // first row
	rows []query
	keys int // most main keys any of them sees
}

// tiles cuts a block's rows into runs of at most tileRows query rows.
func (b *Block) tiles(r *Rows) []tile {
	var out []tile
	add := func(row int, q query) {
		if n := len(out); n > 0 && len(out[n-1].rows) < tileRows && out[n-1].row+len(out[n-1].rows) == row {
			out[n-1].rows = append(out[n-1].rows, q)
			out[n-1].keys = max(out[n-1].keys, q.keys)
			return
		}
		out = append(out, tile{row: row, rows: []query{q}, keys: q.keys})
	}
	if b.MainRow >= 0 {
		i := 0
		for t := b.Lo; t < b.Hi; t++ {
			q := query{keys: t + 1}
			if i < len(b.Streams) && b.Streams[i] == t {
				if r.MainSeesStreams {
					q.own, q.ownRow = r.Gamma, b.StreamRow+i*r.Gamma
				}
				i++
			}
			add(b.MainRow+t-b.Lo, q)
		}
	}
	for i, t := range b.Streams {
		for j := range r.Gamma {
			add(b.StreamRow+i*r.Gamma+j, query{keys: t + 1, own: j + 1, ownRow: b.StreamRow + i*r.Gamma})
		}
	}
	return out
}

// Forward computes attention for every row of r. qkv is [rows, Width], already
// rotated; out is [rows, Query·Dim]. The keys and values of main rows are put
// into the store first; earlier positions must be there already. No score
// outlives its tile.
func Forward[T kernels.Float](r *Rows, h Heads, qkv []T, kv *KV[T], out []T) {
	keep(r, h, qkv, kv)
	each(r, h, func(b *Block, head int) {
		p := pass[T]{r: r, h: h, b: b, head: head, qkv: qkv, kv: kv}
		for _, t := range b.tiles(r) {
			p.forward(t, out)
		}
	})
}

// Backward computes dqkv [rows, Width] from dout [rows, Query·Dim] and the
// forward's qkv and out; scores are recomputed tile by tile. It adds to the
// store's accumulators for every position the rows see and reads the complete
// accumulators of the rows' own positions as their key and value gradients, so
// passes over the segments of a sequence must run in reverse. Without
// accumulators main keys and values are constants.
func Backward[T kernels.Float](r *Rows, h Heads, qkv, out, dout []T, kv *KV[T], dqkv []T) {
	each(r, h, func(b *Block, head int) {
		p := pass[T]{r: r, h: h, b: b, head: head, qkv: qkv, kv: kv}
		p.backward(out, dout, dqkv)
	})
}

// keep copies the keys and values of main rows into the store.
func keep[T kernels.Float](r *Rows, h Heads, qkv []T, kv *KV[T]) {
	w, n := h.Width(), h.KV*h.Dim
	for _, b := range r.Blocks {
		if b.MainRow < 0 {
			continue
		}
		for t := b.Lo; t < b.Hi; t++ {
			row := qkv[(b.MainRow+t-b.Lo)*w:][:w]
			copy(kv.K[b.Seq][t*n:][:n], row[h.Query*h.Dim:])
			copy(kv.V[b.Seq][t*n:][:n], row[(h.Query+h.KV)*h.Dim:])
		}
	}
}

// each runs f once for every block and key/value head, in parallel. One call
// owns that head's columns of the block's sequence, so accumulation needs no lock
// and its order is fixed.
func each(r *Rows, h Heads, f func(b *Block, head int)) {
	kernels.Parallel(len(r.Blocks)*h.KV, func(i int) { f(&r.Blocks[i/h.KV], i%h.KV) })
}

// pass is the work of one block and one key/value head.
type pass[T kernels.Float] struct {
	r    *Rows
	h    Heads
	b    *Block
	head int // key/value head
	qkv  []T
	kv   *KV[T]
}

func (p *pass[T]) width() int   { return p.h.Width() }
func (p *pass[T]) kvWidth() int { return p.h.KV * p.h.Dim }
func (p *pass[T]) scale() T     { return T(1 / math.Sqrt(float64(p.h.Dim))) }

func (p *pass[T]) queryCol(qh int) int { return qh * p.h.Dim }
func (p *pass[T]) keyCol() int         { return (p.h.Query + p.head) * p.h.Dim }
func (p *pass[T]) valueCol() int       { return (p.h.Query + p.h.KV + p.head) * p.h.Dim }

// part returns the head-wide part of a packed row that starts at col.
func (p *pass[T]) part(x []T, row, col int) []T { return x[row*p.width()+col:][:p.h.Dim] }

// probabilities fills s [rows, γ+keys] with the soft-max weights of one query
// head. Row i holds its own streams' weights in the columns just before column γ
// and the main keys' from column γ on; unseen columns from γ on are zero.
func (p *pass[T]) probabilities(t tile, qh int, s []T) {
	g, d, ld := p.r.Gamma, p.h.Dim, p.r.Gamma+t.keys
	kernels.GemmSerial(false, true, len(t.rows), t.keys, d, p.scale(),
		p.qkv[t.row*p.width()+p.queryCol(qh):], p.width(),
		p.kv.K[p.b.Seq][p.head*d:], p.kvWidth(), 0, s[g:], ld)
	for i, q := range t.rows {
		row := s[i*ld : (i+1)*ld]
		qv := p.part(p.qkv, t.row+i, p.queryCol(qh))
		for c := range q.own {
			row[g-q.own+c] = p.scale() * kernels.Dot(qv, p.part(p.qkv, q.ownRow+c, p.keyCol()))
		}
		kernels.SoftmaxInPlace(row[g-q.own : g+q.keys])
		clear(row[g+q.keys:])
	}
}

func (p *pass[T]) forward(t tile, out []T) {
	g, d, ld := p.r.Gamma, p.h.Dim, p.r.Gamma+t.keys
	s, release := scratch[T](len(t.rows) * ld)
	defer release()
	ow := p.h.Query * d
	for qh := p.head * p.group(); qh < (p.head+1)*p.group(); qh++ {
		p.probabilities(t, qh, s)
		kernels.GemmSerial(false, false, len(t.rows), d, t.keys, 1, s[g:], ld,
			p.kv.V[p.b.Seq][p.head*d:], p.kvWidth(), 0, out[t.row*ow+qh*d:], ow)
		for i, q := range t.rows {
			o := out[(t.row+i)*ow+qh*d:][:d]
			for c := range q.own {
				kernels.Axpy(o, s[i*ld+g-q.own+c], p.part(p.qkv, q.ownRow+c, p.valueCol()))
			}
		}
	}
}

func (p *pass[T]) group() int { return p.h.Query / p.h.KV }

func (p *pass[T]) backward(out, dout, dqkv []T) {
	b, d, n := p.b, p.h.Dim, p.kvWidth()
	for row := b.StreamRow; row < b.StreamRow+len(b.Streams)*p.r.Gamma; row++ {
		clear(p.part(dqkv, row, p.keyCol()))
		clear(p.part(dqkv, row, p.valueCol()))
	}
	for _, t := range b.tiles(p.r) {
		p.backwardTile(t, out, dout, dqkv)
	}
	if b.MainRow < 0 {
		return
	}
	for t := b.Lo; t < b.Hi; t++ {
		row := b.MainRow + t - b.Lo
		copy(p.part(dqkv, row, p.keyCol()), p.kv.DK[b.Seq][t*n+p.head*d:])
		copy(p.part(dqkv, row, p.valueCol()), p.kv.DV[b.Seq][t*n+p.head*d:])
	}
}

func (p *pass[T]) backwardTile(t tile, out, dout, dqkv []T) {
	g, d, ld, m := p.r.Gamma, p.h.Dim, p.r.Gamma+t.keys, len(t.rows)
	buf, release := scratch[T](2 * m * ld)
	defer release()
	s, ds := buf[:m*ld], buf[m*ld:]
	ow, w, n := p.h.Query*d, p.width(), p.kvWidth()
	k, v := p.kv.K[p.b.Seq][p.head*d:], p.kv.V[p.b.Seq][p.head*d:]
	for qh := p.head * p.group(); qh < (p.head+1)*p.group(); qh++ {
		p.probabilities(t, qh, s)
		// dP = dO Vᵀ, then dS = P ∘ (dP − rowsum(dO ∘ O)).
		kernels.GemmSerial(false, true, m, t.keys, d, 1, dout[t.row*ow+qh*d:], ow, v, n, 0, ds[g:], ld)
		for i, q := range t.rows {
			do := dout[(t.row+i)*ow+qh*d:][:d]
			delta := kernels.Dot(do, out[(t.row+i)*ow+qh*d:][:d])
			pr, dr := s[i*ld:(i+1)*ld], ds[i*ld:(i+1)*ld]
			for c := range q.own {
				col := g - q.own + c
				dr[col] = kernels.Dot(do, p.part(p.qkv, q.ownRow+c, p.valueCol()))
				kernels.Axpy(p.part(dqkv, q.ownRow+c, p.valueCol()), pr[col], do)
			}
			for c := g - q.own; c < len(pr); c++ {
				dr[c] = pr[c] * (dr[c] - delta)
			}
		}
		kernels.GemmSerial(false, false, m, d, t.keys, p.scale(), ds[g:], ld, k, n, 0, dqkv[t.row*w+p.queryCol(qh):], w)
		for i, q := range t.rows {
			for c := range q.own {
				x := p.scale() * ds[i*ld+g-q.own+c]
				kernels.Axpy(p.part(dqkv, t.row+i, p.queryCol(qh)), x, p.part(p.qkv, q.ownRow+c, p.keyCol()))
				kernels.Axpy(p.part(dqkv, q.ownRow+c, p.keyCol()), x, p.part(p.qkv, t.row+i, p.queryCol(qh)))
			}
		}
		if p.kv.DK == nil {
			continue
		}
		dk, dv := p.kv.DK[p.b.Seq][p.head*d:], p.kv.DV[p.b.Seq][p.head*d:]
		kernels.GemmSerial(true, false, t.keys, d, m, p.scale(), ds[g:], ld, p.qkv[t.row*w+p.queryCol(qh):], w, 1, dk, n)
		kernels.GemmSerial(true, false, t.keys, d, m, 1, s[g:], ld, dout[t.row*ow+qh*d:], ow, 1, dv, n)
	}
}

var pools = map[bool]*sync.Pool{false: {}, true: {}}

// scratch lends a buffer of n values; release gives it back.
func scratch[T kernels.Float](n int) (buf []T, release func()) {
	var zero T
	_, wide := any(zero).(float64)
	pool := pools[wide]
	if p, ok := pool.Get().(*[]T); ok && cap(*p) >= n {
		return (*p)[:n], func() { pool.Put(p) }
	}
	b := make([]T, n)
	return b, func() { pool.Put(&b) }
}
