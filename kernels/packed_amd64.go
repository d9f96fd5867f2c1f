package kernels

// packedRows is the kernel of MulRows for the panels [q0, q1) of p.
func packedRows(l level, p *Packed, y []float32, ldy int, x []float32, ldx, rows int, accumulate bool, q0, q1 int) {
	s := tilesFor(l)
	if s == nil {
		packedRowsGo(p, y, ldy, x, ldx, rows, accumulate, q0, q1)
		return
	}
	var beta float32
	if accumulate {
		beta = 1
	}
	panel := packedWidth * p.In
	if rows <= 2 {
		// Several whole panels at once: one row alone has too few sums to
		// keep the FMA units busy.
		whole := min(q1, p.Out/packedWidth)
		if whole > q0 {
			q0 += wideRows(l, rows, whole-q0, p.In, &x[0], ldx, &p.panels[q0*panel], &y[q0*packedWidth], ldy, beta)
		}
	}
	for q := q0; q < q1; q++ {
		// A panel is one tile wide for AVX-512, two for AVX2.
		for j := 0; j < packedWidth; j += 2 * s.lanes {
			first := q*packedWidth + j
			cols := min(2*s.lanes, p.Out-first)
			if cols <= 0 {
				break
			}
			for r := 0; r < rows; {
				h := s.nextHeight(rows - r)
				s.kernel(h, cols)(p.In, &x[r*ldx], ldx, 1, &p.panels[q*panel+j], packedWidth, &y[r*ldy+first], ldy, 1, beta, cols)
				r += h
			}
		}
	}
}
