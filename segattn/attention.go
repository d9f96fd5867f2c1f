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
	// Window is the layer's sliding window: a row at position p sees no main key
	// at position p-Window or before. Stream j of position t stands at t+j. 0 is
	// none; else it exceeds γ, so that every row sees a main key.
	Window int
}

// first is the first main position that a row at position p sees.
func (h Heads) first(p int) int {
	if h.Window == 0 {
		return 0
	}
	return max(0, p+1-h.Window)
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
	// memory backs all of them.
	memory []T
}

// NewKV makes a store for sequences of the given numbers of positions.
func NewKV[T kernels.Float](h Heads, positions []int, grad bool) *KV[T] {
	s := &KV[T]{}
	s.Reset(h, positions, grad)
	return s
}

// Reset makes the store anew for other sequences, in the memory it has where
// that suffices. Keys and values are unspecified, accumulators zero.
func (s *KV[T]) Reset(h Heads, positions []int, grad bool) {
	n := len(positions)
	size, parts := 0, 2
	if grad {
		parts = 4
	}
	for _, p := range positions {
		size += p * h.KV * h.Dim
	}
	if cap(s.memory) < parts*size {
		s.memory = make([]T, parts*size)
	}
	rest := s.memory[:parts*size]
	clear(rest[2*size:])
	take := func() [][]T {
		out := make([][]T, n)
		for i, p := range positions {
			c := p * h.KV * h.Dim
			out[i], rest = rest[:c:c], rest[c:]
		}
		return out
	}
	s.K, s.V, s.DK, s.DV = take(), take(), nil, nil
	if grad {
		s.DK, s.DV = take(), take()
	}
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

// query is what one query row sees: the main keys of its sequence before
// position keys, from the window of its own position pos on, and own stream rows
// from ownRow on.
type query struct {
	pos, keys, own, ownRow int
}

// tile is a run of consecutive query rows.
type tile struct {
	row  int // first row
	rows []query
	pos  int // least position of a row
	keys int // most main keys any of them sees
}

// sight returns the range [lo, hi) of main keys that any row of the tile sees.
func (t *tile) sight(h Heads) (lo, hi int) { return h.first(t.pos), t.keys }

// cut divides a block's rows into runs of at most tileRows query rows.
func (b *Block) cut(r *Rows) {
	queries := make([]query, 0, max(0, b.Hi-b.Lo)+len(b.Streams)*r.Gamma)
	b.tiles = nil
	add := func(row int, q query) {
		queries = append(queries, q)
		if n := len(b.tiles); n > 0 {
			if t := &b.tiles[n-1]; len(t.rows) < tileRows && t.row+len(t.rows) == row {
				t.rows = queries[len(queries)-len(t.rows)-1:]
				t.pos, t.keys = min(t.pos, q.pos), max(t.keys, q.keys)
				return
			}
		}
		b.tiles = append(b.tiles, tile{row: row, rows: queries[len(queries)-1:], pos: q.pos, keys: q.keys})
	}
	if b.MainRow >= 0 {
		i := 0
		for t := b.Lo; t < b.Hi; t++ {
			q := query{pos: t, keys: t + 1}
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
			add(b.StreamRow+i*r.Gamma+j, query{pos: t + j + 1, keys: t + 1, own: j + 1, ownRow: b.StreamRow + i*r.Gamma})
		}
	}
}

// Forward computes attention for every row of r. qkv is [rows, Width], already
// rotated; out is [rows, Query·Dim]; norm [rows, Query, 2] gets the
// maximum of each row's scores and one over the sum of their exponentials beside
// it (the log-sum-exp in two parts, which spares a logarithm). The keys and values of main rows are put into the store
// first; earlier positions must be there already. No score outlives its tile.
func Forward[T kernels.Float](r *Rows, h Heads, qkv []T, kv *KV[T], out, norm []T) {
	Keep(r, h, qkv, kv)
	each(r, h, func(b *Block, head int) {
		p := pass[T]{r: r, h: h, b: b, head: head, qkv: qkv, kv: kv}
		for _, t := range b.tiles {
			p.forward(t, out, norm)
		}
	})
}

// Backward computes dqkv [rows, Width] from dout [rows, Query·Dim] and the
// forward's qkv, out and norm; scores are recomputed tile by tile. It adds to the
// store's accumulators for every position the rows see and reads the complete
// accumulators of the rows' own positions as their key and value gradients, so
// passes over the segments of a sequence must run in reverse. Without
// accumulators main keys and values are constants.
func Backward[T kernels.Float](r *Rows, h Heads, qkv, out, norm, dout []T, kv *KV[T], dqkv []T) {
	each(r, h, func(b *Block, head int) {
		p := pass[T]{r: r, h: h, b: b, head: head, qkv: qkv, kv: kv}
		p.backward(out, norm, dout, dqkv)
	})
}

// Keep copies the keys and values of main rows into the store.
func Keep[T kernels.Float](r *Rows, h Heads, qkv []T, kv *KV[T]) {
	w, n := h.Width(), h.KV*h.Dim
	kernels.Parallel(len(r.Blocks), func(i int) {
		b := &r.Blocks[i]
		if b.MainRow < 0 {
			return
		}
		for t := b.Lo; t < b.Hi; t++ {
			row := qkv[(b.MainRow+t-b.Lo)*w:][:w]
			copy(kv.K[b.Seq][t*n:][:n], row[h.Query*h.Dim:])
			copy(kv.V[b.Seq][t*n:][:n], row[(h.Query+h.KV)*h.Dim:])
		}
	})
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

// weights fills s [rows, γ+keys] with functions of the scores of one query head.
// Row i holds its own streams' in the columns just before column γ and those of
// the tile's main keys from column γ on; unseen columns from γ on become zero. f
// turns the scores that row i sees into what is wanted, in place; the scores of
// keys that its window leaves out are -Inf, of which it must make zero.
func (p *pass[T]) weights(t tile, qh int, s []T, f func(i int, scores []T)) {
	lo, hi := t.sight(p.h)
	g, d, n, ld := p.r.Gamma, p.h.Dim, hi-lo, p.r.Gamma+hi-lo
	kernels.GemmSerial(false, true, len(t.rows), n, d, p.scale(),
		p.qkv[t.row*p.width()+p.queryCol(qh):], p.width(),
		p.kv.K[p.b.Seq][lo*p.kvWidth()+p.head*d:], p.kvWidth(), 0, s[g:], ld)
	for i, q := range t.rows {
		row := s[i*ld : (i+1)*ld]
		qv := p.part(p.qkv, t.row+i, p.queryCol(qh))
		for c := range q.own {
			row[g-q.own+c] = p.scale() * kernels.Dot(qv, p.part(p.qkv, q.ownRow+c, p.keyCol()))
		}
		for c := range p.h.first(q.pos) - lo {
			row[g+c] = T(math.Inf(-1))
		}
		f(i, row[g-q.own:g+q.keys-lo])
		clear(row[g+q.keys-lo:])
	}
}

func (p *pass[T]) forward(t tile, out, norm []T) {
	lo, hi := t.sight(p.h)
	g, d, n, ld := p.r.Gamma, p.h.Dim, hi-lo, p.r.Gamma+hi-lo
	s, release := scratch[T](len(t.rows) * ld)
	defer release()
	ow := p.h.Query * d
	for qh := p.head * p.group(); qh < (p.head+1)*p.group(); qh++ {
		// The soft-max is normalised last, on the head's few columns.
		p.weights(t, qh, s, func(i int, scores []T) {
			top := kernels.Max(scores)
			of := norm[2*((t.row+i)*p.h.Query+qh):]
			of[0], of[1] = top, 1/kernels.ExpSum(scores, top)
		})
		kernels.GemmSerial(false, false, len(t.rows), d, n, 1, s[g:], ld,
			p.kv.V[p.b.Seq][lo*p.kvWidth()+p.head*d:], p.kvWidth(), 0, out[t.row*ow+qh*d:], ow)
		for i, q := range t.rows {
			o := out[(t.row+i)*ow+qh*d:][:d]
			for c := range q.own {
				kernels.Axpy(o, s[i*ld+g-q.own+c], p.part(p.qkv, q.ownRow+c, p.valueCol()))
			}
			kernels.Scale(o, norm[2*((t.row+i)*p.h.Query+qh)+1])
		}
	}
}

func (p *pass[T]) group() int { return p.h.Query / p.h.KV }

func (p *pass[T]) backward(out, norm, dout, dqkv []T) {
	b, d, n := p.b, p.h.Dim, p.kvWidth()
	for row := b.StreamRow; row < b.StreamRow+len(b.Streams)*p.r.Gamma; row++ {
		clear(p.part(dqkv, row, p.keyCol()))
		clear(p.part(dqkv, row, p.valueCol()))
	}
	for _, t := range b.tiles {
		p.backwardTile(t, out, norm, dout, dqkv)
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

func (p *pass[T]) backwardTile(t tile, out, norm, dout, dqkv []T) {
	lo, hi := t.sight(p.h)
	g, d, ld, m, keys := p.r.Gamma, p.h.Dim, p.r.Gamma+hi-lo, len(t.rows), hi-lo
	buf, release := scratch[T](2 * m * ld)
	defer release()
	s, ds := buf[:m*ld], buf[m*ld:]
	ow, w, n := p.h.Query*d, p.width(), p.kvWidth()
	at := lo*n + p.head*d // of the first key in sight
	k, v := p.kv.K[p.b.Seq][at:], p.kv.V[p.b.Seq][at:]
	for qh := p.head * p.group(); qh < (p.head+1)*p.group(); qh++ {
		p.weights(t, qh, s, func(i int, scores []T) {
			of := norm[2*((t.row+i)*p.h.Query+qh):]
			kernels.ExpSum(scores, of[0])
			kernels.Scale(scores, of[1])
		})
		// dP = dO Vᵀ, then dS = P ∘ (dP − rowsum(dO ∘ O)).
		kernels.GemmSerial(false, true, m, keys, d, 1, dout[t.row*ow+qh*d:], ow, v, n, 0, ds[g:], ld)
		for i, q := range t.rows {
			do := dout[(t.row+i)*ow+qh*d:][:d]
			delta := kernels.Dot(do, out[(t.row+i)*ow+qh*d:][:d])
			pr, dr := s[i*ld:(i+1)*ld], ds[i*ld:(i+1)*ld]
			for c := range q.own {
				col := g - q.own + c
				dr[col] = kernels.Dot(do, p.part(p.qkv, q.ownRow+c, p.valueCol()))
				kernels.Axpy(p.part(dqkv, q.ownRow+c, p.valueCol()), pr[col], do)
			}
			kernels.SoftmaxBackward(dr[g-q.own:], pr[g-q.own:], delta)
		}
		kernels.GemmSerial(false, false, m, d, keys, p.scale(), ds[g:], ld, k, n, 0, dqkv[t.row*w+p.queryCol(qh):], w)
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
		dk, dv := p.kv.DK[p.b.Seq][at:], p.kv.DV[p.b.Seq][at:]
		kernels.GemmSerial(true, false, keys, d, m, p.scale(), ds[g:], ld, p.qkv[t.row*w+p.queryCol(qh):], w, 1, dk, n)
		kernels.GemmSerial(true, false, keys, d, m, 1, s[g:], ld, dout[t.row*ow+qh*d:], ow, 1, dv, n)
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
