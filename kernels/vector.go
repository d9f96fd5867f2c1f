package kernels

import "math"

// Dot returns Σ a[i]·b[i] over len(a) elements. The order of summation depends
// on len(a) alone.
func Dot[T Float](a, b []T) T {
	atLeast("Dot", "b", len(b), len(a))
	if x, ok := single(a); ok {
		y, _ := single(b)
		return T(dot32(x, y))
	}
	return dotGo(a, b)
}

// Axpy does y[i] += a·x[i] over len(y) elements.
func Axpy[T Float](y []T, a T, x []T) {
	atLeast("Axpy", "x", len(x), len(y))
	if d, ok := single(y); ok {
		s, _ := single(x)
		axpy32(d, float32(a), s)
		return
	}
	axpyGo(y, a, x)
}

// Scale does x[i] *= a.
func Scale[T Float](x []T, a T) {
	if d, ok := single(x); ok {
		scale32(d, float32(a))
		return
	}
	scaleGo(x, a)
}

// SumSquares returns Σ x[i]², accumulated in float64.
func SumSquares[T Float](x []T) float64 {
	if d, ok := single(x); ok {
		return sumSquares32(d)
	}
	return sumSquaresGo(x)
}

// Exp32 returns exp(x), correctly rounded but for rare last-bit cases.
func Exp32(x float32) float32 { return float32(math.Exp(float64(x))) }

// ExpInPlace replaces every x[i] by exp(x[i]); the relative error of the
// float32 vector version is below 2e-7.
func ExpInPlace[T Float](x []T) {
	if d, ok := single(x); ok {
		exp32(d, d)
		return
	}
	expGo(x, x)
}

// maxOf returns the greatest element, -Inf for an empty slice. NaN elements
// may be passed over.
func maxOf[T Float](x []T) T {
	if d, ok := single(x); ok {
		return T(max32(d))
	}
	return maxGo(x)
}

// expSum does x[i] = exp(x[i]-shift) and returns the sum.
func expSum[T Float](x []T, shift T) T {
	if d, ok := single(x); ok {
		return T(expSum32(d, float32(shift)))
	}
	return expSumGo(x, shift)
}
