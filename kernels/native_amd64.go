package kernels

import (
	"runtime"
	"sync"
)

// Blocking of the native product, after Goto: panels of B, [depth, 2·lanes],
// are packed once and shared; a task packs a block of rows of A, which stays in
// its L2 cache while it passes over the panels, each staying in L1.
const (
	// depthBlock cuts k. It is fixed, so that the order in which an element of
	// C is summed depends on k alone.
	depthBlock = 256
	// columnBlock bounds the packed part of B (2 MiB).
	columnBlock = 2048
	// rowsBlock is a task's block of rows of A (96 KiB packed).
	rowsBlock = 96
	// Packing pays when a packed element is used often enough.
	packAFrom = 8  // panels of B
	packBFrom = 48 // rows of C
)

// scratch is a reusable packing buffer, aligned to cache lines.
type scratch struct{ memory, data []float32 }

var scratchPool = sync.Pool{New: func() any { return new(scratch) }}

// getScratch returns a buffer of n elements with unspecified contents; give it
// back with scratchPool.Put.
func getScratch(n int) *scratch {
	s := scratchPool.Get().(*scratch)
	if len(s.data) < n {
		s.memory, s.data = alignedFloats(n)
	}
	return s
}

// operandB is a block of op(B) as the micro-kernel reads it: panel q starts at
// data[q*panel], its rows are stride apart. The last panel may lie apart.
type operandB struct {
	data, last    []float32
	panel, stride int
	lastStride    int
}

// nativeProduct is one product with its operands.
type nativeProduct struct {
	tiles          *tileSet
	parallel       bool
	transA, transB bool
	m, n, k        int
	alpha, beta    float32
	a, b, c        []float32
	lda, ldb, ldc  int
}

func nativeGemm(l level, parallel, transA, transB bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	p := nativeProduct{
		tiles: tilesFor(l), parallel: parallel && m*n*k >= parallelWork && runtime.GOMAXPROCS(0) > 1,
		transA: transA, transB: transB, m: m, n: n, k: k, alpha: alpha, beta: beta,
		a: a, b: b, c: c, lda: lda, ldb: ldb, ldc: ldc,
	}
	for p0 := 0; p0 < k; p0 += depthBlock {
		for j0 := 0; j0 < n; j0 += columnBlock {
			p.block(p0, min(depthBlock, k-p0), j0, min(columnBlock, n-j0))
		}
		p.beta = 1
	}
}

// block adds the contribution of depth [p0, p0+depth) to columns [j0, j0+cols).
func (p *nativeProduct) block(p0, depth, j0, cols int) {
	width := 2 * p.tiles.lanes
	panels := (cols + width - 1) / width
	var buffer *scratch
	var b operandB
	if p.transB || p.m >= packBFrom {
		buffer = getScratch(panels * width * depth)
		b = operandB{data: buffer.data, panel: width * depth, stride: width, last: buffer.data[(panels-1)*width*depth:], lastStride: width}
		if p.parallel {
			shared, data := *p, buffer.data // what is captured moves to the heap: spare the serial product that
			ParallelRows(panels, 4, func(q0, q1 int) { shared.packPanels(data, q0, q1, p0, depth, j0, cols) })
		} else {
			p.packPanels(buffer.data, 0, panels, p0, depth, j0, cols)
		}
	} else {
		// Few rows: read B where it lies, but for the partial panel, since
		// the kernels load whole vectors.
		b = operandB{data: p.b[p0*p.ldb+j0:], panel: width, stride: p.ldb}
		if tail := cols % width; tail != 0 {
			buffer = getScratch(width * depth)
			b.last, b.lastStride = buffer.data, width
			p.packB(buffer.data[:width*depth], p0, depth, j0+cols-tail, tail)
		} else {
			b.last, b.lastStride = b.data[(panels-1)*width:], p.ldb
		}
	}
	if p.parallel {
		p.tasks(b, panels, p0, depth, j0, cols)
	} else {
		for i0 := 0; i0 < p.m; i0 += rowsBlock {
			p.rows(&b, i0, min(rowsBlock, p.m-i0), 0, panels, panels, p0, depth, j0, cols)
		}
	}
	if buffer != nil {
		scratchPool.Put(buffer)
	}
}

