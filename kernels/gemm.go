package kernels

import (
	"fmt"
	"unsafe"
)

// Gemm computes C = alpha·op(A)·op(B) + beta·C over all cores, where op(A) is
// [m, k] and op(B) is [k, n], each stored transposed when its flag is set, and
// C is [m, n]. lda, ldb and ldc are the leading dimensions of the matrices as
// stored. With beta == 0 C is overwritten without being read. The result does
// not depend on the number of threads.
func Gemm[T Float](transA, transB bool, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) {
	gemm(true, transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// GemmSerial is [Gemm] on the calling goroutine alone, for the bodies of
// [Parallel].
func GemmSerial[T Float](transA, transB bool, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) {
	gemm(false, transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

func gemm[T Float](parallel, transA, transB bool, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) {
	if m < 0 || n < 0 || k < 0 {
		panic(fmt.Sprintf("kernels: Gemm: negative size m=%d n=%d k=%d", m, n, k))
	}
	if m == 0 || n == 0 {
		return
	}
	checkMatrix("C", len(c), m, n, ldc)
	if k == 0 || alpha == 0 {
		scaleMatrix(m, n, beta, c, ldc)
		return
	}
	if transA {
		checkMatrix("A", len(a), k, m, lda)
	} else {
		checkMatrix("A", len(a), m, k, lda)
	}
	if transB {
		checkMatrix("B", len(b), n, k, ldb)
	} else {
		checkMatrix("B", len(b), k, n, ldb)
	}
	back := current()
	switch {
	case back.blas != nil:
		back.blas.gemm(parallel, product{
			transA: transA, transB: transB, m: m, n: n, k: k, lda: lda, ldb: ldb, ldc: ldc, double: unsafe.Sizeof(alpha) == 8,
			a: unsafe.Pointer(unsafe.SliceData(a)), b: unsafe.Pointer(unsafe.SliceData(b)), c: unsafe.Pointer(unsafe.SliceData(c)),
			alpha: float64(alpha), beta: float64(beta),
		})
		return
	case back.level > levelGo:
		if sa, ok := single(a); ok {
			sb, _ := single(b)
			sc, _ := single(c)
			nativeGemm(back.level, parallel, transA, transB, m, n, k, float32(alpha), sa, lda, sb, ldb, float32(beta), sc, ldc)
			return
		}
	}
	goGemm(parallel, transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// checkMatrix panics unless a [rows, cols] matrix with leading dimension ld
// fits into have elements.
func checkMatrix(name string, have, rows, cols, ld int) {
	if ld < cols {
		panic(fmt.Sprintf("kernels: Gemm: leading dimension %d of %s is below its %d columns", ld, name, cols))
	}
	atLeast("Gemm", name, have, (rows-1)*ld+cols)
}

// scaleMatrix does C *= beta; beta == 0 clears, NaN included.
func scaleMatrix[T Float](m, n int, beta T, c []T, ldc int) {
	for i := range m {
		row := c[i*ldc : i*ldc+n]
		switch beta {
		case 0:
			clear(row)
		case 1:
		default:
			Scale(row, beta)
		}
	}
}

// product describes one matrix product by addresses, so that the float32 and
// float64 entry points of a BLAS share their tiling.
type product struct {
	transA, transB bool
	m, n, k        int
	lda, ldb, ldc  int
	double         bool
	a, b, c        unsafe.Pointer
	alpha, beta    float64
}

// at returns the tile of the product for rows i0.. and columns j0.. of C.
func (p product) at(i0, rows, j0, cols int) product {
	size := 4
	if p.double {
		size = 8
	}
	rowA, colB := p.lda, 1
	if p.transA {
		rowA = 1
	}
	if p.transB {
		colB = p.ldb
	}
	p.m, p.n = rows, cols
	p.a = unsafe.Add(p.a, i0*rowA*size)
	p.b = unsafe.Add(p.b, j0*colB*size)
	p.c = unsafe.Add(p.c, (i0*p.ldc+j0)*size)
	return p
}

// Work below this number of multiply-adds stays on one core: it takes less
// time than waking another.
const parallelWork = 1 << 18

// goGemm is the portable product. Each row of op(A) is gathered once and scaled
// by alpha; then every element of C is one chain over k.
func goGemm[T Float](parallel, transA, transB bool, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) {
	rows := func(lo, hi int) {
		x := make([]T, k)
		for i := lo; i < hi; i++ {
			if transA {
				for p := range x {
					x[p] = alpha * a[p*lda+i]
				}
			} else {
				for p, v := range a[i*lda : i*lda+k] {
					x[p] = alpha * v
				}
			}
			out := c[i*ldc : i*ldc+n]
			if transB {
				goRowDot(out, x, b, ldb, beta)
			} else {
				goRowAxpy(out, x, b, ldb, beta)
			}
		}
	}
	if !parallel || m*n*k < parallelWork {
		rows(0, m)
		return
	}
	ParallelRows(m, max(1, min(64, parallelWork/4/(n*k+1))), rows)
}

// goRowAxpy does out = x·B + beta·out for B [k, n], four rows of B at a time.
func goRowAxpy[T Float](out, x, b []T, ldb int, beta T) {
	switch beta {
	case 0:
		clear(out)
	case 1:
	default:
		for j := range out {
			out[j] *= beta
		}
	}
	n := len(out)
	p := 0
	for ; p+4 <= len(x); p += 4 {
		x0, x1, x2, x3 := x[p], x[p+1], x[p+2], x[p+3]
		b0, b1, b2, b3 := b[p*ldb:][:n], b[(p+1)*ldb:][:n], b[(p+2)*ldb:][:n], b[(p+3)*ldb:][:n]
		for j := range out {
			out[j] = out[j] + T(x0*b0[j]) + T(x1*b1[j]) + T(x2*b2[j]) + T(x3*b3[j])
		}
	}
	for ; p < len(x); p++ {
		axpyGo(out, x[p], b[p*ldb:])
	}
}

// goRowDot does out = x·Bᵀ + beta·out for B stored [n, k], four rows at a time.
func goRowDot[T Float](out, x, b []T, ldb int, beta T) {
	put := func(j int, sum T) {
		if beta == 0 {
			out[j] = sum
		} else {
			out[j] = T(beta*out[j]) + sum
		}
	}
	k, j := len(x), 0
	for ; j+4 <= len(out); j += 4 {
		b0, b1, b2, b3 := b[j*ldb:][:k], b[(j+1)*ldb:][:k], b[(j+2)*ldb:][:k], b[(j+3)*ldb:][:k]
		var s0, s1, s2, s3 T
		for p, v := range x {
			s0 += T(v * b0[p])
			s1 += T(v * b1[p])
			s2 += T(v * b2[p])
			s3 += T(v * b3[p])
		}
		put(j, s0)
		put(j+1, s1)
		put(j+2, s2)
		put(j+3, s3)
	}
	for ; j < len(out); j++ {
		var s T
		for p, v := range x {
			s += T(v * b[j*ldb+p])
		}
		put(j, s)
	}
}
