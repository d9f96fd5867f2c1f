package kernels

import "math"

// RMSNorm normalises rows of width h (Llama's norm): y = x·inv·w with
// inv = 1/sqrt(mean(x²)+eps) a row. x and y are [rows, h], w is [h]; inv, when
// not nil, receives the factor of each row for the backward pass. y may be x.
// A row's result depends on that row alone.
func RMSNorm[T Float](y, x, w []T, rows, h int, eps T, inv []T) {
	atLeast("RMSNorm", "y", len(y), rows*h)
	atLeast("RMSNorm", "x", len(x), rows*h)
	atLeast("RMSNorm", "w", len(w), h)
	if inv != nil {
		atLeast("RMSNorm", "inv", len(inv), rows)
	}
	ParallelRows(rows, rowBlock(h), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			in := x[r*h : (r+1)*h]
			factor := T(1 / math.Sqrt(SumSquares(in)/float64(h)+float64(eps)))
			if inv != nil {
				inv[r] = factor
			}
			mulScale(y[r*h:(r+1)*h], in, w, factor)
		}
	})
}

// RMSNormBackward computes the gradient of [RMSNorm] with respect to x,
//
//	dx = inv·(dy∘w) - x·inv³·Σ(dy∘w∘x)/h,
//
// from the saved inv [rows]; with accumulate it is added to dx. dx may be dy.
func RMSNormBackward[T Float](dx, dy, x, w, inv []T, rows, h int, accumulate bool) {
	atLeast("RMSNormBackward", "dx", len(dx), rows*h)
	atLeast("RMSNormBackward", "dy", len(dy), rows*h)
	atLeast("RMSNormBackward", "x", len(x), rows*h)
	atLeast("RMSNormBackward", "w", len(w), h)
	atLeast("RMSNormBackward", "inv", len(inv), rows)
	ParallelRows(rows, rowBlock(2*h), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			d, in, out := dy[r*h:(r+1)*h], x[r*h:(r+1)*h], dx[r*h:(r+1)*h]
			f := inv[r]
			coef := f * f * f * dot3(d, w[:h], in) / T(h)
			normBack(out, d, w, in, f, coef, accumulate)
		}
	})
}

// RMSNormWeightGrad adds the gradient of [RMSNorm] with respect to w,
// dw[j] += Σ_r dy[r,j]·x[r,j]·inv[r], rows in ascending order.
func RMSNormWeightGrad[T Float](dw, dy, x, inv []T, rows, h int) {
	atLeast("RMSNormWeightGrad", "dw", len(dw), h)
	atLeast("RMSNormWeightGrad", "dy", len(dy), rows*h)
	atLeast("RMSNormWeightGrad", "x", len(x), rows*h)
	atLeast("RMSNormWeightGrad", "inv", len(inv), rows)
	// Cut by columns, in whole cache lines, so that each sum has one owner.
	ParallelRows(h, max(64, rowBlock(rows)/64*64), func(lo, hi int) {
		for r := range rows {
			mulAdd(dw[lo:hi], dy[r*h+lo:r*h+hi], x[r*h+lo:r*h+hi], inv[r])
		}
	})
}

// mulScale does y = x·a·w.
func mulScale[T Float](y, x, w []T, a T) {
	if d, ok := single(y); ok {
		s, _ := single(x)
		g, _ := single(w)
		mulScale32(d, s, g, float32(a))
		return
	}
	mulScaleGo(y, x, w, a)
}

// mulAdd does y += x·a·w.
func mulAdd[T Float](y, x, w []T, a T) {
	if d, ok := single(y); ok {
		s, _ := single(x)
		g, _ := single(w)
		mulAdd32(d, s, g, float32(a))
		return
	}
	mulAddGo(y, x, w, a)
}

// dot3 returns Σ a[i]·b[i]·c[i].
func dot3[T Float](a, b, c []T) T {
	if x, ok := single(a); ok {
		y, _ := single(b)
		z, _ := single(c)
		return T(dot3f32(x, y, z))
	}
	return dot3Go(a, b, c)
}

// normBack does dx = inv·dy·w - coef·x, or += with add.
func normBack[T Float](dx, dy, w, x []T, inv, coef T, add bool) {
	if d, ok := single(dx); ok {
		g, _ := single(dy)
		s, _ := single(w)
		in, _ := single(x)
		normBack32(d, g, s, in, float32(inv), float32(coef), add)
		return
	}
	normBackGo(dx, dy, w, x, inv, coef, add)
}
