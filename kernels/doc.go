// Package kernels is the CPU mathematics of specstream: matrix products, RMS
// and layer norms, rotary positions, SwiGLU and ReLU, soft-max with cross-entropy and the attention
// row of a decoder, in float32 (fast) and float64 (for gradient checks). The
// training back end and the CPU decoding engine share it.
//
// # Storage
//
// Matrices are row-major slices with a leading dimension: element (i, j) of a
// matrix X with leading dimension ldx is x[i*ldx+j].
//
// # Determinism
//
// No result depends on the number of threads. [Packed.MulRows], [RMSNorm],
// [LayerNorm], [AttendRow] and the element-wise functions go further: a row's result does
// not depend on how many rows share the call, so that verifying a draft tree
// in one pass gives bit for bit what decoding token by token gives (the
// lossless promise of Speculative Streaming). Results may differ in the last
// bits between CPU families and between the back ends of [Gemm].
//
// # Back ends
//
// [Gemm] uses OpenBLAS where the system has it (loaded at run time, no cgo)
// with vectors as wide as ours, else micro-kernels in Go assembly for AVX-512
// or AVX2+FMA, else portable Go.
// [Backend] tells which; [Use] and the environment variable SPECSTREAM_BLAS
// choose.
//
// Sizes that do not fit the slices are programming errors and panic with the
// name of the function and the argument.
package kernels

//go:generate go run ./internal/gen

import (
	"fmt"
	"unsafe"
)

// Float is the element type of a matrix: float32 in production, float64 where
// gradients are checked against finite differences.
type Float interface{ ~float32 | ~float64 }

// single returns x as a []float32 when T has 32 bits: the branch is decided at
// compile time and leads to the vector kernels.
func single[T Float](x []T) ([]float32, bool) {
	var t T
	if unsafe.Sizeof(t) != 4 {
		return nil, false
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x)), true
}

// atLeast panics unless a slice holds at least want elements.
func atLeast(function, argument string, have, want int) {
	if have < want {
		panic(fmt.Sprintf("kernels: %s: %s has %d elements, needs %d", function, argument, have, want))
	}
}
