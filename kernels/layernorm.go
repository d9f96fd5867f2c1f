package kernels

// LayerNorm normalises rows of width h: y = (x-mean)·inv·w + b with
// inv = 1/sqrt(variance+eps) a row, the variance the mean square deviation. x and
// y are [rows, h], w and b [h]; stats [rows, 2], when not nil, receives mean and
// inv of each row for the backward pass. y may be x. A row's result depends on that
// row alone.
func LayerNorm[T Float](y, x, w, b []T, rows, h int, eps T, stats []T) {
	atLeast("LayerNorm", "y", len(y), rows*h)
	atLeast("LayerNorm", "x", len(x), rows*h)
	atLeast("LayerNorm", "w", len(w), h)
	atLeast("LayerNorm", "b", len(b), h)
	if stats != nil {
		atLeast("LayerNorm", "stats", len(stats), 2*rows)
	}
	w, b = w[:h], b[:h]
	ParallelRows(rows, rowBlock(2*h), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			in, out := x[r*h:(r+1)*h], y[r*h:(r+1)*h]
			m, inv := layerNormGo(out, in, w, b, float64(eps))
			if stats != nil {
				stats[2*r], stats[2*r+1] = m, inv
			}
		}
	})
}

// LayerNormBackward computes the gradient of [LayerNorm] with respect to x. With
// n = (x-mean)·inv and g = dy∘w,
//
//	dx = inv·(g - mean(g) - n·mean(g∘n)),
//
// from the saved stats [rows, 2]; with accumulate it is added to dx. dx may be dy.
func LayerNormBackward[T Float](dx, dy, x, w, stats []T, rows, h int, accumulate bool) {
	atLeast("LayerNormBackward", "dx", len(dx), rows*h)
	atLeast("LayerNormBackward", "dy", len(dy), rows*h)
	atLeast("LayerNormBackward", "x", len(x), rows*h)
	atLeast("LayerNormBackward", "w", len(w), h)
	atLeast("LayerNormBackward", "stats", len(stats), 2*rows)
	w = w[:h]
	ParallelRows(rows, rowBlock(2*h), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			d, in, out := dy[r*h:(r+1)*h], x[r*h:(r+1)*h], dx[r*h:(r+1)*h]
			layerNormBackGo(out, d, w, in, stats[2*r], stats[2*r+1], accumulate)
		}
	})
}