// tasks runs the block over the cores.
func (p *nativeProduct) tasks(b operandB, panels, p0, depth, j0, cols int) {
	shared := *p
	rowTasks := (p.m + rowsBlock - 1) / rowsBlock
	// Few rows: cut the columns too, into pieces of some 10 µs or more.
	span := panels
	least := max(1, parallelWork*2/(min(p.m, rowsBlock)*depth*2*p.tiles.lanes))
	for rowTasks*((panels+span-1)/span) < 4*runtime.GOMAXPROCS(0) && span > least {
		span = max(least, span/2)
	}
	columnTasks := (panels + span - 1) / span
	Parallel(rowTasks*columnTasks, func(t int) {
		i0, q0 := t/columnTasks*rowsBlock, t%columnTasks*span
		shared.rows(&b, i0, min(rowsBlock, shared.m-i0), q0, min(panels, q0+span), panels, p0, depth, j0, cols)
	})
}

// packPanels packs the panels [q0, q1) of a block of op(B) into dst.
func (p *nativeProduct) packPanels(dst []float32, q0, q1, p0, depth, j0, cols int) {
	width := 2 * p.tiles.lanes
	for q := q0; q < q1; q++ {
		p.packB(dst[q*width*depth:(q+1)*width*depth], p0, depth, j0+q*width, min(width, cols-q*width))
	}
}

// packB writes a panel of op(B): dst[q*width+j] = op(B)[p0+q, j0+j] for
// j < cols. Columns beyond hold ordinary numbers whose products are dropped.
func (p *nativeProduct) packB(dst []float32, p0, depth, j0, cols int) {
	lanes := p.tiles.lanes
	width := 2 * lanes
	if p.transB {
		for j := 0; j < cols; j += lanes {
			p.tiles.transpose(&dst[j], width, &p.b[(j0+j)*p.ldb+p0], p.ldb, depth, min(lanes, cols-j), lanes)
		}
		return
	}
	src := p.b[p0*p.ldb+j0:]
	if cols == width {
		p.tiles.copyPanel(&dst[0], &src[0], p.ldb, depth)
		return
	}
	for q := range depth {
		row := dst[q*width : (q+1)*width]
		clear(row[copy(row, src[q*p.ldb:q*p.ldb+cols]):])
	}
}

// rows computes rows [i0, i0+rows) of C over the panels [q0, q1) of B.
func (p *nativeProduct) rows(b *operandB, i0, rows, q0, q1, panels, p0, depth, j0, cols int) {
	s := p.tiles
	width := 2 * s.lanes
	pack := q1-q0 >= packAFrom
	var buffer *scratch
	if pack {
		buffer = getScratch(rows * depth)
		defer scratchPool.Put(buffer)
		for i := 0; i < rows; {
			h := s.nextHeight(rows - i)
			p.packA(buffer.data[i*depth:(i+h)*depth], i0+i, h, p0, depth)
			i += h
		}
	}
	ars, acs := p.lda, 1
	if p.transA {
		ars, acs = 1, p.lda
	}
	for q := q0; q < q1; q++ {
		panelCols := min(width, cols-q*width)
		data, stride := b.last, b.lastStride
		if q < panels-1 {
			data, stride = b.data[q*b.panel:], b.stride
		}
		for i := 0; i < rows; {
			h := s.nextHeight(rows - i)
			out := &p.c[(i0+i)*p.ldc+j0+q*width]
			kernel := s.kernel(h, panelCols)
			if pack {
				kernel(depth, &buffer.data[i*depth], 1, h, &data[0], stride, out, p.ldc, p.alpha, p.beta, panelCols)
			} else {
				kernel(depth, &p.a[(i0+i)*ars+p0*acs], ars, acs, &data[0], stride, out, p.ldc, p.alpha, p.beta, panelCols)
			}
			i += h
		}
	}
}

// packA writes rows [i0, i0+h) of op(A) as dst[q*h+i] = op(A)[i0+i, p0+q].
func (p *nativeProduct) packA(dst []float32, i0, h, p0, depth int) {
	if !p.transA {
		lanes := p.tiles.lanes
		p.tiles.transpose(&dst[0], h, &p.a[i0*p.lda+p0], p.lda, depth, min(h, lanes), min(h, lanes))
		return
	}
	src := p.a[p0*p.lda+i0:]
	if h == 12 {
		for q := range depth {
			*(*[12]float32)(dst[q*12:]) = *(*[12]float32)(src[q*p.lda:])
		}
		return
	}
	for q := range depth {
		copy(dst[q*h:(q+1)*h], src[q*p.lda:q*p.lda+h])
	}
}
