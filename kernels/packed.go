package kernels

import (
	"fmt"
	"unsafe"
)

// packedWidth is the number of outputs of a panel of [Packed], the same for
// every instruction set.
const packedWidth = 32

// Packed is a frozen float32 weight W [Out, In] re-laid for the micro-kernels:
// panels of 32 outputs, each stored [In][32], the last one padded with zeros.
// It is safe for concurrent use.
type Packed struct {
	Out, In int
	panels  []float32
}

// Pack lays out w, row-major [out, in] as a linear layer stores it. w is not
// kept.
func Pack(w []float32, out, in int) *Packed {
	if out < 1 || in < 1 {
		panic(fmt.Sprintf("kernels: Pack: shape [%d, %d]", out, in))
	}
	atLeast("Pack", "w", len(w), out*in)
	count := (out + packedWidth - 1) / packedWidth
	_, data := alignedFloats(count * packedWidth * in)
	p := &Packed{Out: out, In: in, panels: data}
	ParallelRows(count, 8, func(lo, hi int) {
		for q := lo; q < hi; q++ {
			panel := data[q*packedWidth*in : (q+1)*packedWidth*in]
			for j := range min(packedWidth, out-q*packedWidth) {
				row := w[(q*packedWidth+j)*in:][:in]
				for i, v := range row {
					panel[i*packedWidth+j] = v
				}
			}
		}
	})
	return p
}

// Bytes is the memory the packed weight holds.
func (p *Packed) Bytes() int { return 4 * len(p.panels) }

// Outputs beyond this many multiply-adds are cut over the cores.
const packedWork = 1 << 18

// MulRows computes y[r, :Out] = x[r, :In]·Wᵀ for rows r, or adds it to y when
// accumulate is set; ldx and ldy are the leading dimensions. Every element is
// one chain over In from zero, always in the same order (fused multiply-adds
// where the CPU has them), so a row's result is the same bits alone or in any
// batch, at any thread count. y must not overlap x.
func (p *Packed) MulRows(y []float32, ldy int, x []float32, ldx int, rows int, accumulate bool) {
	if rows == 0 {
		return
	}
	if ldx < p.In || ldy < p.Out {
		panic(fmt.Sprintf("kernels: MulRows: leading dimensions ldx=%d ldy=%d for weight [%d, %d]", ldx, ldy, p.Out, p.In))
	}
	atLeast("MulRows", "x", len(x), (rows-1)*ldx+p.In)
	atLeast("MulRows", "y", len(y), (rows-1)*ldy+p.Out)
	l := activeLevel()
	panels := (p.Out + packedWidth - 1) / packedWidth
	if rows*p.Out*p.In < 2*packedWork {
		packedRows(l, p, y, ldy, x, ldx, rows, accumulate, 0, panels)
		return
	}
	// Cut over panels in fours (what the one-row kernel takes at once), then
	// over rows in whole tiles.
	const groupPanels, groupRows = 4, 48
	span := max(groupPanels, packedWork/(min(rows, groupRows)*p.In*packedWidth)/groupPanels*groupPanels)
	columnTasks := (panels + span - 1) / span
	rowTasks := (rows + groupRows - 1) / groupRows
	Parallel(columnTasks*rowTasks, func(t int) {
		r0, q0 := t/columnTasks*groupRows, t%columnTasks*span
		packedRows(l, p, y[r0*ldy:], ldy, x[r0*ldx:], ldx, min(groupRows, rows-r0), accumulate, q0, min(panels, q0+span))
	})
}

// packedRowsGo is the portable kernel of MulRows for panels [q0, q1).
func packedRowsGo(p *Packed, y []float32, ldy int, x []float32, ldx, rows int, accumulate bool, q0, q1 int) {
	for q := q0; q < q1; q++ {
		panel := p.panels[q*packedWidth*p.In : (q+1)*packedWidth*p.In]
		cols := min(packedWidth, p.Out-q*packedWidth)
		for r := range rows {
			var acc [packedWidth]float32
			for i, v := range x[r*ldx : r*ldx+p.In] {
				w := (*[packedWidth]float32)(panel[i*packedWidth:])
				for j := range acc {
					acc[j] += float32(v * w[j])
				}
			}
			out := y[r*ldy+q*packedWidth:][:cols]
			for j := range out {
				if accumulate {
					out[j] += acc[j]
				} else {
					out[j] = acc[j]
				}
			}
		}
	}
}

// alignedFloats allocates n float32 starting on a cache line (64 bytes): vector
// loads that straddle two lines cost twice.
func alignedFloats(n int) (memory, data []float32) {
	memory = make([]float32, n+15)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(memory)))&63) / 4
	return memory, memory[skip : skip+n]
}
